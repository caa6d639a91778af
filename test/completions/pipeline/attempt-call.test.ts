import assert from 'node:assert/strict';
import { test } from 'node:test';
import { INTERNAL } from '../../../src/completions/keys/key-access.ts';
import { type Attempt, createAttemptCalls } from '../../../src/completions/routing/attempt-call.ts';
import { CallerPresence } from '../../../src/completions/routing/call-record.ts';
import type { ModelPlan, Target } from '../../../src/completions/routing/model-plan.ts';
import { createTargetBoard } from '../../../src/completions/routing/target-board.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { createFakeRandomness } from '../../kit/fake-randomness.ts';

const TOTAL_MS = 4000;
const timeouts = { connect: 1000, first_byte: 1000, idle: 1000, total: TOTAL_MS };
const target = { apiId: 'lab', weight: 1, priority: 1, requestsPerMinute: 0, tokensPerMinute: 0, timeouts };
const plan: ModelPlan = {
  name: 'alias',
  targets: [
    { ...target, id: 'lab/first', model: 'first' },
    { ...target, id: 'lab/second', model: 'second', priority: 2 },
  ],
  fallbacks: [],
  contextFallbacks: [],
  retries: 10,
  cacheTtlMs: 0,
};

/** The tries of one call, each with its time, and when the call was over. */
async function callWith(answer: (attempt: Attempt) => string | AppError) {
  const clock = createFakeClock();
  const tries: [model: string, at: number][] = [];
  const attemptCalls = createAttemptCalls({
    plans: { resolve: () => plan },
    board: createTargetBoard({ clock, onCircuit: () => undefined }),
    clock,
    randomness: createFakeRandomness(),
    onFailure: () => undefined,
  });
  let endedAt: number | undefined;
  const called = attemptCalls({
    plan,
    holder: INTERNAL,
    tokens: 1,
    presence: new CallerPresence(),
    record: { attempts: 0, target: undefined },
    async run(attempt) {
      tries.push([attempt.target.model, clock.monotonic()]);
      const answered = answer(attempt);
      if (answered instanceof AppError) throw answered;
      return answered;
    },
  })
    .catch((error: unknown) => String(error))
    .finally(() => {
      endedAt = clock.monotonic();
    });
  await clock.advance(60_000);
  return { answer: await called, tries, endedAt };
}

test('an upstream that asks for a longer pause than the call has is left for the next target', async () => {
  const busy = new AppError('UPSTREAM_REFUSED', { status: 429, retryAfterSeconds: 6 });
  const call = await callWith(({ target: { model } }) => (model === 'first' ? busy : 'done'));
  assert.deepEqual(call, {
    answer: 'done',
    tries: [
      ['first', 0],
      ['second', 0],
    ],
    endedAt: 0,
  });
});

test('no pause between two tries goes on after the time of all of them', async () => {
  const busy = new AppError('UPSTREAM_REFUSED', { status: 429, retryAfterSeconds: 1 });
  const { tries, endedAt } = await callWith(() => busy);
  assert.ok(tries.length > 2 && tries.every(([, at]) => at < TOTAL_MS), JSON.stringify(tries));
  assert.ok((endedAt ?? Number.NaN) <= TOTAL_MS, `over after ${endedAt} ms`);
});

test('the only target with room is tried although its circuit is open', async () => {
  const clock = createFakeClock();
  const board = createTargetBoard({ clock, onCircuit: () => undefined });
  const soles: boolean[] = [];
  const attemptCalls = createAttemptCalls({
    plans: { resolve: () => plan },
    board: {
      ...board,
      begin(target, tokens, use) {
        soles.push(use.isSole);
        return board.begin(target, tokens, use);
      },
    },
    clock,
    randomness: createFakeRandomness(),
    onFailure: () => undefined,
  });
  const [full, free] = plan.targets as [Target, Target];
  const call = {
    plan: { ...plan, targets: [{ ...full, apiId: 'full' }, free] },
    holder: INTERNAL,
    tokens: 1,
    presence: new CallerPresence(),
    record: { attempts: 0, target: undefined },
    run: async () => 'done',
  };
  await attemptCalls(call);
  const refusal = (api: string) => new AppError('BUDGET_EXCEEDED', { of: api });
  const apis = { hasRoom: (api: string) => api !== 'full', refusal };
  await attemptCalls({ ...call, apis });
  assert.deepEqual(soles, [false, true]);
  // What the API stores can be asked of no other.
  const pinned = { ...call.plan, targets: call.plan.targets.slice(0, 1) };
  await assert.rejects(attemptCalls({ ...call, plan: pinned, apis }), refusal('full'));
});
