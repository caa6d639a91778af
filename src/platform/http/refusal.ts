import type { OutgoingHttpHeaders } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock } from '../clock/clock.ts';
import { AppError, errorCode } from '../errors/app-error.ts';
import { describeError, type ErrorTable, isExpected, platformErrors } from '../errors/error-table.ts';
import type { Runtime } from '../runtime/runtime.ts';
import { nodeHttp } from '../runtime/runtime.ts';
import { crossOriginHeaders } from './cross-origin.ts';
import { hasBody } from './request-body.ts';
import { plainAddress, type RequestState } from './request-state.ts';
import type { ErrorForBody, HttpSurface, RequestHead } from './surface.ts';

/** An error as a response. */
interface Refusal {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** False for an unexpected error, which must be logged because the response does not describe it. */
  readonly expected: boolean;
}

/** The part of a surface that gives a refusal its shape. */
type RefusalShape = Pick<HttpSurface, 'errors' | 'errorBody' | 'errorHeaders' | 'crossOrigin'>;

/** Turns any error into the answer of a surface. Never throws: a surface whose own functions fail gets the plain shape. */
function describeRefusal(shape: RefusalShape, error: unknown, head: RequestHead): Refusal {
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
function rawResponse({ status, headers, body }: Refusal): string {
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
    ...crossOriginHeaders(shape, head),
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

interface RefuserOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly surfaceFor: (path: string) => HttpSurface | undefined;
  readonly lingerMs: number;
  isDraining(): boolean;
}

/** Responds with an error at any stage of a request. `earlier` are headers that the handler has set. */
export type RefuseRequest = (state: RequestState, error: unknown, earlier?: OutgoingHttpHeaders) => void;

/** An unread body up to this size is read and discarded, so that the connection stays open. */
const SMALL_BODY = 64 * 1024;
/** Headers that the refusal replaces, that describe a body which is not sent, or that only a success may send. */
const NOT_KEPT = /^(?:content-|transfer-encoding$|etag$|last-modified$|connection$|set-cookie$)/;

export function createRefuser({ surfaceFor, clock, logger, lingerMs, isDraining }: RefuserOptions): RefuseRequest {
  return (state, error, earlier = {}) => {
    const { request, response } = state;
    const shape = state.row?.surface ?? surfaceFor(state.path) ?? plainShape;
    const refusal = describeRefusal(shape, error, state);
    if (!refusal.expected) {
      const { requestId, method } = state;
      logger.error({ err: error, requestId, method, route: state.row?.path }, 'a request failed unexpectedly');
    }
    if (response === undefined) {
      endRaw(state, refusal);
    } else if (state.rawStatus !== 0 || response.headersSent || response.destroyed) {
      // The response has begun, so it is cut off: it must not look complete.
      response.destroy();
    } else if (leavesBodyUnread(state) && response.socket === request.socket) {
      endRaw(state, refusal);
    } else {
      const headers: OutgoingHttpHeaders = { ...usable(earlier), ...refusal.headers };
      if (isDraining() || leavesBodyUnread(state)) headers.connection = 'close';
      response.writeHead(refusal.status, headers);
      response.end(refusal.body);
    }
  };

  function endRaw(state: RequestState, refusal: Refusal): void {
    state.rawStatus = refusal.status;
    state.request.resume();
    endSocket(state.request.socket, rawResponse(refusal), clock, lingerMs);
  }
}

function leavesBodyUnread({ request, awaitsContinue }: RequestState): boolean {
  if (request.complete || awaitsContinue || !hasBody(request.headers)) return false;
  return !(Number(request.headers['content-length']) <= SMALL_BODY);
}

/** Drops headers that cannot be sent, because such a header may be the cause of the refusal. */
function usable(headers: OutgoingHttpHeaders): OutgoingHttpHeaders {
  return Object.fromEntries(
    Object.entries(headers).filter(([name, value]) => {
      if (NOT_KEPT.test(name) || value === undefined) return false;
      try {
        for (const each of [value].flat()) nodeHttp.validateHeaderValue(name, String(each));
        return true;
      } catch {
        return false;
      }
    }),
  );
}

interface ClientErrorOptions {
  readonly surfaceFor: (path: string) => HttpSurface | undefined;
  readonly makeRequestId: () => string;
  readonly clock: Clock;
  readonly lingerMs: number;
  /** The request that is under way on a connection, if any. */
  readonly requestOn: (socket: Duplex) => RequestState | undefined;
  /** Told of every answer that belongs to no request. */
  noted(status: number): void;
}

/** Answers what the HTTP parser refused, and requests that came too slowly; then closes the connection. */
export function createClientErrorAnswer(options: ClientErrorOptions): (error: Error, socket: Duplex) => void {
  const { surfaceFor, makeRequestId, clock, lingerMs, requestOn, noted } = options;
  return (error, socket) => {
    // The parser complains again for every further chunk that is thrown away.
    if (socket.writableEnded) return;
    const state = requestOn(socket);
    if (errorCode(error) === 'ECONNRESET' || socket.destroyed || isInTheWay(state, socket)) {
      socket.destroy();
      return;
    }
    const shape = state === undefined ? plainShape : (state.row?.surface ?? surfaceFor(state.path) ?? plainShape);
    const appError = toAppError(error);
    const refusal = describeRefusal(shape, appError, state ?? headlessRequest(makeRequestId(), socket));
    if (state === undefined) noted(refusal.status);
    else state.rawStatus = refusal.status;
    // No linger for a client that was too slow.
    endSocket(socket, rawResponse(refusal), clock, appError.code === 'REQUEST_TIMEOUT' ? 0 : lingerMs);
  };
}

/** Returns whether a response has begun, or belongs to an earlier request, so that no other may be written. */
function isInTheWay(state: RequestState | undefined, socket: Duplex): boolean {
  const response = state?.response;
  if (state === undefined || response === undefined) return false;
  return response.headersSent || state.request.complete || response.socket !== socket;
}

function toAppError(error: Error): AppError {
  switch (errorCode(error)) {
    case 'HPE_HEADER_OVERFLOW':
      return new AppError('HEADERS_TOO_LARGE');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new AppError('REQUEST_TIMEOUT');
    default:
      return new AppError('INVALID_REQUEST', { reason: 'it is not well-formed HTTP' });
  }
}

function headlessRequest(requestId: string, socket: Duplex): RequestHead {
  const address = plainAddress('remoteAddress' in socket ? String(socket.remoteAddress) : undefined);
  const query = new URLSearchParams();
  return { requestId, method: '', path: '', query, headers: {}, address, peerAddress: address, secure: false };
}

/**
 * Writes the last response to a connection and closes it, but discards further input for a moment, because closing with
 * unread bytes makes the system send a reset, which can destroy the response before the peer has read it.
 */
function endSocket(socket: Duplex, lastWords: string, clock: Pick<Clock, 'after'>, lingerMs: number): void {
  if (socket.writableEnded) return;
  if (socket.destroyed) return;
  socket.end(lastWords);
  socket.resume();
  const cancel = clock.after(lingerMs, () => socket.destroy());
  socket.once('close', cancel);
}

/**
 * On every response. The policy is that of JSON: an HTML page states its own, and a route that may be cached says so;
 * both by setting the header themselves.
 */
export const plainHeaders: Readonly<Record<string, string>> = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'x-frame-options': 'DENY',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cache-control': 'no-store',
};

/** The same for a request that came over TLS. */
export const secureHeaders: Readonly<Record<string, string>> = {
  ...plainHeaders,
  'strict-transport-security': 'max-age=31536000',
};
