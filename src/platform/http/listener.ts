import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { pause, withinTime } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';
import type { LogFields } from '../log/logger.ts';
import { createAddressMatcher, type ListenAddress } from '../network-address/ip-address.ts';
import { afterReads, Bag } from '../queue/after-reads.ts';
import type { Runtime } from '../runtime/runtime.ts';
import {
  createCommonSurface,
  createReadiness,
  createRequestCheck,
  probePaths,
  type ReadinessCheck,
} from './common-routes.ts';
import { preflightRoutes } from './cross-origin.ts';
import type { HttpMetrics, RouteMeter } from './http-metrics.ts';
import {
  createHttpServer,
  defaultLimits,
  type ListenerLimits,
  limitConnections,
  stopListening,
} from './http-server.ts';
import { type BoundAddress, createHostCheck, openAddress, refusalToListen } from './listen-address.ts';
import { createClientErrorAnswer, createRefuser } from './refusal.ts';
import { createRequestIds, RequestState, stateOf } from './request-state.ts';
import { createRouteRow, createRouter } from './serve-routes.ts';
import type { HttpSurface, Route } from './surface.ts';
import { createWebSockets } from './web-sockets.ts';

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
 * Takes finished log lines. A search for secrets costs more than the response to an empty request, and a line of our own
 * parts (our id, our pattern, numbers) has none, so it skips the search.
 */
interface RequestLines {
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

function createRequestRecord(options: RequestRecordOptions): RequestRecord {
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
    if (state.row !== undefined && status < 400 && probePaths.has(state.row.path)) {
      // Balancers and monitors ask every second: these lines would be most of the log, and tell nothing.
      if (logger.isLevelEnabled('debug')) logger.debug(fieldsOf(state, status, ms, cut), 'request');
    } else if (requestLines !== undefined && state.row !== undefined && state.about === undefined && hasOwnId(state)) {
      requestLines.write(finishedLine(state, state.row.path, status, ms, cut));
    } else if (logger.isLevelEnabled('info')) {
      logger.info(fieldsOf(state, status, ms, cut), 'request');
    }
    inFlight.end(state);
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
      inFlight.begin(state);
      const socket: MarkedSocket = state.request.socket;
      socket[LATEST] = state;
      response.on('close', onClose);
    },
    requestOn: (socket) => (socket as MarkedSocket)[LATEST],
  };
}

/** Logs the row's pattern instead of the path, because paths may contain signatures, and query strings credentials. */
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
  begin(state: RequestState): void;
  end(state: RequestState): void;
  count(): number;
  whenIdle(): Promise<void>;
  /** Makes every response that has not begun announce the end of its connection. */
  closeAfterAnswers(): void;
}

function createInFlight(): InFlight {
  const open = new Bag<RequestState>();
  let waiting: (() => void)[] = [];
  return {
    begin(state) {
      open.add(state);
    },
    end(state) {
      open.delete(state);
      if (open.size !== 0 || waiting.length === 0) return;
      const resolved = waiting;
      waiting = [];
      for (const resolve of resolved) resolve();
    },
    count: () => open.size,
    whenIdle: () => (open.size === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))),
    closeAfterAnswers() {
      for (const { response } of open.items()) if (response !== undefined) response.shouldKeepAlive = false;
    },
  };
}

export interface ListenerOptions extends Pick<Runtime, 'clock' | 'randomness' | 'logger'> {
  readonly surfaces: readonly HttpSurface[];
  readonly address: ListenAddress;
  /** Never shares the port with other workers of the same program. */
  readonly exclusive?: boolean;
  /** Open an address that other machines reach although something on it asks for no credential. */
  readonly insecure?: boolean;
  readonly allowedHosts?: readonly string[];
  /** Ranges whose `X-Forwarded-*` headers count. */
  readonly trustedProxies?: readonly string[];
  readonly limits?: Partial<ListenerLimits>;
  readonly readinessChecks?: Readonly<Record<string, ReadinessCheck>>;
  /** How long a check may fail while `/readyz` stays 200; not at all unless given. */
  readonly mayBeAwayMs?: () => number;
  /** How far the clock of this machine is ahead of that of the database; 0 where there is none but this. */
  readonly clockDifferenceMs?: () => number;
  readonly metrics: HttpMetrics;
  /** The bearer token that opens `/metrics` to other machines; empty when none does. Asked each time: it may change. */
  readonly metricsToken?: () => string;
  /** The quick way for the lines of ordinary requests, for a log of JSON lines at level `info` or below. */
  readonly requestLines?: RequestLines;
}

