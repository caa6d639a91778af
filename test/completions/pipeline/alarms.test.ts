import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAlarms } from '../../../src/completions/upstream/upstream-exchange.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

function start() {
  const clock = createFakeClock();
  const alarms = createAlarms(clock);
  const rung: string[] = [];
  const alarm = (name: string, dueAt: number) => ({
    dueAt,
    ring: () => void rung.push(`${name} ${clock.monotonic()}`),
  });
  return { clock, alarms, rung, alarm };
}

test('alarms ring at their time with one timer for all, whatever the order they were set in', async () => {
  const { clock, alarms, rung, alarm } = start();
  for (const [name, dueAt] of [
    ['c', 900],
    ['a', 100],
    ['b', 500],
  ] as const)
    alarms.set(alarm(name, dueAt));
  assert.equal(clock.pending(), 1);
  await clock.advance(1000);
  assert.deepEqual(rung, ['a 100', 'b 500', 'c 900']);
  assert.equal(clock.pending(), 0);
});

test('a cleared alarm is silent, and one that rings may set itself again or clear another', async () => {
  const { clock, alarms, rung, alarm } = start();
  const cleared = alarm('cleared', 100);
  const neighbour = alarm('neighbour', 200);
  alarms.set(cleared);
  const again = {
    dueAt: 200,
    ring() {
      rung.push(`again ${clock.monotonic()}`);
      alarms.clear(neighbour);
      again.dueAt = 700;
      if (rung.length === 1) alarms.set(again);
    },
  };
  alarms.clear(cleared);
  alarms.set(again);
  alarms.set(neighbour);
  await clock.advance(1000);
  assert.deepEqual(rung, ['again 200', 'again 700']);
});

test('an alarm close after another rings a little later, and none is forgotten', async () => {
  const { clock, alarms, rung, alarm } = start();
  for (const dueAt of [100, 101, 102, 160]) alarms.set(alarm('at', dueAt));
  await clock.advance(1000);
  assert.deepEqual(rung, ['at 100', 'at 150', 'at 150', 'at 200']);
});
