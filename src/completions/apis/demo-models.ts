import { hash } from 'node:crypto';
import { crc32, deflateSync } from 'node:zlib';
import type { MakeId } from '../../platform/ids/sortable-id.ts';
import type { ChatRequest, Usage } from '../contract/chat.ts';

export const DEMO_API = 'demo';
export const DEMO_MODEL = 'demo/echo';
/** Calls a tool when it is asked to, so that agents can be tried without a key. */
export const DEMO_AGENT = 'demo/agent';

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

/** The demo models besides `demo/echo`, each for one operation, so that every one can be tried without a key. */
export const DEMO_MEDIA = ['image', 'speech', 'transcription', 'moderation', 'rerank'] as const;
const DEMO_NAME = /^(?:echo|agent)(?:\?.{0,200})?$/;
const OTHER_DEMOS: readonly string[] = [...DEMO_MEDIA, 'files', 'batches'];

/** Whether calls to `demo/<name>` are answered. */
export function isDemo(name: string): boolean {
  return DEMO_NAME.test(name) || OTHER_DEMOS.includes(name);
}

const SIZE = 64;

/** A small PNG: bands in colours that depend on the prompt. */
export function demoImage(prompt: string): Buffer {
  const colours = hash('sha256', prompt, 'buffer');
  const rows = Array.from({ length: SIZE }, (_, row) => {
    const at = Math.floor(row / 8) * 3;
    const pixel = colours.subarray(at, at + 3);
    return Buffer.concat([Buffer.from([0]), ...Array.from({ length: SIZE }, () => pixel)]);
  });
  const head = Buffer.alloc(13);
  head.writeUInt32BE(SIZE, 0);
  head.writeUInt32BE(SIZE, 4);
  // Eight bits for each of red, green and blue.
  head.set([8, 2], 8);
  const chunks = [pngChunk('IHDR', head), pngChunk('IDAT', deflateSync(Buffer.concat(rows))), pngChunk('IEND')];
  return Buffer.concat([Buffer.from('89504e470d0a1a0a', 'hex'), ...chunks]);
}

function pngChunk(type: string, data: Buffer = Buffer.alloc(0)): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const frame = Buffer.alloc(8);
  frame.writeUInt32BE(data.length, 0);
  frame.writeUInt32BE(crc32(body), 4);
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)]);
}

const RATE = 8000;
const MAX_WORDS = 50;

/** A short WAV: one tone for each word. */
export function demoSpeech(text: string): Buffer {
  const words = text.trim().split(/\s+/, MAX_WORDS);
  const samples = Buffer.concat(words.map((word) => tone(220 + 20 * Math.min(word.length, 20))));
  const head = Buffer.alloc(44);
  head.write('RIFF', 0);
  head.writeUInt32LE(36 + samples.length, 4);
  head.write('WAVEfmt ', 8);
  head.writeUInt32LE(16, 16);
  // One channel of eight bits without compression.
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(RATE, 24);
  head.writeUInt32LE(RATE, 28);
  head.writeUInt16LE(1, 32);
  head.writeUInt16LE(8, 34);
  head.write('data', 36);
  head.writeUInt32LE(samples.length, 40);
  return Buffer.concat([head, samples]);
}

function tone(hertz: number): Buffer {
  const wave = (_: unknown, at: number) => 128 + Math.round(60 * Math.sin((2 * Math.PI * hertz * at) / RATE));
  return Buffer.from(Uint8Array.from({ length: RATE / 10 }, wave));
}

/** Documents by the share of the query's words that they have. */
export function demoRerank(query: string, documents: readonly unknown[], most = documents.length) {
  const words = new Set(query.toLowerCase().split(/\W+/).filter(Boolean));
  const scored = documents.map((document, index) => {
    const text = typeof document === 'string' ? document : JSON.stringify(document);
    const own = new Set(text.toLowerCase().split(/\W+/));
    const shared = [...words].filter((word) => own.has(word)).length;
    return { index, relevance_score: words.size === 0 ? 0 : shared / words.size };
  });
  return scored.sort((a, b) => b.relevance_score - a.relevance_score || a.index - b.index).slice(0, most);
}

