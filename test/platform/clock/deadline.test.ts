import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { deadline, repeat } from '../../../src/platform/clock/clock.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

test('a deadline aborts its signal when the time is up, with the given reason', async () => {
  const clock = createFakeClock();
  const reason = new Error('too slow');
  const { signal, hasPassed } = deadline(clock, 100, [], reason);
  await clock.advance(99);
  assert.deepEqual([signal.aborted, hasPassed()], [false, false]);
  await clock.advance(1);
  assert.deepEqual([signal.reason, hasPassed()], [reason, true]);
});

test('a deadline aborts its signal with the first of the given signals, and tells that the time was not up', async () => {
  const clock = createFakeClock();
  const caller = new AbortController();
  const { signal, hasPassed } = deadline(clock, 100, [new AbortController().signal, caller.signal]);
  caller.abort('gone');
  assert.deepEqual([signal.aborted, signal.reason, hasPassed()], [true, 'gone', false]);
});

test('a released deadline has no timer and no listener left', async () => {
  const clock = createFakeClock();
  const caller = new AbortController();
  const { signal, hasPassed, release } = deadline(clock, 100, [caller.signal]);
  release();
  await clock.advance(1000);
  caller.abort();
  assert.deepEqual([signal.aborted, hasPassed()], [false, false]);
  assert.equal(getEventListeners(caller.signal, 'abort').length, 0);
});

test('repeated work pauses after each end, goes on after an error, and begins after a time of its own', async () => {
  const clock = createFakeClock();
  const errors: unknown[] = [];
  let runs = 0;
  const repeated = repeat({
    clock,
    firstAfterMs: 10,
    pauseMs: 100,
    async work() {
      runs += 1;
      if (runs === 2) throw new Error('the second fails');
    },
    onError: (error) => errors.push(error),
  });
  await clock.advance(10);
  assert.equal(runs, 1);
  await clock.advance(99);
  assert.equal(runs, 1);
  await clock.advance(1);
  await clock.advance(100);
  assert.deepEqual([runs, errors.length], [3, 1]);
  await repeated.stop();
  await clock.advance(1000);
  assert.equal(runs, 3);
});

test('a stop of repeated work aborts its signal and waits for its end', async () => {
  const clock = createFakeClock();
  const { promise: held, resolve: letGo } = Promise.withResolvers<void>();
  let isAborted = false;
  const repeated = repeat({
    clock,
    pauseMs: 10,
    async work(signal) {
      await held;
      isAborted = signal.aborted;
    },
    onError: assert.fail,
  });
  await clock.advance(10);
  const stopped = repeated.stop();
  letGo();
  await stopped;
  assert.equal(isAborted, true);
  await clock.advance(1000);
});
