import { type Static, Type } from 'typebox';
import { AppError } from '../errors/app-error.ts';
import { platformErrors } from '../errors/platform-errors.ts';
import { classifyAddress } from '../network-address/classify-address.ts';
import { isLoopbackHost } from '../network-address/classify-host.ts';
import { sameSecret } from '../secrets/token-digest.ts';
import { anyone } from './anyone.ts';
import { bearerToken } from './bearer-token.ts';
import type { HttpMetrics } from './http-metrics.ts';
import type { ReadinessReport } from './readiness.ts';
import { plainShape } from './refusal.ts';
import type { Guard, HttpSurface, RequestHead, Route } from './surface.ts';

export interface CommonRoutesOptions {
  readonly metrics: HttpMetrics;
  /** The bearer token that opens `/metrics` to other machines; empty when none does. Asked each time: it may change. */
  metricsToken(): string;
  readiness(): Promise<ReadinessReport>;
  isDraining(): boolean;
}

/** These answer while the listener drains, and are asked by machines that need no credential. */
export const probePaths: ReadonlySet<string> = new Set(['/healthz', '/readyz', '/metrics']);

const Health = Type.Object({ status: Type.Literal('ok') });
const Readiness = Type.Object({
  status: Type.Union([Type.Literal('ready'), Type.Literal('unavailable'), Type.Literal('draining')]),
  checks: Type.Record(Type.String(), Type.String()),
});

const FORWARDING_HEADERS = ['x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'forwarded', 'via'];

/** What every listener serves, whichever services it carries. */
export function createCommonSurface(options: CommonRoutesOptions): HttpSurface {
  const { metrics, readiness, isDraining } = options;
  const routes: Route[] = [
    {
      method: 'GET',
      path: '/healthz',
      guard: anyone,
      summary: 'Whether the process lives.',
      schema: { response: { 200: Health } },
      handle: (): Static<typeof Health> => ({ status: 'ok' }),
    },
    {
      method: 'GET',
      path: '/readyz',
      guard: anyone,
      summary: 'Whether it takes new work: 503 while a part it needs fails, and while it shuts down.',
      schema: { response: { 200: Readiness, 503: Readiness } },
      async handle({ reply }): Promise<Static<typeof Readiness>> {
        const { ready, checks } = await readiness();
        if (ready && !isDraining()) return { status: 'ready', checks };
        reply.code(503);
        return { status: isDraining() ? 'draining' : 'unavailable', checks };
      },
    },
    {
      method: 'GET',
      path: '/metrics',
      guard: metricsGuard(options),
      summary: 'Figures for Prometheus: from this machine, or with the metrics token.',
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

/** A program on this machine, and neither a proxy that speaks for someone else nor a page that borrowed the address. */
function isLocal({ peerAddress, headers }: RequestHead): boolean {
  if (classifyAddress(peerAddress) !== 'loopback' || !isLoopbackHost(headers.host ?? '')) return false;
  return FORWARDING_HEADERS.every((name) => headers[name] === undefined);
}
