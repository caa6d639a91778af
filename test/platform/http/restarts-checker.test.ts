import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missedGoals } from '../../faults/fault-suite.ts';
import type { SharedStore } from '../../faults/jobs/check-takeover.ts';
import {
  type CallOperation,
  checkOperations,
  figuresOf,
  type Operation,
} from '../../faults/restarts/check-operations.ts';

const chat: CallOperation = {
  kind: 'call',
  name: 'chat',
  startedAt: 100,
  endedAt: 200,
  tries: [
    { instance: 1, end: 'turned away' },
    { instance: 2, end: 'refused' },
    { instance: 0, end: 'answered' },
  ],
  outcome: 'ok',
};
const stream: CallOperation = {
  ...chat,
  name: 'stream',
  startedAt: 900,
  endedAt: 1500,
  tries: [{ instance: 1, end: 'answered' }],
};
const submit: Operation = { kind: 'submit', key: 'key', outcome: 'ok', jobId: 'a', startedAt: 0, endedAt: 1 };
const stop: Operation = { kind: 'stop', instance: 1, startedAt: 1000, endedAt: 3000, code: '0' };
const other: Operation = { ...stop, instance: 2, startedAt: 1400, endedAt: 4000 };
const run: readonly Operation[] = [chat, stream, submit, stop, other];

const job = { jobId: 'a', status: 'completed', completedAt: 'now', errorCode: null };
const turn = { session: 'a', instance: 'one', createdAt: 1000, endedAt: 2000 };
const store: SharedStore = { jobs: [job], jobOfKey: new Map([['key', 'a']]), turns: [turn] };

const missedOf = (operations: readonly Operation[], found = store) =>
  missedGoals(figuresOf(operations, found)).map(({ name }) => name);

test('a restart that nobody noticed is no violation, and the tries and the longest drain are reported', () => {
  assert.deepEqual(checkOperations(run, store), []);
  assert.deepEqual(missedOf(run), []);
  const values = new Map(figuresOf(run, store).map(({ name, value }) => [name, value]));
  assert.equal(values.get('from SIGTERM to the end, at most'), '2,600 ms');
  assert.equal(values.get('tries for one of them, at most'), '3');
  assert.equal(values.get('calls and streams that needed more than one try'), '1');
  assert.equal(values.get('of them under way at the SIGTERM of their instance'), '1');
});

const cut: CallOperation = { ...chat, tries: [{ instance: 1, end: 'cut' }, ...chat.tries] };

for (const [what, wrong, figure] of [
  ['an exit with another code', { ...stop, code: 'SIGKILL' }, 'exits other than with 0'],
  ['a call that failed', { ...chat, outcome: 'fail' }, 'of them failed behind a client that tries again'],
  [
    'a call of which nothing is known',
    { ...chat, outcome: 'unknown' },
    'of them failed behind a client that tries again',
  ],
  ['a call that was cut and then repeated', cut, 'calls and streams cut in the middle'],
  ['a stream that did not end', { ...stream, outcome: 'unknown' }, 'streams that did not end whole'],
] as const satisfies readonly (readonly [string, Operation, string])[]) {
  test(`faults: the checker of restarts finds ${what}`, () => {
    const operations = [...run, wrong];
    assert.equal(checkOperations(operations, store).length, 1);
    assert.deepEqual(missedOf(operations), [figure]);
  });
}

for (const [what, found, figure] of [
  ['a job that was lost', { ...store, jobs: [] }, 'acknowledged jobs lost'],
  ['a job that failed', { ...store, jobs: [{ ...job, status: 'failed' }] }, 'jobs that failed'],
  [
    'a job that ran twice at the same time',
    { ...store, turns: [turn, { ...turn, instance: 'two', createdAt: 1999 }] },
    'jobs that ran twice at the same time',
  ],
] as const) {
  test(`faults: the checker of restarts finds ${what}`, () => {
    assert.equal(checkOperations(run, found).length, 1);
    assert.deepEqual(missedOf(run, found), [figure]);
  });
}

test('faults: a drain that takes too long, and streams that met no restart, are figures that were missed', () => {
  const slow: Operation = { ...stop, endedAt: 31_001 };
  assert.deepEqual(missedOf([stream, submit, slow, other]), ['from SIGTERM to the end, at most']);
  const elsewhere: Operation = { ...stream, tries: [{ instance: 0, end: 'answered' }] };
  assert.deepEqual(missedOf([elsewhere, submit, stop, other]), ['of them under way at the SIGTERM of their instance']);
});

test('faults: a run without a restart proves nothing', () => {
  assert.deepEqual(checkOperations([chat, submit], store), ['no instance was stopped']);
});
