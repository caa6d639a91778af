import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { type EventStream, openEventStream } from '../../../src/platform/sse/sse-writer.ts';
import { exchange, openRaw, statusOf } from '../../kit/raw-connection.ts';
import { echoOf, type RunningListener, routeOf, startListener, surfaceOf } from '../../kit/start-listener.ts';
import { until } from '../../kit/until.ts';

const statusAt = async ({ url }: RunningListener, path: string) => (await fetch(url + path)).status;

async function openSocket(url: string): Promise<WebSocket> {
  const socket = new WebSocket(`${url.replace('http', 'ws')}/lab/socket`);
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  return socket;
}

async function isRefused(t: TestContext, port: number): Promise<boolean> {
  try {
    (await openRaw(t, port)).socket.destroy();
    return false;
  } catch {
    return true;
  }
}

test('P-36: with 200 open streams readiness is 503 immediately, new work is refused, the streams finish, then all is closed', async (t) => {
  const streams: EventStream[] = [];
  const routes = [
    routeOf({
      path: '/lab/stream',
      handle({ reply }) {
        const stream = openEventStream(reply, { clock: systemClock });
        stream.send({ data: 'first' });
        streams.push(stream);
        return reply;
      },
    }),
    routeOf({ path: '/lab/ok' }),
  ];
  const running = await startListener(t, { surfaces: [surfaceOf({ routes, upgrades: [echoOf()] })] });
  const { listener, url, bound } = running;
  const responses = await Promise.all(Array.from({ length: 200 }, () => fetch(`${url}/lab/stream`)));
  let drained = false;
  const draining = listener.drain(30_000).then(() => {
    drained = true;
  });

  assert.equal(await statusAt(running, '/readyz'), 503);
  assert.equal(await statusAt(running, '/healthz'), 200);
  assert.equal(await statusAt(running, '/metrics'), 200);
  const refused = await fetch(`${url}/lab/ok`);
  assert.equal(refused.status, 503);
  assert.equal(((await refused.json()) as { lab: string }).lab, 'SHUTTING_DOWN');
  assert.equal(refused.headers.get('connection'), 'close');
  assert.equal(refused.headers.get('retry-after'), '1');
  await assert.rejects(openSocket(url), /503/);
  assert.equal(drained, false);

  for (const stream of streams) {
    stream.send({ data: '[DONE]' });
    stream.end();
  }
  const texts = await Promise.all(responses.map((response) => response.text()));
  // On a busy machine a stream may have been silent for so long that a comment was sent.
  const events = texts.map((text) => text.replaceAll(': keep-alive\n\n', ''));
  assert.deepEqual(new Set(events), new Set(['data: first\n\ndata: [DONE]\n\n']));
  await draining;
  await assert.rejects(openRaw(t, bound.port), { code: 'ECONNREFUSED' });
});

test('O-08: a request in flight gets its answer, and the connection is closed after it', async (t) => {
  const routes = [routeOf({ path: '/lab/slow', handle: () => pause(200, { done: true }) })];
  const { listener, bound } = await startListener(t, { surfaces: [surfaceOf({ routes })] });
  const idle = await openRaw(t, bound.port);
  const busy = await openRaw(t, bound.port);
  busy.socket.write('GET /lab/slow HTTP/1.1\r\nHost: a\r\n\r\n');
  await pause(50);
  await listener.drain(30_000);
  const answer = await busy.closed();
  assert.equal(statusOf(answer), 200);
  assert.match(answer, /^connection: close\r$/im);
  assert.ok(answer.endsWith('{"done":true}'));
  await idle.closed();
});

