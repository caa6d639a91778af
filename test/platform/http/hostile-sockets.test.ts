import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { deflateRawSync } from 'node:zlib';
import type { ListenerOptions } from '../../../src/platform/http/listener.ts';
import type { ChannelEnd, MessageChannel } from '../../../src/platform/json-rpc/message-channel.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { BINARY, CLOSE, closeCodeOf, frame, openRawWebSocket, PING, PONG, TEXT } from '../../kit/raw-web-socket.ts';
import { echoOf, startListener, surfaceOf } from '../../kit/start-listener.ts';
import { until } from '../../kit/until.ts';

/** Starts an echo and opens one socket by hand; `ends` hears how channels ended, `got` what they received. */
async function start(t: TestContext, options: Partial<ListenerOptions> = {}) {
  const ends: ChannelEnd[] = [];
  const got: string[] = [];
  const channels: MessageChannel[] = [];
  const upgrade = echoOf({
    accept(channel) {
      channels.push(channel);
      channel.onMessage((text) => {
        got.push(text);
        channel.send(text);
      });
      channel.onEnd((end) => ends.push(end));
    },
  });
  const running = await startListener(t, { surfaces: [surfaceOf({ upgrades: [upgrade] })], ...options });
  const open = (extra?: string) => openRawWebSocket(t, running.bound.port, extra);
  return { ...running, ends, got, channels, open, raw: await open() };
}

test('B-34: a message of the limit passes, one byte more is closed with 1009, whole or in fragments', async (t) => {
  const { raw, open, got } = await start(t, { limits: { messageBytes: 1000 } });
  raw.socket.write(frame({ opcode: TEXT, payload: 'x'.repeat(1000) }));
  await until('the first message', () => got.length === 1);
  raw.socket.write(frame({ opcode: TEXT, payload: 'x'.repeat(1001) }));
  assert.equal(await closeCodeOf(raw), 1009);
  const fragmented = await open();
  fragmented.socket.write(frame({ opcode: TEXT, payload: 'x'.repeat(600), fin: false }));
  fragmented.socket.write(frame({ opcode: 0, payload: 'x'.repeat(401) }));
  assert.equal(await closeCodeOf(fragmented), 1009);
  const announced = await open();
  announced.socket.write(frame({ opcode: TEXT, claimedLength: 2 ** 40 }));
  assert.equal(await closeCodeOf(announced), 1009, 'nobody waits for a body that is too large');
  assert.equal(got.length, 1);
});

test('B-34: a message in 100,000 tiny or empty fragments is closed, and memory stays flat', async (t) => {
  const { open } = await start(t);
  for (const payload of ['x', '']) {
    const raw = await open();
    const before = process.memoryUsage().rss;
    const fragment = frame({ opcode: 0, payload, fin: false });
    raw.socket.write(frame({ opcode: TEXT, payload, fin: false }));
    for (let batch = 0; batch < 100; batch += 1) raw.socket.write(Buffer.concat(Array(1000).fill(fragment)));
    assert.equal(await closeCodeOf(raw), 1008);
    assert.ok(process.memoryUsage().rss - before < 20_000_000);
  }
});

test('B-35: compression is never agreed to, and a compressed frame is a violation', async (t) => {
  const { open } = await start(t);
  const raw = await open('Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n');
  assert.match(raw.text(), /^HTTP\/1\.1 101 /);
  assert.doesNotMatch(raw.text(), /Sec-WebSocket-Extensions/i);
  const bomb = deflateRawSync(Buffer.alloc(10_000_000));
  raw.socket.write(frame({ opcode: TEXT, payload: bomb, reserved: 0x40 }));
  assert.equal(await closeCodeOf(raw), 1002);
});

