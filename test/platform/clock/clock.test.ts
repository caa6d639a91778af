import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';

test('a timer runs once, and not at all when it was cancelled', async () => {
  let runs = 0;
  const cancel = systemClock.after(1, () => assert.fail('it was cancelled'));
  cancel();
  await new Promise<void>((resolve) => {
    systemClock.after(5, () => {
      runs += 1;
      resolve();
    });
    // The clock's own timers do not keep the process alive.
    const alive = setInterval(() => runs > 0 && clearInterval(alive), 1);
  });
  assert.equal(runs, 1);
});

test('a timer never runs before its time, by either clock', async () => {
  const early: string[] = [];
  for (let round = 0; round < 40; round += 1) {
    const timers = Array.from({ length: 50 }, (_, index) => {
      // The timers begin at different parts of a millisecond.
      const from = systemClock.monotonic() + 0.01 * index;
      while (systemClock.monotonic() < from);
      const [ms, monotonic, now] = [1 + (index % 5) / 2, systemClock.monotonic(), systemClock.now()];
      return new Promise<void>((resolve) => {
        systemClock.after(ms, () => {
          const [byMonotonic, byWall] = [systemClock.monotonic() - monotonic, systemClock.now() - now];
          if (byMonotonic < ms || byWall < Math.floor(ms)) early.push(`${ms} ms: ${byMonotonic}, ${byWall}`);
          resolve();
        });
      });
    });
    const alive = setInterval(() => undefined, 1000);
    await Promise.all(timers);
    clearInterval(alive);
  }
  assert.deepEqual(early, []);
});

test('the longest timer waits', async () => {
  const cancel = systemClock.after(2 ** 31 - 1, () => assert.fail('it ran'));
  await new Promise((resolve) => setTimeout(resolve, 20));
  cancel();
});

test('a waiting timer does not keep the process alive', async () => {
  const script = "import { systemClock } from './src/platform/clock/clock.ts'; systemClock.after(3600_000, () => {});";
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'ignore' });
  const code = await new Promise((resolve) => child.once('exit', resolve));
  assert.equal(code, 0);
});

test('monotonic time never goes back, and wall time is the time of day', () => {
  const first = systemClock.monotonic();
  assert.ok(systemClock.monotonic() >= first);
  assert.ok(Math.abs(systemClock.now() - Date.now()) < 10_000);
});

test('randomness has the length and the range it is asked for', () => {
  assert.equal(systemRandomness.bytes(10).length, 10);
  assert.notDeepEqual(systemRandomness.bytes(16), systemRandomness.bytes(16));
  const values = new Set(Array.from({ length: 500 }, () => systemRandomness.below(3)));
  assert.deepEqual([...values].sort(), [0, 1, 2]);
});
