import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nanoOfUsd, priceFrom } from '../../../src/completions/apis/prices.ts';
import type { KeyHolder, SettledCall } from '../../../src/completions/keys/admission.ts';
import { createBudgets } from '../../../src/completions/keys/budgets.ts';
import { createAdmissions } from '../../../src/completions/keys/create-admissions.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { Budget } from '../../../src/platform/identity/owner.ts';
import { admittedNow } from '../../kit/completions/start-keys.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';
import { holderOf, outcomeOf } from './calls.ts';

const USD_PER_TOKEN = 0.001;
const NANO_PER_TOKEN = 1_000_000;

function start(wallStart?: number) {
  const clock = createFakeClock(wallStart);
  const settled: SettledCall[] = [];
  const problems: unknown[] = [];
  const stored = new Map<string, number>();
  const budgets = createBudgets({
    clock,
    readSpent: async (key, period) => stored.get(`${key} ${period}`) ?? 0,
    unstored: () => 0,
    freshMs: Number.POSITIVE_INFINITY,
  });
  const admissions = createAdmissions({
    clock,
    budgets,
    priceOf: () => priceFrom({ input: USD_PER_TOKEN, output: USD_PER_TOKEN }),
    keepsContent: false,
    observers: [(call) => settled.push(call)],
    onProblem: (error) => problems.push(error),
  });
  const admit = (holder: KeyHolder, tokens = 15) =>
    admittedNow(
      admissions.admit(holder, { estimatedTokens: tokens, estimatedCostNano: tokens * NANO_PER_TOKEN, mayCost: true }),
    );
  const tokensUsed = (tokens: number) =>
    outcomeOf({ usage: { prompt_tokens: tokens, completion_tokens: 0, total_tokens: tokens } });
  return { clock, settled, problems, stored, budgets, admit, tokensUsed };
}

function refusal(run: () => unknown): AppError {
  try {
    run();
  } catch (error) {
    assert.ok(error instanceof AppError);
    return error;
  }
  assert.fail('it was let in');
}

test('a key without limits is let in, without headers', () => {
  const { admit, settled } = start();
  const admission = admit(holderOf());
  assert.deepEqual(admission.headers, {});
  admission.settle(outcomeOf());
  assert.equal(settled.length, 1);
  assert.equal(settled[0]?.costNano, 15_000_000);
});

test('50 parallel calls never get more than the limit of requests', async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 60 }), async (limit) => {
      const { admit } = start();
      const holder = holderOf({ requestsPerMinute: limit });
      const call = async () => {
        await Promise.resolve();
        const admission = admit(holder);
        await Promise.resolve();
        admission.settle(outcomeOf());
      };
      const results = await Promise.allSettled(Array.from({ length: 50 }, call));
      assert.equal(results.filter(({ status }) => status === 'fulfilled').length, Math.min(50, limit));
    }),
    { numRuns: 40 },
  );
});

test('50 parallel calls never reserve more tokens or money than there is', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 3000 }),
      fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 50, maxLength: 50 }),
      async (limit, sizes) => {
        const { admit } = start();
        const holder = holderOf({ tokensPerMinute: limit, budget: { usd: limit * USD_PER_TOKEN, period: 'total' } });
        let admitted = 0;
        await Promise.allSettled(
          sizes.map(async (tokens) => {
            await Promise.resolve();
            admit(holder, tokens);
            admitted += tokens;
          }),
        );
        assert.ok(admitted <= limit + 1e-6, `${admitted} of ${limit}`);
      },
    ),
    { numRuns: 60 },
  );
});

test('a refusal says when to try again, and the headers have the form of OpenAI', async () => {
  const { clock, admit } = start();
  const holder = holderOf({ requestsPerMinute: 2, tokensPerMinute: 6000 });
  assert.deepEqual(admit(holder, 90).headers, {
    'x-ratelimit-limit-requests': '2',
    'x-ratelimit-remaining-requests': '1',
    'x-ratelimit-reset-requests': '30s',
    'x-ratelimit-limit-tokens': '6000',
    'x-ratelimit-remaining-tokens': '5910',
    'x-ratelimit-reset-tokens': '900ms',
  });
  admit(holder);
  const { code, details } = refusal(() => admit(holder));
  assert.equal(code, 'RATE_LIMIT_EXCEEDED');
  assert.equal(details.unit, 'requests');
  assert.equal(details.retryAfterSeconds, 30);
  assert.equal((details.headers as Record<string, string>)['x-ratelimit-reset-requests'], '1m0s');
  await clock.advance(30_000);
  admit(holder);
});