test('B-36: frames that the protocol forbids are closed with 1002', async (t) => {
  const { open, got } = await start(t);
  const closeWith = (code: number) => {
    const payload = Buffer.alloc(2);
    payload.writeUInt16BE(code);
    return frame({ opcode: CLOSE, payload });
  };
  const rows: [name: string, ...frames: Buffer[]][] = [
    ['reserved bit 1', frame({ opcode: TEXT, payload: 'x', reserved: 0x40 })],
    ['reserved bit 2', frame({ opcode: TEXT, payload: 'x', reserved: 0x20 })],
    ['reserved bit 3', frame({ opcode: TEXT, payload: 'x', reserved: 0x10 })],
    ['reserved opcode 3', frame({ opcode: 3, payload: 'x' })],
    ['reserved opcode 11', frame({ opcode: 11, payload: 'x' })],
    ['no mask', frame({ opcode: TEXT, payload: 'x', masked: false })],
    ['a large ping', frame({ opcode: PING, payload: Buffer.alloc(126) })],
    ['a fragmented ping', frame({ opcode: PING, payload: 'x', fin: false })],
    ['a continuation of nothing', frame({ opcode: 0, payload: 'x' })],
    [
      'a message inside a message',
      frame({ opcode: TEXT, payload: 'x', fin: false }),
      frame({ opcode: TEXT, payload: 'y' }),
    ],
    ['a close of one byte', frame({ opcode: CLOSE, payload: 'x' })],
  ];
  for (const code of [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000]) rows.push([`close ${code}`, closeWith(code)]);
  for (const [name, ...frames] of rows) {
    const raw = await open();
    raw.socket.write(Buffer.concat(frames));
    assert.equal(await closeCodeOf(raw), 1002, name);
  }
  assert.deepEqual(got, []);
});

test('B-17: text that is not UTF-8 is closed with 1007, and what is arrives as it was', async (t) => {
  const { raw, open, got } = await start(t);
  const fine = 'ok \u{1f600} \u0000 \ud7ff \ue000';
  raw.socket.write(frame({ opcode: TEXT, payload: fine }));
  await until('the first message', () => got.length === 1);
  assert.deepEqual(got, [fine]);
  for (const bytes of [[0xff], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82]]) {
    const bad = await open();
    bad.socket.write(frame({ opcode: TEXT, payload: Buffer.from(bytes) }));
    assert.equal(await closeCodeOf(bad), 1007, bytes.join());
  }
  assert.equal(got.length, 1);
});

test('B-37: a binary message is closed with 1003', async (t) => {
  const { raw, got, ends } = await start(t, { limits: { closeTimeoutMs: 100 } });
  raw.socket.write(
    Buffer.concat([frame({ opcode: BINARY, payload: '{}' }), frame({ opcode: TEXT, payload: 'after' })]),
  );
  assert.equal(await closeCodeOf(raw), 1003);
  assert.deepEqual(got, []);
  await until('the end of the socket', () => ends[0]);
});

test('B-38: a peer that answers no ping is dropped after two misses, and one that does is kept', async (t) => {
  const clock = createFakeClock();
  const { raw: dead, open, ends } = await start(t, { clock, limits: { pingIntervalMs: 30_000 } });
  const alive = await open();
  const pings = () => alive.text().slice(alive.text().indexOf('\r\n\r\n') + 4).length / 2;
  for (let interval = 1; interval <= 4; interval += 1) {
    await clock.advance(30_000);
    await until('the next ping', () => pings() === interval);
    alive.socket.write(frame({ opcode: PONG }));
    await pause(20);
    if (interval < 3) assert.deepEqual(ends, [], `nobody is dropped in interval ${interval}`);
  }
  await dead.closed();
  assert.deepEqual(ends, [{ code: 1006, reason: '' }]);
  assert.equal(alive.socket.destroyed, false);
});

test('B-38: no timer is left when the last socket has gone', async (t) => {
  const clock = createFakeClock();
  const { raw, ends } = await start(t, { clock });
  assert.equal(clock.pending(), 1);
  raw.socket.destroy();
  await until('the end of the socket', () => ends[0]);
  await clock.advance(30_000);
  assert.equal(clock.pending(), 0);
});

const isBehind = (channel: MessageChannel) => channel.isBehind?.() === true;

/** Sends until so much waits for the peers of all channels. */
async function sendUntilBehind(channels: readonly MessageChannel[]): Promise<void> {
  const text = 'x'.repeat(100_000);
  // The system's own buffers take some megabytes before ours begins to fill.
  for (let count = 0; count < 1000 && channels.some((channel) => !isBehind(channel)); count += 1) {
    for (const channel of channels) if (!isBehind(channel)) channel.send(text);
    await pause(0);
  }
  await pause(50);
}

