import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { createSerialQueue } from '../../../src/platform/queue/serial-queue.ts';

test('tasks run one at a time in the order they came, also after one has failed', async () => {
  const queue = createSerialQueue({ capacity: 100 });
  const log: string[] = [];
  const task = (name: string, fails: boolean) => async () => {
    log.push(`${name} starts`);
    await new Promise((resolve) => setImmediate(resolve));
    log.push(`${name} ends`);
    if (fails) throw new Error(name);
    return name;
  };
  const outcomes = await Promise.allSettled(['a', 'b', 'c'].map((name) => queue.run(task(name, name === 'b'))));
  const states = outcomes.map(({ status }) => status);
  assert.deepEqual(log, ['a starts', 'a ends', 'b starts', 'b ends', 'c starts', 'c ends']);
  assert.deepEqual(states, ['fulfilled', 'rejected', 'fulfilled']);
  assert.equal(queue.waiting(), 0);
});

test('a task that throws before its first pause does not stop the queue', async () => {
  const queue = createSerialQueue({ capacity: 1 });
  const throwing = () => {
    throw new Error('at once');
  };
  await assert.rejects(queue.run(throwing), /at once/);
  assert.equal(await queue.run(async () => 'next'), 'next');
});

test('when all places are taken the next task is refused and never runs', async () => {
  const queue = createSerialQueue({ capacity: 2 });
  const { promise, resolve } = Promise.withResolvers<void>();
  const accepted = [1, 2, 3].map(() => queue.run(() => promise));
  assert.equal(queue.waiting(), 2);
  const refused = queue.run(async () => assert.fail('it ran'));
  await assert.rejects(refused, { code: 'OVERLOADED' });
  resolve();
  await Promise.all(accepted);
  assert.equal(await queue.run(async () => 'room again'), 'room again');
});

test('closing refuses those that wait, lets the running one end, and takes no more', async () => {
  const queue = createSerialQueue({ capacity: 5 });
  const { promise, resolve } = Promise.withResolvers<string>();
  const running = queue.run(() => promise);
  const waiting = queue.run(async () => assert.fail('it ran'));
  const refused = assert.rejects(waiting, { code: 'SHUTTING_DOWN' });
  let idle = false;
  const closing = queue.close().then(() => {
    idle = true;
  });
  await refused;
  assert.equal(idle, false);
  resolve('done');
  assert.equal(await running, 'done');
  await closing;
  const late = queue.run(async () => 1);
  await assert.rejects(late, { code: 'SHUTTING_DOWN' });
});

test('whatever the order of starts and ends, never more than one runs and none is lost', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.array(fc.boolean(), { minLength: 1, maxLength: 12 }),
      async (scheduler, fails) => {
        const queue = createSerialQueue({ capacity: 100 });
        let active = 0;
        const outcomes = fails.map((fail, index) =>
          queue.run(async () => {
            active += 1;
            assert.equal(active, 1);
            await scheduler.schedule(Promise.resolve());
            active -= 1;
            if (fail) throw new Error(String(index));
            return index;
          }),
        );
        const settled = Promise.allSettled(outcomes);
        await scheduler.waitFor(settled);
        for (const [index, outcome] of (await settled).entries()) {
          assert.equal(outcome.status === 'fulfilled' ? outcome.value : Number(outcome.reason.message), index);
        }
      },
    ),
    { numRuns: 50 },
  );
});
