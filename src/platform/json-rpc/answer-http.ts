import { AppError } from '../errors/app-error.ts';
import type { DescribedError } from '../errors/error-table.ts';
import { type Envelope, errorText } from './envelope.ts';
import { createExchange, type ServingOptions } from './exchange.ts';

export interface HttpExchangeOptions<Caller> extends Omit<ServingOptions<Caller>, 'makeRequestId'> {
  readonly envelope: Envelope;
  /** The unparsed body. */
  readonly body: string | Uint8Array;
  /** The HTTP request's own id: all its calls share it. */
  readonly requestId: string;
  /** Aborts when the client goes away. */
  readonly signal?: AbortSignal;
  /** Codes whose HTTP status is that of their row; any other JSON-RPC error travels with 200. */
  readonly codesWithStatus?: ReadonlySet<string>;
}

export interface HttpAnswer {
  readonly status: number;
  /** JSON text; absent with 204. */
  readonly body?: string;
  /** Of a large body. */
  readonly parts?: readonly string[];
  /** Seconds, for the header of that name. */
  readonly retryAfter?: number;
}

/** Receives a streamed response: notifications while the call runs, then one final envelope. */
export interface StreamSink {
  /** The call was taken: the head of the response can be sent. May be called more than once, or not at all. */
  open(): void;
  notification(text: string, eventId?: string | number): void;
  /** `eventId` is that of the last notification; `parts` are those of a large text. */
  final(text: string, eventId?: string | number, parts?: readonly string[]): void;
}

const RETRY_AFTER_SECONDS = 1;
const ALWAYS_WITH_STATUS: ReadonlySet<string> = new Set(['PARSE_ERROR', 'REQUEST_TOO_COMPLEX', 'OVERLOADED']);
const OPENING_BRACKET = 0x5b;
/** White space, and a byte order mark as a character or as its three bytes. */
const BEFORE_JSON: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d, 0xfeff, 0xef, 0xbb, 0xbf]);

/** Answers the body of one HTTP request with one document. What handlers notify has no place in it and is dropped. */
export function answerHttp<Caller>(options: HttpExchangeOptions<Caller>): Promise<HttpAnswer> {
  return new Promise((resolve) => {
    serve(options, undefined, (text, error, parts) => {
      const answer = toHttpAnswer(options, text, error);
      resolve(parts === undefined ? answer : { ...answer, parts });
    });
  });
}

/**
 * Answers the body of one HTTP request as a stream. Resolves with undefined when the sink has got everything, or, with
 * nothing sent yet, with a plain answer: for a notification, a batch, or an error that has an HTTP status of its own.
 */
export async function streamHttp<Caller>(
  options: HttpExchangeOptions<Caller> & { readonly sink: StreamSink },
): Promise<HttpAnswer | undefined> {
  const { sink } = options;
  if (isBatch(options.body)) return answerHttp(options);
  return new Promise((resolve) => {
    let streaming = false;
    let finished = false;
    let lastEventId: string | number | undefined;
    const relay: Omit<StreamSink, 'final'> = {
      open() {
        if (finished) return;
        streaming = true;
        sink.open();
      },
      notification(text, eventId) {
        if (finished) return;
        streaming = true;
        lastEventId = eventId ?? lastEventId;
        sink.notification(text, eventId);
      },
    };
    serve(options, relay, (text, error, parts) => {
      finished = true;
      const answer = toHttpAnswer(options, text, error);
      if (answer.body === undefined || (answer.status !== 200 && !streaming)) {
        resolve(answer);
        return;
      }
      sink.final(answer.body, lastEventId, parts);
      resolve(undefined);
    });
  });
}

/** The body of a refusal that comes before any call could be read: no id, and the first number. */
export function refusalBody(envelope: Envelope, error: DescribedError & { readonly requestId: string }): unknown {
  return JSON.parse(envelope.failure('null', errorText(error, error.requestId), 1));
}

function serve<Caller>(
  options: HttpExchangeOptions<Caller>,
  relay: Omit<StreamSink, 'final'> | undefined,
  answer: (text: string | undefined, error?: DescribedError, parts?: readonly string[]) => void,
): void {
  const { body, signal, requestId } = options;
  const exchange = createExchange<Caller>({
    ...options,
    limits: { callsInFlight: Number.POSITIVE_INFINITY },
    makeRequestId: () => requestId,
    notification: relay?.notification,
    withinAnswer: true,
    accepted: relay?.open,
    answer(text, error, parts) {
      signal?.removeEventListener('abort', onAbort);
      answer(text, error, parts);
    },
  });
  const onAbort = (): void => exchange.end(new AppError('CONNECTION_CLOSED'));
  signal?.addEventListener('abort', onAbort);
  if (signal?.aborted) onAbort();
  exchange.receive(body);
}

function toHttpAnswer<Caller>(
  { codesWithStatus }: HttpExchangeOptions<Caller>,
  body: string | undefined,
  error: DescribedError | undefined,
): HttpAnswer {
  if (body === undefined) return { status: 204 };
  const ownStatus = error !== undefined && (ALWAYS_WITH_STATUS.has(error.code) || codesWithStatus?.has(error.code));
  if (!ownStatus) return { status: 200, body };
  return error.status === 503 ? { status: 503, body, retryAfter: RETRY_AFTER_SECONDS } : { status: error.status, body };
}

function isBatch(body: string | Uint8Array): boolean {
  for (let at = 0; at < body.length; at += 1) {
    const unit = typeof body === 'string' ? body.charCodeAt(at) : (body[at] ?? 0);
    if (!BEFORE_JSON.has(unit)) return unit === OPENING_BRACKET;
  }
  return false;
}
