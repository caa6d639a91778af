import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createTokenBucket } from '../../../src/completions/keys/rate-limits.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';

test('a full bucket gives its whole minute immediately, and then as fast as it fills', async () => {
  const clock = createFakeClock();
  const bucket = createTokenBucket(60, clock);
  assert.equal(bucket.waitMs(60), 0);
  bucket.take(60);
  assert.equal(bucket.remaining(), 0);
  assert.equal(bucket.waitMs(1), 1000);
  await clock.advance(1000);
  assert.equal(bucket.waitMs(1), 0);
  assert.equal(bucket.waitMs(2), 1000);
  await clock.advance(120_000);
  assert.equal(bucket.remaining(), 60);
  assert.equal(bucket.fullAfterMs(), 0);
});

test('what was taken and not used is given back, but never more than it holds', () => {
  const bucket = createTokenBucket(100, createFakeClock());
  bucket.take(80);
  bucket.giveBack(30);
  assert.equal(bucket.remaining(), 50);
  bucket.giveBack(1000);
  assert.equal(bucket.remaining(), 100);
});

test('more than a bucket can hold waits until it is full, and is owed afterwards', async () => {
  const clock = createFakeClock();
  const bucket = createTokenBucket(60, clock);
  assert.equal(bucket.waitMs(1000), 0);
  bucket.take(100);
  assert.equal(bucket.waitMs(1000), 100_000);
  await clock.advance(40_000);
  assert.equal(bucket.remaining(), 0);
  await clock.advance(1000);
  assert.equal(bucket.remaining(), 1);
});

test('in any minute no more than twice the limit is given, however the takes fall', async () => {
  const steps = fc.array(
    fc.record({ wait: fc.integer({ min: 0, max: 20_000 }), amount: fc.integer({ min: 1, max: 9 }) }),
    {
      maxLength: 60,
    },
  );
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 30 }), steps, async (limit, plan) => {
      const clock = createFakeClock();
      const bucket = createTokenBucket(limit, clock);
      const given: { at: number; amount: number }[] = [];
      for (const { wait, amount } of plan) {
        await clock.advance(wait);
        if (amount > limit || bucket.waitMs(amount) > 0) continue;
        bucket.take(amount);
        given.push({ at: clock.monotonic(), amount });
      }
      for (const { at } of given) {
        const inMinute = given.filter((each) => each.at >= at && each.at < at + 60_000);
        assert.ok(inMinute.reduce((sum, { amount }) => sum + amount, 0) <= 2 * limit + 1e-6);
      }
    }),
    { numRuns: 60 },
  );
});
