import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missedGoals } from '../../faults/fault-suite.ts';
import { checkOperations, figuresOf, type Operation, type Phase } from '../../faults/slow/check-operations.ts';

const call = (phase: Phase, ms: number, outcome: 'ok' | 'fail' | 'unknown' = 'ok'): Operation => ({
  kind: 'call',
  phase,
  outcome,
  ms,
});
const memory = (phase: Phase, megabytes: number): Operation => ({ kind: 'memory', phase, bytes: megabytes * 1e6 });
const sender = (closedAfterMs: number | null): Operation => ({ kind: 'sender', what: 'headers', closedAfterMs });

for (const [what, operations, count] of [
  ['healthy clients that are answered', [call('all read', 1), call('slow readers', 500)], 0],
  ['a healthy client that is refused', [call('slow readers', 1, 'fail')], 1],
  ['a healthy client that hears nothing', [call('slow senders', 1, 'unknown')], 1],
  ['a memory that grows a little', [memory('all read', 100), memory('slow readers', 690)], 0],
  ['a memory that grows too much', [memory('all read', 100), memory('slow readers', 710)], 1],
  ['a slow sender that is closed', [sender(10_500)], 0],
  ['a slow sender that is borne for ever', [sender(null)], 1],
] as const satisfies readonly (readonly [string, readonly Operation[], number])[]) {
  test(`faults: the checker finds ${count} wrong with ${what}`, () => {
    const violations = checkOperations(operations);
    assert.equal(violations.length, count, violations.join('\n'));
  });
}

test('faults: the figures of a run with slow peers tell when the others suffer', () => {
  const operations = [
    ...[call('all read', 10), call('slow readers', 21), call('slow senders', 101)],
    ...[memory('all read', 1), memory('slow readers', 302), sender(12_500)],
  ];
  const missed = missedGoals(figuresOf(operations));
  assert.deepEqual(
    missed.map(({ value }) => value),
    ['21.0 ms', '301 MB', '101.0 ms', '12,500 ms'],
  );
});
