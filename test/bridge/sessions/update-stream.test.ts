import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createUpdateStream, NUMBERS_AHEAD } from '../../../src/bridge/sessions/update-stream.ts';

const settled = () => new Promise((resolve) => setImmediate(resolve));

function createStream(lastSeq = 0) {
  const published: string[] = [];
  const reservations: { upTo: number; done: () => void }[] = [];
  const listeners: (() => void)[] = [];
  const state = { hasRoom: true };
  const stream = createUpdateStream({
    lastSeq,
    publish: (seq, text) => published.push(`${seq} ${text}`),
    hasRoom: () => state.hasRoom,
    whenRoom: (listener) => listeners.push(listener),
    receiversKeepUp: () => undefined,
    reserve(upTo) {
      const { promise, resolve } = Promise.withResolvers<void>();
      reservations.push({ upTo, done: resolve });
      return promise;
    },
  });
  const emit = (count: number, text = 'x') => {
    for (let times = 0; times < count; times += 1) stream.emit(() => text);
  };
  return { stream, published, reservations, listeners, state, emit };
}

test('no number leaves before the store has reserved it', async () => {
  const { stream, published, reservations, emit } = createStream(10);
  emit(3);
  assert.deepEqual(published, []);
  assert.equal(reservations.length, 0);
  stream.open(10 + NUMBERS_AHEAD);
  assert.deepEqual(published, ['11 x', '12 x', '13 x']);
  emit(NUMBERS_AHEAD);
  assert.equal(published.length, NUMBERS_AHEAD);
  assert.equal(stream.lastSeq(), 13 + NUMBERS_AHEAD);
  const [first] = reservations;
  assert.ok((first?.upTo ?? 0) > 10 + NUMBERS_AHEAD);
  first?.done();
  await settled();
  assert.equal(published.length, NUMBERS_AHEAD + 3);
});

test('a turn that tells much reserves twice as many numbers each time, and the next turn begins as before', async () => {
  const { stream, reservations, emit } = createStream();
  stream.open(NUMBERS_AHEAD);
  const sizes: number[] = [];
  for (let times = 0; times < 5; times += 1) {
    while (reservations.length === times) emit(1);
    sizes.push((reservations[times]?.upTo ?? 0) - stream.lastSeq());
    reservations[times]?.done();
    await settled();
  }
  assert.deepEqual(
    sizes,
    [2, 4, 8, 8, 8].map((factor) => factor * NUMBERS_AHEAD),
  );
  const { seq } = await stream.conclude(() => 'end');
  stream.close();
  stream.resume(seq);
  stream.open(seq + NUMBERS_AHEAD);
  while (reservations.length === 5) emit(1);
  assert.equal((reservations[5]?.upTo ?? 0) - stream.lastSeq(), 2 * NUMBERS_AHEAD);
});

test('what comes while something is being stored leaves when it is stored', async () => {
  const { stream, published, emit } = createStream();
  stream.open(NUMBERS_AHEAD);
  emit(1);
  const { promise, resolve } = Promise.withResolvers<void>();
  stream.holdUntil(promise);
  emit(2);
  const concluded = stream.conclude(() => 'end');
  await settled();
  assert.deepEqual(published, ['1 x']);
  resolve();
  assert.deepEqual(await concluded, { seq: 4, text: 'end' });
  assert.deepEqual(published, ['1 x', '2 x', '3 x']);
});

test('a turn that ends while something is being stored leaves nothing held for the next one', async () => {
  const { stream, published, emit } = createStream();
  stream.open(NUMBERS_AHEAD);
  stream.holdUntil(new Promise(() => {}));
  const { seq } = await stream.conclude(() => 'end');
  stream.resume(seq);
  emit(1);
  assert.deepEqual(published, ['2 x']);
});

test('more than what is reserved ahead, held before the turn has begun, leaves in the end, in order', async () => {
  const { stream, published, reservations, emit } = createStream();
  emit(10 * NUMBERS_AHEAD);
  stream.open(NUMBERS_AHEAD);
  for (let index = 0; index < reservations.length; index += 1) {
    reservations[index]?.done();
    await settled();
  }
  assert.deepEqual(
    published,
    Array.from({ length: 10 * NUMBERS_AHEAD }, (_, index) => `${index + 1} x`),
  );
});

test('the last update of a turn comes after all others, and nothing leaves until it is stored', async () => {
  const { stream, published, emit } = createStream();
  emit(2);
  const concluding = stream.conclude(() => 'end');
  await settled();
  stream.open(NUMBERS_AHEAD);
  const { seq, text } = await concluding;
  assert.deepEqual([seq, text, published.length], [3, 'end', 2]);
  emit(1, 'later');
  assert.equal(published.length, 2);
  stream.resume(seq);
  assert.deepEqual(published.at(-1), '4 later');
});

test('DB-22: numbers that were reserved stay so at the end of a turn, and the next turn uses them', async () => {
  const { stream, published, reservations, emit } = createStream();
  stream.open(NUMBERS_AHEAD);
  const { seq } = await stream.conclude(() => 'end');
  stream.close();
  stream.resume(seq);
  assert.equal(stream.reservedSeq(), NUMBERS_AHEAD);
  emit(1, 'next turn');
  assert.deepEqual(published, ['2 next turn']);
  assert.equal(reservations.length, 0);
});

test('DB-22: no numbers are reserved between turns, when another bridge may take the session', async () => {
  const { stream, reservations, emit } = createStream();
  stream.open(NUMBERS_AHEAD);
  const { seq } = await stream.conclude(() => 'end');
  stream.close();
  stream.resume(seq);
  emit(2 * NUMBERS_AHEAD);
  assert.equal(reservations.length, 0);
  stream.restart(5000);
  emit(1);
  assert.deepEqual([stream.lastSeq(), reservations.length], [5001, 0]);
});

test('DB-22: what is dropped leaves a gap, and its numbers are not used again', () => {
  const { stream, published, emit } = createStream();
  emit(3);
  stream.drop();
  stream.open(NUMBERS_AHEAD);
  emit(1);
  assert.deepEqual(published, ['4 x']);
});

test('DB-28: while the log has no room updates are held, and the emitter has to wait', async () => {
  const { stream, published, listeners, state, emit } = createStream();
  stream.open(NUMBERS_AHEAD);
  assert.equal(stream.room(), undefined);
  state.hasRoom = false;
  emit(3, 'y'.repeat(9 * 1024 * 1024));
  assert.deepEqual(published, []);
  assert.equal(stream.isHolding(), true);
  const room = stream.room();
  assert.ok(room !== undefined);
  state.hasRoom = true;
  for (const listener of listeners) listener();
  await room;
  assert.equal(published.length, 3);
  assert.equal(stream.isHolding(), false);
  assert.equal(stream.room(), undefined);
});

test('DB-28: a caller that waits for room is released when its turn is to stop', async () => {
  const { stream, state, emit } = createStream();
  stream.open(NUMBERS_AHEAD);
  state.hasRoom = false;
  emit(1);
  const room = stream.room();
  stream.giveRoom();
  await room;
  assert.ok(stream.room() !== undefined);
});

test('a turn that ends before it began still gets its numbers', async () => {
  const { stream, reservations, emit } = createStream(5);
  emit(1, 'queued');
  const concluding = stream.conclude(() => 'failed');
  await settled();
  assert.equal(reservations[0]?.upTo, 6);
  reservations[0]?.done();
  assert.equal((await concluding).seq, 7);
});
