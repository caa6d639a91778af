import assert from 'node:assert/strict';
import { test } from 'node:test';
import { postRpc } from '../kit/bridge/bridge-client.ts';
import { startNodeProcess, storedTurns } from '../kit/bridge/node-process.ts';
import { call, openClient, stream } from '../kit/bridge/session-client.ts';
import { asMain, turn } from '../kit/bridge/start-nodes.ts';
import { startFaultProxy } from '../kit/fault-proxy.ts';
import { runProgram } from '../kit/running-program.ts';

const IN_TURN =
  '{ rules: [{ methods: [session.start], target: { selector: { role: executor }, strategy: round_robin } }] }';

test('B-89: sessions stay on their nodes when processes are killed and started again', async (t) => {
  const b = await startNodeProcess(t, { id: 'b' });
  const c = await startNodeProcess(t, { id: 'c' });
  const toB = await startFaultProxy(t, b.port);
  const toC = await startFaultProxy(t, c.port);
  const peers = { b: { url: toB.url, more: 'role: executor' }, c: { url: toC.url, more: 'role: executor' } };
  const first = await startNodeProcess(t, { id: 'edge', peers, forwarding: IN_TURN });

  for (const sessionId of ['s1', 's2', 's3']) {
    const { final } = await stream(first.url, { method: 'session.start', params: turn(sessionId) }, asMain);
    assert.equal(final.result?.success, true);
  }
  const sessionsOn = (node: typeof b) =>
    storedTurns(node)
      .map(({ session }) => session)
      .sort();
  assert.deepEqual([sessionsOn(b), sessionsOn(c)], [['s1', 's3'], ['s2']]);

  // The edge is killed, and knows after its start where everything is.
  assert.equal(await first.stop('SIGKILL'), 'SIGKILL');
  const edge = await startNodeProcess(t, {
    id: 'edge',
    peers,
    forwarding: IN_TURN,
    dataDirectory: first.dataDirectory,
  });
  const client = await openClient(t, edge.url, { headers: asMain });
  assert.equal((await client.call('session.message', turn('s2', 'over WebSocket'))).result?.success, true);
  assert.equal((await call(edge.url, 'session.message', turn('s1', 'over HTTP'), asMain)).result?.success, true);
  assert.deepEqual(sessionsOn(c), ['s2', 's2']);

  // One node is killed: its session is not started anywhere else, new ones go to the other node.
  await b.stop('SIGKILL');
  const lost = await postRpc(edge.url, { jsonrpc: '2.0', id: 1, method: 'session.start', params: turn('s1') }, asMain);
  assert.equal(lost.status, 502);
  // The link accepts the connection and then cuts it: before the call has left, or after.
  assert.match(String(lost.json.error?.data.code), /^TASK_FORWARD_(FAILED|UNREACHABLE)$/);
  for (const sessionId of ['s4', 's5']) await client.call('session.start', turn(sessionId));
  const placed = sessionsOn(c).filter((session) => ['s4', 's5'].includes(session));
  const explained = await runProgram(
    ['nodes', 'explain', 'session.message', '--session', 's2', '--json', '--data-dir', edge.dataDirectory],
    {},
  );
  assert.equal(explained.code, 0, explained.stderr);
  assert.deepEqual(
    (JSON.parse(explained.stdout) as { candidates: { node_id: string }[] }).candidates.map(({ node_id }) => node_id),
    ['c'],
  );

  // It comes back, with its session.
  const again = await startNodeProcess(t, { id: 'b', dataDirectory: b.dataDirectory });
  toB.setTarget(again.port);
  assert.equal((await call(edge.url, 'session.message', turn('s1', 'back'), asMain)).result?.success, true);
  assert.equal(sessionsOn(again).filter((session) => session === 's1').length, 3, 'it has stayed there');
  assert.ok(placed.length > 0);
});

test('forwarding: over two hops between processes, with the middle one killed in the middle of a turn', async (t) => {
  const executor = await startNodeProcess(t, { id: 'executor' });
  const hub = await startNodeProcess(t, { id: 'hub', peers: { executor: { url: executor.url } } });
  const edge = await startNodeProcess(t, {
    id: 'edge',
    peers: { hub: { url: hub.url }, executor: { url: 'http://127.0.0.1:9' } },
    forwarding:
      '{ rules: [{ methods: [session.start, session.message], target: { node_id: executor } }], routes: [{ target_node_id: executor, next_hop_node_id: hub }] }',
  });
  const { final, updates } = await stream(edge.url, { method: 'session.start', params: turn('s1') }, asMain);
  assert.equal(final.result?.success, true);
  assert.deepEqual(
    updates.map(({ seq }) => seq),
    updates.map((_, index) => index + 1),
  );
  const long = stream(
    edge.url,
    { method: 'session.message', params: turn('s1', 'word '.repeat(20_000)) },
    asMain,
    (update) => {
      if (update.type === 'delta') hub.child.kill('SIGKILL');
      return false;
    },
  );
  const answer = await long;
  // Either the answer was through already, or what came of it is not known.
  if (answer.final.error !== undefined) {
    assert.equal(answer.final.error.code, -32060);
    assert.equal(answer.final.error.data.outcome, 'unknown');
  }
  const refused = await call(edge.url, 'session.message', turn('s1', 'more'), asMain);
  assert.equal(refused.error?.data.code, 'TASK_FORWARD_UNREACHABLE');
  assert.equal(storedTurns(executor).filter(({ method }) => method === 'session.start').length, 1);
});
