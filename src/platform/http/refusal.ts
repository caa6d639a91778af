import { AppError } from '../errors/app-error.ts';
import { describeError, type ErrorTable, isExpected } from '../errors/error-table.ts';
import { platformErrors } from '../errors/platform-errors.ts';
import { nodeHttp } from './node-http.ts';
import { plainHeaders, secureHeaders } from './security-headers.ts';
import type { ErrorForBody, HttpSurface, RequestHead } from './surface.ts';

/** An error as it goes out. */
export interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** False for what nobody foresaw: the error itself must be logged, since the caller learns nothing. */
  readonly expected: boolean;
}

/** The part of a surface that gives a refusal its shape. */
export type RefusalShape = Pick<HttpSurface, 'errors' | 'errorBody' | 'errorHeaders'>;

/** Turns any error into the answer of a surface. Never throws: a surface whose own functions fail gets the plain shape. */
export function describeRefusal(shape: RefusalShape, error: unknown, head: RequestHead): Refusal {
  const table = tableFor(shape.errors, error);
  try {
    return build(shape, { ...describeError(table, error), requestId: head.requestId }, head, isExpected(table, error));
  } catch {
    const described = { ...describeError(platformErrors, undefined), requestId: head.requestId };
    return build(plainShape, described, head, false);
  }
}

/** What is refused outside every surface's paths looks like this. */
export const plainShape: RefusalShape = {
  errors: platformErrors,
  errorBody: ({ code, message, requestId }) => ({ error: { code, message, requestId } }),
};

/** The whole answer as bytes for a bare socket, which is closed after it. */
export function rawResponse({ status, headers, body }: Refusal): string {
  const all = { ...headers, date: new Date().toUTCString(), connection: 'close' };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${nodeHttp.STATUS_CODES[status] ?? ''}\r\n${lines.join('')}\r\n${body}`;
}

function build(shape: RefusalShape, error: ErrorForBody, head: RequestHead, expected: boolean): Refusal {
  const body = JSON.stringify(shape.errorBody(error, head));
  const headers: Record<string, string> = {
    ...(head.secure ? secureHeaders : plainHeaders),
    'x-request-id': head.requestId,
    ...headersOf(error),
    ...shape.errorHeaders?.(error, head),
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
  };
  for (const [name, value] of Object.entries(headers)) {
    nodeHttp.validateHeaderName(name);
    nodeHttp.validateHeaderValue(name, value);
  }
  return { status: error.status, headers, body, expected };
}

/** Headers that belong to a code whatever the surface. `retryAfterSeconds` in the details of any error is announced. */
function headersOf({ code, details }: ErrorForBody): Record<string, string> {
  const headers: Record<string, string> = {};
  if (code === 'METHOD_NOT_ALLOWED') headers.allow = String(details.allow);
  if (code === 'UPGRADE_REQUIRED') {
    Object.assign(headers, { upgrade: 'websocket', connection: 'upgrade', 'sec-websocket-version': '13' });
  }
  if (code === 'OVERLOADED' || code === 'SHUTTING_DOWN') headers['retry-after'] = '1';
  if (typeof details.retryAfterSeconds === 'number') {
    headers['retry-after'] = String(Math.ceil(details.retryAfterSeconds));
  }
  return headers;
}

/** A surface need not repeat the platform's rows in its own table. */
function tableFor(errors: ErrorTable, error: unknown): ErrorTable {
  const own = !(error instanceof AppError) || Object.hasOwn(errors, error.code);
  return own ? errors : platformErrors;
}
