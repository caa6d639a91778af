import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ClockStep, createFollowClock } from '../../../src/bridge/jobs/job-runner.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

function start() {
  const clock = createFakeClock();
  const steps: ClockStep[] = [];
  const faults: Error[] = [];
  const follow = createFollowClock(clock, async (step) => {
    const fault = faults.pop();
    if (fault !== undefined) throw fault;
    steps.push(step);
  });
  return { clock, steps, faults, follow };
}

test('a clock that only goes on is no step, however long nobody looks', async () => {
  const { clock, steps, follow } = start();
  await clock.advance(86_400_000);
  await follow();
  clock.stepWall(999);
  await follow();
  assert.deepEqual(steps, []);
});

test('a clock that is set ahead or back is reported once, with the time since the look before', async () => {
  const { clock, steps, follow } = start();
  await clock.advance(5000);
  await follow();
  await clock.advance(300);
  clock.stepWall(90 * 86_400_000);
  await Promise.all([follow(), follow()]);
  await follow();
  assert.deepEqual(steps, [{ byMs: 90 * 86_400_000, now: clock.now(), sinceMs: 300 }]);
  clock.stepWall(-3_600_000);
  await follow();
  assert.deepEqual(steps[1], { byMs: -3_600_000, now: clock.now(), sinceMs: 0 });
});

test('small steps add up to one that is reported', async () => {
  const { clock, steps, follow } = start();
  for (let step = 0; step < 3; step += 1) {
    clock.stepWall(400);
    await follow();
  }
  assert.deepEqual(
    steps.map(({ byMs }) => byMs),
    [1200],
  );
});

test('a step that could not be dealt with is reported again at the next look', async () => {
  const { clock, steps, faults, follow } = start();
  clock.stepWall(60_000);
  faults.push(new Error('no store'));
  await assert.rejects(follow(), /no store/);
  await clock.advance(1000);
  await follow();
  assert.deepEqual(steps, [{ byMs: 60_000, now: clock.now(), sinceMs: 1000 }]);
});
