import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { WebSocketServer } from 'ws';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { platformErrors } from '../../src/platform/errors/error-table.ts';
import { createHttpMetrics } from '../../src/platform/http/http-metrics.ts';
import { createListener } from '../../src/platform/http/listener.ts';
import { anyone } from '../../src/platform/http/surface.ts';

export type ServerKind = 'raw' | 'ours';

export interface ServerMemory {
  readonly resident: number;
  readonly used: number;
}

async function startRaw(): Promise<number> {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: false });
  server.on('connection', (socket) => socket.on('message', (data) => socket.send(String(data))));
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function startOurs(): Promise<number> {
  const listener = createListener({
    surfaces: [
      {
        name: 'bench',
        title: 'Benchmark',
        prefixes: ['/socket'],
        routes: [],
        upgrades: [
          {
            path: '/socket',
            guard: anyone,
            summary: 'Echo.',
            accept: (channel) => channel.onMessage((text) => channel.send(text)),
            stillAllowed: () => true,
          },
        ],
        errors: platformErrors,
        errorBody: ({ code }) => ({ code }),
        isOpen: () => true,
      },
    ],
    address: { host: '127.0.0.1', port: 0 },
    metrics: createHttpMetrics(),
    logger: pino({ enabled: false }),
    clock: systemClock,
    randomness: systemRandomness,
  });
  return (await listener.start()).port;
}

process.on('message', () => {
  globalThis.gc?.();
  const { rss, heapUsed, external } = process.memoryUsage();
  process.send?.({ resident: rss, used: heapUsed + external } satisfies ServerMemory);
});
process.on('disconnect', () => process.exit());
process.send?.(await (process.argv[2] === 'raw' ? startRaw() : startOurs()));