test('tokens are settled with what was really used, in both directions', () => {
  const { admit, tokensUsed } = start();
  const holder = holderOf({ tokensPerMinute: 1000 });
  const first = admit(holder, 1000);
  assert.equal(refusal(() => admit(holder, 1)).details.unit, 'tokens');
  first.settle(tokensUsed(100));
  const second = admit(holder, 500);
  assert.equal(second.headers['x-ratelimit-remaining-tokens'], '400');
  second.settle(tokensUsed(950));
  assert.equal(refusal(() => admit(holder, 1)).details.retryAfterSeconds, 4);
});

test('a call that may cost more than a minute allows still gets its turn when the bucket is full', () => {
  const { admit } = start();
  const holder = holderOf({ tokensPerMinute: 100 });
  admit(holder, 5000);
  refusal(() => admit(holder, 1));
});

test('what is refused for its tokens has not used up a request', () => {
  const { admit } = start();
  const holder = holderOf({ requestsPerMinute: 2, tokensPerMinute: 100 });
  admit(holder, 100);
  assert.equal(refusal(() => admit(holder, 50)).details.unit, 'tokens');
  assert.equal(refusal(() => admit(holder, 50)).details.unit, 'tokens');
});

test('P-27: a budget that is used up during a call lets that call finish, and refuses the next', () => {
  const { admit, tokensUsed, settled } = start();
  const holder = holderOf({ budget: { usd: 1, period: 'total' } });
  const running = admit(holder, 500);
  running.settle(tokensUsed(1500));
  assert.equal(settled[0]?.costNano, 1_500_000_000);
  const { code, details } = refusal(() => admit(holder, 1));
  assert.equal(code, 'BUDGET_EXCEEDED');
  assert.deepEqual(details, { usd: 1, period: 'total', of: 'this key' });
});

test('what a call did not use of its reservation is there for the next one', () => {
  const { admit, tokensUsed } = start();
  const holder = holderOf({ budget: { usd: 1, period: 'total' } });
  const running = admit(holder, 900);
  refusal(() => admit(holder, 200));
  running.settle(tokensUsed(100));
  admit(holder, 900);
});

test('a budget starts again with each UTC day, and says how long until then', async () => {
  const { clock, admit, tokensUsed } = start(Date.UTC(2030, 0, 31, 23, 0, 0));
  const daily = holderOf({ budget: { usd: 1, period: 'day' } });
  const monthly = holderOf({ budget: { usd: 1, period: 'month' } }, { id: 'key_2' });
  for (const holder of [daily, monthly]) admit(holder, 900).settle(tokensUsed(1000));
  assert.equal(refusal(() => admit(daily, 1)).details.retryAfterSeconds, 3600);
  assert.equal(refusal(() => admit(monthly, 1)).details.retryAfterSeconds, 3600);
  await clock.advance(3_600_000);
  admit(daily, 900).settle(tokensUsed(1000));
  admit(monthly, 900).settle(tokensUsed(1000));
  await clock.advance(86_400_000);
  admit(daily, 1);
  refusal(() => admit(monthly, 1));
});

test('a call that ends in the next period counts there', async () => {
  const { clock, admit, tokensUsed, settled } = start(Date.UTC(2030, 0, 31, 23, 59, 59));
  const holder = holderOf({ budget: { usd: 1, period: 'day' } });
  const running = admit(holder, 100);
  await clock.advance(2000);
  running.settle(tokensUsed(1000));
  assert.deepEqual(settled[0]?.charges, [{ bucket: 'key_1', period: '2030-02-01' }]);
  refusal(() => admit(holder, 1));
});

test('what was spent before a restart is read before the first call', async () => {
  const { admit, budgets, stored } = start();
  const budget = { usd: 1, period: 'total' } as const;
  stored.set('key_1 total', nanoOfUsd(0.95));
  await budgets.prepare('key_1', budget);
  assert.equal(budgets.prepare('key_1', budget), undefined);
  refusal(() => admit(holderOf({ budget }), 100));
  admit(holderOf({ budget }), 40);
});

