import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCallOrder } from '../../../src/bridge/forwarding/forwarding-dispatch.ts';
import { createNodeHealth } from '../../../src/bridge/forwarding/node-health.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

test('B-93: a node that is down is looked at until it answers, and is used again', async () => {
  const clock = createFakeClock();
  let answers = false;
  const probed: string[] = [];
  const health = createNodeHealth({
    clock,
    probeMs: 5000,
    async probe(id) {
      probed.push(id);
      return answers;
    },
  });
  assert.equal(health.isUp('b'), true);
  health.markDown('b', 'gone');
  health.markDown('b', 'still gone');
  assert.equal(health.isUp('b'), false);
  assert.equal(health.reasonOf('b'), 'still gone');
  await clock.advance(12_000);
  assert.deepEqual(probed, ['b', 'b']);
  assert.equal(health.isUp('b'), false);
  answers = true;
  await clock.advance(5000);
  assert.equal(health.isUp('b'), true);
  await clock.advance(60_000);
  assert.equal(probed.length, 3, 'a node that is up is not looked at');
  assert.equal(clock.pending(), 0);
});

test('forwarding: a call that goes well ends the looking, and so does a stop', async () => {
  const clock = createFakeClock();
  const health = createNodeHealth({ clock, probeMs: 5000, probe: () => Promise.reject(new Error('no')) });
  health.markDown('b', 'gone');
  health.markUp('b');
  assert.equal(clock.pending(), 0);
  health.markDown('c', 'gone');
  await clock.advance(5000);
  assert.equal(health.isUp('c'), false, 'a probe that fails is no answer');
  health.stop();
  assert.equal(clock.pending(), 0);
});

test('forwarding: calls about one thing go out one after the other, others go their way', async () => {
  const order = createCallOrder();
  const seen: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = order.run('s', async (letNext) => {
    seen.push('first begins');
    await gate.promise;
    letNext();
    await new Promise((resolve) => setImmediate(resolve));
    seen.push('first ends');
  });
  const second = order.run('s', async () => void seen.push('second'));
  const failing = order.run('s', async () => {
    seen.push('third');
    throw new Error('failed');
  });
  const fourth = order.run('s', async () => void seen.push('fourth'));
  await order.run('other', async () => void seen.push('other'));
  assert.deepEqual(seen, ['first begins', 'other']);
  gate.resolve();
  await assert.rejects(failing);
  await Promise.all([first, second, fourth]);
  assert.deepEqual(seen.slice(0, 3), ['first begins', 'other', 'second']);
  assert.deepEqual(seen.slice(3).sort(), ['first ends', 'fourth', 'third']);
});
