import assert from 'node:assert/strict';
import { test } from 'node:test';
import { postRpc } from '../../kit/bridge/bridge-client.ts';
import { call, openClient, stream } from '../../kit/bridge/session-client.ts';
import { asMain, asReview, everythingTo, startNode, turn } from '../../kit/bridge/start-nodes.ts';
import { inTime } from '../../kit/in-time.ts';
import { endless, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

test('forwarding: a call over HTTP is answered by the node that a rule names', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const direct = await call(b.url, 'acp.capabilities', {}, asMain);
  const through = await postRpc(a.url, { jsonrpc: '2.0', id: 'x', method: 'acp.capabilities', params: {} }, asMain);
  assert.equal(through.status, 200);
  assert.deepEqual(through.json.result, direct.result);
  assert.deepEqual(Object.keys(through.json), Object.keys(direct));
  assert.equal(through.json.id, 'x');

  const answer = await call(a.url, 'session.start', turn('s1'), asMain);
  assert.equal(answer.result?.output, 'hello there');
  assert.equal(answer.result?.resolvedProviderId, 'agent-of-b');
  assert.equal(a.agent.asked.length, 0);
  assert.equal(b.agent.asked.length, 1);
});

test('forwarding: a streamed call brings its updates as they come, with their numbers', async (t) => {
  const gate = Promise.withResolvers<void>();
  const script: TurnScript = async ({ report }) => {
    report({ kind: 'text', text: 'first' });
    await gate.promise;
    report({ kind: 'text', text: 'second' });
    return { kind: 'completed', output: 'first second', stopReason: 'end_turn' };
  };
  const b = await startNode(t, { id: 'b', script });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const seen: string[] = [];
  const message = { method: 'session.start', params: turn('s1'), id: 'call-1' };
  const answer = await stream(a.url, message, asMain, (update) => {
    seen.push(update.message);
    // The agent goes on only when its first word has come through.
    if (update.text === 'first') gate.resolve();
    return false;
  });
  assert.equal(answer.final.id, 'call-1');
  assert.equal(answer.final.result?.output, 'first second');
  assert.deepEqual(
    answer.updates.map(({ seq }) => seq),
    answer.updates.map((_, index) => index + 1),
  );
  for (const { id, data } of answer.events.slice(0, -1)) assert.equal(id, String(data.params?.seq));
  assert.equal(answer.events.at(-1)?.id, String(answer.updates.at(-1)?.seq));
  assert.ok(seen.includes('second'));
});

test('forwarding: calls over a WebSocket are forwarded too, many at the same time and in order', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const client = await openClient(t, a.url, { headers: asMain });
  // The messages follow on the heels of the start, each on a connection of its own to the other node.
  const [started, ...messages] = await Promise.all([
    client.call('session.start', turn('s1', 'one')),
    client.call('session.message', turn('s1', 'two')),
    client.call('session.message', turn('s1', 'three')),
  ]);
  assert.equal(started.result?.output, 'one');
  assert.deepEqual(
    messages.map(({ result }) => result?.output),
    ['two', 'three'],
  );
  const seqs = client.updates.filter(({ type }) => type === 'delta').map(({ text }) => text);
  assert.deepEqual(seqs, ['one', 'two', 'three']);
  assert.deepEqual(
    client.messages.map(({ seq }) => seq),
    client.messages.map((_, index) => index + 1),
  );
});

test('forwarding: cancel with an owner reaches the turn of that owner on another node, and not the own one', async (t) => {
  const b = await startNode(t, { id: 'b', script: endless });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const own = call(a.url, 'session.start', turn('same'), asMain);
  const theirs = call(a.url, 'session.start', turn('same'), asReview);
  await until('both turns to run', () => b.agent.running() === 2);
  await call(a.url, 'session.cancel', { sessionId: 'same', owner: 'review' }, asMain);
  assert.equal((await theirs).result?.status, 'cancelled');
  assert.equal(b.agent.running(), 1);
  await call(a.url, 'session.cancel', { sessionId: 'same', owner: 'main' }, asMain);
  assert.equal((await own).result?.status, 'cancelled');
});

