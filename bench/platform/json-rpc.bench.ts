import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { Type } from 'typebox';
import { WebSocketServer } from 'ws';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import { platformErrors } from '../../src/platform/errors/error-table.ts';
import { createHttpMetrics } from '../../src/platform/http/http-metrics.ts';
import { createListener } from '../../src/platform/http/listener.ts';
import { anyone, type HttpSurface } from '../../src/platform/http/surface.ts';
import { hybridEnvelope } from '../../src/platform/json-rpc/envelope.ts';
import { createDispatch, defineMethod } from '../../src/platform/json-rpc/method-table.ts';
import { createPeer } from '../../src/platform/json-rpc/peer.ts';
import { type BenchServer, type Rates, type Rounds, takeTurns } from '../report/take-turns.ts';
import type { EchoRound } from './echo-client.ts';

const LOAD = { connections: 8, window: 32 };

/**
 * `echo` over our WebSocket, with checked parameters and the hybrid envelope, beside a bare `ws` server that parses and
 * serialises the same message.
 */
export async function benchJsonRpc(rounds: Rounds): Promise<{ bound: Rates; ours: Rates }> {
  const client = new URL('./echo-client.ts', import.meta.url);
  return takeTurns(client, await startRawServer(), await startOurServer(), rounds);
}

type EchoServer = BenchServer<Omit<EchoRound, 'ms'>>;

async function startRawServer(): Promise<EchoServer> {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: false });
  server.on('connection', (socket) => {
    socket.on('message', (data) => socket.send(JSON.stringify(JSON.parse(String(data)))));
  });
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    round: { ...LOAD, url: `ws://127.0.0.1:${port}` },
    close() {
      for (const socket of server.clients) socket.terminate();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

const echo = defineMethod({
  name: 'echo',
  summary: 'Gives its parameters back.',
  params: Type.Object({ text: Type.String(), count: Type.Integer(), list: Type.Array(Type.Number()) }),
  result: Type.Object({}),
  handle: (params) => params,
});

async function startOurServer(): Promise<EchoServer> {
  const dispatch = createDispatch({ rows: [echo] });
  const surface: HttpSurface = {
    name: 'bench',
    title: 'Benchmark',
    prefixes: ['/rpc'],
    routes: [],
    upgrades: [
      {
        path: '/rpc',
        guard: anyone,
        summary: 'JSON-RPC.',
        accept(channel) {
          createPeer({
            channel,
            dispatch,
            caller: undefined,
            envelope: hybridEnvelope,
            errors: platformErrors,
            clock: systemClock,
            limits: { callsInFlight: 1024 },
            makeRequestId: () => 'bench',
            onUnexpectedError: (error) => console.error(error),
          });
        },
        stillAllowed: () => true,
      },
    ],
    errors: platformErrors,
    errorBody: ({ code }) => ({ code }),
    isOpen: () => true,
  };
  const listener = createListener({
    surfaces: [surface],
    address: { host: '127.0.0.1', port: 0 },
    metrics: createHttpMetrics(),
    logger: pino({ enabled: false }),
    clock: systemClock,
    randomness: systemRandomness,
  });
  const { port } = await listener.start();
  return { round: { ...LOAD, url: `ws://127.0.0.1:${port}/rpc` }, close: () => listener.close() };
}
