import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAttemptGate } from '../../src/accounts/login/attempt-gate.ts';

const soon = () => new Promise((resolve) => setImmediate(resolve));

test('no more attempts are under way than may still fail, and those that wait are refused when none is left', async () => {
  const gate = createAttemptGate();
  let failures = 0;
  let looked = 0;
  const attempt = async (fails: boolean) => {
    const leave = await gate.enter(['pair'], async () => [5 - failures]);
    if (leave === undefined) return 'refused';
    looked += 1;
    await soon();
    if (fails) failures += 1;
    leave();
    return fails ? 'wrong' : 'right';
  };
  const outcomes = await Promise.all(Array.from({ length: 30 }, () => attempt(true)));
  assert.equal(looked, 5);
  assert.equal(outcomes.filter((outcome) => outcome === 'refused').length, 25);
});

test('attempts that succeed all get their turn, however many', async () => {
  const gate = createAttemptGate();
  let most = 0;
  let underWay = 0;
  const attempt = async () => {
    const leave = await gate.enter(['pair', 'address'], async () => [2, 30]);
    assert.ok(leave);
    underWay += 1;
    most = Math.max(most, underWay);
    await soon();
    underWay -= 1;
    leave();
  };
  await Promise.all(Array.from({ length: 100 }, attempt));
  assert.equal(most, 2);
});

test('an attempt on one account does not wait for those on another', async () => {
  const gate = createAttemptGate();
  const first = await gate.enter(['a'], async () => [1]);
  const second = await gate.enter(['b'], async () => [1]);
  assert.ok(first && second);
});
