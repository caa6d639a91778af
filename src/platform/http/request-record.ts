import type { ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { LogFields } from '../log/logger.ts';
import type { Runtime } from '../runtime/runtime.ts';
import type { HttpMetrics, RouteMeter } from './http-metrics.ts';
import { type RequestState, stateOf } from './request-state.ts';

interface RequestRecord {
  /** From here to the end of the answer the request is in flight; then it is counted and logged, once. */
  begin(state: RequestState, response: ServerResponse): void;
  /** The latest request on a connection, while it is in flight. */
  requestOn(socket: Duplex): RequestState | undefined;
  /** For requests, or answers without a request, that found no row. */
  unmatched(method: string): RouteMeter;
}

interface RequestRecordOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly inFlight: InFlight;
  readonly metrics: HttpMetrics;
  readonly requestLines?: RequestLines | undefined;
}

/**
 * Takes finished log lines. To look for secrets in a line costs more than to answer an empty request; where every part
 * of it is ours (our id, our pattern, numbers) there is nothing to look for, and it goes this way.
 */
export interface RequestLines {
  write(line: string): void;
}

const LATEST = Symbol('latest request');
const NAMED_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
/** nginx's number for a client that left before the answer. */
const CLIENT_GONE = 499;
const MAX_LOGGED_PATH = 200;

interface MarkedSocket extends Duplex {
  [LATEST]?: RequestState | undefined;
}

export function createRequestRecord(options: RequestRecordOptions): RequestRecord {
  const { inFlight, metrics, clock, logger, requestLines } = options;
  const meterOf = (method: string) => metrics.meter({ service: 'none', route: 'unmatched', method });
  const named = new Map(NAMED_METHODS.map((method) => [method, meterOf(method)]));
  const other = meterOf('OTHER');
  const unmatched = (method: string) => named.get(method) ?? other;

  function onClose(this: ServerResponse): void {
    const state = stateOf(this.req);
    const socket: MarkedSocket = state.request.socket;
    if (socket[LATEST] === state) socket[LATEST] = undefined;
    const status = state.rawStatus !== 0 ? state.rawStatus : this.headersSent ? this.statusCode : CLIENT_GONE;
    const elapsed = clock.monotonic() - state.startedAt;
    (state.row?.meter ?? unmatched(state.method)).observe(status, elapsed / 1000);
    const cut = !this.writableFinished && state.rawStatus === 0;
    const ms = Math.round(elapsed * 10) / 10;
    if (requestLines !== undefined && state.row !== undefined && state.about === undefined && hasOwnId(state)) {
      requestLines.write(finishedLine(state, state.row.path, status, ms, cut));
    } else if (logger.isLevelEnabled('info')) {
      logger.info(fieldsOf(state, status, ms, cut), 'request');
    }
    inFlight.end(this);
  }

  let moment = 0;
  let time = '';

  function finishedLine(state: RequestState, route: string, status: number, ms: number, cut: boolean) {
    const { requestId, method, ownAbout } = state;
    const now = clock.now();
    if (now !== moment) {
      moment = now;
      time = new Date(now).toISOString();
    }
    const rest = `${ownAbout}"status":${status},"ms":${ms},${cut ? '"cut":true,' : ''}"msg":"request"}\n`;
    return `{"level":"info","time":"${time}","requestId":"${requestId}","method":"${method}","route":"${route}",${rest}`;
  }

  return {
    unmatched,
    begin(state, response) {
      inFlight.begin(response);
      const socket: MarkedSocket = state.request.socket;
      socket[LATEST] = state;
      response.on('close', onClose);
    },
    requestOn: (socket) => (socket as MarkedSocket)[LATEST],
  };
}

/** The row's pattern stands for the path: paths may hold signatures, and query strings credentials. */
function fieldsOf(state: RequestState, status: number, ms: number, cut: boolean): LogFields {
  const { requestId, method, row, ownAbout } = state;
  const place = row === undefined ? { path: state.path.slice(0, MAX_LOGGED_PATH) } : { route: row.path };
  const about = ownAbout === '' ? state.about : (JSON.parse(`{${ownAbout.slice(0, -1)}}`) as LogFields);
  return { requestId, method, ...place, ...about, status, ms, ...(cut ? { cut } : {}) };
}

/** An id that the caller chose may be anything, a token included. */
function hasOwnId({ request, requestId }: RequestState): boolean {
  return request.headers['x-request-id'] !== requestId;
}

/** What is under way. */
interface InFlight {
  begin(response: ServerResponse): void;
  end(response: ServerResponse): void;
  count(): number;
  whenIdle(): Promise<void>;
  /** Lets every answer that has not begun say that its connection closes after it. */
  closeAfterAnswers(): void;
}

export function createInFlight(): InFlight {
  const open = new Set<ServerResponse>();
  let waiting: (() => void)[] = [];
  return {
    begin(response) {
      open.add(response);
    },
    end(response) {
      open.delete(response);
      if (open.size !== 0 || waiting.length === 0) return;
      const resolved = waiting;
      waiting = [];
      for (const resolve of resolved) resolve();
    },
    count: () => open.size,
    whenIdle: () => (open.size === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))),
    closeAfterAnswers() {
      for (const response of open) response.shouldKeepAlive = false;
    },
  };
}
