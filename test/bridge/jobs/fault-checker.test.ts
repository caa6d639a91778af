import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkOperations, figuresOf, type Operation } from '../../faults/jobs/check-operations.ts';

const done = { jobId: 'a', status: 'completed', completedAt: 'now', errorCode: null };
const store = { jobs: [done], jobOfKey: new Map([['key', 'a']]) };
const times = { startedAt: 0, endedAt: 1 };
const submitted: Operation = { kind: 'submit', key: 'key', outcome: 'ok', jobId: 'a', ...times };

test('a run in which everything held has no violations', () => {
  const operations: Operation[] = [
    submitted,
    { kind: 'submit', key: 'other', outcome: 'unknown', ...times },
    { kind: 'submit', key: 'another', outcome: 'fail', ...times },
    { kind: 'seen', job: { ...done, status: 'pending', completedAt: null } },
    { kind: 'seen', job: done },
    { kind: 'callback', jobId: 'a', delivery: '1' },
    { kind: 'callback', jobId: 'a', delivery: '1' },
    { kind: 'ready', ms: 900 },
  ];
  assert.deepEqual(checkOperations(operations, store), []);
});

test('each thing that must not happen is found', () => {
  const wrong: [Operation[], typeof store][] = [
    [[submitted], { ...store, jobs: [] }],
    [[submitted], { ...store, jobOfKey: new Map([['key', 'b']]) }],
    [[{ kind: 'seen', job: { ...done, status: 'failed' } }], store],
    [[{ kind: 'seen', job: { ...done, completedAt: 'earlier' } }], store],
    [
      [
        { kind: 'seen', job: done },
        { kind: 'seen', job: { ...done, status: 'pending' } },
      ],
      store,
    ],
    [
      [
        { kind: 'callback', jobId: 'a', delivery: '1' },
        { kind: 'callback', jobId: 'a', delivery: '2' },
      ],
      store,
    ],
    [[], { ...store, jobs: [{ ...done, status: 'running' }] }],
  ];
  for (const [operations, stored] of wrong) {
    assert.equal(checkOperations(operations, stored).length, 1, JSON.stringify(operations));
  }
});

test('the figures tell what was lost, what ended twice, and a start that took too long', () => {
  const operations: Operation[] = [
    { kind: 'ready', ms: 9000 },
    submitted,
    { kind: 'submit', key: 'other', outcome: 'ok', jobId: 'b', ...times },
    { kind: 'seen', job: { ...done, status: 'failed' } },
    { kind: 'ready', ms: 2500 },
  ];
  const figures = new Map(figuresOf(operations, store).map((figure) => [figure.name, figure]));
  const told = (name: string) => [figures.get(name)?.value, figures.get(name)?.met];
  assert.deepEqual(told('kills under load'), ['1', true]);
  assert.deepEqual(told('submits acknowledged'), ['2', true]);
  assert.deepEqual(told('acknowledged for each kill'), ['2', false]);
  assert.deepEqual(told('acknowledged jobs lost'), ['1', false]);
  assert.deepEqual(told('jobs that ended in two ways'), ['1', false]);
  // The first start is not after a kill.
  assert.deepEqual(told('ready after a kill, at most'), ['2,500 ms', false]);
  assert.deepEqual(checkOperations([{ kind: 'ready', ms: 2500 }], store), []);
});
