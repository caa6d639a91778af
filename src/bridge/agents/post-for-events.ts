import type { Dispatcher } from 'undici';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';

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
