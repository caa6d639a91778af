import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import { createEarlyFollowers, type NotificationSink } from '../../../src/bridge/sessions/update-hub.ts';

const receiver = (): NotificationSink => ({
  update() {},
  isBehind: () => false,
  drained: async () => true,
  lost() {},
});
const session = { id: 's', owner: 'review' };

test('a session that starts takes in those who may see it, and they wait no longer', () => {
  const early = createEarlyFollowers();
  const [own, main, stranger, another] = [receiver(), receiver(), receiver(), receiver()];
  early.add(principalOf('review'), 's', own);
  early.add(MAIN, 's', main);
  early.add(principalOf('node:a'), 's', stranger);
  early.add(principalOf('review'), 't', another);
  assert.deepEqual(early.admit(session), [own, main]);
  assert.deepEqual([own, main, stranger, another].map(early.isWaiting), [false, false, true, true]);
});

test('a session that starts again takes them in again', () => {
  const early = createEarlyFollowers();
  const own = receiver();
  early.add(principalOf('review'), 's', own);
  early.admit(session);
  assert.deepEqual(early.admit(session), [own]);
});

test('a connection that has gone waits for nothing', () => {
  const early = createEarlyFollowers();
  const own = receiver();
  early.add(principalOf('review'), 's', own);
  early.remove(own);
  early.remove(own);
  assert.equal(early.isWaiting(own), false);
  assert.deepEqual(early.admit(session), []);
});

test('a connection waits for the session that it asked for last', () => {
  const early = createEarlyFollowers();
  const own = receiver();
  early.add(principalOf('review'), 't', own);
  early.add(principalOf('review'), 's', own);
  assert.deepEqual(early.admit({ id: 't', owner: 'review' }), []);
  assert.deepEqual(early.admit(session), [own]);
});
