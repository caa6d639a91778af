import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  createFailureThrottle,
  type FailureThrottle,
  type NotedFailure,
} from '../../../src/platform/http/failure-throttle.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

/** A throttle without other instances answers without waiting. */
function noteHere(throttle: FailureThrottle, address: string): NotedFailure {
  const noted = throttle.note(address);
  assert.ok(!(noted instanceof Promise));
  return noted;
}

test('B-46: from the 21st failure in a minute an address learns when to come back, and it is logged only once', async () => {
  const clock = createFakeClock();
  const throttle = createFailureThrottle({ clock });
  for (let count = 1; count <= 20; count += 1)
    assert.deepEqual(throttle.note('203.0.113.9'), { firstOverLimit: false });
  await clock.advance(20_000);
  assert.deepEqual(throttle.note('203.0.113.9'), { retryAfterSeconds: 40, firstOverLimit: true });
  assert.deepEqual(throttle.note('203.0.113.9'), { retryAfterSeconds: 40, firstOverLimit: false });
  assert.deepEqual(throttle.note('203.0.113.10'), { firstOverLimit: false }, 'another address');
  await clock.advance(40_000);
  assert.deepEqual(throttle.note('203.0.113.9'), { firstOverLimit: false }, 'a new window');
});

test('B-46: the wall clock does not matter, and mapped and neighbouring IPv6 addresses count as one', () => {
  const clock = createFakeClock();
  const throttle = createFailureThrottle({ clock, limit: 1 });
  throttle.note('203.0.113.9');
  clock.stepWall(3_600_000);
  assert.equal(noteHere(throttle, '::ffff:203.0.113.9').firstOverLimit, true);
  throttle.note('2001:db8:1:2::1');
  assert.equal(noteHere(throttle, '2001:db8:1:2:ffff::9').firstOverLimit, true);
  assert.equal(noteHere(throttle, '2001:db8:1:3::1').firstOverLimit, false);
});

test('B-46: a flood from many addresses keeps no more than the newest', () => {
  const throttle = createFailureThrottle({ clock: createFakeClock(), limit: 1, maxEntries: 3 });
  for (const address of ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4']) throttle.note(address);
  assert.equal(noteHere(throttle, '10.0.0.4').firstOverLimit, true);
  assert.equal(noteHere(throttle, '10.0.0.2').firstOverLimit, true);
  assert.equal(noteHere(throttle, '10.0.0.1').firstOverLimit, false, 'the oldest was forgotten');
});

test('DS-11: failures that another instance has counted count too, and one that this one has refused asks nobody', async () => {
  const clock = createFakeClock();
  const taken: string[] = [];
  let waits: () => number | Promise<number> = () => 0;
  const bucketOf = (id: string, perMinute: number) => ({
    take(amount: number) {
      taken.push(`${id}: ${amount} of ${perMinute}`);
      return waits();
    },
    giveBack: () => undefined,
    owe: () => undefined,
    remaining: () => 0,
    fullAfterMs: () => 0,
  });
  const throttle = createFailureThrottle({ clock, limit: 3, shared: { buckets: { of: bucketOf }, name: 'keys' } });
  assert.deepEqual(await throttle.note('203.0.113.9'), { firstOverLimit: false });
  waits = async () => 2500;
  assert.deepEqual(await throttle.note('203.0.113.9'), { retryAfterSeconds: 3, firstOverLimit: true });
  assert.deepEqual(await throttle.note('203.0.113.9'), { retryAfterSeconds: 3, firstOverLimit: false });
  assert.deepEqual(await throttle.note('203.0.113.9'), { retryAfterSeconds: 60, firstOverLimit: false });
  assert.deepEqual(taken, Array(3).fill('wrong keys 203.0.113.9: 1 of 3'));
  waits = () => {
    throw new Error('the store is away');
  };
  assert.deepEqual(await throttle.note('203.0.113.10'), { firstOverLimit: false }, 'each counts alone then');
});
