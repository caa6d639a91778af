import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

/** The tool of each agent that runs a command, and how that tool is called. */
const SHELLS: Readonly<Record<string, (command: string) => object>> = {
  run_command: (command) => ({ command: 'sh', args: ['-c', command] }),
  exec_command: (command) => ({ cmd: command }),
  Bash: (command) => ({ command, description: 'as asked' }),
};
/** What a call uses: with the prices of the story, a cent. */
const SMALL = { prompt_tokens: 1000, completion_tokens: 100, total_tokens: 1100 };
/** Ten cents. */
const LARGE = { prompt_tokens: 10_000, completion_tokens: 1000, total_tokens: 11_000 };
/** In USD for a token. */
export const PRICES = { input: 0.0000099, output: 0.000001 };
/** The beginning of an answer that does not end. */
export const BEGINNING = 'I have begun';

interface Message {
  readonly role: string;
  readonly content?: string | readonly { readonly text?: string }[] | null;
}

interface Request {
  readonly model: string;
  readonly stream?: boolean;
  readonly messages: readonly Message[];
  readonly tools?: readonly { readonly function?: { readonly name: string } }[];
}

interface Answer {
  readonly text: string;
  readonly call?: { readonly name: string; readonly arguments: string };
  readonly usage: typeof SMALL;
  readonly isEndless?: boolean;
}

export interface StoryModel {
  readonly url: string;
  /** What all answers that were complete have cost, in cents. */
  cents(): number;
  stop(): void;
}

/**
 * A model API on this machine, in place of one that costs money. It follows the last prompt: `RUN command` calls the tool of the
 * agent that runs commands, `REPORT` is a long answer, `WAIT` begins an answer and does not end it, and `RECALL` says how many prompts it has seen.
 */
export async function startStoryModel(): Promise<StoryModel> {
  let cents = 0;
  const server = createServer((request, response) => {
    const reply = async () => {
      const asked = (await json(request)) as Request;
      const answer = answerTo(asked);
      // Counted before the last byte: the caller may ask for the sum as soon as it has it.
      if (answer.isEndless !== true) cents += answer.usage.total_tokens / SMALL.total_tokens;
      if (asked.stream === true) stream(response, asked.model, answer);
      else send(response, asked.model, answer);
    };
    reply().catch((error: unknown) => response.destroy(error as Error));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/v1`,
    cents: () => cents,
    stop() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** Agents add texts of their own to what the user says, so the instruction is looked for at the beginning of each line. */
const INSTRUCTION = /^(RUN|WAIT|REPORT|RECALL)\b ?(.*)$/m;

function answerTo({ messages, tools = [] }: Request): Answer {
  const isInstruction = (message: Message) => message.role === 'user' && INSTRUCTION.test(textOf(message));
  const at = messages.findLastIndex(isInstruction);
  const [, verb = '', rest = ''] = INSTRUCTION.exec(textOf(messages[at])) ?? [];
  const results = messages.slice(at + 1).filter(({ role }) => role === 'tool');
  const shell = tools.map((tool) => tool.function?.name ?? '').find((name) => Object.hasOwn(SHELLS, name));
  // Agents also ask for titles and summaries, without tools.
  if (verb === 'RUN' && shell !== undefined) {
    if (results.length > 0) return { text: `Done. ${results.map(textOf).join(' ')}`, usage: SMALL };
    return { text: 'I run it.', call: { name: shell, arguments: JSON.stringify(SHELLS[shell]?.(rest)) }, usage: SMALL };
  }
  if (verb === 'WAIT') return { text: BEGINNING, usage: SMALL, isEndless: true };
  if (verb === 'REPORT') return { text: 'A long report.', usage: LARGE };
  const prompts = messages.filter(isInstruction).length;
  return { text: verb === 'RECALL' ? `I know of ${prompts} prompts.` : 'A title', usage: SMALL };
}

function textOf({ content }: Partial<Message> = {}): string {
  return typeof content === 'string' ? content : (content ?? []).map(({ text = '' }) => text).join('');
}

function toolCallsOf({ call }: Answer) {
  return call === undefined
    ? {}
    : { tool_calls: [{ index: 0, id: `call_${Date.now()}`, type: 'function', function: call }] };
}

function send(response: ServerResponse, model: string, answer: Answer): void {
  const message = { role: 'assistant', content: answer.text, ...toolCallsOf(answer) };
  const choices = [{ index: 0, message, finish_reason: answer.call === undefined ? 'stop' : 'tool_calls' }];
  const body = { id: 'answer', object: 'chat.completion', created: 0, model, choices, usage: answer.usage };
  response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function stream(response: ServerResponse, model: string, answer: Answer): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const write = (choices: readonly object[], more: object = {}) => {
    const chunk = { id: 'answer', object: 'chat.completion.chunk', created: 0, model, choices, ...more };
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  };
  const delta = { role: 'assistant', content: answer.text, ...toolCallsOf(answer) };
  write([{ index: 0, delta, finish_reason: null }]);
  if (answer.isEndless === true) return;
  write([{ index: 0, delta: {}, finish_reason: answer.call === undefined ? 'stop' : 'tool_calls' }]);
  write([], { usage: answer.usage });
  response.end('data: [DONE]\n\n');
}
