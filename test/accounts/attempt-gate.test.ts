import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAttemptGate } from '../../src/accounts/limiter/limiter.ts';

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

test('a look that an ending attempt has made stale does not count', async () => {
  const gate = createAttemptGate();
  let left = 1;
  const leave = await gate.enter(['pair'], async () => [left]);
  assert.ok(leave);
  const second = await gate.enter(['pair'], async () => {
    const seen = left;
    // The first one fails while the second one looks.
    if (left > 0) {
      left = 0;
      leave();
    }
    return [seen];
  });
  assert.equal(second, undefined);
});

test('on a server where attempts end all the time, the fifth look counts', async () => {
  const gate = createAttemptGate();
  let looks = 0;
  const leave = await gate.enter(['pair'], async () => {
    looks += 1;
    (await gate.enter([`another ${looks}`], async () => [1]))?.();
    return [1];
  });
  assert.ok(leave);
  assert.equal(looks, 5);
});

test('a thousand may wait, and one more is refused', async () => {
  const gate = createAttemptGate();
  const leave = await gate.enter(['pair'], async () => [1]);
  const waiting = Array.from({ length: 1000 }, async () => (await gate.enter(['pair'], async () => [1]))?.());
  await soon();
  await assert.rejects(
    gate.enter(['pair'], async () => [1]),
    { code: 'OVERLOADED' },
  );
  leave?.();
  await Promise.all(waiting);
});

test('those who wait look again when it is their turn, and not whenever somebody has ended', async () => {
  const gate = createAttemptGate();
  let looks = 0;
  const attempt = async () => {
    const leave = await gate.enter(['pair', 'address'], async () => {
      looks += 1;
      return [5, 30];
    });
    await soon();
    leave?.();
  };
  await Promise.all(Array.from({ length: 500 }, attempt));
  assert.ok(looks <= 500 * 4, `${looks} looks`);
});

test('who waits is not forgotten when the one before could not look', async () => {
  const gate = createAttemptGate();
  const leave = await gate.enter(['pair'], async () => [1]);
  let isBroken = false;
  const look = async () => {
    if (isBroken) throw new Error('the store is gone');
    return [1];
  };
  const waiting = Promise.allSettled([gate.enter(['pair'], look), gate.enter(['pair'], look)]);
  await soon();
  isBroken = true;
  leave?.();
  assert.deepEqual(
    (await waiting).map(({ status }) => status),
    ['rejected', 'rejected'],
  );
});

test('who waits for an address goes in when an attempt on another account from there has ended', async () => {
  const gate = createAttemptGate();
  const leave = await gate.enter(['pair a', 'address'], async () => [5, 1]);
  const second = gate.enter(['pair b', 'address'], async () => [5, 1]);
  await soon();
  leave?.();
  assert.ok(await second);
});
