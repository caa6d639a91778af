import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import { createEarlyFollowers } from '../../../src/bridge/sessions/live-session.ts';
import type { NotificationSink } from '../../../src/bridge/sessions/update-hub.ts';
import { postRpc } from '../../kit/bridge/bridge-client.ts';
import { openClient } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, echo } from '../../kit/scripted-provider.ts';

const receiver = (): NotificationSink => ({
  update() {},
  isBehind: () => false,
  drained: async () => true,
  lost() {},
});
const session = { id: 's', owner: 'review' };
const admitted = (early: ReturnType<typeof createEarlyFollowers>, started: typeof session) =>
  early.admit(started, true).map((one) => one.receiver);

test('a session that starts takes in those who may see it, and they wait no longer', () => {
  const early = createEarlyFollowers();
  const [own, main, stranger, another] = [receiver(), receiver(), receiver(), receiver()];
  early.add(principalOf('review'), 's', 0, own);
  early.add(MAIN, 's', 0, main);
  early.add(principalOf('node:a'), 's', 0, stranger);
  early.add(principalOf('review'), 't', 0, another);
  assert.deepEqual(admitted(early, session), [own, main]);
  assert.deepEqual([own, main, stranger, another].map(early.isWaiting), [false, false, true, true]);
});

test('a session that starts again takes them in again', () => {
  const early = createEarlyFollowers();
  const own = receiver();
  early.add(principalOf('review'), 's', 0, own);
  admitted(early, session);
  assert.deepEqual(admitted(early, session), [own]);
});

test('a connection that has gone waits for nothing', () => {
  const early = createEarlyFollowers();
  const own = receiver();
  early.add(principalOf('review'), 's', 0, own);
  early.remove(own);
  early.remove(own);
  assert.equal(early.isWaiting(own), false);
  assert.deepEqual(admitted(early, session), []);
});

test('a connection waits for the session that it asked for last', () => {
  const early = createEarlyFollowers();
  const own = receiver();
  early.add(principalOf('review'), 't', 0, own);
  early.add(principalOf('review'), 's', 0, own);
  assert.deepEqual(admitted(early, { id: 't', owner: 'review' }), []);
  assert.deepEqual(admitted(early, session), [own]);
});

test('a session that another instance has started takes in those who still wait, after the number that they have', () => {
  const early = createEarlyFollowers();
  const [first, second] = [receiver(), receiver()];
  early.add(MAIN, 's', 0, first);
  admitted(early, session);
  early.add(MAIN, 's', 7, second);
  const seen = early.admit(session, false).map(({ receiver: one, afterSeq }) => [one === second, afterSeq]);
  assert.deepEqual(seen, [[true, 7]]);
  assert.deepEqual(early.admit(session, false), []);
});

test('who follows a session gets also what is started in its place after a close; who only called it does not', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one', echo)] });
  const before = await openClient(context, url, { query: 'sessionId=s&afterSeq=0' });
  const caller = await openClient(context, url);
  const turn = { sessionId: 's', taskPrompt: 'hello' };
  await caller.call('session.start', turn);
  const during = await openClient(context, url, { query: 'sessionId=s&afterSeq=0' });
  const now = await openClient(context, url, { query: 'sessionId=s' });
  await during.seen(({ event }) => event === 'completed');
  await caller.call('session.close', { sessionId: 's' });
  const { json } = await postRpc(url, { jsonrpc: '2.0', id: 1, method: 'session.start', params: turn });
  const { turnId } = json.result as { readonly turnId: string };
  for (const follower of [before, during, now]) {
    await follower.seen((update) => update.turnId === turnId && update.event === 'completed');
    const numbers = follower.updates.map(({ seq }) => seq);
    assert.deepEqual(
      numbers,
      [...new Set(numbers)].sort((left, right) => left - right),
    );
  }
  assert.equal(
    caller.updates.some((update) => update.turnId === turnId),
    false,
  );
});
