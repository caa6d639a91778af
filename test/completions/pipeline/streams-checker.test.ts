import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkOperations, digestOf, figuresOf, type Operation } from '../../faults/streams/check-operations.ts';

const read = {
  kind: 'stream',
  isDirect: false,
  outcome: 'ok',
  asked: 3,
  digest: digestOf(3),
  isDone: true,
  firstMs: 12,
} as const;
const direct: Operation = { ...read, isDirect: true, firstMs: 3 };

test('streams that came whole are no violation, and the first word is compared with that of the model API', () => {
  const operations: Operation[] = [read, direct, { kind: 'memory', bytes: 1_000_000 }];
  assert.deepEqual(checkOperations(operations), []);
  const figures = figuresOf(operations);
  assert.deepEqual(
    figures.filter(({ met }) => !met),
    [],
  );
  assert.equal(figures.find(({ name }) => name.startsWith('first word later'))?.value, '9.0 ms');
  const late = figuresOf([{ ...read, firstMs: 14 }, direct]).filter(({ met }) => !met);
  assert.deepEqual(
    late.map(({ value }) => value),
    ['11.0 ms'],
  );
});

const wrong: Readonly<Record<string, readonly Operation[]>> = {
  'no stream was read': [],
  'a stream of 3 words did not end well': [{ ...read, isDone: false }],
  'of a stream of 3 words something was lost': [{ ...read, digest: digestOf(2) }],
};

for (const [problem, operations] of Object.entries(wrong)) {
  test(`with many streams it is found when ${problem}`, () => {
    const found = checkOperations(operations);
    assert.equal(found.length, 1);
    assert.ok(found[0]?.startsWith(problem), found[0]);
  });
}
