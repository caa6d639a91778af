import type { OutgoingHttpHeaders } from 'node:http';
import type { Clock } from '../clock/clock.ts';
import type { Logger } from '../log/logger.ts';
import { endSocket } from './end-socket.ts';
import { nodeHttp } from './node-http.ts';
import { describeRefusal, plainShape, type Refusal, rawResponse } from './refusal.ts';
import { hasBody } from './request-body.ts';
import type { RequestState } from './request-state.ts';
import type { HttpSurface } from './surface.ts';

export interface RefuserOptions {
  readonly surfaceFor: (path: string) => HttpSurface | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly lingerMs: number;
  isDraining(): boolean;
}

/** Answers with an error, whatever stage the request has reached. `earlier` are headers that the handler had set. */
export type RefuseRequest = (state: RequestState, error: unknown, earlier?: OutgoingHttpHeaders) => void;

/** Up to here an unread body is read and forgotten, and the connection lives on. */
const SMALL_BODY = 64 * 1024;
/** What the refusal replaces, what described a body that is not sent, and what only a success may hand out. */
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
      // Too late to say it: a broken answer must not look like a whole one.
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

/** A header that cannot be sent may be the very reason of the refusal. */
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
