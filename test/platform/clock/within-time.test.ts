import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withinTime } from '../../../src/platform/clock/clock.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

test('work that ends in time gives its own result, and its timer is gone', async () => {
  const clock = createFakeClock();
  assert.equal(await withinTime(clock, 100, Promise.resolve('done'), () => 'late'), 'done');
  await assert.rejects(
    withinTime(clock, 100, Promise.reject(new Error('broken')), () => 'late'),
    /broken/,
  );
  assert.equal(clock.pending(), 0);
});

test('work that takes too long gives what was said for that case, also when that is an error', async () => {
  const clock = createFakeClock();
  const never = new Promise<string>(() => {});
  const late = withinTime(clock, 100, never, () => 'late');
  const thrown = withinTime(clock, 100, never, () => {
    throw new Error('too late');
  });
  const rejected = assert.rejects(thrown, /too late/);
  await clock.advance(100);
  assert.equal(await late, 'late');
  await rejected;
});

test('what late work fails with afterwards bothers nobody', async () => {
  const clock = createFakeClock();
  const { promise, reject } = Promise.withResolvers<void>();
  const late = withinTime(clock, 100, promise, () => 'late');
  await clock.advance(100);
  reject(new Error('much later'));
  assert.equal(await late, 'late');
  await new Promise((resolve) => setImmediate(resolve));
});
