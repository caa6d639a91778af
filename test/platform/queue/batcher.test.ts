import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type BatcherOptions, createBatcher } from '../../../src/platform/queue/batcher.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';

function prepare(overrides: Partial<BatcherOptions<number>> = {}) {
  const clock = createFakeClock();
  const state = { dropped: 0, failing: false, writes: 0, during: () => {} };
  const batches: (readonly number[])[] = [];
  const batcher = createBatcher<number>({
    capacity: 10,
    maxBatch: 4,
    maxDelayMs: 20,
    clock,
    async write(batch) {
      state.writes += 1;
      state.during();
      if (state.failing) throw new Error('the store is down');
      batches.push(batch);
    },
    onDropped(count) {
      state.dropped += count;
    },
    ...overrides,
  });
  return { clock, batcher, batches, state };
}

test('items are written together after the delay', async () => {
  const { clock, batcher, batches } = prepare();
  for (const item of [1, 2, 3]) assert.equal(batcher.add(item), true);
  await clock.advance(19);
  assert.deepEqual(batches, []);
  await clock.advance(1);
  assert.deepEqual(batches, [[1, 2, 3]]);
  assert.equal(batcher.size(), 0);
  assert.equal(clock.pending(), 0);
});

test('a full batch is written immediately, and later items right after it', async () => {
  const { batcher, batches } = prepare();
  for (const item of [1, 2, 3, 4, 5, 6]) batcher.add(item);
  await batcher.flush();
  assert.deepEqual(batches, [
    [1, 2, 3, 4],
    [5, 6],
  ]);
});

test('when there is no room an item is dropped and counted, the earlier ones stay', async () => {
  const { clock, batcher, batches, state } = prepare();
  state.failing = true;
  const accepted = Array.from({ length: 15 }, (_, item) => batcher.add(item));
  assert.equal(accepted.filter(Boolean).length, 10);
  assert.equal(state.dropped, 5);
  state.failing = false;
  await clock.advance(10_000);
  assert.deepEqual(batches.flat(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
});

test('a failed batch is kept and written again, more and more patiently', async () => {
  const { clock, batcher, batches, state } = prepare();
  state.failing = true;
  batcher.add(1);
  await clock.advance(20 + 40 + 80);
  assert.equal(state.writes, 3);
  for (const item of [2, 3, 4, 5]) batcher.add(item);
  await clock.advance(1);
  assert.equal(state.writes, 3, 'a store that is down is not asked for every item');
  state.failing = false;
  await clock.advance(160);
  assert.deepEqual(batches.flat(), [1, 2, 3, 4, 5]);
});

test('a flush waits for what was added before it, and fails when the writing fails', async () => {
  const { batcher, batches, state } = prepare();
  await batcher.flush();
  batcher.add(1);
  await batcher.flush();
  assert.deepEqual(batches, [[1]]);
  state.failing = true;
  batcher.add(2);
  await assert.rejects(batcher.flush(), /the store is down/);
  assert.equal(batcher.size(), 1);
});

test('a flush does not wait for what is added after it', async () => {
  const { batcher } = prepare({
    async write(batch) {
      await new Promise((resolve) => setImmediate(resolve));
      if ((batch.at(-1) ?? 0) < 1000) batcher.add((batch.at(-1) ?? 0) + 1);
    },
  });
  batcher.add(0);
  await batcher.flush();
  assert.ok(batcher.size() <= 1);
});

test('what comes during a write is the next batch, or waits for others too where that is asked for', async () => {
  for (const waitsAgain of [false, true]) {
    const { clock, batcher, batches, state } = prepare({ waitsAgain });
    const late = [10, 11, 12, 13, 14];
    state.during = () => {
      if (state.writes === 1) batcher.add(late[0] ?? 0);
      if (state.writes === 2) for (const item of late.slice(1)) batcher.add(item);
    };
    batcher.add(1);
    await clock.advance(20);
    assert.deepEqual(batches.slice(0, 2), waitsAgain ? [[1]] : [[1], [10]]);
    await clock.advance(19);
    assert.equal(batches.length, waitsAgain ? 1 : 3);
    await clock.advance(1);
    // Four of those that came during this write fill a batch: they do not wait.
    assert.deepEqual(batches, [[1], [10], [11, 12, 13, 14]]);
    batcher.add(20);
    await batcher.flush();
    assert.deepEqual(batches.at(-1), [20], 'somebody waits for it');
    assert.equal(clock.pending(), 0);
  }
});

test('closing writes what is left, refuses the rest, and leaves no timer', async () => {
  const { clock, batcher, batches, state } = prepare();
  for (const item of [1, 2, 3]) batcher.add(item);
  await batcher.close();
  assert.deepEqual(batches.flat(), [1, 2, 3]);
  assert.equal(batcher.add(4), false);
  assert.equal(state.dropped, 1);
  assert.equal(clock.pending(), 0);
});

test('closing does not wait for ever for a store that is down: what is lost is counted', async () => {
  const { clock, batcher, state } = prepare();
  state.failing = true;
  for (const item of [1, 2, 3]) batcher.add(item);
  await batcher.close();
  assert.equal(state.dropped, 3);
  assert.equal(state.writes, 3);
  assert.equal(clock.pending(), 0);
});

test('whatever happens, every item is written exactly once and in order, or counted as dropped', async () => {
  const step = fc.oneof(
    { weight: 6, arbitrary: fc.record({ kind: fc.constant('add' as const), amount: fc.integer({ min: 1, max: 7 }) }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('wait' as const), amount: fc.nat(60) }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('fail' as const), amount: fc.nat(1) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('flush' as const), amount: fc.constant(0) }) },
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), fc.boolean(), async (steps, failsAtClose) => {
      const { clock, batcher, batches, state } = prepare();
      const accepted: number[] = [];
      let next = 0;
      const add = (): void => {
        const item = next;
        next += 1;
        accepted.push(item);
        if (!batcher.add(item)) accepted.splice(accepted.indexOf(item), 1);
      };
      // Every third item comes while others are being written.
      state.during = () => void (next % 3 === 0 && add());
      for (const { kind, amount } of steps) {
        if (kind === 'wait') await clock.advance(amount);
        if (kind === 'fail') state.failing = amount === 1;
        if (kind === 'flush') await batcher.flush().catch(() => undefined);
        for (let count = 0; kind === 'add' && count < amount; count += 1) add();
        assert.ok(batcher.size() <= 10);
      }
      state.failing = failsAtClose;
      await batcher.close();
      const written = batches.flat();
      assert.deepEqual(written, accepted.slice(0, written.length));
      assert.equal(written.length + state.dropped, next);
      assert.ok(batches.every((batch) => batch.length >= 1 && batch.length <= 4));
      if (!failsAtClose) assert.deepEqual(written, accepted);
      assert.equal(clock.pending(), 0);
    }),
    { numRuns: 200 },
  );
});
