import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type BrokenRun, checkRun, figuresOf } from '../../faults/store-calls/check-operations.ts';

const run: BrokenRun = {
  brokenSites: ['a.ts:1'],
  sites: ['a.ts:1', 'b.ts:2'],
  operations: [
    { kind: 'submit', key: 'key', outcome: 'ok', jobId: 'a', startedAt: 0, endedAt: 1 },
    { kind: 'turn', prompt: 'hello', outcome: 'ok' },
  ],
  store: {
    jobs: [{ jobId: 'a', status: 'completed', completedAt: 'now', errorCode: null }],
    jobOfKey: new Map([['key', 'a']]),
    turns: [{ prompt: 'hello', status: 'completed', isOpen: false }],
    counts: { pending: 0, completed: 1 },
  },
};

test('a run in which a call of the store failed and everything held has no violation', () => {
  assert.deepEqual(checkRun(run), []);
});

test('a call of the store that failed is found to have left a turn open, a wrong count, or nothing', () => {
  const withStore = (store: Partial<BrokenRun['store']>) => checkRun({ ...run, store: { ...run.store, ...store } });
  const open = { prompt: 'other', status: 'running', isOpen: true };
  assert.deepEqual(withStore({ turns: [...run.store.turns, open] }), ['the turn "other" was never ended']);
  assert.deepEqual(withStore({ turns: [] }), ['the turn "hello" was answered and is not stored']);
  assert.deepEqual(withStore({ counts: { completed: 2 } }), ['2 jobs are counted as completed, and 1 are']);
  assert.equal(withStore({ jobs: [], counts: {} }).length, 1);
});

test('places in the sources whose call never failed are a figure that was missed', () => {
  const other = { ...run, brokenSites: ['b.ts:2'] };
  const places = (runs: readonly BrokenRun[]) => figuresOf(runs).find(({ goal }) => goal === 'all');
  assert.deepEqual([places([run])?.value, places([run])?.met], ['1 of 2', false]);
  assert.deepEqual([places([run, other])?.value, places([run, other])?.met], ['2 of 2', true]);
});
