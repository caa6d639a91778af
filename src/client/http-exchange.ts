import { createParser } from 'eventsource-parser';
import {
  type CallOptions,
  defer,
  MAX_MESSAGE_CHARACTERS,
  MAX_TIMER_MS,
  parseMessage,
  type RpcMessage,
  type RpcRequest,
  resultOf,
} from './bridge-transport.ts';
import { clientError, connectionLost, TrestleError } from './trestle-error.ts';

/** Sends `POST /acp/rpc` once, without retries. */
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
  /** A stream sends at least a comment every 15 s. */
  readonly streamSilenceMs: number;
}

/** The timeout for the head of a response, which is sent when the call is accepted, or with its result. */
const HEAD_MS = 120_000;
/** Statuses of a proxy whose bridge is away. */
export const AWAY: ReadonlySet<number> = new Set([502, 503, 504]);

export function createHttpExchange(options: HttpExchangeOptions): HttpExchange {
  const { rpcUrl, streamSilenceMs } = options;

  async function post(request: RpcRequest, headers: Headers, signal: AbortSignal): Promise<Response> {
    try {
      return await options.fetch(rpcUrl, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...options.headers, ...headers },
        body: JSON.stringify(request),
        // Follows no redirect, because the credential is only for the named bridge.
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

/** Resolves a path relative to the server, which may itself have a base path. */
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

/** Yields the text of a body as it arrives. Closes the connection when reading stops, and after silence. */
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

/** Reads a whole document. */
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

/** Yields the data of each event of a `text/event-stream`. Comments only show that the connection is alive. */
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

/** One request to `/api/bridge/*`, within the limits of the client. */
export type RequestWorkbench = <Result>(request: WorkbenchRequest, options: CallOptions | undefined) => Promise<Result>;

/** As `RequestWorkbench`, for one page of a text. */
export type RequestText = (request: WorkbenchRequest, options: CallOptions | undefined) => Promise<TextPage>;

interface TextPage {
  readonly text: string;
  /** Undefined: this is the last page. */
  readonly nextCursor: string | undefined;
}

interface WorkbenchRequest {
  readonly method?: 'GET' | 'PATCH' | 'POST' | 'DELETE';
  /** Below `/api/bridge/`. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | undefined>>;
  readonly body?: object;
  /** A body that is not JSON, and its headers. */
  readonly file?: {
    readonly content: Blob | Uint8Array<ArrayBuffer>;
    readonly headers: Readonly<Record<string, string>>;
  };
}

interface RequestOptions {
  /** Of `/api/bridge/`. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly fetch: typeof fetch;
}

/** Sends one request and reads the JSON document of the response, without retries. */
export async function requestWorkbench(
  options: RequestOptions,
  request: WorkbenchRequest,
  signal: AbortSignal,
): Promise<unknown> {
  const response = await send(options, request, signal);
  const { ok, status } = response;
  const document = await readJson(response);
  if (ok && document !== undefined) return document;
  return refuse(status, document);
}

/** As `requestWorkbench`, for one page of a text. */
export async function requestText(
  options: RequestOptions,
  request: WorkbenchRequest,
  signal: AbortSignal,
): Promise<TextPage> {
  const response = await send(options, request, signal);
  if (!response.ok) return refuse(response.status, await readJson(response));
  const nextCursor = response.headers.get('x-next-cursor') ?? undefined;
  return { text: await readDocument(response, MAX_TIMER_MS), nextCursor };
}

async function send(
  { url, headers, fetch }: RequestOptions,
  { method = 'GET', path, query = {}, body, file }: WorkbenchRequest,
  signal: AbortSignal,
): Promise<Response> {
  const address = new URL(path, url);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) address.searchParams.set(name, String(value));
  }
  try {
    return await fetch(address.href, {
      method,
      headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }), ...file?.headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(file !== undefined && { body: file.content }),
      // Follows no redirect, because the credential is only for the named server.
      redirect: 'error',
      signal,
    });
  } catch (cause) {
    throw connectionLost(reasonOf(cause), { cause });
  }
}

function refuse(status: number, document: object | undefined): never {
  if (document === undefined) {
    if (AWAY.has(status)) throw connectionLost(`HTTP status ${status}`, { status });
    throw clientError('BAD_ANSWER', 'The response did not come from a Trestle bridge; check `url`.', { status });
  }
  const { error, message, details } = document as { error?: unknown; message?: unknown; details?: unknown };
  const data = typeof details === 'object' && details !== null ? (details as Readonly<Record<string, unknown>>) : {};
  throw new TrestleError(String(error).toUpperCase(), String(message), { status, data });
}

async function readJson(response: Response): Promise<object | undefined> {
  const text = await readDocument(response, MAX_TIMER_MS);
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}
