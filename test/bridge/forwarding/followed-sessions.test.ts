import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { WebSocket } from 'ws';
import { clientOf } from '../../kit/bridge/client-of.ts';
import { call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN } from '../../kit/bridge/start-bridge.ts';
import { asMain, asNode, asReview, everythingTo, startNode, turn } from '../../kit/bridge/start-nodes.ts';
import { startFaultProxy } from '../../kit/fault-proxy.ts';
import type { TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const VIA_B =
  '{ rules: [{ methods: ["*"], target: { node_id: c } }], routes: [{ target_node_id: c, next_hop_node_id: b }] }';
const portOf = (url: string) => Number(new URL(url).port);

/** Says two words, waits, and says two more. */
function pausing() {
  const gate = Promise.withResolvers<void>();
  const script: TurnScript = async ({ report }) => {
    for (const text of ['a', 'b']) report({ kind: 'text', text });
    await gate.promise;
    for (const text of ['c', 'd']) report({ kind: 'text', text });
    return { kind: 'completed', output: 'abcd', stopReason: 'end_turn' };
  };
  return { script, goOn: gate.resolve };
}

const numbers = (updates: readonly { readonly seq: number }[]) => updates.map(({ seq }) => seq);

for (const hops of [1, 2]) {
  test(`forwarding: a WebSocket that comes back resumes a session ${hops} hop(s) away, each update once`, async (t) => {
    const { script, goOn } = pausing();
    const c = await startNode(t, { id: 'c', script });
    const b = hops === 2 ? await startNode(t, { id: 'b', peers: { c: c.url } }) : undefined;
    const peers = b === undefined ? { c: c.url } : { b: b.url, c: 'http://127.0.0.1:9' };
    const forwarding = b === undefined ? everythingTo('c') : VIA_B;
    const a = await startNode(t, { id: 'a', peers, forwarding });
    const first = await openClient(t, a.url, { headers: asMain });
    void first.call('session.start', turn('s1'));
    const seen = await first.seen(({ text }) => text === 'b');
    first.socket.terminate();

    const second = await openClient(t, a.url, { headers: asMain, query: `sessionId=s1&afterSeq=${seen.seq - 1}` });
    await second.seen(({ text }) => text === 'b');
    // A call of its own about the same session brings the same updates once more, from another answer.
    const queued = second.call('session.message', turn('s1', 'again'));
    goOn();
    await second.seen(({ event }) => event === 'completed');
    assert.equal((await queued).result?.output, 'abcd');
    const got = numbers(second.updates);
    assert.deepEqual(
      got,
      got.map((_, index) => seen.seq + index),
    );
    assert.equal(second.updates.filter(({ event }) => event === 'completed').length, 2);
    assert.equal(c.agent.asked.length, 2);
  });
}

test('forwarding: who follows a session elsewhere sees what others do in it, and nobody follows what is not theirs', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const { updates } = await stream(a.url, { method: 'session.start', params: turn('s1') }, asMain);
  const last = updates.at(-1)?.seq ?? 0;
  const follower = await openClient(t, a.url, { headers: asMain, query: `sessionId=s1&afterSeq=0` });
  const stranger = await openClient(t, a.url, { headers: asReview, query: `sessionId=s1&afterSeq=0` });
  await follower.seen(({ seq }) => seq === last);
  await call(a.url, 'session.message', turn('s1', 'by another'), asMain);
  await follower.seen(({ text }) => text === 'another');
  assert.deepEqual(
    numbers(follower.updates),
    follower.updates.map((_, index) => index + 1),
  );
  assert.equal((await stranger.call('acp.capabilities', {})).error, undefined);
  assert.equal(stranger.updates.length, 0);
});

test('forwarding: who follows a session before it starts elsewhere sees it from its first update on, each once', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const first = await openClient(t, a.url, { headers: asMain, query: 'sessionId=later&afterSeq=0' });
  const stranger = await openClient(t, a.url, { headers: asReview, query: 'sessionId=later' });
  const live = clientOf(t, { url: a.url, token: MAIN_TOKEN });
  const plain: number[] = [];
  live.live.follow('later', ({ seq }) => void plain.push(seq), { afterSeq: 0 });
  await until('the live socket', () => live.live.status().isOpen);
  // Answered after what came before it: both follow by now.
  await Promise.all([first.call('acp.capabilities', {}), live.sessions.list()]);
  const { updates } = await stream(a.url, { method: 'session.start', params: turn('later') }, asMain);
  const expected = numbers(updates);
  await first.seen(({ seq }) => seq === expected.at(-1));
  await until('the live socket to have all', () => plain.length >= expected.length);
  assert.deepEqual([numbers(first.updates), plain], [expected, expected]);
  assert.equal(stranger.updates.length, 0);
});

test('forwarding: when the node of a followed session is gone, the client is sent away to come again', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const link = await startFaultProxy(t, portOf(b.url));
  const a = await startNode(t, { id: 'a', peers: { b: link.url }, forwarding: everythingTo('b') });
  await call(a.url, 'session.start', turn('s1'), asMain);
  const follower = await openClient(t, a.url, { headers: asMain, query: 'sessionId=s1&afterSeq=0' });
  await follower.seen(({ event }) => event === 'completed');
  link.cutAll();
  assert.equal(await follower.closed(), 1013);
});

test('B-92: what comes over a node’s socket is that node’s', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const socket = new WebSocket(`${b.url.replace(/^http/, 'ws')}/acp`, { headers: asNode() });
  t.after(() => socket.terminate());
  await once(socket, 'open');
  socket.send(JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session.start', params: turn('s1') }));
  await once(socket, 'message');
  const rows = await b.database.read(b.database.query.selectFrom('sessions').select('owner').compile());
  assert.deepEqual(rows, [{ owner: 'node:other' }]);
});
