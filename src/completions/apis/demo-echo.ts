import type { ChatRequest, Usage } from '../contract/chat.ts';

export const DEMO_MODEL = 'demo/echo';

export interface EchoAnswer {
  /** The answer in the pieces in which it is streamed; joined they are the whole text. */
  readonly pieces: readonly string[];
  /** `length`: the caller's limit was reached. */
  readonly finishReason: 'stop' | 'length';
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
/** These ask for nothing when they have their usual value. */
const NEUTRAL_VALUES: Readonly<Record<string, unknown>> = { n: 1, parallel_tool_calls: false, tool_choice: 'none' };

/** The model that every machine has: it answers with the last thing the user said. One word is one token. */
export function echo(request: ChatRequest): EchoAnswer {
  const texts = request.messages.map(messageText);
  const lastFromUser = request.messages.findLastIndex((message) => message.role === 'user');
  const all = splitWords(texts[lastFromUser] ?? texts.at(-1) ?? '');
  const pieces = all.slice(0, request.max_completion_tokens ?? request.max_tokens ?? all.length);
  const promptTokens = texts.reduce((count, text) => count + splitWords(text).length, 0);
  return {
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

export function echoDrops(request: ChatRequest): readonly string[] {
  return Object.entries(request)
    .filter(([name, value]) => !KNOWN_FIELDS.has(name) && value !== null && value !== NEUTRAL_VALUES[name])
    .map(([name]) => name);
}

function messageText({ content }: ChatRequest['messages'][number]): string {
  if (typeof content === 'string') return content;
  return (content ?? []).map((part) => part.text ?? '').join('');
}

/** Words with the white space before them, so that nothing is lost when they are joined again. */
function splitWords(text: string): readonly string[] {
  return text.match(/\s*\S+|\s+$/g) ?? [];
}
