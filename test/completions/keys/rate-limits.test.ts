import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  createRateLimits,
  createSharedRates,
  createTokenBucket,
  takeLimits,
  takeShared,
} from '../../../src/completions/keys/rate-limits.ts';
import type { SharedBuckets } from '../../../src/platform/limits/shared-buckets.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';

test('a full bucket gives its whole minute immediately, and then as fast as it fills', async () => {
  const clock = createFakeClock();
  const bucket = createTokenBucket(60, clock);
  for (const amount of [1, 30, 60]) assert.equal(bucket.waitMs(amount), 0);
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

test('requests and tokens are limited each by itself, and the refusal names the limit and when to come again', async () => {
  const clock = createFakeClock();
  const limits = createRateLimits({ requestsPerMinute: 2, tokensPerMinute: 120 }, clock);
  assert.equal(limits.isIdle(), true);
  limits.check(120);
  const first = limits.take(100);
  assert.throws(() => limits.check(21), {
    code: 'RATE_LIMIT_EXCEEDED',
    details: {
      limit: 120,
      unit: 'tokens',
      retryAfterSeconds: 1,
      headers: {
        'x-ratelimit-limit-requests': '2',
        'x-ratelimit-remaining-requests': '1',
        'x-ratelimit-reset-requests': '30s',
        'x-ratelimit-limit-tokens': '120',
        'x-ratelimit-remaining-tokens': '20',
        'x-ratelimit-reset-tokens': '50s',
      },
    },
  });
  limits.check(20);
  limits.take(20).undo();
  const second = limits.take(10);
  const headers = limits.headers();
  assert.equal(headers['x-ratelimit-reset-requests'], '1m0s');
  assert.throws(() => limits.check(0), { details: { unit: 'requests', limit: 2, retryAfterSeconds: 30, headers } });
  first.settle(40);
  assert.equal(limits.headers()['x-ratelimit-remaining-tokens'], '70');
  second.settle(130);
  assert.equal(limits.headers()['x-ratelimit-remaining-tokens'], '0');
  assert.equal(limits.headers()['x-ratelimit-reset-tokens'], '1m25s');
  await clock.advance(84_900);
  assert.equal(limits.headers()['x-ratelimit-reset-tokens'], '100ms');
  assert.equal(limits.isIdle(), false);
  await clock.advance(100);
  assert.equal(limits.isIdle(), true);
});

test('limits with a call under way are in use, and without limits nothing is refused', () => {
  const limits = createRateLimits({}, createFakeClock());
  limits.check(1_000_000);
  const taken = limits.take(1_000_000);
  assert.equal(limits.isIdle(), false);
  assert.deepEqual(limits.headers(), {});
  taken.settle(5);
  assert.equal(limits.isIdle(), true);
  limits.take(1).undo();
  assert.equal(limits.isIdle(), true);
});

test('a call of more tokens than a minute has takes the minute, and gives back by what it took', () => {
  const limits = createRateLimits({ tokensPerMinute: 100 }, createFakeClock());
  limits.take(5000).settle(30);
  assert.equal(limits.headers()['x-ratelimit-remaining-tokens'], '70');
});

/** Buckets that hold what they are given, and note what is done to them. An amount below 0: the store is away. */
function scriptedBuckets(levels: Readonly<Record<string, number>>) {
  const notes: string[] = [];
  const buckets: Pick<SharedBuckets, 'of'> = {
    of: (id, perMinute) => ({
      take(amount) {
        const level = levels[id] ?? perMinute;
        notes.push(`take ${amount} of ${id}`);
        if (level < 0) throw new Error('away');
        return amount <= level ? 0 : Promise.resolve((amount - level) * 1000);
      },
      giveBack: (amount) => void notes.push(`give ${amount} to ${id}`),
      owe: (amount) => void notes.push(`owe ${amount} to ${id}`),
      remaining: () => levels[id] ?? perMinute,
      fullAfterMs: () => 90_000,
    }),
  };
  return { notes, buckets: { ...buckets, stop: async () => undefined } };
}

test('shared limits are taken together: what one refuses is put back in the others', async () => {
  const { notes, buckets } = scriptedBuckets({ 'tokens b': 7 });
  const given = { requestsPerMinute: 60, tokensPerMinute: 100 };
  const rates = ['a', 'b'].map((id) => createSharedRates(id, given, buckets));
  await assert.rejects(async () => takeShared(rates, 9.5), {
    code: 'RATE_LIMIT_EXCEEDED',
    details: { unit: 'tokens', limit: 100, retryAfterSeconds: 3, headers: rates[1]?.headers() },
  });
  assert.deepEqual(notes.slice(4), ['give 1 to requests a', 'give 10 to tokens a', 'give 1 to requests b']);
});

test('shared limits that are all there are taken without a wait, and put right by what the call used', () => {
  const { notes, buckets } = scriptedBuckets({});
  const rates = [createSharedRates('a', { requestsPerMinute: 60, tokensPerMinute: 100 }, buckets)];
  for (const { used, expected } of [
    { used: 10, expected: [] },
    { used: 4, expected: ['give 6 to tokens a'] },
    { used: 25, expected: ['owe 15 to tokens a'] },
  ]) {
    const taken = takeShared(rates, 10);
    assert.ok(!(taken instanceof Promise));
    notes.length = 0;
    taken.settle(used);
    assert.deepEqual(notes, expected);
  }
  const taken = takeShared(rates, 500);
  assert.ok(!(taken instanceof Promise));
  notes.length = 0;
  taken.undo();
  assert.deepEqual(notes, ['give 1 to requests a', 'give 100 to tokens a']);
  assert.equal(rates[0]?.headers()['x-ratelimit-reset-tokens'], '1m30s');
});

test('a store that is away refuses the call, and what was taken elsewhere is put back', async () => {
  const { notes, buckets } = scriptedBuckets({ 'tokens a': -1 });
  const rates = [createSharedRates('a', { requestsPerMinute: 60, tokensPerMinute: 100 }, buckets)];
  await assert.rejects(async () => takeShared(rates, 10), /away/);
  assert.deepEqual(notes.slice(2), ['give 1 to requests a']);
});

test('limits of targets are taken together, say the longest wait, and do not count while the store is away', async () => {
  const limits = { requestsPerMinute: 10, tokensPerMinute: 100 };
  const none = { requestsPerMinute: 0, tokensPerMinute: 0 };
  assert.equal(takeLimits(scriptedBuckets({}).buckets, [{ name: 'x', limits: none }], 10), undefined);

  const full = scriptedBuckets({ 'target requests x': 0, 'target tokens x': 5 });
  const refused = await takeLimits(
    full.buckets,
    [
      { name: 'x', limits },
      { name: 'y', limits },
    ],
    10,
  );
  assert.equal(refused?.waitMs, 5000);
  assert.deepEqual(full.notes.slice(4), ['give 1 to target requests y', 'give 10 to target tokens y']);

  const away = scriptedBuckets({ 'target requests x': -1 });
  const taken = await takeLimits(away.buckets, [{ name: 'x', limits }], 10.2);
  assert.equal(taken?.waitMs, 0);
  taken?.correct(30);
  taken?.correct(3);
  taken?.undo();
  assert.deepEqual(away.notes.slice(2), [
    'owe 19 to target tokens x',
    'give 8 to target tokens x',
    'give 11 to target tokens x',
  ]);
});
