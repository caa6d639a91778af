import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkRun, figuresOf } from './faults/fuzz/check-run.ts';

const held = { file: 'test/fuzz/a.test.ts', status: 0, output: '' };
const counted = { file: '/project/test/fuzz/a.test.ts', tries: 1200, longestMs: 20 };

test('a file whose properties all held is no violation', () => {
  assert.deepEqual(checkRun([held], [counted]), []);
  assert.deepEqual(
    figuresOf([held], [counted]).map(({ value, met }) => [value, met]),
    [
      ['1', true],
      ['1,200', true],
      ['0', true],
      ['20 ms', true],
    ],
  );
});

test('a file that failed, by its status or by a signal, is shown with what it printed', () => {
  for (const status of [1, null]) {
    const failed = { ...held, status, output: '{ seed: 7, path: "1:0" }' };
    assert.match(checkRun([failed], [counted])[0] ?? '', /a\.test\.ts did not hold: .*seed: 7/);
    assert.equal(figuresOf([failed], [counted])[2]?.met, false);
  }
});

test('a file that tried nothing did not hold anything', () => {
  assert.deepEqual(checkRun([held], []), ['test/fuzz/a.test.ts tried nothing']);
  assert.deepEqual(checkRun([held], [{ ...counted, tries: 0 }]), ['test/fuzz/a.test.ts tried nothing']);
});

test('a try that takes longer than a second misses the goal', () => {
  assert.equal(figuresOf([held], [{ ...counted, longestMs: 1001 }])[3]?.met, false);
});

test('a full run tries as often as its goal says', () => {
  const goals = [1200, 1201].map((least) => figuresOf([held], [counted], least)[1]);
  assert.deepEqual(
    goals.map((one) => [one?.goal, one?.met]),
    [
      ['≥ 1,200', true],
      ['≥ 1,201', false],
    ],
  );
});
