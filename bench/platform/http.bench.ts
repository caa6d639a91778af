import { openSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { fastify } from 'fastify';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { platformErrors } from '../../src/platform/errors/error-table.ts';
import { createHttpMetrics } from '../../src/platform/http/http-metrics.ts';
import { createListener } from '../../src/platform/http/listener.ts';
import { anyone } from '../../src/platform/http/surface.ts';
import { createBufferedOutput } from '../../src/platform/log/log-output.ts';
import { createLogger } from '../../src/platform/log/logger.ts';
import { type BenchServer, type Rates, type Rounds, takeTurns } from '../report/take-turns.ts';
import type { RequestRound } from './http-client.ts';

const LOAD = { connections: 32, path: '/empty' };

/**
 * An empty route on our listener, with everything on (guard, request id, security headers, metrics, a log line), beside
 * a bare Fastify route.
 */
export async function benchHttp(rounds: Rounds): Promise<{ bound: Rates; ours: Rates }> {
  const client = new URL('./http-client.ts', import.meta.url);
  return takeTurns(client, await startBareServer(), await startOurServer(), rounds);
}

type HttpServer = BenchServer<Omit<RequestRound, 'ms'>>;

async function startBareServer(): Promise<HttpServer> {
  const server = fastify({ logger: false });
  server.get('/empty', () => ({ ok: true }));
  await server.listen({ host: '127.0.0.1', port: 0 });
  const { port } = server.server.address() as AddressInfo;
  return {
    round: { ...LOAD, port },
    close() {
      server.server.closeAllConnections();
      return server.close();
    },
  };
}

async function startOurServer(): Promise<HttpServer> {
  const descriptor = openSync('/dev/null', 'w');
  const output = createBufferedOutput({ clock: systemClock, descriptor });
  const logger = createLogger({ level: 'info', format: 'json', output, clock: systemClock, secrets: () => [] });
  const listener = createListener({
    surfaces: [
      {
        name: 'bench',
        title: 'Benchmark',
        prefixes: ['/empty'],
        routes: [{ method: 'GET', path: '/empty', guard: anyone, summary: 'Nothing.', handle: () => ({ ok: true }) }],
        upgrades: [],
        errors: platformErrors,
        errorBody: ({ code }) => ({ code }),
        isOpen: () => true,
      },
    ],
    address: { host: '127.0.0.1', port: 0 },
    metrics: createHttpMetrics(),
    logger,
    requestLines: output,
    clock: systemClock,
    randomness: systemRandomness,
  });
  const { port } = await listener.start();
  return { round: { ...LOAD, port }, close: () => listener.close() };
}
