import type { CallOptions } from './bridge-transport.ts';
import { AWAY, MAX_TIMER_MS, readDocument, reasonOf } from './http-exchange.ts';
import { clientError, connectionLost, TrestleError } from './trestle-error.ts';

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

/** Sends one request and reads the JSON document that answers it. Nothing is tried again here. */
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
      // A credential goes to the server that was named, and nowhere else.
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
