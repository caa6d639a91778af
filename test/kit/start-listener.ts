import { Writable } from 'node:stream';
import type { TestContext } from 'node:test';
import { pino } from 'pino';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { createHttpMetrics } from '../../src/platform/http/http-metrics.ts';
import type { BoundAddress } from '../../src/platform/http/listen-address.ts';
import { createListener, type Listener, type ListenerOptions } from '../../src/platform/http/listener.ts';
import { anyone, type HttpSurface, type Route, type UpgradeRoute } from '../../src/platform/http/surface.ts';

export interface RunningListener {
  readonly listener: Listener;
  readonly bound: BoundAddress;
  readonly url: string;
  /** Parsed log lines. */
  readonly log: Record<string, unknown>[];
}

/** A surface with an error shape of its own, so that a test sees which surface refused. */
export function surfaceOf(parts: Partial<HttpSurface>): HttpSurface {
  return {
    name: 'lab',
    title: 'Lab',
    prefixes: ['/lab'],
    routes: [],
    upgrades: [],
    errors: { TEAPOT: { status: 418, message: 'I am {what}.' } },
    errorBody: ({ code, message, requestId, details }) => ({ lab: code, message, requestId, details }),
    isOpen: () => false,
    ...parts,
  };
}

export function routeOf<Caller>(parts: Partial<Route<Caller>> & Pick<Route<Caller>, 'path'>): Route<Caller> {
  return { method: 'GET', guard: anyone, summary: 'A test.', handle: () => ({ ok: true }), ...parts };
}

/** Sends every message back. */
export function echoOf<Caller>(parts: Partial<UpgradeRoute<Caller>> = {}): UpgradeRoute<Caller> {
  return {
    path: '/lab/socket',
    guard: anyone,
    summary: 'A test.',
    accept: (channel) => channel.onMessage((text) => channel.send(text)),
    stillAllowed: () => true,
    ...parts,
  };
}

/** Starts a listener on a free loopback port, and closes it when the test is over. */
export async function startListener(t: TestContext, options: Partial<ListenerOptions> = {}): Promise<RunningListener> {
  const log: Record<string, unknown>[] = [];
  const sink = new Writable({
    write(line, _encoding, done) {
      log.push(JSON.parse(String(line)));
      done();
    },
  });
  const listener = createListener({
    surfaces: [surfaceOf({})],
    address: { host: '127.0.0.1', port: 0 },
    metrics: createHttpMetrics(),
    logger: pino({ level: 'debug' }, sink),
    clock: systemClock,
    randomness: systemRandomness,
    ...options,
    limits: { lingerMs: 200, closeTimeoutMs: 500, lastRequestsMs: 200, ...options.limits },
  });
  t.after(() => listener.close());
  const bound = await listener.start();
  return { listener, bound, url: bound.url, log };
}
