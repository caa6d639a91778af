import type { IncomingMessage, ServerResponse } from 'node:http';
import { pause, withinTime } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';
import { createAddressMatcher, type ListenAddress } from '../network-address/ip-address.ts';
import { afterReads } from '../queue/after-reads.ts';
import type { Runtime } from '../runtime/runtime.ts';
import { createAdmission, createCommonSurface, createReadiness, type ReadinessCheck } from './common-routes.ts';
import { preflightRoutes } from './cross-origin.ts';
import type { HttpMetrics } from './http-metrics.ts';
import {
  createHttpServer,
  defaultLimits,
  type ListenerLimits,
  limitConnections,
  stopListening,
} from './http-server.ts';
import { type BoundAddress, createHostCheck, openAddress, refusalToListen } from './listen-address.ts';
import { createClientErrorAnswer, createRefuser } from './refusal.ts';
import { createInFlight, createRequestRecord, type RequestLines } from './request-record.ts';
import { createRequestIds, RequestState } from './request-state.ts';
import { createRouteRow, createRouter } from './serve-routes.ts';
import type { HttpSurface, Route } from './surface.ts';
import { createWebSockets } from './web-sockets.ts';

export interface ListenerOptions extends Pick<Runtime, 'clock' | 'randomness' | 'logger'> {
  readonly surfaces: readonly HttpSurface[];
  readonly address: ListenAddress;
  /** Open an address that other machines reach although something on it asks for no credential. */
  readonly insecure?: boolean;
  readonly allowedHosts?: readonly string[];
  /** Ranges whose `X-Forwarded-*` headers count. */
  readonly trustedProxies?: readonly string[];
  readonly limits?: Partial<ListenerLimits>;
  readonly readinessChecks?: Readonly<Record<string, ReadinessCheck>>;
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
  /** Refuses new work at once, gives what is under way this long, then closes everything. */
  drain(graceMs: number): Promise<void>;
  /** Closes everything at once. */
  close(): Promise<void>;
}

const PARTING_MS = 100;

export function createListener(options: ListenerOptions): Listener {
  const { address, insecure = false, allowedHosts = [], trustedProxies = [], metrics, logger, clock } = options;
  const limits = { ...defaultLimits, ...options.limits };
  let draining: Promise<void> | undefined;
  let closing: Promise<void> | undefined;
  const isDraining = () => draining !== undefined || closing !== undefined;

  const readiness = createReadiness({
    checks: options.readinessChecks ?? {},
    timeoutMs: limits.readinessTimeoutMs,
    clock,
    logger,
  });
  const { metricsToken = () => '' } = options;
  const common = createCommonSurface({ metrics, readiness, isDraining, metricsToken });
  const surfaces = [...options.surfaces, common];
  const isOpen = () => options.surfaces.some((surface) => surface.isOpen());

  const inFlight = createInFlight();
  const surfaceFor = createSurfaceMap(surfaces);
  const makeRequestId = createRequestIds(options.randomness);
  const { requestLines } = options;
  const record = createRequestRecord({ inFlight, metrics, clock, logger, requestLines });
  const refuse = createRefuser({ surfaceFor, clock, logger, lingerMs: limits.lingerMs, isDraining });
  const checkHost = createHostCheck({ boundHost: address.host, insecure, allowedHosts, isOpen });
  const admit = createAdmission({ headerCount: limits.headerCount, checkHost, isDraining });
  const webSockets = createWebSockets({ surfaces, limits, metrics, clock, logger, refuse, admit });
  const rows = surfaces.flatMap((surface) =>
    [...surface.routes, ...withoutUpgrade(surface), ...preflightRoutes(surface)].map((route) =>
      createRouteRow({ surface, route, metrics, defaultBodyLimit: limits.bodyBytes }),
    ),
  );
  const router = createRouter({ rows, refuse, isDraining });
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
      if (refusal === undefined) router.routing(state.request, response);
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

  async function finish(graceMs: number): Promise<void> {
    inFlight.closeAfterAnswers();
    const settled = Promise.allSettled([inFlight.whenIdle(), ...surfaces.map((surface) => surface.settle?.())]);
    await withinTime(clock, graceMs, settled, () => undefined);
    await withinTime(clock, limits.closeTimeoutMs, webSockets.closeAll(1001, 'shutting down'), () => undefined);
    // Clients come back as soon as they have their answers: a moment later there are fewer to turn away.
    await pause(clock, PARTING_MS);
    await withinTime(clock, limits.lastRequestsMs, stopListening(server), () => undefined);
    closing ??= shut();
    await closing;
  }

  async function shut(): Promise<void> {
    webSockets.terminateAll();
    const { promise, resolve } = Promise.withResolvers<void>();
    server.close(() => resolve());
    server.closeAllConnections();
    await promise;
    await router.close();
  }

  return {
    surfaces,
    async start() {
      const reason = refusalToListen({ host: address.host, insecure, surfaces });
      if (reason !== undefined) throw new AppError('LISTEN_REFUSED', { reason });
      await router.ready();
      return openAddress(server, address);
    },
    revalidate: webSockets.revalidate,
    drain(graceMs) {
      draining ??= finish(graceMs);
      return draining;
    },
    close() {
      closing ??= shut();
      return closing;
    },
  };
}

/** The address of a WebSocket, called without asking for one: its guard speaks first all the same. */
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

function isBelow(path: string, prefix: string): boolean {
  if (!path.startsWith(prefix)) return false;
  return path.length === prefix.length || prefix.endsWith('/') || path[prefix.length] === '/';
}
