import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { pause } from '../../../src/platform/clock/clock.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

test('a pause lasts as long as it should, and leaves no listener behind', async () => {
  const clock = createFakeClock();
  const { signal } = new AbortController();
  let isOver = false;
  const paused = pause(clock, 100, signal).then(() => {
    isOver = true;
  });
  await clock.advance(99);
  assert.equal(isOver, false);
  await clock.advance(1);
  await paused;
  assert.equal(getEventListeners(signal, 'abort').length, 0);
});

test('a pause ends immediately when it is called off, also before it began', async () => {
  const clock = createFakeClock();
  const aborter = new AbortController();
  const paused = pause(clock, 1000, aborter.signal);
  aborter.abort();
  await paused;
  await pause(clock, 1000, aborter.signal);
});
