import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { EventStreamCodec } from '@smithy/eventstream-codec';
import type { Scope } from '../running-program.ts';
import { type Behaviour, startScriptedUpstream } from '../scripted-upstream.ts';
import { type RunningCompletions, startCompletions } from './start-completions.ts';

/** One upstream that plays whatever a test scripts, reachable as an API of every dialect. */
export interface DialectUpstreams {
  readonly completions: RunningCompletions;
  script(...behaviours: Behaviour[]): void;
  readonly requests: { readonly json: Record<string, unknown>; readonly path: string }[];
}

export type TestedDialect = 'openai' | 'anthropic' | 'google' | 'bedrock' | 'cohere';

/** A model of each dialect. */
export const UPSTREAM_MODELS: Readonly<Record<TestedDialect, string>> = {
  openai: 'small',
  anthropic: 'claude-sonnet-4-5',
  google: 'gemini-3-pro-preview',
  bedrock: 'anthropic.claude-sonnet-4-5',
  cohere: 'command-a-reasoning',
};

export const DIALECTS = Object.keys(UPSTREAM_MODELS) as readonly TestedDialect[];

export async function startDialectUpstreams(scope: Scope): Promise<DialectUpstreams> {
  const upstream = await startScriptedUpstream(scope);
  const completions = await startCompletions(scope, {
    settings: {
      apis: Object.fromEntries(
        DIALECTS.map((dialect) => [
          `lab-${dialect}`,
          { dialect, base_url: dialect === 'bedrock' ? upstream.origin : upstream.url, api_key: `key-of-${dialect}` },
        ]),
      ),
    },
  });
  return { completions, script: upstream.script, requests: upstream.requests };
}

const codec = new EventStreamCodec(
  (bytes) => Buffer.from(bytes as Uint8Array).toString('utf8'),
  (text) => Buffer.from(text, 'utf8'),
);

/** A frame of AWS's event stream. */
export function frameOf(event: string, body: object | string, kind = 'event'): Buffer {
  const type = kind === 'exception' ? ':exception-type' : ':event-type';
  const headers = {
    ':message-type': { type: 'string' as const, value: kind },
    [type]: { type: 'string' as const, value: event },
    ':content-type': { type: 'string' as const, value: 'application/json' },
  };
  return Buffer.from(
    codec.encode({ headers, body: Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)) }),
  );
}

/** One event as the upstream of a dialect sends it. */
export function wireEvent(dialect: TestedDialect, data: object | string, event?: string): Buffer {
  const text = typeof data === 'string' ? data : JSON.stringify(data);
  if (dialect === 'bedrock') {
    const [only = ''] = typeof data === 'string' ? [] : Object.keys(data);
    const inner = typeof data === 'string' ? data : (data as Record<string, object>)[only];
    return event === undefined ? frameOf(only, inner ?? {}) : frameOf(event, data);
  }
  const name = event ?? (typeof data === 'string' ? undefined : (data as { type?: string }).type);
  const named = dialect === 'anthropic' || dialect === 'cohere' || event !== undefined;
  return Buffer.from(`${named && name !== undefined ? `event: ${name}\n` : ''}data: ${text}\n\n`);
}

/** How each ingress asks for the same thing. */
export const INGRESSES = {
  chat: { path: '/v1/chat/completions', body: { messages: [{ role: 'user', content: 'Hello' }] } },
  messages: { path: '/v1/messages', body: { max_tokens: 1000, messages: [{ role: 'user', content: 'Hello' }] } },
  responses: { path: '/v1/responses', body: { input: 'Hello' } },
  text: { path: '/v1/completions', body: { prompt: 'Hello' } },
  gemini: { path: '/v1beta/models', body: { contents: [{ parts: [{ text: 'Hello' }] }] } },
  geminiArray: { path: '/v1beta/models', body: { contents: [{ parts: [{ text: 'Hello' }] }] } },
} as const;

export type Ingress = keyof typeof INGRESSES;

let calls = 0;

/** Each call names a model of its own, so that no failure before it keeps a target out. */
export function askThrough(
  { completions }: DialectUpstreams,
  ingress: Ingress,
  dialect: TestedDialect,
  more: { readonly stream?: boolean } = {},
): Promise<Response> {
  const { path, body } = INGRESSES[ingress];
  calls += 1;
  const model = `lab-${dialect}/${UPSTREAM_MODELS[dialect]}-x${calls}`;
  if (ingress !== 'gemini' && ingress !== 'geminiArray') return completions.post(path, { ...body, model, ...more });
  const { stream = false, ...fields } = more;
  const operation = stream ? `streamGenerateContent${ingress === 'gemini' ? '?alt=sse' : ''}` : 'generateContent';
  return completions.post(`${path}/${model}:${operation}`, { ...body, ...fields });
}

/** The folder with recorded answers of real providers; undefined when it is not there. */
export function recordedFolder(): string | undefined {
  const folder = resolve(process.env.TRESTLE_RECORDED ?? '../shared/recorded');
  if (existsSync(folder)) return folder;
  const beside = resolve('../../shared/recorded');
  return existsSync(beside) ? beside : undefined;
}

export interface Recording {
  readonly folder: string;
  readonly file: string;
  readonly stream: boolean;
  readonly disordered?: boolean;
  readonly ours?: readonly string[];
  readonly want: {
    readonly text: string;
    readonly reasoning: string;
    readonly calls: readonly string[];
    readonly finish: string;
    readonly usage?: Readonly<Record<string, number>>;
  };
}

const DIALECT_OF_FOLDER: Readonly<Record<string, TestedDialect>> = {
  'amazon-bedrock': 'bedrock',
  anthropic: 'anthropic',
  cohere: 'cohere',
  google: 'google',
};

export function dialectOf({ folder }: Pick<Recording, 'folder'>): TestedDialect {
  return DIALECT_OF_FOLDER[folder] ?? 'openai';
}

export function recordings(folder: string): readonly Recording[] {
  return (JSON.parse(readFileSync(`${folder}/expected.json`, 'utf8')) as { fixtures: Recording[] }).fixtures;
}

/** The bytes that the provider sent, framed as it sends them. */
export function recordedEvents(folder: string, recording: Recording): readonly Buffer[] {
  const text = readFileSync(`${folder}/${recording.folder}/${recording.file}`, 'utf8');
  if (recording.file.endsWith('.sse')) return [Buffer.from(text)];
  const dialect = dialectOf(recording);
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  if (dialect === 'google') return lines.map((line) => Buffer.from(`data: ${line}\r\n\r\n`));
  const events = lines.map((line) => wireEvent(dialect, JSON.parse(line)));
  return dialect === 'openai' ? [...events, Buffer.from('data: [DONE]\n\n')] : events;
}

export function recordedBody(folder: string, { folder: inner, file }: Recording): string {
  return readFileSync(`${folder}/${inner}/${file}`, 'utf8');
}

/** `<length>:<first 16 hex of sha256>`, as the recordings note texts. */
export function digestOf(text: string): string {
  return `${text.length}:${createHash('sha256').update(text).digest('hex').slice(0, 16)}`;
}
