import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { registerInstance, watchLosses } from '../../../src/bridge/instances/instance-registry.ts';
import type { InstanceStore } from '../../../src/bridge/storage/instance-and-route-stores.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

/** An instance on a database that can be away, slow, or have another time. */
async function registered(t: TestContext, outageMs: number) {
  const clock = createFakeClock();
  const database = { isAway: false, hanging: undefined as Promise<never> | undefined, offsetMs: 0, answersAfterMs: 0 };
  const seen = { outages: 0, differences: [] as number[], warnings: [] as number[] };
  const store = {
    async beat() {
      if (database.hanging !== undefined) return database.hanging;
      if (database.isAway) throw new Error('no database');
      const at = clock.now() + database.offsetMs;
      if (database.answersAfterMs > 0) await clock.sleep(database.answersAfterMs);
      return { at, others: '', hasDead: false };
    },
    remove: async () => undefined,
  } as unknown as InstanceStore;
  const instance = await registerInstance({
    store,
    clock,
    id: 'ins_1',
    version: '0',
    address: () => '',
    isShared: true,
    outageMs: () => outageMs,
    onMissedBeat: () => undefined,
    onClock: (ms) => void seen.differences.push(ms),
    onClockDifference: (ms) => void seen.warnings.push(ms),
  });
  instance.lease.onOutage(() => {
    seen.outages += 1;
  });
  t.after(() => instance.remove());
  /** Whether others that are silent have ended, as far as a look at this moment could tell. */
  const mayJudge = () => (instance.lease.judgesUntil() ?? 0) > clock.now();
  return { clock, database, seen, instance, mayJudge };
}

test('an outage is reported when it has lasted for its time, once, and again for the next one', async (t) => {
  const { clock, database, seen } = await registered(t, 60_000);
  database.isAway = true;
  await clock.advance(59_000);
  assert.equal(seen.outages, 0);
  await clock.advance(4_000);
  assert.equal(seen.outages, 1);
  await clock.advance(300_000);
  assert.equal(seen.outages, 1);
  database.isAway = false;
  await clock.advance(5_000);
  database.isAway = true;
  await clock.advance(70_000);
  assert.equal(seen.outages, 2);
});

test('a database that does not answer at all is away, too', async (t) => {
  const { clock, database, seen } = await registered(t, 60_000);
  const { promise, reject } = Promise.withResolvers<never>();
  database.hanging = promise;
  await clock.advance(65_000);
  // The end of the test waits for the heartbeat under way.
  reject(new Error('no answer'));
  assert.equal(seen.outages, 1);
});

test('less than nine seconds is no outage, whatever the setting says', async (t) => {
  const { clock, database, seen } = await registered(t, 0);
  database.isAway = true;
  await clock.advance(8_500);
  assert.equal(seen.outages, 0);
  await clock.advance(3_000);
  assert.equal(seen.outages, 1);
});

test('a process that was frozen for longer asks the database before it reports an outage', async (t) => {
  const { clock, seen } = await registered(t, 60_000);
  await clock.sleep(120_000);
  await clock.advance(5_000);
  assert.equal(seen.outages, 0);
});

test('after seven seconds without a heartbeat updates are held back, and nobody else is judged', async (t) => {
  const { clock, database, instance, mayJudge } = await registered(t, 60_000);
  await clock.advance(20_000);
  assert.deepEqual([instance.lease.isHeld(), mayJudge()], [true, true]);
  database.isAway = true;
  await clock.advance(4_500);
  assert.equal(instance.lease.isHeld(), true);
  await clock.advance(3_000);
  assert.deepEqual([instance.lease.isHeld(), mayJudge()], [false, false]);
  database.isAway = false;
  await clock.advance(2_500);
  assert.deepEqual([instance.lease.isHeld(), mayJudge()], [true, false]);
});

test('a clock that differs is known with each heartbeat and warned of once, and a slow answer is no difference', async (t) => {
  const { clock, database, seen } = await registered(t, 60_000);
  assert.deepEqual(seen, { outages: 0, differences: [0], warnings: [] });
  database.answersAfterMs = 6_000;
  await clock.advance(3_000);
  database.answersAfterMs = 0;
  assert.deepEqual(seen.warnings, []);
  database.offsetMs = -90_000;
  await clock.advance(6_000);
  assert.deepEqual([seen.differences.at(-1), seen.warnings], [90_000, [90_000]]);
  database.offsetMs = 30_000;
  await clock.advance(2_500);
  assert.equal(seen.differences.at(-1), -30_000);
  database.offsetMs = 0;
  await clock.advance(2_500);
  database.offsetMs = 7_000;
  await clock.advance(2_500);
  assert.deepEqual(seen.warnings, [90_000, -7_000]);
});

test('a bridge judges others after eight seconds of heartbeats, until five seconds after its last one', async (t) => {
  const { clock, instance } = await registered(t, 60_000);
  const { lease } = instance;
  assert.equal(lease.judgesUntil(), undefined, 'the others have had no time yet');
  await clock.advance(7000);
  assert.equal(lease.judgesUntil(), undefined);
  await clock.advance(1000);
  assert.equal(lease.judgesUntil(), clock.now() + 5000);
  await clock.advance(1000);
  assert.equal(lease.judgesUntil(), clock.now() + 4000, 'a look that waits for the database finds nothing later');
});

test('a heartbeat that waited for the database says that the others had to wait, too', async (t) => {
  const { clock, database, mayJudge, instance } = await registered(t, 60_000);
  await clock.advance(20_000);
  const before = instance.lease.judgesUntil() ?? 0;
  database.answersAfterMs = 6_500;
  await clock.advance(2_500);
  database.answersAfterMs = 0;
  assert.ok(clock.now() > before, 'a look that was asked for during the outage comes too late');
  assert.equal(mayJudge(), false);
  await clock.advance(7_000);
  assert.equal(mayJudge(), false);
  await clock.advance(4_000);
  assert.equal(mayJudge(), true);
});

test('a bridge is sure of its sessions while its lease is held, and after a loss once they were checked', async () => {
  let isHeld = true;
  let beat: (wasLost: boolean) => void = () => assert.fail('nobody listens to heartbeats');
  const lease = {
    isHeld: () => isHeld,
    onBeat(listener: (wasLost: boolean) => void) {
      beat = listener;
    },
  };
  const checks: (() => void)[] = [];
  const check = () => new Promise<void>((resolve) => void checks.push(resolve));
  let looks = 0;
  const isSure = watchLosses(lease, check, () => {
    // Whatever waits is shown by now: only a bridge that is sure may look.
    if (isSure()) looks += 1;
  });
  beat(false);
  assert.deepEqual([isSure(), checks.length, looks], [true, 0, 1]);
  isHeld = false;
  assert.equal(isSure(), false);
  isHeld = true;
  beat(true);
  // It was lost once more before the first check had ended.
  beat(true);
  assert.deepEqual([isSure(), checks.length], [false, 2]);
  checks[0]?.();
  await Promise.resolve();
  assert.deepEqual([isSure(), looks], [false, 1]);
  checks[1]?.();
  await Promise.resolve();
  assert.deepEqual([isSure(), looks], [true, 2]);
});
