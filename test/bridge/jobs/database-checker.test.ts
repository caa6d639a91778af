import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkOperations, figuresOf, type Operation } from '../../faults/database/check-operations.ts';
import type { SubmitOperation } from '../../faults/jobs/check-operations.ts';
import { store, submitOf } from './checked-jobs.ts';

const submit = (at: number, outcome: SubmitOperation['outcome']): Operation => submitOf(at, outcome, 100);
const outage: Operation = { kind: 'outage', how: 'restart', from: 1000, to: 2000 };
const good: readonly Operation[] = [
  submit(0, 'ok'),
  submit(950, 'unknown'),
  submit(1500, 'fail'),
  outage,
  submit(6900, 'fail'),
  submit(8000, 'ok'),
];

test('errors in an outage and shortly after it are no violation, and the time of recovery is reported', () => {
  assert.deepEqual(checkOperations(good, store), []);
  const missed = figuresOf(good, store).filter(({ met }) => !met);
  assert.deepEqual(
    missed.map(({ name, value }) => [name, value]),
    [['a submit acknowledged after an outage, at most', '6,100 ms']],
  );
});

const wrong: Readonly<Record<string, readonly Operation[]>> = {
  'failed outside of every outage': [...good, submit(500, 'fail')],
  'the submit key failed outside': [...good, submit(7100, 'unknown')],
  'nothing was acknowledged after the restart': good.slice(0, -1),
  'the program ended (1)': [...good, { kind: 'exit', code: '1' }],
};

for (const [problem, operations] of Object.entries(wrong)) {
  test(`when the database goes away it is found that ${problem}`, () => {
    const found = checkOperations(operations, store);
    assert.equal(found.length, 1, found.join('\n'));
    assert.ok(found[0]?.includes(problem), found[0]);
  });
}

test('a job that was acknowledged and is lost after an outage is found', () => {
  assert.equal(checkOperations(good, { ...store, jobs: [] }).length, 2);
});
