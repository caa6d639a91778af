import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missedGoals } from '../../faults/fault-suite.ts';
import { checkOperations, figuresOf, type Operation } from '../../faults/soak/check-operations.ts';

const level = (megabytes: number, descriptors = 20): Operation => ({
  kind: 'level',
  bytes: megabytes * 1_000_000,
  descriptors,
});
const call: Operation = { kind: 'calls', count: 7, name: 'refused', status: 400, isWhole: true };
const left: Operation = { kind: 'calls', count: 7, name: 'hang', status: 0, isWhole: false };
const steady = Array.from({ length: 10 }, (_, index) => level(index < 2 ? 50 : 150));

test('P-40: calls that end as they must, and memory that stays after its beginning, are no violation', () => {
  const operations = [call, left, ...steady];
  assert.deepEqual(checkOperations(operations), []);
  assert.deepEqual(missedGoals(figuresOf(operations)), []);
});

test('memory that grows is reported, and sockets that stay open are a violation', () => {
  const growing = Array.from({ length: 10 }, (_, index) => level(100 + index * 5, 20 + index * 2));
  const missed = missedGoals(figuresOf(growing));
  assert.deepEqual(
    missed.map(({ value }) => value),
    ['30 MB', '12'],
  );
  assert.deepEqual(checkOperations(growing), ['12 more files and sockets were open at the end']);
});

for (const wrong of [
  { ...call, status: 502 },
  { ...call, isWhole: false },
  { ...left, status: 200 },
  { ...call, name: 'turn', status: 200, isWhole: false },
  { ...call, name: 'login', status: -1, problem: 'TypeError: fetch failed' },
]) {
  test(`a call "${wrong.name}" with ${wrong.status}, ${wrong.isWhole ? 'whole' : 'cut'}, is a violation`, () => {
    const operations = [wrong as Operation, ...steady];
    assert.equal(checkOperations(operations).length, 1);
    assert.equal(figuresOf(operations).find(({ name }) => name.startsWith('of them'))?.value, '7');
  });
}
