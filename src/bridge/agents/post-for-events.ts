import type { Dispatcher } from 'undici';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { parseJson } from '../../platform/json/parse-json.ts';
import type { ForeignError, RequestId } from '../../platform/json-rpc/envelope.ts';
import { asObject, textOf } from './agent-text.ts';

export interface EventRequest {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortSignal;
  /** For the head of the response; connecting has ten seconds of its own. */
  readonly headersTimeoutMs: number;
  /** For each next byte of its body. */
  readonly idleTimeoutMs: number;
  readonly maxEventCharacters: number;
  /** How much of a document is read; a mebibyte unless given. */
  readonly maxDocumentBytes?: number;
  /** Makes the connection; one of undici's own unless given. */
  readonly dispatcher?: Dispatcher;
}

export interface ReceivedEvent {
  readonly id?: string | undefined;
  readonly data: string;
}

/** Either a stream of events, or a document: a refusal, mostly. */
export type EventResponse =
  | { readonly kind: 'events'; readonly events: AsyncIterable<ReceivedEvent> }
  | {
      readonly kind: 'document';
      readonly status: number;
      readonly contentType: string;
      /** In seconds, as the header of that name gives it. */
      readonly retryAfter: number | undefined;
      /** Its beginning. */
      readonly text: string;
    };

const MAX_DOCUMENT_BYTES = 1024 * 1024;

/** Posts JSON to an address that answers with events. Redirects are not followed, so that a credential is sent to the configured address only. */
export async function postForEvents(request: EventRequest): Promise<EventResponse> {
  // Loaded by the first use: most starts of the program never get here.
  const { request: send } = await import('undici');
  const { statusCode, headers, body } = await send(request.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'text/event-stream', ...request.headers },
    body: request.body,
    signal: request.signal,
    headersTimeout: request.headersTimeoutMs,
    bodyTimeout: request.idleTimeoutMs,
    ...(request.dispatcher !== undefined && { dispatcher: request.dispatcher }),
  });
  const contentType = String(headers['content-type'] ?? '');
  if (statusCode === 200 && contentType.startsWith('text/event-stream')) {
    return { kind: 'events', events: readEvents(body, request.maxEventCharacters) };
  }
  const retryAfter = Number(headers['retry-after']);
  return {
    kind: 'document',
    status: statusCode,
    contentType,
    retryAfter: Number.isFinite(retryAfter) ? retryAfter : undefined,
    text: await readBeginning(body, request.maxDocumentBytes ?? MAX_DOCUMENT_BYTES),
  };
}

async function* readEvents(body: AsyncIterable<Buffer>, maxCharacters: number): AsyncGenerator<ReceivedEvent> {
  const { createParser } = await import('eventsource-parser');
  const decoder = new TextDecoder();
  let arrived: ReceivedEvent[] = [];
  let isTooLarge = false;
  const parser = createParser({
    onEvent: (event) => arrived.push(event),
    onError(error) {
      if (error.type === 'max-buffer-size-exceeded') isTooLarge = true;
    },
    maxBufferSize: maxCharacters,
  });
  for await (const chunk of body) {
    parser.feed(decoder.decode(chunk, { stream: true }));
    const events = arrived;
    arrived = [];
    yield* events;
    if (isTooLarge) throw new AppError('BODY_TOO_LARGE', { limit: maxCharacters });
  }
}

async function readBeginning(body: AsyncIterable<Buffer>, maxBytes: number): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    size += chunk.length;
    if (size >= maxBytes) break;
  }
  return Buffer.concat(chunks).subarray(0, maxBytes).toString('utf8');
}

