import assert from 'node:assert/strict';
import { test } from 'node:test';
import { foldRuns, isCutRun } from '../../src/console/live/fold-run.ts';

type Update = Parameters<typeof foldRuns>[0][number];

const update = (at: number, kind: string, members: object = {}): Update =>
  ({ seq: at, at, turnId: 't', kind, message: '', ...members }) as Update;
const steps = [
  { index: 0, providerId: 'a', prompt: 'p', outputAs: 'x' },
  { index: 1, providerId: 'b', prompt: 'q' },
];
const started = update(100, 'multi_agent_started', { orchestrationMode: 'race', steps });
const begins = (at: number, stepIndex: number, more: object = {}) =>
  update(at, 'multi_agent_step_started', { stepIndex, providerId: 'ab'[stepIndex], ...more });
const ends = (at: number, stepIndex: number, more: object) =>
  update(at, 'multi_agent_step_completed', { stepIndex, ...more });
const shown = (updates: readonly Update[]) =>
  foldRuns(updates).map(({ parts, stopReason }) => [
    ...parts.map(({ index, status, startedAt, endedAt }) => [index, status, startedAt, endedAt]),
    stopReason,
  ]);

test('a conversation says how many rounds it was started with', () => {
  const roundsOf = (more: object) =>
    foldRuns([update(100, 'multi_agent_started', { orchestrationMode: 'conversation', steps, ...more })])[0]?.rounds;
  assert.deepEqual([{ maxTurns: 6 }, { maxTurns: 5 }, {}].map(roundsOf), [3, 3, undefined]);
});

test('a run is its plan, what its steps do, and why it ended', () => {
  const [run] = foldRuns([started, update(101, 'text', { text: 'not for the picture' }), begins(102, 0)]);
  assert.deepEqual([run?.mode, run?.steps[0]?.outputAs, run?.steps[1]?.outputAs], ['race', 'x', '']);
  assert.deepEqual(
    shown([started, begins(102, 0), begins(103, 1), ends(150, 1, { status: 'completed', durationMs: 40 })]),
    [[[0, 'running', 102, undefined], [1, 'completed', 103, 143], '']],
  );
});

test('a step whose beginning and end were stored together began as long before as it took', () => {
  const together = [started, begins(900, 0), ends(900, 0, { status: 'failed', durationMs: 500, error: 'no' })];
  assert.deepEqual(shown(together), [[[0, 'failed', 400, 900], '']]);
});

test('what is open when the turn ends was cut off; a run that went on has what it did before', () => {
  assert.deepEqual(shown([started, begins(102, 0), update(200, 'failed', { code: 'TURN_INTERRUPTED' })]), [
    [[0, 'cancelled', 102, 200], 'failed'],
  ]);
  const record = { index: 0, providerId: 'a', status: 'completed', durationMs: 30, output: 'earlier' };
  const end = update(300, 'multi_agent_completed', { stopReason: 'completed', steps: [record] });
  assert.deepEqual(shown([started, end, update(301, 'completed')]), [[[0, 'completed', 100, 130], 'completed']]);
});

test('speeches of one speaker are told apart, and turns without a run are none', () => {
  const first = { conversationTurn: 1 };
  const second = { conversationTurn: 3 };
  const done = { status: 'completed', durationMs: 1 };
  const [run] = foldRuns([
    update(50, 'completed', { turnId: 'alone' }),
    started,
    begins(101, 0, first),
    ends(102, 0, { ...first, ...done, output: 'one' }),
    begins(103, 0, second),
    ends(104, 0, { ...second, ...done, output: 'two' }),
  ]);
  assert.deepEqual(
    run?.parts.map(({ output }) => output),
    ['one', 'two'],
  );
});

test('a run whose texts are stored whole is known from one with only their beginnings', () => {
  const stepsOf = (length: number) => [{ prompt: 'short' }, { prompt: 'x'.repeat(length) }];
  assert.equal(isCutRun('a task', stepsOf(1000)), false);
  // As the server cuts them, before half of a character too.
  assert.deepEqual(
    [1023, 1024].map((length) => isCutRun('a task', stepsOf(length))),
    [true, true],
  );
  assert.equal(isCutRun('x'.repeat(16_384), stepsOf(0)), true);
});