test('O-08: a connection that was kept after a stream is closed by its next response, and not cut', async (t) => {
  const opened = Promise.withResolvers<EventStream>();
  const routes = [
    routeOf({
      path: '/lab/stream',
      handle({ reply }) {
        opened.resolve(openEventStream(reply, { clock: systemClock }));
        return reply;
      },
    }),
  ];
  const { listener, bound } = await startListener(t, {
    surfaces: [surfaceOf({ routes })],
    limits: { lastRequestsMs: 30_000 },
  });
  const kept = await openRaw(t, bound.port);
  kept.socket.write('GET /lab/stream HTTP/1.1\r\nHost: a\r\n\r\n');
  const stream = await opened.promise;
  const draining = listener.drain(30_000);
  stream.end();
  await kept.until('0\r\n\r\n');
  await until('new connections to be refused', () => isRefused(t, bound.port));
  kept.socket.write('GET /lab/stream HTTP/1.1\r\nHost: a\r\n\r\n');
  const answers = await kept.closed();
  assert.match(answers, /HTTP\/1\.1 503 .*^connection: close\r$/ims);
  // With the last connection it is over, however long it would have waited.
  await draining;
});

test('O-08: connections that only the system knows of when the end begins are answered, and not cut', async (t) => {
  const { listener, bound } = await startListener(t, { limits: { lastRequestsMs: 30_000 } });
  const answers = Array.from({ length: 20 }, () => exchange(t, bound.port, 'GET /lab HTTP/1.1\r\nHost: a\r\n\r\n'));
  const draining = listener.drain(30_000);
  for (const answer of await Promise.all(answers)) assert.equal(statusOf(answer), 503);
  await draining;
});

test('O-08: a connection on which nothing is asked any more is closed in the end', async (t) => {
  const { listener, bound } = await startListener(t, { limits: { lastRequestsMs: 50 } });
  const idle = await openRaw(t, bound.port);
  await listener.drain(30_000);
  assert.equal(await idle.closed(), '');
});

test('O-08: what has not finished within the grace is cut off', async (t) => {
  const routes = [routeOf({ path: '/lab/never', handle: () => new Promise(() => {}) })];
  const { listener, bound } = await startListener(t, {
    surfaces: [surfaceOf({ routes, upgrades: [echoOf()], settle: () => new Promise(() => {}) })],
  });
  const stuck = await openRaw(t, bound.port);
  stuck.socket.write('GET /lab/never HTTP/1.1\r\nHost: a\r\n\r\n');
  const socket = await openSocket(bound.url);
  const ended = new Promise((resolve) => socket.once('close', resolve));
  await listener.drain(100);
  assert.equal(await stuck.closed(), '');
  assert.equal(await ended, 1001);
});

test('O-08: a WebSocket stays open until the work of its surface is done, and is then closed with 1001', async (t) => {
  const work = Promise.withResolvers<void>();
  const surface = surfaceOf({ upgrades: [echoOf()], settle: () => work.promise });
  const { listener, url } = await startListener(t, { surfaces: [surface] });
  const socket = await openSocket(url);
  const ended = new Promise((resolve) => socket.once('close', resolve));
  const draining = listener.drain(30_000);
  const echoed = new Promise((resolve) => socket.once('message', (data) => resolve(String(data))));
  socket.send('still here');
  assert.equal(await echoed, 'still here');
  work.resolve();
  assert.equal(await ended, 1001);
  await draining;
});

test('O-08: a peer that does not confirm the close cannot hold up the end', async (t) => {
  const { listener, url } = await startListener(t, {
    surfaces: [surfaceOf({ upgrades: [echoOf()] })],
    limits: { closeTimeoutMs: 100 },
  });
  const socket = await openSocket(url);
  socket.pause();
  t.after(() => socket.terminate());
  await listener.drain(30_000);
});

test('O-08: closing immediately ends everything, also a guard that is still thinking', async (t) => {
  const thinking = Promise.withResolvers<void>();
  const guard = () => {
    thinking.resolve();
    return new Promise<never>(() => {});
  };
  const { listener, url } = await startListener(t, { surfaces: [surfaceOf({ upgrades: [echoOf({ guard })] })] });
  const refused = assert.rejects(openSocket(url));
  await thinking.promise;
  await listener.close();
  await refused;
});
