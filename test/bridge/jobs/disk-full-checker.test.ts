import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkOperations, figuresOf, type Operation } from '../../faults/disk-full/check-operations.ts';
import type { SubmitOperation } from '../../faults/jobs/check-operations.ts';
import { store, submitOf } from './checked-jobs.ts';

const submit = (at: number, outcome: SubmitOperation['outcome']): Operation => submitOf(at, outcome, 1);
const full: Operation = { kind: 'disk', state: 'full', at: 10 };
const read: Operation = { kind: 'look', what: '/healthz', outcome: 'ok' };
const free: Operation = { kind: 'disk', state: 'free', at: 20 };
const good: readonly Operation[] = [submit(1, 'ok'), full, submit(11, 'fail'), read, free, submit(21, 'ok')];

test('a full disk that was refused, read from and left behind is no violation', () => {
  assert.deepEqual(checkOperations(good, [store, store]), []);
  const missed = figuresOf([{ operations: good, store }]).filter(({ met }) => !met);
  assert.deepEqual(missed, []);
});

const wrong: Readonly<Record<string, readonly Operation[]>> = {
  'no submit was refused': [full, read, free, submit(21, 'ok')],
  'the submit key was not answered on a full disk': [full, submit(11, 'fail'), submit(12, 'unknown'), ...good.slice(3)],
  'nothing was read on the full disk': [full, submit(11, 'fail'), free, submit(21, 'ok')],
  '/healthz did not work on a full disk': [...good.slice(0, 3), { ...read, outcome: 'fail' }, ...good.slice(4)],
  'no submit was acknowledged after there was room again': good.slice(0, 5),
  'the program ended (SIGABRT)': [...good, { kind: 'exit', code: 'SIGABRT' }],
};

for (const [problem, operations] of Object.entries(wrong)) {
  test(`on a full disk it is found when ${problem}`, () => {
    const found = checkOperations(operations, [store]);
    assert.equal(found.length, 1, found.join('\n'));
    assert.ok(found[0]?.startsWith(problem), found[0]);
  });
}

test('a job that was acknowledged and is lost after the restart is found', () => {
  assert.equal(checkOperations(good, [store, { ...store, jobs: [] }]).length, 2);
});
