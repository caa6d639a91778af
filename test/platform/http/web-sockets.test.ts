import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type TestContext, test } from 'node:test';
import { WebSocket } from 'ws';
import type { ChannelEnd, MessageChannel } from '../../../src/platform/json-rpc/message-channel.ts';
import { exchange, statusOf } from '../../kit/raw-connection.ts';
import { CLOSE, frame, openRawWebSocket, TEXT } from '../../kit/raw-web-socket.ts';
import { echoOf, routeOf, startListener, surfaceOf } from '../../kit/start-listener.ts';
import { until } from '../../kit/until.ts';

async function openSocket(t: TestContext, url: string): Promise<WebSocket> {
  const socket = new WebSocket(`${url.replace('http', 'ws')}/lab/socket`);
  t.after(() => socket.terminate());
  await once(socket, 'open');
  return socket;
}

const closeOf = async (socket: WebSocket) => {
  const [code, reason] = await once(socket, 'close');
  return [code, String(reason)];
};

test('messages go both ways, many at the same time, in order', async (t) => {
  const { url } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [echoOf()] })] });
  const socket = await openSocket(t, url);
  const got: string[] = [];
  const done = Promise.withResolvers<void>();
  socket.on('message', (data) => {
    if (got.push(String(data)) === 1000) done.resolve();
  });
  const sent = Array.from({ length: 1000 }, (_, index) => `message ${index} ${'ü'.repeat(index % 50)}`);
  for (const text of sent) socket.send(text);
  await done.promise;
  assert.deepEqual(got, sent);
});

test('what is sent within one turn of the loop leaves in one write', async (t) => {
  const opened = Promise.withResolvers<MessageChannel>();
  const upgrades = [echoOf({ accept: opened.resolve })];
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ upgrades })] });
  const raw = await openRawWebSocket(t, bound.port);
  const channel = await opened.promise;
  const chunks: Buffer[] = [];
  raw.socket.on('data', (chunk) => chunks.push(chunk));
  for (let index = 0; index < 50; index += 1) channel.send('x');
  await until('all bytes', () => Buffer.concat(chunks).length === 150);
  assert.equal(chunks.length, 1);
});

test('messages that come before anyone listens are kept, and a late listener learns of the end', async (t) => {
  const opened = Promise.withResolvers<MessageChannel>();
  const upgrades = [echoOf({ accept: opened.resolve })];
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ upgrades })] });
  const raw = await openRawWebSocket(t, bound.port);
  for (const text of ['one', 'two', 'three']) raw.socket.write(frame({ opcode: TEXT, payload: text }));
  raw.socket.write(frame({ opcode: CLOSE, payload: Buffer.from([0x0f, 0xa1, 0x62, 0x79, 0x65]) }));
  const channel = await opened.promise;
  await new Promise((resolve) => setTimeout(resolve, 50));
  const got: unknown[] = [];
  channel.onMessage((text) => got.push(text));
  channel.onEnd((end) => got.push(end));
  await raw.closed();
  const end: ChannelEnd = { code: 4001, reason: 'bye' };
  await until('four messages', () => got.length === 4);
  assert.deepEqual(got, ['one', 'two', 'three', end]);
  const late: ChannelEnd[] = [];
  channel.onEnd((value) => late.push(value));
  assert.deepEqual(late, [end]);
  channel.send('into the void');
  channel.close();
});

test('a channel closes with its code and reason, and a code that may not be sent becomes 1011', async (t) => {
  const closes: [code: number | undefined, reason: string | undefined, seen: unknown[]][] = [
    [undefined, undefined, [1000, '']],
    [4000, 'done', [4000, 'done']],
    [1006, 'broken', [1011, 'broken']],
    [1000, 'ü'.repeat(100), [1000, 'ü'.repeat(60)]],
  ];
  for (const [code, reason, seen] of closes) {
    const accept = (channel: MessageChannel) => channel.close(code, reason);
    const { url } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [echoOf({ accept })] })] });
    const socket = new WebSocket(`${url.replace('http', 'ws')}/lab/socket`);
    assert.deepEqual(await closeOf(socket), seen);
  }
});

