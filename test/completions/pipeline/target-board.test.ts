import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ModelPlan, Target } from '../../../src/completions/routing/model-plan.ts';
import { createTargetBoard } from '../../../src/completions/routing/target-board.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const timeouts = { connect: 1, first_byte: 1, idle: 1, total: 1 };

function targetOf(model: string, changes: Partial<Target> = {}): Target {
  const limits = { requestsPerMinute: 0, tokensPerMinute: 0 };
  return { id: `lab/${model}`, apiId: 'lab', model, weight: 1, priority: 1, ...limits, timeouts, ...changes };
}

function planOf(targets: readonly Target[]): ModelPlan {
  const rest = { fallbacks: [], contextFallbacks: [], retries: 0, cacheTtlMs: 0 };
  return { name: 'quick', targets, strategy: 'fastest', ...rest };
}

/** A board whose random numbers are the given ones, in turn. */
function start(targets: readonly Target[], numbers: readonly number[] = [0]) {
  const clock = createFakeClock();
  let next = 0;
  const below = (limit: number) => (numbers[next++ % numbers.length] ?? 0) % limit;
  const board = createTargetBoard({ clock, randomness: { below }, onCircuit: () => undefined });
  const plan = planOf(targets);
  return {
    order: () => board.order(plan).map(({ model }) => model),
    async call(target: Target, ms: number, result: 'ok' | 'failed' | 'ignored' = 'ok') {
      const lease = board.begin(target, 1, { caller: 'key_1', isSole: false });
      if (lease.waitMs !== undefined) return assert.fail('it has no room');
      await clock.advance(ms);
      if (result === 'ok') lease.answered();
      lease.end(result);
    },
  };
}

test('fastest asks targets that were not measured first, then the faster of two', async () => {
  const [slow, quick] = [targetOf('slow'), targetOf('quick')];
  const { order, call } = start([slow, quick]);
  await call(slow, 900);
  assert.deepEqual(order(), ['quick', 'slow'], 'quick was not measured');
  await call(quick, 100);
  for (let round = 0; round < 5; round += 1) assert.deepEqual(order(), ['quick', 'slow']);
  // After 100 ms, four times 2,100 ms: the average is above 900 ms.
  for (let round = 0; round < 4; round += 1) await call(quick, 2100);
  assert.equal(order()[0], 'slow');
  await call(slow, 6000);
  assert.equal(order()[0], 'quick');
});

test('of three targets and more two are compared, so that each is asked now and then but the slowest', async () => {
  const targets = ['a', 'b', 'c'].map((model) => targetOf(model));
  const numbers = [0, 0, 1, 0, 2, 0, 1, 1];
  const { order, call } = start(targets, numbers);
  for (const [index, target] of targets.entries()) await call(target, (index + 1) * 100);
  // The pairs are a and b, b and c, c and a, b and a.
  assert.deepEqual([order()[0], order()[0], order()[0], order()[0]], ['a', 'b', 'a', 'a']);
});

test('a target that fails fast does not count as fast, and one without weight is asked last', async () => {
  const [broken, quick, spare] = [targetOf('broken'), targetOf('quick'), targetOf('spare', { weight: 0 })];
  const { order, call } = start([broken, quick, spare]);
  await call(quick, 500);
  await call(broken, 1, 'ignored');
  assert.equal(order()[0], 'broken', 'what the caller did wrong shows nothing');
  await call(broken, 1, 'failed');
  assert.deepEqual(order(), ['quick', 'broken', 'spare']);
});