export interface Listener {
  /** Throws an `AppError` that says in one line why the address cannot be opened. */
  start(): Promise<BoundAddress>;
  /** What is served: the given surfaces, and the routes that every listener has. */
  readonly surfaces: readonly HttpSurface[];
  /** Asks for every open WebSocket whether its caller is still allowed; for after a reload. */
  revalidate(): void;
  /**
   * Says that it is not ready, and serves everything for the notice: balancers need a moment to see it. Then it refuses new
   * work, gives what is under way its time, and closes everything. After a notice, WebSockets are closed first, because
   * their clients find another instance. `yields`: other processes accept connections at the same address, so this one takes
   * no more from the beginning.
   */
  drain(graceMs: number, noticeMs?: number, yields?: boolean): Promise<void>;
  /** Closes everything immediately. */
  close(): Promise<void>;
}

const PARTING_MS = 100;
/** So long WebSockets are closed one after the other, so that their clients do not all come back in the same moment. */
const SPREAD_MS = 2_000;

export function createListener(options: ListenerOptions): Listener {
  const { address, insecure = false, allowedHosts = [], trustedProxies = [], metrics, logger, clock } = options;
  const limits = { ...defaultLimits, ...options.limits };
  let leaving: Promise<void> | undefined;
  let closing: Promise<void> | undefined;
  let refusesWork = false;
  const isLeaving = () => leaving !== undefined || closing !== undefined;
  const isDraining = () => refusesWork || closing !== undefined;

  const readiness = createReadiness({
    checks: options.readinessChecks ?? {},
    timeoutMs: limits.readinessTimeoutMs,
    mayBeAwayMs: options.mayBeAwayMs ?? (() => 0),
    clock,
    logger,
  });
  const { metricsToken = () => '', clockDifferenceMs = () => 0 } = options;
  const common = createCommonSurface({ metrics, readiness, isLeaving, metricsToken, clockDifferenceMs });
  const surfaces = [...options.surfaces, common];
  const isOpen = () => options.surfaces.some((surface) => surface.isOpen());

  const inFlight = createInFlight();
  const surfaceFor = createSurfaceMap(surfaces);
  const makeRequestId = createRequestIds(options.randomness);
  const { requestLines } = options;
  const record = createRequestRecord({ inFlight, metrics, clock, logger, requestLines });
  const refuse = createRefuser({ surfaceFor, clock, logger, lingerMs: limits.lingerMs, isDraining: isLeaving });
  const checkHost = createHostCheck({ boundHost: address.host, insecure, allowedHosts, isOpen });
  const servedLast = surfaces.flatMap((surface) => surface.servedLast ?? []);
  const admit = createRequestCheck({ headerCount: limits.headerCount, checkHost, isDraining, servedLast });
  const webSockets = createWebSockets({ surfaces, limits, metrics, clock, logger, refuse, admit, isLeaving });
  const rows = surfaces.flatMap((surface) =>
    [...surface.routes, ...withoutUpgrade(surface), ...preflightRoutes(surface)].map((route) =>
      createRouteRow({ surface, route, metrics, defaultBodyLimit: limits.bodyBytes }),
    ),
  );
  const router = createRouter({ rows, refuse, isDraining: isLeaving, clock });
  const isTrustedProxy = createAddressMatcher(trustedProxies);
  const origin = { hasTrustedProxies: trustedProxies.length > 0, isTrustedProxy };

  function begin(request: IncomingMessage, response: ServerResponse | undefined): RequestState {
    const requestId = makeRequestId(request.headers['x-request-id']);
    const state = new RequestState(origin, requestId, clock.monotonic(), request, response);
    if (response !== undefined) record.begin(state, response);
    return state;
  }

  function serve(state: RequestState, response: ServerResponse): void {
    try {
      const refusal = admit(state);
      if (refusal === undefined) router.serve(state.request, response);
      else refuse(state, refusal);
    } catch (error) {
      refuse(state, error);
    }
  }

  const server = createHttpServer(limits, {
    request(request, response, awaitsContinue) {
      const state = begin(request, response);
      state.awaitsContinue = awaitsContinue;
      afterReads(() => serve(state, response));
    },
    strangeExpectation(request, response) {
      refuse(begin(request, response), new AppError('INVALID_REQUEST', { reason: 'its Expect header is not known' }));
    },
    acceptsUpgrade: webSockets.accepts,
    upgrade(request, socket, head) {
      socket.on('error', ignore);
      webSockets.upgrade(begin(request, undefined), socket, head);
    },
    connect(request, socket) {
      socket.on('error', ignore);
      refuse(begin(request, undefined), new AppError('INVALID_REQUEST', { reason: 'this is no proxy' }));
    },
    clientError: createClientErrorAnswer({
      surfaceFor,
      makeRequestId: () => makeRequestId(undefined),
      clock,
      lingerMs: limits.lingerMs,
      requestOn: record.requestOn,
      noted: (status) => record.unmatched('OTHER').observe(status, 0),
    }),
  });
  limitConnections(server, limits.connectionsPerAddress, isTrustedProxy);
  metrics.watch({ requestsInFlight: inFlight.count, webSockets: webSockets.count });

  async function leave(graceMs: number, noticeMs: number, yields: boolean): Promise<void> {
    for (const surface of surfaces) surface.leave?.();
    const parted = yields ? stopListening(server) : undefined;
    if (noticeMs > 0) await pause(clock, noticeMs);
    // Their clients would send the next request here, where it is refused, although others serve the address.
    if (yields) server.closeIdleConnections();
    refusesWork = true;
    inFlight.closeAfterAnswers();
    const settled = Promise.allSettled([inFlight.whenIdle(), ...surfaces.map((surface) => surface.settle?.())]);
    if (noticeMs > 0) {
      const closed = webSockets.closeAll(1012, 'restarting', SPREAD_MS);
      await withinTime(clock, SPREAD_MS + limits.closeTimeoutMs, closed, () => undefined);
    }
    await withinTime(clock, graceMs, settled, () => undefined);
    await withinTime(clock, limits.closeTimeoutMs, webSockets.closeAll(1001, 'shutting down'), () => undefined);
    // Clients come back as soon as they have their answers: a moment later there are fewer to turn away.
    await pause(clock, PARTING_MS);
    await withinTime(clock, limits.lastRequestsMs, parted ?? stopListening(server), () => undefined);
    closing ??= shut();
    await closing;
  }

  async function shut(): Promise<void> {
    webSockets.terminateAll();
    const { promise, resolve } = Promise.withResolvers<void>();
    server.close(() => resolve());
    server.closeAllConnections();
    await promise;
  }

  return {
    surfaces,
    async start() {
      const reason = refusalToListen({ host: address.host, insecure, surfaces });
      if (reason !== undefined) throw new AppError('LISTEN_REFUSED', { reason });
      return openAddress(server, address, options.exclusive);
    },
    revalidate: webSockets.revalidate,
    drain(graceMs, noticeMs = 0, yields = false) {
      leaving ??= leave(graceMs, noticeMs, yields);
      return leaving;
    },
    close() {
      closing ??= shut();
      return closing;
    },
  };
}

/** The address of a WebSocket, called without an upgrade: its guard decides first anyway. */
function withoutUpgrade({ upgrades, routes }: HttpSurface): Route[] {
  return upgrades
    .filter(({ path }) => !routes.some((route) => route.method === 'GET' && route.path === path))
    .map(({ path, guard, summary }) => ({
      method: 'GET',
      path,
      guard,
      summary,
      handle() {
        throw new AppError('UPGRADE_REQUIRED');
      },
    }));
}

function ignore(): void {}

/** Finds the surface whose prefix of a path is the longest; a prefix ends where a segment does. */
function createSurfaceMap(surfaces: readonly HttpSurface[]): (path: string) => HttpSurface | undefined {
  const prefixes = surfaces
    .flatMap((surface) => surface.prefixes.map((prefix) => ({ prefix, surface })))
    .sort((left, right) => right.prefix.length - left.prefix.length);
  return (path) => prefixes.find(({ prefix }) => isBelow(path, prefix))?.surface;
}

/** Whether a path is a prefix, or continues it where a segment ends. */
export function isBelow(path: string, prefix: string): boolean {
  if (!path.startsWith(prefix)) return false;
  return path.length === prefix.length || prefix.endsWith('/') || path[prefix.length] === '/';
}