test('where others spend too, what they spent is seen, and nothing of our own is forgotten', async () => {
  const clock = createFakeClock();
  let stored = 0;
  let unstored = 0;
  const budgets = createBudgets({ clock, readSpent: async () => stored, unstored: () => unstored, freshMs: 1000 });
  const budget = { usd: 1, period: 'total' } as const;
  await budgets.prepare('key_1', budget);
  budgets.reserve('key_1', budget, nanoOfUsd(0.1))?.settle(nanoOfUsd(0.3));
  unstored = nanoOfUsd(0.3);
  stored = nanoOfUsd(0.6);
  assert.equal(budgets.prepare('key_1', budget), undefined);
  await clock.advance(1000);
  await Promise.all([budgets.prepare('key_1', budget), budgets.prepare('key_1', budget)]);
  assert.equal(budgets.reserve('key_1', budget, nanoOfUsd(0.11)), undefined);
  assert.ok(budgets.reserve('key_1', budget, nanoOfUsd(0.09)) !== undefined);
});

test('50, 80 and 100 % of a budget give one alert each in a period; what was spent before the start gives none', async () => {
  const clock = createFakeClock(Date.UTC(2030, 0, 31));
  const told: [string, number, string][] = [];
  const stored = new Map([['old', nanoOfUsd(0.6)]]);
  const budgets = createBudgets({
    clock,
    readSpent: async (key) => stored.get(key) ?? 0,
    unstored: () => 0,
    freshMs: Number.POSITIVE_INFINITY,
    onAlert: ({ bucket, percent, period }) => told.push([bucket, percent, period]),
  });
  const budget = { usd: 1, period: 'day' } as const;
  const spend = (key: string, usd: number, given: Budget = budget) =>
    budgets.reserve(key, given, nanoOfUsd(usd))?.settle(nanoOfUsd(usd));
  const taken = () => told.splice(0).map(([bucket, percent, period]) => `${bucket} ${percent} ${period}`);
  await budgets.prepare('new', budget);
  await budgets.prepare('old', budget);
  spend('old', 0.1);
  spend('new', 0.4);
  assert.deepEqual(taken(), []);
  spend('new', 0.15);
  spend('new', 0.1);
  assert.deepEqual(taken(), ['new 50 2030-01-31']);
  spend('old', 0.15);
  spend('new', 0.2);
  assert.deepEqual(taken(), ['old 80 2030-01-31', 'new 80 2030-01-31']);
  // Too dear for what is left: the next calls are refused, and that is told once.
  for (let count = 0; count < 3; count += 1) assert.equal(spend('new', 0.5), undefined);
  assert.deepEqual(taken(), ['new 100 2030-01-31']);
  // A larger budget begins again.
  spend('new', 0.5, { ...budget, usd: 2 });
  assert.deepEqual(taken(), ['new 50 2030-01-31']);
  await clock.advance(86_400_000);
  spend('new', 1, { ...budget, usd: 1 });
  assert.deepEqual(taken(), ['new 100 2030-02-01']);
  // One call that is too dear for a budget of which hardly anything is spent.
  await budgets.prepare('dear', budget);
  assert.equal(spend('dear', 5), undefined);
  assert.deepEqual(taken(), []);
});

test('a call that is settled twice counts once, and that is noticed', () => {
  const { admit, settled, problems } = start();
  const admission = admit(holderOf({ requestsPerMinute: 5 }));
  admission.settle(outcomeOf());
  admission.settle(outcomeOf());
  assert.equal(settled.length, 1);
  assert.equal(problems.length, 1);
});

test('an answer from the cache costs nothing, and figures that make no sense count as none', () => {
  const { admit, settled } = start();
  admit(holderOf()).settle(outcomeOf({ outcome: 'cached' }));
  const usage = { prompt_tokens: Number.NaN, completion_tokens: -5, total_tokens: 1.5 };
  admit(holderOf()).settle(outcomeOf({ usage }));
  admit(holderOf()).settle(outcomeOf({ usage: undefined, outcome: 'error' }));
  assert.deepEqual(
    settled.map(({ costNano }) => costNano),
    [0, 0, 0],
  );
});
