import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type EventStream, type EventStreamOptions, openEventStream } from '../../../src/platform/sse/sse-writer.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { exchange, openRaw, statusOf } from '../../kit/raw-connection.ts';
import { routeOf, startListener, surfaceOf } from '../../kit/start-listener.ts';
import { until } from '../../kit/until.ts';
import { readEvents } from './read-events.ts';

/** A listener whose one route opens an event stream and hands it to the test. */
async function start(t: TestContext, options: Partial<EventStreamOptions> = {}) {
  const clock = createFakeClock();
  const streams: EventStream[] = [];
  const route = routeOf({
    path: '/lab/stream',
    handle({ reply }) {
      reply.header('x-from-handler', 'yes');
      streams.push(openEventStream(reply, { clock, ...options }));
      return reply;
    },
  });
  const running = await startListener(t, { surfaces: [surfaceOf({ routes: [route] })] });
  const raw = await openRaw(t, running.bound.port);
  raw.socket.write('GET /lab/stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  const stream = await until('a stream', () => streams[0]);
  return { ...running, clock, stream, raw };
}

/** The events in a chunked response. */
const eventsIn = (response: string) =>
  readEvents(response.slice(response.indexOf('\r\n\r\n') + 4).replaceAll(/(?:\r\n)?[0-9a-f]+\r\n/g, ''));

test('P-02: the headers of a stream are sent immediately, with those of the handler and of the platform', async (t) => {
  const { raw } = await start(t, { headers: { 'x-more': '1' } });
  const head = await raw.until('\r\n\r\n');
  assert.equal(statusOf(head), 200);
  const expected = [
    'content-type: text/event-stream; charset=utf-8',
    'cache-control: no-cache',
    'x-accel-buffering: no',
    'x-from-handler: yes',
    'x-more: 1',
    'x-content-type-options: nosniff',
    'x-request-id: req-',
  ];
  for (const line of expected) assert.ok(head.includes(`\r\n${line}`), line);
});

test('P-02: every event is flushed by itself, and the end closes the response', async (t) => {
  const { raw, stream } = await start(t);
  stream.send({ data: 'one', id: '1' });
  await raw.until('data: one\n\n');
  stream.send({ data: 'two', id: '2' });
  await raw.until('data: two\n\n');
  let closes = 0;
  stream.onClose(() => {
    closes += 1;
  });
  stream.end();
  stream.end();
  assert.equal(stream.closed, true);
  assert.deepEqual(eventsIn(await raw.closed()), [
    { id: '1', data: 'one' },
    { id: '2', data: 'two' },
  ]);
  assert.equal(stream.send({ data: 'late' }), false);
  assert.equal(closes, 1);
  stream.onClose(() => {
    closes += 1;
  });
  assert.equal(closes, 2);
});

test('P-05: a comment follows every 15 seconds of silence, and none while events flow', async (t) => {
  const { raw, stream, clock } = await start(t);
  const comments = () => raw.text().split(': keep-alive\n\n').length - 1;
  for (let second = 0; second < 60; second += 10) {
    await clock.advance(10_000);
    stream.send({ data: String(second) });
  }
  await raw.until('data: 50\n\n');
  assert.equal(comments(), 0);
  await clock.advance(15_000);
  await until('the first comment', () => comments() === 1);
  await clock.advance(30_000);
  await until('the third comment', () => comments() === 3);
  assert.equal(clock.pending(), 1);
  stream.end();
  assert.equal(clock.pending(), 0);
});

test('a client that leaves closes the stream, and no timer stays', async (t) => {
  const { raw, stream, clock } = await start(t);
  const closed = new Promise<void>((resolve) => stream.onClose(resolve));
  raw.socket.destroy();
  await closed;
  assert.equal(stream.closed, true);
  assert.equal(clock.pending(), 0);
  assert.equal(stream.send({ data: 'x' }), false);
  await stream.whenWritable();
});

test('back-pressure: a writer that waits for whenWritable loses nothing, however slow the reader', async (t) => {
  const { raw, stream } = await start(t);
  await raw.until('\r\n\r\n');
  raw.socket.pause();
  const data = 'x'.repeat(65_536);
  let waited = 0;
  const writing = (async () => {
    for (let index = 0; index < 200; index += 1) {
      if (!stream.send({ data, id: String(index) })) waited += 1;
      await stream.whenWritable();
    }
    stream.end();
  })();
  await pause(100);
  assert.ok(waited > 0, 'the reader was behind');
  assert.equal(stream.closed, false);
  raw.socket.resume();
  await writing;
  const events = eventsIn(await raw.closed());
  assert.deepEqual([events.length, events.at(-1)?.id], [200, '199']);
  assert.ok(events.every((event) => event.data === data));
});

test('DB-25: a reader that takes nothing is disconnected after the time limit, and its waiters are let go', async (t) => {
  const { raw, stream, clock } = await start(t, { stalledAfterMs: 20_000, keepAliveMs: 1_000_000 });
  await raw.until('\r\n\r\n');
  raw.socket.pause();
  // The system's own buffers take some megabytes before ours begins to fill.
  while (stream.waitingBytes() < 1_000_000) {
    stream.send({ data: 'x'.repeat(100_000) });
    await pause(1);
  }
  await pause(50);
  await clock.advance(19_999);
  assert.equal(stream.closed, false);
  await clock.advance(1);
  await clock.advance(20_000);
  await stream.whenWritable();
  await until('the end of the stream', () => stream.closed);
  raw.socket.resume();
  await raw.closed();
  assert.equal(clock.pending(), 0);
});

test('DB-25: a reader that stops after the end of the stream is disconnected too', async (t) => {
  const { raw, stream, clock } = await start(t, { stalledAfterMs: 20_000 });
  await raw.until('\r\n\r\n');
  raw.socket.pause();
  for (let count = 0; count < 200; count += 1) stream.send({ data: 'x'.repeat(100_000) });
  stream.end();
  await pause(50);
  await clock.advance(20_000);
  await clock.advance(20_000);
  raw.socket.resume();
  assert.ok((await raw.closed()).length < 200 * 100_000);
});

test('DB-25: a reader that takes something now and then stays, however much waits for it', async (t) => {
  const { raw, stream, clock } = await start(t, { stalledAfterMs: 20_000, keepAliveMs: 1_000_000 });
  const data = 'x'.repeat(50_000_000);
  stream.send({ data, id: '1' });
  for (let round = 0; round < 6; round += 1) {
    raw.socket.pause();
    await clock.advance(15_000);
    const before = raw.text().length;
    raw.socket.resume();
    // More than the system's own buffers hold, so that something of ours has gone out.
    await until('a part of the event', () => raw.text().length > Math.min(before + 5_000_000, data.length));
  }
  stream.end();
  assert.equal(eventsIn(await raw.closed())[0]?.data.length, data.length);
});

test('one large event is one event', async (t) => {
  const { raw, stream } = await start(t);
  stream.send({ data: 'x'.repeat(2_000_000), id: '7' });
  stream.send({ data: `${'y'.repeat(100_000)}\nz` });
  await stream.whenWritable();
  stream.end();
  const [first, second] = eventsIn(await raw.closed());
  assert.deepEqual([first?.data.length, first?.id, second?.data.length], [2_000_000, '7', 100_002]);
});

test('HEAD gets the headers of a stream and no stream', async (t) => {
  const { bound, clock, stream } = await start(t);
  stream.end();
  const response = await exchange(t, bound.port, 'HEAD /lab/stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  assert.equal(statusOf(response), 200);
  await until('no timer to be left', () => clock.pending() === 0);
});
