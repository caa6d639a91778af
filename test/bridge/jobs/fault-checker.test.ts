import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkOperations, type Operation } from '../../faults/jobs/check-operations.ts';

const done = { jobId: 'a', status: 'completed', completedAt: 'now', errorCode: null };
const store = { jobs: [done], jobOfKey: new Map([['key', 'a']]) };
const submitted: Operation = { kind: 'submit', key: 'key', outcome: 'ok', jobId: 'a' };

test('a run in which everything held has no violations', () => {
  const operations: Operation[] = [
    submitted,
    { kind: 'submit', key: 'other', outcome: 'unknown' },
    { kind: 'submit', key: 'another', outcome: 'fail' },
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
    [[{ kind: 'ready', ms: 2500 }], store],
    [[], { ...store, jobs: [{ ...done, status: 'running' }] }],
  ];
  for (const [operations, stored] of wrong) {
    assert.equal(checkOperations(operations, stored).length, 1, JSON.stringify(operations));
  }
});