test('O-01: an error in the code behind a channel closes that channel with 1011 and no other', async (t) => {
  const upgrade = echoOf({
    accept: (channel) =>
      channel.onMessage((text) => {
        if (text === 'fail') throw new Error('boom');
        channel.send(text);
      }),
  });
  const { url, log } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [upgrade] })] });
  const [bad, good] = [await openSocket(t, url), await openSocket(t, url)];
  bad.send('fail');
  assert.deepEqual(await closeOf(bad), [1011, 'internal error']);
  assert.ok(log.some(({ level, err }) => level === 50 && JSON.stringify(err).includes('boom')));
  good.send('fine');
  assert.equal(String((await once(good, 'message'))[0]), 'fine');
});

test('what fails while the instance leaves closes a channel with 1012, because its client is to connect again', async (t) => {
  const channels: MessageChannel[] = [];
  const upgrade = echoOf({ accept: (channel) => void channels.push(channel) });
  const { url, listener } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [upgrade] })] });
  const sockets = [await openSocket(t, url), await openSocket(t, url)];
  const closes = Promise.all(sockets.map((socket) => closeOf(socket)));
  channels[0]?.close(1011, 'before');
  const drained = listener.drain(1_000, 60_000);
  t.after(() => listener.close());
  channels[1]?.close(1011, 'afterwards');
  assert.deepEqual(await closes, [
    [1011, 'before'],
    [1012, 'afterwards'],
  ]);
  void drained;
});

test('O-01: an error while a socket is accepted closes it with 1011', async (t) => {
  const accept = () => {
    throw new Error('boom');
  };
  const { url } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [echoOf({ accept })] })] });
  assert.deepEqual(await closeOf(await openSocket(t, url)), [1011, 'internal error']);
});

test('B-27: after a reload the sockets whose caller is no longer allowed are closed with 1008, the others stay', async (t) => {
  const allowed = new Set(['main', 'review']);
  const upgrade = echoOf<string>({
    guard: (head) => head.query.get('as') ?? '',
    stillAllowed: (caller) => allowed.has(caller),
  });
  const { url, listener } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [upgrade] })] });
  const [main, review] = ['main', 'review'].map(
    (name) => new WebSocket(`${url.replace('http', 'ws')}/lab/socket?as=${name}`),
  );
  assert.ok(main !== undefined && review !== undefined);
  t.after(() => main.terminate());
  await Promise.all([once(main, 'open'), once(review, 'open')]);
  listener.revalidate();
  allowed.delete('review');
  const closed = closeOf(review);
  listener.revalidate();
  assert.deepEqual(await closed, [1008, 'no longer allowed']);
  main.send('still here');
  assert.equal(String((await once(main, 'message'))[0]), 'still here');
});

test('B-47: one socket too many from an address is refused with 503, and a place that became free can be taken', async (t) => {
  const { bound } = await startListener(t, {
    surfaces: [surfaceOf({ upgrades: [echoOf()] })],
    trustedProxies: ['127.0.0.1'],
    limits: { socketsPerAddress: 2 },
  });
  const open = async (address: string) => {
    const url = `ws://127.0.0.1:${bound.port}/lab/socket`;
    const socket = new WebSocket(url, { headers: { 'x-forwarded-for': address } });
    t.after(() => socket.terminate());
    await once(socket, 'open');
    return socket;
  };
  const [first] = [await open('203.0.113.1'), await open('203.0.113.1')];
  await assert.rejects(open('203.0.113.1'), /Unexpected server response: 503/);
  await open('203.0.113.2');
  first?.close();
  await once(first as WebSocket, 'close');
  await open('203.0.113.1');
});

test('a handshake that is wrong in itself is refused in the shape of the surface', async (t) => {
  const { bound } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [echoOf()] })] });
  const head = 'GET /lab/socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n';
  const ask = (lines: string) => exchange(t, bound.port, `${head}${lines}\r\n`);
  const badKey = await ask('Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n');
  assert.equal(statusOf(badKey), 400);
  assert.match(badKey, /"lab":"INVALID_REQUEST"/);
  const badVersion = await ask('Sec-WebSocket-Version: 7\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n');
  assert.equal(statusOf(badVersion), 426);
  assert.match(badVersion, /sec-websocket-version: 13\r\n/);
});

test('a row of its own at the address of a WebSocket is served to who asks for no upgrade', async (t) => {
  const surface = surfaceOf({ routes: [routeOf({ path: '/lab/socket' })], upgrades: [echoOf()] });
  const { url } = await startListener(t, { surfaces: [surface] });
  assert.equal((await fetch(`${url}/lab/socket`)).status, 200);
  const socket = await openSocket(t, url);
  socket.send('x');
  assert.equal(String((await once(socket, 'message'))[0]), 'x');
});