test('forwarding: cancel reaches a turn that runs on another node, by session and by thread', async (t) => {
  const b = await startNode(t, { id: 'b', script: endless });
  // Only the start has a rule: the rest goes where the session lives.
  const forwarding = '{ rules: [{ methods: [session.start], target: { node_id: b } }] }';
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding });
  const client = await openClient(t, a.url, { headers: asMain });
  for (const [sessionId, name] of [
    ['s1', { sessionId: 's1' }],
    ['s2', { threadId: 'thread' }],
  ] as const) {
    const started = client.call('session.start', { ...turn(sessionId), threadId: 'thread' });
    await client.seen((update) => update.sessionId === sessionId && update.type === 'delta');
    assert.deepEqual((await client.call('session.cancel', name)).result, { accepted: true });
    assert.equal((await started).result?.status, 'cancelled');
  }
  assert.deepEqual((await client.call('session.close', { threadId: 'thread' })).result, { accepted: true });
  const lost = await client.call('session.message', turn('s1'));
  assert.equal(lost.error?.code, -32002);
  assert.deepEqual(lost.error?.data, {
    code: 'SESSION_CONTINUATION_UNAVAILABLE',
    sessionId: 's1',
    threadId: 's1',
    providerId: '',
  });
  assert.equal(a.agent.asked.length, 0);
});

test('forwarding: a dropped client resumes a forwarded turn through the same node, and runs nothing twice', async (t) => {
  const gate = Promise.withResolvers<void>();
  const script: TurnScript = async ({ report }) => {
    for (const text of ['a', 'b', 'c']) report({ kind: 'text', text });
    await gate.promise;
    for (const text of ['d', 'e']) report({ kind: 'text', text });
    return { kind: 'completed', output: 'abcde', stopReason: 'end_turn' };
  };
  const b = await startNode(t, { id: 'b', script });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const message = { method: 'session.start', params: turn('s1'), id: 7 };
  const first = await stream(a.url, message, asMain, ({ text }) => text === 'b');
  const seen = first.updates.at(-1)?.seq ?? 0;
  gate.resolve();
  const second = await stream(a.url, message, { ...asMain, 'last-event-id': String(seen) });
  assert.equal(second.final.result?.output, 'abcde');
  const all = [...first.updates, ...second.updates].map(({ seq }) => seq);
  assert.deepEqual(
    all,
    all.map((_, index) => index + 1),
  );
  assert.equal(b.agent.asked.length, 1);

  const keyed = { ...asMain, 'idempotency-key': 'k1' };
  const once = await stream(a.url, { ...message, params: turn('s2'), id: 8 }, keyed);
  const again = await stream(a.url, { ...message, params: turn('s2'), id: 9 }, keyed);
  assert.equal(again.final.result?.turnId, once.final.result?.turnId);
  const unknown = await stream(a.url, { ...message, params: turn('s3') }, { ...asMain, 'last-event-id': '4' });
  assert.equal(unknown.final.error?.data.code, 'RESUME_NOT_FOUND');
  assert.equal(b.agent.asked.length, 2);
});

test('forwarding: over two hops a call, its updates and its errors come through', async (t) => {
  const c = await startNode(t, { id: 'c' });
  const b = await startNode(t, { id: 'b', peers: { c: c.url } });
  const a = await startNode(t, {
    id: 'a',
    peers: { b: b.url, c: 'http://127.0.0.1:9' },
    forwarding:
      '{ rules: [{ methods: ["*"], target: { node_id: c } }], routes: [{ target_node_id: c, next_hop_node_id: b }] }',
  });
  const answer = await stream(a.url, { method: 'session.start', params: turn('s1') }, asMain);
  assert.equal(answer.final.result?.resolvedProviderId, 'agent-of-c');
  assert.ok(answer.updates.length > 2);
  assert.equal((await call(a.url, 'session.message', turn('s1', 'more'), asMain)).result?.output, 'more');
  const refused = await call(a.url, 'session.start', { sessionId: 's1' }, asMain);
  assert.equal(refused.error?.data.code, 'INVALID_PARAMS');
  const [row] = await c.database.read(c.database.query.selectFrom('sessions').selectAll().compile());
  assert.equal(row?.owner, 'node:a');
});

