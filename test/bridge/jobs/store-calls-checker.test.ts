import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StoredWork } from '../../faults/store-calls/bridge/check-jobs.ts';
import { checkRun, type Operation } from '../../faults/store-calls/check-operations.ts';

const asked: readonly Operation[] = [
  { kind: 'submit', key: 'key', outcome: 'ok', jobId: 'a', startedAt: 0, endedAt: 1 },
  { kind: 'turn', prompt: 'hello', outcome: 'ok' },
  { kind: 'turn', prompt: 'lost', outcome: 'unknown' },
];
const stored: StoredWork = {
  kind: 'stored',
  jobs: [{ jobId: 'a', status: 'completed', completedAt: 'now', errorCode: null }],
  jobOfKey: [['key', 'a']],
  turns: [{ prompt: 'hello', status: 'completed', isOpen: false }],
  counts: { pending: 0, completed: 1 },
};

test('jobs and turns that are stored as they were answered are no violation', () => {
  assert.deepEqual(checkRun({ operations: [...asked, stored] }), []);
});

test('a call of the store that failed is found to have left a turn open, a wrong count, or nothing', () => {
  const withStore = (changes: Partial<StoredWork>) => checkRun({ operations: [...asked, { ...stored, ...changes }] });
  const open = { prompt: 'other', status: 'running', isOpen: true };
  assert.deepEqual(withStore({ turns: [...stored.turns, open] }), ['the turn "other" was never ended']);
  assert.deepEqual(withStore({ turns: [] }), ['the turn "hello" was answered and is not stored']);
  assert.deepEqual(withStore({ counts: { completed: 2 } }), ['2 jobs are counted as completed, and 1 are']);
  assert.equal(withStore({ jobs: [], counts: {} }).length, 1);
  assert.equal(withStore({ jobOfKey: [['key', 'b']] }).length, 1);
});
