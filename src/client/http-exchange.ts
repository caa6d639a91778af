import { createParser } from 'eventsource-parser';
import {
  defer,
  MAX_MESSAGE_CHARACTERS,
  parseMessage,
  type RpcMessage,
  type RpcRequest,
  resultOf,
} from './bridge-transport.ts';
import { clientError, connectionLost, TrestleError } from './trestle-error.ts';

/** `POST /acp/rpc`, once: nothing is tried again here. */
export interface HttpExchange {
  /** The answer as one document. */
  call(request: RpcRequest, headers: Headers, signal: AbortSignal): Promise<unknown>;
  /** Notifications, then the answer, as they come. Ends without one when the connection is closed before it. */
  stream(request: RpcRequest, headers: Headers, signal: AbortSignal): AsyncGenerator<RpcMessage>;
}

type Headers = Readonly<Record<string, string>>;

interface HttpExchangeOptions {
  /** Of `/acp/rpc`. */
  readonly rpcUrl: string;
  readonly headers: Headers;
  readonly fetch: typeof fetch;
  /** A stream sends at least a comment every 15 s (contract/bridge 1). */
  readonly streamSilenceMs: number;
}

/** The head of a response comes as soon as the call is taken, or with its answer. */
const HEAD_MS = 120_000;
/** What stands before a bridge answers with these while the bridge is away. */
export const AWAY: ReadonlySet<number> = new Set([502, 503, 504]);
export const MAX_TIMER_MS = 2 ** 31 - 1;

export function createHttpExchange(options: HttpExchangeOptions): HttpExchange {
  const { rpcUrl, streamSilenceMs } = options;

  async function post(request: RpcRequest, headers: Headers, signal: AbortSignal): Promise<Response> {
    try {
      return await options.fetch(rpcUrl, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...options.headers, ...headers },
        body: JSON.stringify(request),
        // A credential goes to the bridge that was named, and nowhere else.
        redirect: 'error',
        signal,
      });
    } catch (cause) {
      throw connectionLost(reasonOf(cause), { cause });
    }
  }

  async function readAnswer(response: Response, silenceMs: number): Promise<RpcMessage> {
    const { status } = response;
    const text = await readDocument(response, silenceMs);
    try {
      const message = parseMessage(text, status);
      // An error is thrown here, because only here its status is known.
      resultOf(message, status);
      return message;
    } catch (error) {
      const isOurs = !(error instanceof TrestleError && error.code === 'BAD_ANSWER');
      if (isOurs || !AWAY.has(status)) throw error;
      throw connectionLost(`HTTP status ${status}`, { status, cause: error });
    }
  }

  return {
    async call(request, headers, signal) {
      // Without a stream there is no heartbeat before the response: the caller's own timeout counts.
      const response = await post(request, { accept: 'application/json', ...headers }, signal);
      return resultOf(await readAnswer(response, MAX_TIMER_MS));
    },
    async *stream(request, headers, signal) {
      const head = new AbortController();
      const timer = setTimeout(() => head.abort(), HEAD_MS);
      const stop = () => head.abort();
      signal.addEventListener('abort', stop);
      try {
        const response = await post(request, { accept: 'text/event-stream', ...headers }, head.signal);
        clearTimeout(timer);
        if (!response.headers.get('content-type')?.startsWith('text/event-stream')) {
          yield await readAnswer(response, streamSilenceMs);
          return;
        }
        for await (const data of readEvents(response, streamSilenceMs)) if (data !== '[DONE]') yield parseMessage(data);
      } finally {
        clearTimeout(timer);
        signal.removeEventListener('abort', stop);
      }
    },
  };
}

/** A server may live below a path of its own. */
export function addressOf(url: string, path: string): string {
  return new URL(path, url.endsWith('/') ? url : `${url}/`).href;
}

/** The headers that every request has. */
export function headersOf({ token, team }: { readonly token?: string; readonly team?: string }): Headers {
  return { ...(token && { authorization: `Bearer ${token}` }), ...(team && { 'x-team': team }) };
}

export function reasonOf(error: unknown): string {
  const { cause } = error instanceof Error ? error : {};
  if (cause instanceof Error && cause.message !== '') return cause.message;
  return error instanceof Error ? error.message : 'the connection failed';
}

/** The text of a body as it comes. To stop reading breaks off the connection, and so does silence. */
async function* readText(response: Response, silenceMs: number): AsyncGenerator<string> {
  const reader = response.body?.getReader();
  if (reader === undefined) return;
  const decoder = new TextDecoder();
  try {
    for (;;) {
      const { done, value } = await orSilence(reader.read(), silenceMs);
      if (done) return;
      yield decoder.decode(value, { stream: true });
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

async function orSilence<Value>(value: Promise<Value>, silenceMs: number): Promise<Value> {
  const silence = defer<never>();
  const timer = setTimeout(() => silence.reject(new Error(`nothing came for ${silenceMs} ms`)), silenceMs);
  try {
    return await Promise.race([value, silence.promise]);
  } catch (cause) {
    throw connectionLost(cause instanceof Error ? cause.message : 'the connection broke', { cause });
  } finally {
    clearTimeout(timer);
  }
}

/** A document as a whole. */
export async function readDocument(response: Response, silenceMs: number): Promise<string> {
  const parts: string[] = [];
  let length = 0;
  for await (const part of readText(response, silenceMs)) {
    length += part.length;
    if (length > MAX_MESSAGE_CHARACTERS) throw tooLarge();
    parts.push(part);
  }
  return parts.join('');
}

/** The data of each event of a `text/event-stream`; comments only show that the connection lives. */
async function* readEvents(response: Response, silenceMs: number): AsyncGenerator<string> {
  let arrived: string[] = [];
  let isTooLarge = false;
  const parser = createParser({
    maxBufferSize: MAX_MESSAGE_CHARACTERS,
    onEvent: ({ data }) => arrived.push(data),
    onError({ type }) {
      if (type === 'max-buffer-size-exceeded') isTooLarge = true;
    },
  });
  for await (const part of readText(response, silenceMs)) {
    parser.feed(part);
    if (isTooLarge) throw tooLarge();
    const events = arrived;
    arrived = [];
    yield* events;
  }
}

function tooLarge(): Error {
  return clientError('BAD_ANSWER', `An answer may have ${MAX_MESSAGE_CHARACTERS} characters at most.`);
}