test('B-47, DB-25: a reader that takes nothing is closed with 1013 after the time limit, and others do not notice', async (t) => {
  const clock = createFakeClock();
  const limits = { stalledAfterMs: 20_000, closeTimeoutMs: 100 };
  const { raw: slow, channels, ends, open, got } = await start(t, { clock, limits });
  slow.socket.pause();
  await sendUntilBehind(channels);
  await clock.advance(19_999);
  assert.deepEqual(ends, []);
  await clock.advance(1);
  await clock.advance(20_000);
  const end = await until('the end of the socket', () => ends[0]);
  assert.deepEqual(end, { code: 1013, reason: '' });
  const other = await open();
  other.socket.write(frame({ opcode: TEXT, payload: 'hello' }));
  await until('the first message', () => got[0]);
});

test('B-47, DB-25: a large message, and a burst of any size, are not mistaken for a slow reader', async (t) => {
  const clock = createFakeClock();
  const { raw, channels, ends } = await start(t, {
    clock,
    limits: { socketBufferBytes: 50_000, stalledAfterMs: 1000 },
  });
  const [channel] = channels;
  assert.ok(channel !== undefined);
  const size = () => raw.text().length - raw.text().indexOf('\r\n\r\n') - 4;
  channel.send('x'.repeat(3_000_000));
  await until('the large message', () => size() === 3_000_010);
  for (let count = 0; count < 10_000; count += 1) channel.send('y'.repeat(1000));
  await until('all messages', () => size() === 3_000_010 + 10_000 * 1004);
  await clock.advance(5000);
  assert.deepEqual(ends, []);
});

test('DB-25: a peer that takes something of a large message now and then stays', async (t) => {
  const clock = createFakeClock();
  const limits = { stalledAfterMs: 20_000, pingIntervalMs: 1_000_000 };
  const { raw, channels, ends } = await start(t, { clock, limits });
  channels[0]?.send('x'.repeat(50_000_000));
  for (let round = 0; round < 6; round += 1) {
    raw.socket.pause();
    await clock.advance(15_000);
    const before = raw.text().length;
    raw.socket.resume();
    // More than the system's own buffers hold, so that something of ours has gone out.
    await until(
      'a part of the message',
      () => raw.text().length > before + 5_000_000 || raw.text().length > 50_000_000,
    );
  }
  await until('the whole message', () => raw.text().length > 50_000_000);
  assert.deepEqual(ends, []);
});

test('DB-25: the calls of a peer for whom too much waits are read when it has caught up', async (t) => {
  const { raw, channels, got } = await start(t, { limits: { socketBufferBytes: 100_000 } });
  raw.socket.pause();
  await sendUntilBehind(channels);
  raw.socket.write(frame({ opcode: TEXT, payload: 'hello' }));
  await pause(100);
  assert.deepEqual(got, []);
  raw.socket.resume();
  assert.equal(await until('the message', () => got[0]), 'hello');
});

test('B-47, DB-25: for many slow readers together there is one bound, and nobody is closed for the others', async (t) => {
  const limits = { allSocketBuffersBytes: 1_000_000 };
  const { raw, channels, ends, open } = await start(t, { limits });
  const others = [await open(), await open(), await open()];
  const [reader, ...slow] = channels;
  assert.ok(reader !== undefined && slow.length === others.length);
  for (const { socket } of others) socket.pause();
  await sendUntilBehind(slow);
  for (const channel of slow) assert.equal(isBehind(channel), true);
  const size = raw.text().length;
  reader.send('x'.repeat(100_000));
  await until('one more message for the one that reads', () => raw.text().length > size + 100_000);
  assert.deepEqual([isBehind(reader), ends], [false, []]);
});

test('a flood of pings from a peer that never reads does not fill the memory', async (t) => {
  const { raw, ends } = await start(t, {
    limits: { socketBufferBytes: 10_000, stalledAfterMs: 300, closeTimeoutMs: 100 },
  });
  raw.socket.pause();
  const pings = Buffer.concat(Array(1000).fill(frame({ opcode: PING, payload: 'x'.repeat(125) })));
  for (let batch = 0; batch < 500 && ends.length === 0; batch += 1) {
    if (!raw.socket.write(pings)) await pause(10);
    await pause(0);
  }
  assert.equal((await until('the end of the socket', () => ends[0])).code, 1013);
});
