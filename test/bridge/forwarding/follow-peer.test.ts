import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { LookupFunction } from 'node:net';
import { type TestContext, test } from 'node:test';
import { type WebSocket, WebSocketServer } from 'ws';
import { createFollowPeer } from '../../../src/bridge/forwarding/update-relay.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { freePort } from '../../kit/free-port.ts';
import { listenOnLoopback } from '../../kit/loopback-server.ts';
import { startScriptedHttp } from '../../kit/scripted-http.ts';
import { until } from '../../kit/until.ts';

const IDLE_MS = 75_000;

/** A node that the test plays. */
async function startNode(t: TestContext) {
  const opened: { readonly socket: WebSocket; readonly request: IncomingMessage }[] = [];
  const server = createServer();
  const sockets = new WebSocketServer({ server, path: '/acp' });
  sockets.on('connection', (socket, request) => opened.push({ socket, request }));
  const { url, close } = await listenOnLoopback(server);
  t.after(async () => {
    for (const { socket } of opened) socket.terminate();
    await close();
  });
  const connection = (index: number) => until(`connection ${index}`, () => opened[index]);
  return { url, opened, connection };
}

type Updates = Parameters<ReturnType<typeof createFollowPeer>>[0];

function start(endpoint: string, changes: Partial<Updates> = {}, lookup?: LookupFunction) {
  const clock = createFakeClock();
  const seen: unknown[] = [];
  const state = { ended: 0 };
  const stop = createFollowPeer({ clock, lookup, connectMs: 4000, idleMs: IDLE_MS })({
    ...{ endpoint, headers: { 'x-given': 'yes' }, sessionId: 's/1', afterSeq: undefined, withQuestions: false },
    update: (params) => void seen.push(params),
    drained: async () => true,
    ended() {
      state.ended += 1;
    },
    ...changes,
  });
  const isOver = () => until('the end', () => state.ended > 0);
  return { stop, clock, seen, state, isOver };
}
const update = (seq: number) => JSON.stringify({ method: 'session.update', params: { seq } });

test('forwarding: a session is followed at its node from where the client was, with questions if it takes them', async (t) => {
  const node = await startNode(t);
  const asked = async (changes: Partial<Updates>) => {
    const { stop } = start(node.url, changes);
    const { request } = await node.connection(node.opened.length);
    (await stop)();
    return request;
  };
  const plain = await asked({});
  assert.equal(plain.url, '/acp?sessionId=s%2F1');
  assert.equal(plain.headers['x-given'], 'yes');
  assert.equal(plain.headers['sec-websocket-extensions'], undefined, 'updates are not compressed between nodes');
  assert.equal((await asked({ afterSeq: 0 })).url, '/acp?sessionId=s%2F1&afterSeq=0');
  assert.equal(
    (await asked({ afterSeq: 7, withQuestions: true })).url,
    '/acp?sessionId=s%2F1&afterSeq=7&questions=true',
  );
});

test('forwarding: updates come as fast as the client takes them, and everything else is left out', async (t) => {
  const node = await startNode(t);
  const gate = Promise.withResolvers<boolean>();
  const { seen } = start(node.url, { drained: () => gate.promise });
  const { socket } = await node.connection(0);
  for (const other of ['not json', '[]', JSON.stringify({ method: 'other', params: { seq: 9 } })]) socket.send(other);
  socket.send(update(1));
  await until('the first update', () => seen.length > 0);
  socket.send(update(2));
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(seen, [{ seq: 1 }]);
  gate.resolve(true);
  await until('the second update', () => seen.length > 1);
  assert.deepEqual(seen, [{ seq: 1 }, { seq: 2 }]);
});

test('forwarding: a node that neither pings nor sends is followed no more after its time', async (t) => {
  const node = await startNode(t);
  const { clock, seen, state, isOver } = start(node.url);
  const { socket } = await node.connection(0);
  const ping = async () => {
    socket.ping();
    await once(socket, 'pong');
  };
  await ping();
  await clock.advance(IDLE_MS - 1);
  await ping();
  await clock.advance(IDLE_MS - 1);
  socket.send(update(1));
  await until('the update', () => seen.length > 0);
  await clock.advance(IDLE_MS - 1);
  await ping();
  assert.equal(state.ended, 0);
  await clock.advance(IDLE_MS);
  await isOver();
  assert.equal(clock.pending(), 0);
});

test('forwarding: following ends once, by either side, and leaves no timer', async (t) => {
  const node = await startNode(t);
  const stopped = start(node.url);
  const { socket } = await node.connection(0);
  const closed = once(socket, 'close');
  (await stopped.stop)();
  await Promise.all([closed, stopped.isOver()]);
  const left = start(node.url);
  (await node.connection(1)).socket.terminate();
  await left.isOver();
  for (const { state, clock } of [stopped, left]) assert.deepEqual([state.ended, clock.pending()], [1, 0]);
});

test('forwarding: a node that is away, points elsewhere or lies outside of all tunnels is not followed', async (t) => {
  const elsewhere = await startScriptedHttp(t, ({ response }) => void response.end());
  const pointing = await startScriptedHttp(t, ({ response }) => {
    response.writeHead(307, { location: elsewhere.url }).end();
  });
  const outside = ((_host: string, _options: unknown, found: (error: null, addresses: object[]) => void) =>
    found(null, [{ address: '8.8.8.8', family: 4 }])) as unknown as LookupFunction;
  const away = start(`http://127.0.0.1:${await freePort()}`);
  for (const { isOver, state } of [away, start(pointing.url), start('http://node.example:1', {}, outside)]) {
    await isOver();
    assert.equal(state.ended, 1);
  }
  assert.deepEqual([pointing.requests.length, elsewhere.requests.length], [1, 0]);
});