/** The code of an error: a runner was away for as long as its turns are kept. */
export const RUNNER_ABSENT = 'RUNNER_ABSENT';

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens at its address',
  ECONNRESET: 'the connection was cut',
  ENOTFOUND: 'its name is not known',
  EAI_AGAIN: 'its name could not be looked up',
  EPIPE: 'the connection was cut',
  BODY_TOO_LARGE: 'it sent too large an event',
  UND_ERR_CONNECT_TIMEOUT: 'it could not be reached in time',
  UND_ERR_HEADERS_TIMEOUT: 'it did not answer in time',
  UND_ERR_BODY_TIMEOUT: 'it fell silent in the middle of the answer',
  UND_ERR_SOCKET: 'the connection was cut',
  [RUNNER_ABSENT]: 'its runner is not connected',
};

/** What went wrong on the network, in words that hold nothing of the request. */
export function networkReason(error: unknown): string {
  const code = errorCode(error);
  return REASONS[code] ?? (code === '' ? 'the connection failed' : `the connection failed with ${code}`);
}

const NOT_CONNECTED: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** True when the request certainly did not get there. */
export function failedToConnect(error: unknown): boolean {
  return NOT_CONNECTED.has(errorCode(error));
}

type JsonObject = Readonly<Record<string, unknown>>;

/** A JSON-RPC call to another bridge. */
export interface BridgeCall extends Omit<EventRequest, 'body'> {
  /** Undefined for a notification. */
  readonly id: RequestId | undefined;
  readonly method: string;
  readonly params: unknown;
  /** What is sent in the place of the call as JSON text, and the headers that belong to it. */
  frame?(text: string): Pick<EventRequest, 'body' | 'headers'>;
  /** The other bridge has accepted the call, and its response may take long. */
  accepted?(): void;
  /** A notification that comes before the response. Resolves when the next one can be taken; undefined: now. */
  notified(method: string, params: unknown, eventId: string | undefined): Promise<void> | undefined;
}

export type BridgeResponse =
  /** The response came without a stream: a refusal, mostly. */
  | Extract<EventResponse, { readonly kind: 'document' }>
  /** The envelope at the end of the stream. */
  | { readonly kind: 'envelope'; readonly message: JsonObject }
  /** The stream ended without an envelope. `isCut`: the connection broke, so the call may go on over there. */
  | { readonly kind: 'broken'; readonly reason: string; readonly isCut: boolean };

/** Sends one call and reads its stream to the end. Throws what the network throws, and what `notified` throws. */
export async function callBridge({ id, method, params, frame, ...call }: BridgeCall): Promise<BridgeResponse> {
  const text = JSON.stringify({ jsonrpc: '2.0', id, method, params });
  const { body, headers } = frame?.(text) ?? { body: text, headers: {} };
  const response = await postForEvents({ ...call, headers: { ...call.headers, ...headers }, body });
  if (response.kind === 'document') return response;
  call.accepted?.();
  for await (const event of response.events) {
    if (event.data === '[DONE]') break;
    const message = readMessage(event.data);
    if (message === undefined) return { kind: 'broken', reason: 'it sent what is not JSON', isCut: false };
    if (typeof message.method !== 'string') return { kind: 'envelope', message };
    await call.notified(message.method, message.params, event.id);
  }
  return { kind: 'broken', reason: 'the connection was cut', isCut: true };
}

/** Undefined for anything that is not a JSON object. */
export function readMessage(text: string): JsonObject | undefined {
  try {
    const value = parseJson(text);
    return typeof value === 'object' && value !== null ? (value as JsonObject) : undefined;
  } catch {
    return undefined;
  }
}

/** The error of an envelope; undefined when it has none. */
export function errorOf(message: JsonObject): ForeignError | undefined {
  if (message.error === undefined || message.error === null) return undefined;
  const { code, message: said, data } = asObject(message.error);
  return { code: Number.isSafeInteger(code) ? Number(code) : -32603, message: textOf(said), data };
}

/** Our own code of an error, such as `SESSION_NOT_FOUND`; empty where the other side gave none. */
export function wordOf(error: ForeignError | undefined): string {
  return textOf(asObject(error?.data).code);
}
