import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createUpdateStream, FIRST_BLOCK } from '../../../src/bridge/sessions/update-stream.ts';

const settled = () => new Promise((resolve) => setImmediate(resolve));

function createStream(lastSeq = 0) {
  const published: string[] = [];
  const reservations: { upTo: number; done: () => void }[] = [];
  const listeners: (() => void)[] = [];
  const state = { hasRoom: true, overflows: 0 };
  const stream = createUpdateStream({
    lastSeq,
    publish: (seq, text) => published.push(`${seq} ${text}`),
    hasRoom: () => state.hasRoom,
    whenRoom: (listener) => listeners.push(listener),
    reserve(upTo) {
      const { promise, resolve } = Promise.withResolvers<void>();
      reservations.push({ upTo, done: resolve });
      return promise;
    },
    onOverflow: () => {
      state.overflows += 1;
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
  stream.grant(10 + FIRST_BLOCK);
  assert.deepEqual(published, ['11 x', '12 x', '13 x']);
  emit(FIRST_BLOCK);
  assert.equal(published.length, FIRST_BLOCK);
  assert.equal(stream.lastSeq(), 13 + FIRST_BLOCK);
  const [first] = reservations;
  assert.ok((first?.upTo ?? 0) > 10 + FIRST_BLOCK);
  first?.done();
  await settled();
  assert.equal(published.length, FIRST_BLOCK + 3);
});

test('what comes while something is being stored leaves when it is stored', async () => {
  const { stream, published, emit } = createStream();
  stream.grant(FIRST_BLOCK);
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
  stream.grant(FIRST_BLOCK);
  stream.holdUntil(new Promise(() => {}));
  await stream.conclude(() => 'end');
  stream.resume(true);
  stream.grant(FIRST_BLOCK);
  emit(1);
  assert.deepEqual(published, ['2 x']);
});

test('more than a block that was held before the first grant leaves in the end, in order', async () => {
  const { stream, published, reservations, emit } = createStream();
  emit(10 * FIRST_BLOCK);
  stream.grant(FIRST_BLOCK);
  for (let index = 0; index < reservations.length; index += 1) {
    reservations[index]?.done();
    await settled();
  }
  assert.deepEqual(
    published,
    Array.from({ length: 10 * FIRST_BLOCK }, (_, index) => `${index + 1} x`),
  );
});

test('the last update of a turn comes after all others, and nothing leaves until it is stored', async () => {
  const { stream, published, emit } = createStream();
  emit(2);
  const concluding = stream.conclude(() => 'end');
  await settled();
  stream.grant(FIRST_BLOCK);
  const { seq, text } = await concluding;
  assert.deepEqual([seq, text, published.length], [3, 'end', 2]);
  emit(1, 'later');
  assert.equal(published.length, 2);
  stream.resume(false);
  assert.deepEqual(published.at(-1), '4 later');
});

test('numbers that were given back are not used before they are reserved again', async () => {
  const { stream, published, emit } = createStream();
  stream.grant(FIRST_BLOCK);
  const { seq } = await stream.conclude(() => 'end');
  emit(1, 'next turn');
  stream.resume(true);
  assert.equal(stream.reservedSeq(), seq);
  assert.deepEqual(published, []);
  stream.grant(seq + FIRST_BLOCK);
  assert.deepEqual(published, ['2 next turn']);
});

test('a reservation that is done after the numbers were given back grants nothing', async () => {
  const { stream, reservations, emit } = createStream();
  stream.grant(FIRST_BLOCK);
  emit(FIRST_BLOCK - 1);
  const { seq } = await stream.conclude(() => 'end');
  stream.resume(true);
  for (const { done } of reservations) done();
  await settled();
  assert.equal(stream.reservedSeq(), seq);
});

test('while the log has no room updates are held, and too many of them are told once', () => {
  const { stream, published, listeners, state, emit } = createStream();
  stream.grant(FIRST_BLOCK);
  state.hasRoom = false;
  emit(3, 'y'.repeat(9 * 1024 * 1024));
  assert.deepEqual(published, []);
  assert.equal(state.overflows, 1);
  assert.equal(stream.isHolding(), true);
  state.hasRoom = true;
  for (const listener of listeners) listener();
  assert.equal(published.length, 3);
  assert.equal(stream.isHolding(), false);
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
