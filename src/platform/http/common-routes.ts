import { type Static, Type } from 'typebox';
import { type Clock, withinTime } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';
import { platformErrors } from '../errors/error-table.ts';
import type { Logger } from '../log/logger.ts';
import { classifyAddress, isLoopbackHost } from '../network-address/classify-address.ts';
import { sameSecret } from '../secrets/tokens.ts';
import type { HttpMetrics } from './http-metrics.ts';
import type { HostCheck } from './listen-address.ts';
import { plainShape } from './refusal.ts';
import type { RequestState } from './request-state.ts';
import { anyone, bearerToken, type Guard, type HttpSurface, type RequestHead, type Route } from './surface.ts';

interface CommonRoutesOptions {
  readonly metrics: HttpMetrics;
  /** The bearer token that opens `/metrics` to other machines; empty when none does. Asked each time: it may change. */
  metricsToken(): string;
  readiness(): Promise<ReadinessReport>;
  /** How far the clock of this machine is ahead of that of the database. */
  clockDifferenceMs(): number;
  /** Whether it is about to stop: balancers should send nothing more. */
  isLeaving(): boolean;
}

/** These answer while the listener drains, and are asked by machines that need no credential. */
export const probePaths: ReadonlySet<string> = new Set(['/healthz', '/readyz', '/metrics']);

const Health = Type.Object({ status: Type.Literal('ok') });
const Readiness = Type.Object({
  status: Type.Union([Type.Literal('ready'), Type.Literal('unavailable'), Type.Literal('draining')]),
  checks: Type.Record(Type.String(), Type.String()),
  clockDifferenceMs: Type.Optional(
    Type.Integer({
      description: 'How far its clock is ahead of that of the database; present when that is more than five seconds.',
    }),
  ),
});
/** A larger difference is only reported, because removing the instance from a balancer would not correct its clock. */
const MAX_CLOCK_DIFFERENCE_MS = 5_000;

