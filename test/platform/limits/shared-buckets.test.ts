import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type BucketAsk,
  type BucketChange,
  type BucketStore,
  createSharedBuckets,
  createStoreWatch,
} from '../../../src/platform/limits/shared-buckets.ts';
import { createFakeClock, type FakeClock } from '../../kit/fake-clock.ts';

const MINUTE_MS = 60_000;

/** A store in memory, with the clock of the test. */
function createMemoryStore(clock: FakeClock) {
  const levels = new Map<string, { level: number; at: number }>();
  const asks: BucketAsk[] = [];
  const given: BucketChange[] = [];
  let isAway = false;
  const fill = (id: string, perMinute: number) => {
    const known = levels.get(id) ?? { level: perMinute, at: clock.monotonic() };
    const flown = ((clock.monotonic() - known.at) * perMinute) / MINUTE_MS;
    const row = { level: Math.min(perMinute, known.level + flown), at: clock.monotonic() };
    levels.set(id, row);
    return row;
  };
  const store: BucketStore = {
    async take(ask) {
      if (isAway) throw new Error('away');
      asks.push(ask);
      const row = fill(ask.id, ask.perMinute);
      const granted = row.level >= ask.want ? ask.want : row.level >= ask.need ? Math.floor(row.level) : 0;
      row.level -= granted;
      return { granted, level: row.level };
    },
    async give(changes) {
      if (isAway) throw new Error('away');
      for (const { id, perMinute, amount } of changes) {
        const row = fill(id, perMinute);
        row.level = Math.min(perMinute, row.level + amount);
        given.push({ id, perMinute, amount });
      }
    },
  };
  return { store, asks, given, goAway: (away: boolean) => (isAway = away) };
}

function start(passWhenAway = false) {
  const clock = createFakeClock();
  const memory = createMemoryStore(clock);
  const aways: unknown[] = [];
  const instance = () => {
    const watch = createStoreWatch({ clock, onAway: (error) => aways.push(error) });
    return createSharedBuckets({ store: memory.store, clock, watch, passWhenAway });
  };
  return { clock, ...memory, aways, instance };
}

test('instances together take what one may take, and a refusal says when there is room again', async () => {
  const { instance } = start();
  const buckets = [instance(), instance(), instance()].map((each) => each.of('key', 30));
  const waits = await Promise.all(buckets.flatMap((bucket) => Array.from({ length: 30 }, async () => bucket.take(1))));
  assert.equal(waits.filter((wait) => wait === 0).length, 30);
  assert.ok(
    waits.every((wait) => wait === 0 || wait === 2000),
    String(waits),
  );
});

test('calls that wait for one bucket share a statement', async () => {
  const { instance, asks } = start();
  const bucket = instance().of('key', 100);
  await Promise.all(Array.from({ length: 50 }, async () => bucket.take(1)));
  // The first call asks immediately, and the others together.
  assert.deepEqual(
    asks.map(({ want }) => want),
    [1, 49],
  );
});

test('a limit above 120 is served from what is held, which is put back after a second', async () => {
  const { clock, instance, asks, given } = start();
  const bucket = instance().of('key', 6000);
  await Promise.all(Array.from({ length: 40 }, async () => bucket.take(1)));
  for (let call = 0; call < 2; call += 1) assert.equal(await bucket.take(1), 0);
  const before = asks.length;
  for (let call = 0; call < 10; call += 1) assert.equal(bucket.take(1), 0, 'what is held needs no wait');
  assert.equal(asks.length, before);
  assert.ok((asks.at(-1)?.want ?? 0) <= 601, 'no more than a tenth beyond the call');
  await clock.advance(1000);
  const held = given.reduce((sum, { amount }) => sum + amount, 0);
  const taken = asks.reduce((sum, { want }) => sum + want, 0);
  assert.equal(taken - held, 52);
});

test('what a call used beyond its estimate is paid soon, and what it did not use comes back', async () => {
  const { clock, instance, given } = start();
  const buckets = instance();
  const bucket = buckets.of('key', 600);
  assert.equal(await bucket.take(100), 0);
  bucket.owe(50);
  await clock.advance(20);
  assert.deepEqual(given, [{ id: 'key', perMinute: 600, amount: -50 }]);
  assert.equal(await bucket.take(100), 0);
  bucket.giveBack(60);
  await buckets.stop();
  assert.equal(given.reduce((sum, { amount }) => sum + amount, 0) >= 10, true);
});

test('a bucket that was empty is not asked for each refused call', async () => {
  const { clock, instance, asks } = start();
  const bucket = instance().of('key', 1);
  assert.equal(await bucket.take(1), 0);
  assert.equal(await bucket.take(1), MINUTE_MS);
  const before = asks.length;
  for (let call = 0; call < 20; call += 1) assert.equal(bucket.take(1), MINUTE_MS);
  assert.equal(asks.length, before);
  await clock.advance(MINUTE_MS);
  assert.equal(await bucket.take(1), 0);
});

test('without the store what is held is used up, then calls are refused, or pass', async () => {
  for (const passes of [false, true]) {
    const { clock, instance, goAway, aways } = start(passes);
    const bucket = instance().of('key', 6000);
    assert.equal(await bucket.take(10), 0);
    assert.equal(await bucket.take(5), 0);
    goAway(true);
    assert.equal(await bucket.take(5), 0, 'held');
    const refused = { code: 'STORAGE_UNAVAILABLE', details: { retryAfterSeconds: 1 } };
    if (passes) assert.equal(await bucket.take(600), 0);
    else await assert.rejects(async () => bucket.take(600), refused);
    if (passes) assert.equal(bucket.take(600), 0);
    else assert.throws(() => bucket.take(600), refused);
    assert.equal(aways.length, 1);
    goAway(false);
    await clock.advance(500);
    assert.equal(await bucket.take(600), 0);
  }
});

test('a store that does not answer is given up after two seconds', async () => {
  const clock = createFakeClock();
  const watch = createStoreWatch({ clock, onAway: () => undefined });
  const store = { take: () => new Promise<never>(() => undefined), give: async () => undefined };
  const bucket = createSharedBuckets({ store, clock, watch, passWhenAway: false }).of('key', 10);
  const taking = Promise.resolve(bucket.take(1));
  const refused = assert.rejects(taking, { code: 'STORAGE_UNAVAILABLE' });
  await clock.advance(2000);
  await refused;
});
