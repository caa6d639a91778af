import type { Duplex } from 'node:stream';
import type { Clock } from '../clock/clock.ts';
import { AppError, errorCode } from '../errors/app-error.ts';
import { plainAddress } from './client-address.ts';
import { endSocket } from './end-socket.ts';
import { describeRefusal, plainShape, rawResponse } from './refusal.ts';
import type { RequestState } from './request-state.ts';
import type { HttpSurface, RequestHead } from './surface.ts';

export interface ClientErrorOptions {
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
    // Whoever was too slow is not waited for again.
    endSocket(socket, rawResponse(refusal), clock, appError.code === 'REQUEST_TIMEOUT' ? 0 : lingerMs);
  };
}

/** An answer that has begun, or that belongs to an earlier request, must not be mixed with another. */
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