const FORWARDING_HEADERS = ['x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'forwarded', 'via'];

/** What every listener serves, whichever services it carries. */
export function createCommonSurface(options: CommonRoutesOptions): HttpSurface {
  const { metrics, readiness, isLeaving } = options;
  const routes: Route[] = [
    {
      method: 'GET',
      path: '/healthz',
      guard: anyone,
      summary: 'Returns 200 while the process runs.',
      schema: { response: { 200: Health } },
      handle: (): Static<typeof Health> => ({ status: 'ok' }),
    },
    {
      method: 'GET',
      path: '/readyz',
      guard: anyone,
      summary:
        'Returns 200 while the server accepts new work, and 503 during a shutdown or while a part that it needs fails.',
      schema: { response: { 200: Readiness, 503: Readiness } },
      async handle({ reply }): Promise<Static<typeof Readiness>> {
        const { ready, checks } = await readiness();
        const clockDifferenceMs = options.clockDifferenceMs();
        const isOff = Math.abs(clockDifferenceMs) > MAX_CLOCK_DIFFERENCE_MS;
        const facts = { checks, ...(isOff && { clockDifferenceMs }) };
        if (ready && !isLeaving()) return { status: 'ready', ...facts };
        reply.code(503);
        return { status: isLeaving() ? 'draining' : 'unavailable', ...facts };
      },
    },
    {
      method: 'GET',
      path: '/metrics',
      guard: metricsGuard(options),
      summary: 'Metrics for Prometheus: from this machine, or with the metrics token.',
      async handle({ reply }) {
        const { contentType, text } = await metrics.read();
        reply.type(contentType);
        return text;
      },
    },
  ];
  return {
    ...plainShape,
    name: 'platform',
    title: 'Operation',
    prefixes: [],
    errors: platformErrors,
    routes,
    upgrades: [],
    isOpen: () => false,
  };
}

function metricsGuard({ metricsToken }: CommonRoutesOptions): Guard<never> {
  return (head) => {
    if (isLocal(head)) return undefined as never;
    const expected = metricsToken();
    if (expected === '') throw new AppError('FORBIDDEN');
    if (!sameSecret(bearerToken(head), expected)) throw new AppError('UNAUTHORIZED');
    return undefined as never;
  };
}

/** Returns whether a program on this machine sent the request, not a proxy for another machine or a page with a foreign host. */
function isLocal({ peerAddress, headers }: RequestHead): boolean {
  if (classifyAddress(peerAddress) !== 'loopback' || !isLoopbackHost(headers.host ?? '')) return false;
  return FORWARDING_HEADERS.every((name) => headers[name] === undefined);
}

/** Resolves if the checked part works, rejects otherwise. */
export type ReadinessCheck = () => unknown;

interface ReadinessReport {
  readonly ready: boolean;
  readonly checks: Readonly<Record<string, CheckResult>>;
}

/** `away`: it fails, and may do so for a while. */
type CheckResult = 'ok' | 'away' | 'failed' | 'timeout';

interface ReadinessOptions {
  readonly checks: Readonly<Record<string, ReadinessCheck>>;
  readonly timeoutMs: number;
  /** How long a check may fail before it counts. Asked each time: it may change. */
  mayBeAwayMs(): number;
  readonly clock: Pick<Clock, 'after' | 'monotonic'>;
  readonly logger: Logger;
}

/** Runs all checks at the same time, each within the time limit. Calls during that time share one report. */
export function createReadiness(options: ReadinessOptions): () => Promise<ReadinessReport> {
  /** By check, since when it has failed each time. */
  const failingSince = new Map<string, number>();
  let running: Promise<ReadinessReport> | undefined;
  return () => {
    running ??= askAll(options, failingSince).finally(() => {
      running = undefined;
    });
    return running;
  };
}

async function askAll(options: ReadinessOptions, failingSince: Map<string, number>): Promise<ReadinessReport> {
  const { checks, timeoutMs, mayBeAwayMs, clock, logger } = options;
  const results = await Promise.all(
    Object.entries(checks).map(async ([name, check]): Promise<[string, CheckResult]> => {
      const asked = Promise.resolve()
        .then(check)
        .then(
          (): CheckResult => 'ok',
          (error): CheckResult => {
            logger.warn({ err: error, check: name }, 'a readiness check failed');
            return 'failed';
          },
        );
      const result = await withinTime(clock, timeoutMs, asked, (): CheckResult => 'timeout');
      if (result === 'ok') {
        failingSince.delete(name);
        return [name, result];
      }
      const now = clock.monotonic();
      const since = failingSince.get(name) ?? now;
      failingSince.set(name, since);
      return [name, now - since < mayBeAwayMs() ? 'away' : result];
    }),
  );
  const ready = results.every(([, result]) => result === 'ok' || result === 'away');
  return { ready, checks: Object.fromEntries(results) };
}

interface RequestCheckOptions {
  readonly headerCount: number;
  readonly checkHost: HostCheck;
  isDraining(): boolean;
  /** Paths that are served during a drain, with what lies below them. */
  readonly servedLast: readonly string[];
}

/** Checks every request before it is routed, WebSocket upgrades included. */
export type RequestCheck = (state: RequestState) => AppError | undefined;

export function createRequestCheck(options: RequestCheckOptions): RequestCheck {
  const { headerCount, checkHost, isDraining, servedLast } = options;
  const isServed = (path: string) =>
    probePaths.has(path) || servedLast.some((last) => path === last || path.startsWith(`${last}/`));
  return (state) => {
    const { request } = state;
    if (request.rawHeaders.length > headerCount * 2) return new AppError('HEADERS_TOO_LARGE');
    const refusal = checkHost(request);
    if (refusal !== undefined) return refusal;
    // A whole URL as the target would bring a second host name past the check.
    if (request.url?.charCodeAt(0) !== 0x2f) {
      return new AppError('INVALID_REQUEST', { reason: 'its target must be a path' });
    }
    return isDraining() && !isServed(state.path) ? new AppError('SHUTTING_DOWN') : undefined;
  };
}
