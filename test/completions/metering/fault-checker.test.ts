import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missedGoals } from '../../faults/fault-suite.ts';
import {
  checkOperations,
  figuresOf,
  type Operation,
  type StoredUsage,
} from '../../faults/metering/check-operations.ts';

const price = { tokens: 10, costUsd: 0.5 };
const issued: Operation = { kind: 'issued', key: 'k', budgetUsd: 1 };
const sent = (id: string): Operation => ({ kind: 'sent', id, key: 'k' });
const answered = (id: string, at = 0): Operation => ({ kind: 'answered', id, at });
const stop = (signal: 'SIGKILL' | 'SIGTERM', at = 10): Operation => ({ kind: 'stop', signal, at });
const one = [issued, sent('a'), answered('a')];

/** What is stored when these calls are; each costs the same unless it is said. */
function stored(ids: readonly string[], more: Partial<StoredUsage> = {}): StoredUsage {
  const costUsd = ids.length * price.costUsd;
  return {
    calls: ids.map((id) => ({ id, key: 'k', ...price })),
    totals: ids.length === 0 ? [] : [{ key: 'k', calls: ids.length, tokens: ids.length * price.tokens, costUsd }],
    spending: ids.length === 0 ? [] : [{ key: 'k', costUsd }],
    ...more,
  };
}

const dear = { id: 'a', key: 'k', tokens: 10, costUsd: 0.7 };

for (const [what, operations, store, count] of [
  ['a call that is stored', [...one, stop('SIGKILL')], stored(['a']), 0],
  ['a call that a kill has lost', [...one, stop('SIGKILL')], stored([]), 0],
  ['a call that a clean stop has lost', [...one, stop('SIGTERM')], stored([]), 1],
  ['a call that is lost without a stop', one, stored([]), 1],
  ['a call that was lost long before the kill', [...one, stop('SIGKILL', 5000)], stored([]), 1],
  ['a call that nobody sent', [...one, stop('SIGKILL')], stored(['a', 'b']), 1],
  ['a call that was never answered', [...one, sent('b'), stop('SIGKILL')], stored(['a', 'b']), 1],
  [
    'a refusal that is stored',
    [issued, sent('a')],
    stored(['a'], {
      calls: [{ id: 'a', key: 'k', tokens: 0, costUsd: 0 }],
      totals: [{ key: 'k', calls: 1, tokens: 0, costUsd: 0 }],
      spending: [],
    }),
    0,
  ],
  ['a call that is stored twice', [...one, stop('SIGKILL')], stored(['a', 'a']), 1],
  [
    'a call at another price',
    one,
    stored(['a'], { calls: [dear], totals: [{ ...dear, calls: 1 }], spending: [dear] }),
    1,
  ],
  ['sums that lack a call', one, stored(['a'], { totals: [] }), 1],
  ['spending that lacks a call', one, stored(['a'], { spending: [{ key: 'k', costUsd: 0 }] }), 1],
  [
    'a budget that is exceeded',
    [...one, sent('b'), answered('b'), sent('c'), answered('c')],
    stored(['a', 'b', 'c']),
    1,
  ],
  [
    'a budget that is exceeded by what a kill has lost',
    [...one, sent('b'), answered('b'), stop('SIGKILL'), sent('c'), answered('c')],
    stored(['a', 'c']),
    0,
  ],
] as const satisfies readonly (readonly [string, readonly Operation[], StoredUsage, number])[]) {
  test(`faults: the checker finds ${count} wrong with ${what}`, () => {
    const violations = checkOperations(operations, store, price);
    assert.equal(violations.length, count, violations.join('\n'));
  });
}

test('faults: the figures of a run of metering name what kills have lost, and how old it was', () => {
  const ready: Operation = { kind: 'ready', ms: 1 };
  const figures = figuresOf([ready, ...one, stop('SIGKILL', 1500), ready], stored([]), price);
  const missed = missedGoals(figures).map(({ value }) => value);
  assert.deepEqual(missed, ['1,500 ms']);
});