/** The demo API's files and batches, in memory, so that both can be tried without a key. */
export interface DemoStore {
  upload(file: { readonly name: string; readonly purpose: string; readonly bytes: Buffer }): object;
  file(id: string): object | undefined;
  content(id: string): Buffer | undefined;
  deleteFile(id: string): object | undefined;
  /** Runs all lines immediately. Undefined: there is no such file. */
  createBatch(request: DemoBatchRequest): object | undefined;
  batch(id: string): object | undefined;
}

interface DemoBatchRequest {
  readonly input_file_id: string;
  readonly endpoint: string;
  readonly completion_window: string;
  readonly metadata?: Readonly<Record<string, string>> | undefined;
}

/** The largest file. */
export const MAX_DEMO_FILE_BYTES = 1024 * 1024;
/** The oldest go when there are more. */
const MAX_OBJECTS = 200;
const MAX_BYTES = 16 * 1024 * 1024;
const CHAT = '/v1/chat/completions';

export function createDemoStore(makeId: MakeId, now: () => number): DemoStore {
  const files = new Map<string, { readonly info: object; readonly bytes: Buffer }>();
  const batches = new Map<string, object>();
  let size = 0;

  function removeFile(id: string): void {
    size -= files.get(id)?.bytes.length ?? 0;
    files.delete(id);
  }

  function keepFile(name: string, purpose: string, bytes: Buffer): { readonly id: string } {
    const id = makeId('file-');
    const created_at = Math.floor(now() / 1000);
    const info = { id, object: 'file', bytes: bytes.length, created_at, filename: name, purpose, status: 'processed' };
    files.set(id, { info, bytes });
    size += bytes.length;
    for (const oldest of files.keys()) {
      if ((files.size <= MAX_OBJECTS && size <= MAX_BYTES) || oldest === id) break;
      removeFile(oldest);
    }
    return info;
  }

  function answer(line: string): string {
    const { custom_id, body } = JSON.parse(line) as { custom_id?: string; body: ChatRequest };
    const { pieces, finishReason, usage } = echo(body);
    const message = { role: 'assistant', content: pieces.join('') };
    const completion = {
      id: makeId('chatcmpl-'),
      object: 'chat.completion',
      created: Math.floor(now() / 1000),
      model: 'echo',
      choices: [{ index: 0, message, finish_reason: finishReason }],
      usage,
    };
    const response = { status_code: 200, request_id: makeId('req-'), body: completion };
    return JSON.stringify({ id: makeId('batch_req_'), custom_id, response, error: null });
  }

  return {
    upload: ({ name, purpose, bytes }) => keepFile(name, purpose, bytes),
    file: (id) => files.get(id)?.info,
    content: (id) => files.get(id)?.bytes,
    deleteFile(id) {
      if (!files.has(id)) return undefined;
      removeFile(id);
      return { id, object: 'file', deleted: true };
    },
    createBatch(request) {
      const input = files.get(request.input_file_id);
      if (input === undefined) return undefined;
      const lines = input.bytes.toString('utf8').split('\n').filter(Boolean);
      const isChat = request.endpoint === CHAT;
      const output = isChat
        ? keepFile('output.jsonl', 'batch_output', Buffer.from(lines.map(answer).join('\n')))
        : undefined;
      const at = Math.floor(now() / 1000);
      const id = makeId('batch_');
      const counts = { total: lines.length, completed: isChat ? lines.length : 0, failed: isChat ? 0 : lines.length };
      const batch = {
        id,
        object: 'batch',
        ...request,
        status: isChat ? 'completed' : 'failed',
        output_file_id: output?.id ?? null,
        error_file_id: null,
        created_at: at,
        ...(isChat ? { completed_at: at } : { failed_at: at }),
        request_counts: counts,
      };
      batches.set(id, batch);
      for (const oldest of batches.keys()) {
        if (batches.size <= MAX_OBJECTS) break;
        batches.delete(oldest);
      }
      return batch;
    },
    batch: (id) => batches.get(id),
  };
}
