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

test('parts of a piece count as whole ones, and more than a bucket can hold as all of it', async () => {
  const { clock, instance, given } = start();
  const bucket = instance().of('key', 10);
  assert.equal(await bucket.take(0.5), 0);
  assert.equal(bucket.remaining(), 9);
  assert.equal(await bucket.take(9), 0, 'nine are left');
  assert.equal(await bucket.take(1), 6000);
  bucket.giveBack(1.9);
  bucket.owe(2.1);
  await clock.advance(20);
  assert.deepEqual(given, [{ id: 'key', perMinute: 10, amount: -2 }]);
  await clock.advance(2 * MINUTE_MS);
  assert.equal(await bucket.take(25), 0, 'all of it');
  assert.equal(bucket.remaining(), 0);
});

test('what is left, and when it is full again, follow the time since the store was asked', async () => {
  const { clock, instance } = start();
  const bucket = instance().of('key', 60);
  assert.deepEqual([bucket.remaining(), bucket.fullAfterMs()], [60, 0]);
  assert.equal(await bucket.take(30), 0);
  assert.deepEqual([bucket.remaining(), bucket.fullAfterMs()], [30, 30_000]);
  await clock.advance(10_500);
  assert.deepEqual([bucket.remaining(), bucket.fullAfterMs()], [40, 19_500]);
  await clock.advance(MINUTE_MS);
  assert.deepEqual([bucket.remaining(), bucket.fullAfterMs()], [60, 0]);
});

test('a call that needs more than is there is refused, and a smaller one after it is not', async () => {
  const { instance } = start();
  const bucket = instance().of('key', 60);
  assert.equal(await bucket.take(40), 0);
  const waits = await Promise.all([bucket.take(50), bucket.take(20), bucket.take(55)]);
  assert.deepEqual(waits, [30_000, 0, 30_000]);
  assert.equal(bucket.remaining(), 0);
});

test('the time that a refusal says becomes shorter while the store is not asked again', async () => {
  const { clock, instance, asks } = start();
  const bucket = instance().of('key', 60);
  assert.equal(await bucket.take(60), 0);
  assert.equal(await bucket.take(10), 10_000);
  await clock.advance(99);
  assert.equal(bucket.take(10), 9901);
  assert.equal(asks.length, 2);
  await clock.advance(1);
  assert.equal(await bucket.take(10), 9900);
  assert.equal(asks.length, 3);
});

test('a debt that cannot be paid is paid when the store is back, and what came back is not given out twice', async () => {
  for (const { amount, paid } of [
    { amount: -30, paid: [-30] },
    { amount: 30, paid: [] },
  ]) {
    const { clock, instance, given, goAway } = start();
    const bucket = instance().of('key', 100);
    assert.equal(await bucket.take(50), 0);
    goAway(true);
    if (amount < 0) bucket.owe(-amount);
    else bucket.giveBack(amount);
    await clock.advance(20);
    await clock.advance(5000);
    goAway(false);
    assert.equal(given.length, 0);
    await clock.advance(5000);
    assert.deepEqual(
      given.map((change) => change.amount),
      paid,
    );
  }
});

test('while the store is away, what is held is kept and put back later', async () => {
  const { clock, instance, given, goAway } = start();
  const buckets = instance();
  const bucket = buckets.of('key', 6000);
  const other = buckets.of('other', 6000);
  assert.equal(await bucket.take(10), 0);
  bucket.giveBack(4);
  await clock.advance(900);
  goAway(true);
  await assert.rejects(async () => other.take(1), { code: 'STORAGE_UNAVAILABLE' });
  await clock.advance(150);
  goAway(false);
  assert.equal(bucket.take(1), 0, 'held');
  assert.equal(given.length, 0);
  await clock.advance(2000);
  assert.deepEqual(given, [{ id: 'key', perMinute: 6000, amount: 3 }]);
});

test('the end puts back what is held of each bucket, once, and does not wait for a store that is away', async () => {
  const { clock, instance, given, goAway } = start();
  const buckets = instance();
  const amounts = [7, 0, 9];
  for (const [index, amount] of amounts.entries()) {
    const bucket = buckets.of(`key-${index}`, 6000);
    assert.equal(await bucket.take(20), 0);
    bucket.giveBack(amount);
  }
  await buckets.stop();
  await clock.advance(5000);
  assert.deepEqual(
    given.map(({ id, amount }) => [id, amount]),
    [
      ['key-0', 7],
      ['key-2', 9],
    ],
  );
  const others = instance();
  const bucket = others.of('late', 6000);
  assert.equal(await bucket.take(20), 0);
  bucket.giveBack(5);
  goAway(true);
  await others.stop();
});

test('another limit of the same name begins as another bucket, and the same one stays', async () => {
  const { instance } = start();
  const buckets = instance();
  const bucket = buckets.of('key', 60);
  assert.equal(buckets.of('key', 60), bucket);
  assert.notEqual(buckets.of('key', 61), bucket);
});

test('buckets that are full and not in use are forgotten when there are many, and the others are not', async () => {
  const { instance } = start();
  const buckets = instance();
  const used = buckets.of('used', 6000);
  assert.equal(await used.take(10), 0);
  const idle = buckets.of('idle', 6000);
  for (let number = 0; number < 9998; number += 1) buckets.of(`key-${number}`, 60);
  assert.equal(buckets.of('idle', 6000), idle, 'there is room');
  buckets.of('one-more', 60);
  assert.equal(buckets.of('used', 6000), used);
  assert.notEqual(buckets.of('idle', 6000), idle);
});

test('as much is held as was used in this second or the one before, and nothing after a quiet one', async () => {
  const { clock, instance, asks } = start();
  const bucket = instance().of('key', 6000);
  const wantOfNext = async () => {
    assert.equal(await bucket.take(1), 0);
    return asks.at(-1)?.want;
  };
  assert.equal(await bucket.take(40), 0);
  await clock.advance(1000);
  assert.equal(await wantOfNext(), 41);
  await clock.advance(3000);
  assert.equal(await wantOfNext(), 1);
});