test('forwarding: a notification goes on as one, and a batch is answered as one array', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  const silent = await postRpc(a.url, { jsonrpc: '2.0', method: 'session.start', params: turn('s1') }, asMain);
  assert.equal(silent.status, 204);
  const batch = await postRpc(
    a.url,
    [
      { jsonrpc: '2.0', id: 1, method: 'session.start', params: turn('s2') },
      { jsonrpc: '2.0', id: 2, method: 'no.such', params: {} },
    ],
    asMain,
  );
  const answers = JSON.parse(batch.text) as { id: number; error?: { code: number } }[];
  assert.equal(answers.length, 2);
  assert.equal(answers.find(({ id }) => id === 2)?.error?.code, -32601);
});

test('B-92: who is somebody else on the first node is somebody else on the next one', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  await call(a.url, 'session.start', turn('of-main'), asMain);
  await call(a.url, 'session.start', turn('of-review'), asReview);
  const stolen = await call(a.url, 'session.message', turn('of-main'), asReview);
  assert.equal(stolen.error?.code, -32002);
  const seen = await call(a.url, 'session.message', turn('of-review', 'by main'), asMain);
  assert.equal(seen.result?.output, 'by main');
  const rows = await b.database.read(b.database.query.selectFrom('sessions').select(['owner', 'session_id']).compile());
  assert.deepEqual(rows.map((row) => [row.session_id, row.owner]).sort(), [
    ['of-main', 'node:a'],
    ['of-review', 'node:a:review'],
  ]);
});

test('B-96: a method that the other node lacks is its own -32601, and says whose word it is', async (t) => {
  const c = await startNode(t, { id: 'c' });
  const b = await startNode(t, { id: 'b', peers: { c: c.url } });
  const a = await startNode(t, {
    id: 'a',
    peers: { b: b.url, c: 'http://127.0.0.1:9' },
    forwarding:
      '{ rules: [{ methods: [app.new.method], target: { node_id: c } }, { methods: [app.other.method], target: { node_id: b } }], routes: [{ target_node_id: c, next_hop_node_id: b }] }',
  });
  for (const [method, node] of [
    ['app.other.method', 'b'],
    ['app.new.method', 'c'],
  ] as const) {
    const { error } = await call(a.url, method, {}, asMain);
    assert.equal(error?.code, -32601);
    assert.equal(error?.data.code, 'METHOD_NOT_FOUND');
    assert.equal(error?.data.sourceNodeId, node);
  }
  const own = await call(a.url, 'app.third.method', {}, asMain);
  assert.equal(own.error?.code, -32601);
  assert.equal(own.error?.data.sourceNodeId, undefined);
});

test('forwarding: a session that was here before there were rules stays here', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const before = await startNode(t, { id: 'a' });
  await call(before.url, 'session.start', turn('old'), asMain);
  await before.stop();
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b'), after: before });
  assert.equal((await call(a.url, 'session.message', turn('old', 'again'), asMain)).result?.output, 'again');
  assert.equal(b.agent.asked.length, 0);
  await call(a.url, 'session.close', { sessionId: 'old' }, asMain);
  await call(a.url, 'session.start', turn('old'), asMain);
  assert.equal(b.agent.asked.length, 1);
});

test('forwarding: during a drain a forwarded call gets the time that turns get', async (t) => {
  const b = await startNode(t, { id: 'b', script: endless });
  let asked = 0;
  const settleMs = () => {
    asked += 1;
    return 100;
  };
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b'), settleMs });
  const answer = call(a.url, 'session.start', turn('s1'), asMain).catch(() => undefined);
  await until('the turn to run on the other node', () => b.agent.asked.length === 1);
  await inTime('the drain', Promise.resolve(a.bridge.surface.settle?.()));
  assert.equal(asked, 2, 'by the turns, and by the calls that were forwarded');
  await Promise.all([a.stop(), b.stop()]);
  await answer;
});
