import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { WebSocket, WebSocketServer } from 'ws';
import { createScope } from '../../test/kit/create-scope.ts';
import type { EchoRound } from '../platform/echo-client.ts';
import { type BenchServer, type Rates, type Rounds, takeTurns } from '../report/take-turns.ts';
import { startScriptedBridge } from './scripted-bridge.ts';

const MESSAGE = JSON.stringify({ jsonrpc: '2.0', id: 'call-000001', method: 'acp.capabilities', params: {} });
const LOAD = { connections: 8, window: 32, message: MESSAGE };

type CallServer = BenchServer<Omit<EchoRound, 'ms'>>;

/** `acp.capabilities` over the bridge's WebSocket beside a bare `ws` server that answers with as many bytes. */
export async function benchCapabilities(rounds: Rounds): Promise<{ bound: Rates; ours: Rates }> {
  const client = new URL('../platform/echo-client.ts', import.meta.url);
  const ours = await startOurServer();
  return takeTurns(client, await startRawServer(await answerOf(ours.round.url)), ours, rounds);
}

async function startOurServer(): Promise<CallServer> {
  const scope = createScope();
  const { url } = await startScriptedBridge(scope);
  return { round: { ...LOAD, url: `${url.replace(/^http/, 'ws')}/acp` }, close: scope.end };
}

async function answerOf(url: string): Promise<string> {
  const socket = new WebSocket(url);
  await once(socket, 'open');
  socket.send(MESSAGE);
  const [data] = await once(socket, 'message');
  socket.terminate();
  return String(data);
}

async function startRawServer(answer: string): Promise<CallServer> {
  const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate: false });
  server.on('connection', (socket) => socket.on('message', () => socket.send(answer)));
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
