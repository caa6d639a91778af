import type { ChatRequest, Usage } from '../contract/chat.ts';

export const DEMO_MODEL = 'demo/echo';
/** Calls a tool when it is asked to, so that agents can be tried without a key. */
const DEMO_AGENT = 'demo/agent';

export interface EchoAnswer {
  readonly model: string;
  /** The answer in the pieces in which it is streamed; joined they are the whole text. */
  readonly pieces: readonly string[];
  /** A tool of the caller's that is to be called after the text. */
  readonly call?: { readonly name: string; readonly arguments: string };
  /** `length`: the caller's limit was reached. */
  readonly finishReason: 'stop' | 'length' | 'tool_calls';
  readonly usage: Usage;
}

/** How the model is to behave: `demo/echo?delay=200&break=3`. */
export interface EchoBehaviour {
  /** Milliseconds before each word. */
  readonly delayMs: number;
  /** Refuses with this status; 0: does not. */
  readonly status: number;
  /** Breaks off after so many words; undefined: does not. */
  readonly breakAfter: number | undefined;
}

const MAX_DELAY_MS = 60_000;

/** What it knows of a request. Everything else is dropped and named. */
const KNOWN_FIELDS: ReadonlySet<string> = new Set([
  ...['model', 'messages', 'stream', 'stream_options', 'max_tokens', 'max_completion_tokens', 'user', 'metadata'],
]);
const TOOL_FIELDS: ReadonlySet<string> = new Set(['tools', 'tool_choice', 'parallel_tool_calls']);
/** These ask for nothing when they have their usual value. */
const NEUTRAL_VALUES: Readonly<Record<string, unknown>> = { n: 1, parallel_tool_calls: false, tool_choice: 'none' };

/** The model that every machine has: it answers with the last thing the user said. One word is one token. */
export function echo(request: ChatRequest): EchoAnswer {
  const lastFromUser = request.messages.findLastIndex((message) => message.role === 'user');
  return saying(request, DEMO_MODEL, messageText(request.messages[lastFromUser] ?? request.messages.at(-1)));
}

/**
 * The model that calls tools: `Write notes.txt about bridges` and `Run ls -l` call the tool for it, where the caller offers that.
 * It tells what a tool answered, and repeats everything else as `demo/echo` does.
 */
export function playAgent(request: ChatRequest): EchoAnswer {
  const last = request.messages.at(-1);
  if (last?.role === 'tool') return saying(request, DEMO_AGENT, `The tool answered: ${messageText(last)}`);
  const call = last?.role === 'user' ? toolFor(request, messageText(last).trim()) : undefined;
  if (call === undefined) return { ...echo(request), model: DEMO_AGENT };
  return { ...saying(request, DEMO_AGENT, ''), call, finishReason: 'tool_calls' };
}

const WRITE = /^write (\S{1,200}) about (\S.{0,500})$/i;
const RUN = /^run (\S.{0,500})$/i;

function toolFor({ tools }: ChatRequest, prompt: string): EchoAnswer['call'] {
  const [, path, topic] = WRITE.exec(prompt) ?? [];
  const [command, ...args] = RUN.exec(prompt)?.[1]?.split(/\s+/) ?? [];
  const name = topic === undefined ? 'run_command' : 'write_file';
  const given = topic === undefined ? { command, args } : { path, content: `About ${topic}.\n` };
  const isOffered = tools?.some((tool) => 'function' in tool && tool.function.name === name);
  if (isOffered !== true || (topic === undefined && command === undefined)) return undefined;
  return { name, arguments: JSON.stringify(given) };
}

function saying(request: ChatRequest, model: string, text: string): EchoAnswer {
  const texts = request.messages.map(messageText);
  const all = splitWords(text);
  const pieces = all.slice(0, request.max_completion_tokens ?? request.max_tokens ?? all.length);
  const promptTokens = texts.reduce((count, text) => count + splitWords(text).length, 0);
  return {
    model,
    pieces,
    finishReason: pieces.length < all.length ? 'length' : 'stop',
    usage: {
      prompt_tokens: promptTokens,
      completion_tokens: pieces.length,
      total_tokens: promptTokens + pieces.length,
    },
  };
}

/** Reads what follows the `?` of the model's name. What it does not know, or cannot be, is left out. */
export function readBehaviour(model: string): EchoBehaviour {
  const mark = model.indexOf('?');
  const options = new URLSearchParams(mark === -1 ? '' : model.slice(mark + 1));
  const number = (name: string) => {
    const text = options.get(name) ?? '';
    return /^\d{1,6}$/.test(text) ? Number(text) : undefined;
  };
  const status = number('status') ?? 0;
  return {
    delayMs: Math.min(number('delay') ?? 0, MAX_DELAY_MS),
    status: status >= 400 && status <= 599 ? status : 0,
    breakAfter: number('break'),
  };
}

/** What a demo model does nothing with. */
export function demoDrops(request: ChatRequest, isAgent: boolean): readonly string[] {
  return Object.entries(request)
    .filter(([name]) => !(isAgent && TOOL_FIELDS.has(name)))
    .filter(([name, value]) => !KNOWN_FIELDS.has(name) && value !== null && value !== NEUTRAL_VALUES[name])
    .map(([name]) => name);
}

function messageText({ content }: Partial<ChatRequest['messages'][number]> = {}): string {
  if (typeof content === 'string') return content;
  return (content ?? []).map((part) => part.text ?? '').join('');
}

/** Words with the white space before them, so that nothing is lost when they are joined again. */
function splitWords(text: string): readonly string[] {
  return text.match(/\s*\S+|\s+$/g) ?? [];
}
