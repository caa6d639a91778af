import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkOperations, figuresOf, type Operation } from '../../faults/clock/check-operations.ts';

const DAY_MS = 86_400_000;
const timedOut = { kind: 'job', name: 'a job', timeoutMs: 6000, status: 'failed', errorCode: 'JOB_TIMEOUT' } as const;
const code = { kind: 'code', email: 'ann', step: 7, outcome: 'ok' } as const;
const good: readonly Operation[] = [
  { kind: 'jump', shiftMs: 90 * DAY_MS },
  { ...timedOut, ms: 5100 },
  { ...timedOut, ms: 200, status: 'completed', errorCode: null },
  code,
  { ...code, outcome: 'fail' },
  { ...code, step: 8 },
  { kind: 'refresh', sinceUseMs: 9000, outcome: 'ok' },
  { kind: 'refresh', sinceUseMs: 11_000, outcome: 'fail' },
  { kind: 'check', shiftMs: 90 * DAY_MS, outcome: 'fail' },
  { kind: 'check', shiftMs: -3_600_000, outcome: 'ok' },
  { kind: 'health', outcome: 'ok' },
];

test('a run in which the clock jumped and nothing came of it has no violation', () => {
  assert.deepEqual(checkOperations(good), []);
  const missed = figuresOf(good).filter(({ met }) => !met);
  assert.deepEqual(missed, []);
});

const wrong: Readonly<Record<string, Operation>> = {
  'a job timed out 2000 ms early': { ...timedOut, ms: 4000 },
  'a job was open 20000 ms after its time': { ...timedOut, ms: 26_000, status: 'open', errorCode: null },
  'a job ended as JOB_INTERRUPTED': { ...timedOut, ms: 10, errorCode: 'JOB_INTERRUPTED' },
  'step 7 of ann was accepted after step 8': code,
  'a code was not answered': { ...code, outcome: 'unknown' },
  'a refresh token was answered 11000 ms after its use': { kind: 'refresh', sinceUseMs: 11_000, outcome: 'ok' },
  'a refresh was not answered': { kind: 'refresh', sinceUseMs: 11_000, outcome: 'unknown' },
  'a session was good for longer than it may live': { kind: 'check', shiftMs: 90 * DAY_MS, outcome: 'ok' },
  'a young session was refused (the clock is off by -1000 ms)': { kind: 'check', shiftMs: -1000, outcome: 'fail' },
  'the program does not say that it is well': { kind: 'health', outcome: 'fail' },
  'the program ended (1)': { kind: 'exit', code: '1' },
};

for (const [problem, operation] of Object.entries(wrong)) {
  test(`when the clock jumps it is found that ${problem}`, () => {
    assert.deepEqual(checkOperations([...good, operation]), [problem]);
  });
}

test('a job that went on long after its time is a figure that was missed', () => {
  const late: Operation = { ...timedOut, ms: 9500, status: 'completed', errorCode: null };
  const missed = figuresOf([...good, late]).filter(({ met }) => !met);
  assert.deepEqual(
    missed.map(({ name, value }) => [name, value]),
    [['a job that went on after its time, by at most', '3,500 ms']],
  );
});
