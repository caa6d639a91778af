import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkTakeover, type Operation, takeoverFigures } from '../../faults/jobs/check-takeover.ts';

const job = { jobId: 'a', status: 'completed', completedAt: 'now', errorCode: null };
const first = { session: 'a', instance: 'one', createdAt: 1000, endedAt: 11_000 };
const second = { session: 'a', instance: 'two', createdAt: 11_000, endedAt: 12_000 };
const store = { jobs: [job], jobOfKey: new Map([['key', 'a']]), turns: [second, first] };
const operations: readonly Operation[] = [
  { kind: 'submit', key: 'key', outcome: 'ok', jobId: 'a', startedAt: 0, endedAt: 1 },
  { kind: 'kill', instance: 'one', at: 2000 },
];

test('a job that was run again after its bridge had died is no violation, and the time of the takeover is reported', () => {
  assert.deepEqual(checkTakeover(operations, store), []);
  const figures = takeoverFigures(operations, store);
  assert.deepEqual(
    figures.filter(({ met }) => !met),
    [],
  );
  const settled = figures.find(({ name }) => name === 'settled by another bridge after at most');
  assert.equal(settled?.value, '9,000 ms');
});

test('a job that ran twice at the same time, and a turn that nobody has ended, are found', () => {
  const twice = { ...store, turns: [first, { ...second, createdAt: 10_999 }] };
  assert.deepEqual(checkTakeover(operations, twice), ['the job of session a ran twice at the same time']);
  const open = { ...store, turns: [{ ...first, endedAt: null }] };
  assert.deepEqual(checkTakeover(operations, open), ['a turn of a was never ended']);
});

test('a takeover that took too long is a figure that was missed, and a lost job a violation', () => {
  const late = { ...store, turns: [{ ...first, endedAt: 17_001 }] };
  const missed = takeoverFigures(operations, late).filter(({ met }) => !met);
  assert.deepEqual(
    missed.map(({ value }) => value),
    ['15,001 ms'],
  );
  assert.equal(checkTakeover(operations, { ...store, jobs: [] }).length, 1);
});
