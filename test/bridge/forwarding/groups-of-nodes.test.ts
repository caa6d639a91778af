import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Logger } from '../../../src/platform/log/logger.ts';
import { postRpc } from '../../kit/bridge/bridge-client.ts';
import { call, openClient } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import {
  asMain,
  asNode,
  asReview,
  everythingTo,
  type NodeOptions,
  type NodeUnderTest,
  startNode,
  turn,
} from '../../kit/bridge/start-nodes.ts';
import { startFaultProxy } from '../../kit/fault-proxy.ts';
import type { Scope } from '../../kit/running-program.ts';
import { startScriptedHttp } from '../../kit/scripted-http.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { silentLogger } from '../../kit/silent-logger.ts';

/** On a busy machine nothing fails for being slow, and no probe is counted as a call. */
const LONG_LIMITS = { connectMs: 30_000, turnHeadersMs: 60_000, headersMs: 60_000, idleMs: 60_000, probeMs: 600_000 };
const portOf = (url: string) => Number(new URL(url).port);
const IN_TURN = '{ rules: [{ methods: [session.start], target: { selector: { role: x }, strategy: round_robin } }] }';

test('B-87, DP-10: a circle of routes ends at the hop limit, and after no more than one request more', async (t) => {
  const toA = await startFaultProxy(t, 0);
  const toB = await startFaultProxy(t, 0);
  const to = (id: string, url: string, other: string): NodeOptions => ({
    id,
    limits: LONG_LIMITS,
    peers: { [other]: url, c: 'http://127.0.0.1:9' },
    forwarding: `{ hop_limit: 4, rules: [{ methods: ["*"], target: { node_id: c } }], routes: [{ target_node_id: c, next_hop_node_id: ${other} }] }`,
  });
  const a = await startNode(t, to('a', toB.url, 'b'));
  const b = await startNode(t, to('b', toA.url, 'a'));
  toA.setTarget(portOf(a.url));
  toB.setTarget(portOf(b.url));
  const { status, json } = await postRpc(
    a.url,
    { jsonrpc: '2.0', id: 1, method: 'session.start', params: turn('s1') },
    asMain,
  );
  assert.equal(status, 502);
  assert.equal(json.error?.code, -32060);
  assert.equal(json.error?.data.code, 'TASK_FORWARD_HOP_LIMIT_EXCEEDED');
  // The client's own request, and four that were forwarded.
  assert.equal(1 + toA.connections() + toB.connections(), 5);
  assert.equal(a.agent.asked.length + b.agent.asked.length, 0);
});

for (const size of [2, 3]) {
  test(`DB-31: a circle of ${size} nodes, each with its own main token, ends at the hop limit`, async (t) => {
    const proxies = await Promise.all(Array.from({ length: size }, () => startFaultProxy(t, 0)));
    const nodes: NodeUnderTest[] = [];
    for (const [index, proxy] of proxies.entries()) {
      const next = (index + 1) % size;
      const node = await startNode(t, {
        id: `n${index}`,
        isOpen: true,
        limits: LONG_LIMITS,
        peers: { [`n${next}`]: proxies[next]?.url ?? '' },
        forwarding: everythingTo(`n${next}`),
        // Each is let in with the main token of the next one, so the next one takes it for an app.
        more: `  task_forward_token: main-token-of-node-${next}-123\nbridge: { auth_token: main-token-of-node-${index}-123 }\n`,
      });
      proxy.setTarget(portOf(node.url));
      nodes.push(node);
    }
    const credential = { authorization: 'Bearer main-token-of-node-0-123' };
    const ask = (method: string, params: unknown) =>
      postRpc(nodes[0]?.url ?? '', { jsonrpc: '2.0', id: 1, method, params }, credential);
    const calls: readonly (readonly [string, unknown])[] = [
      ['session.start', turn('s1')],
      ['app.jobs.submit', { taskPrompt: 'hello' }],
      ['app.jobs.list', {}],
      ['session.cancel', { threadId: 't1' }],
    ];
    for (const [method, params] of calls) {
      const before = proxies.reduce((sum, proxy) => sum + proxy.connections(), 0);
      const { json } = await ask(method, params);
      assert.equal(json.error?.data.code, 'TASK_FORWARD_HOP_LIMIT_EXCEEDED', method);
      // The limit is 3 unless it is configured.
      assert.equal(proxies.reduce((sum, proxy) => sum + proxy.connections(), 0) - before, 3, method);
    }
    assert.deepEqual(
      nodes.flatMap(({ agent }) => agent.asked),
      [],
    );
  });
}

test('DB-31: a hop beyond the limit is refused with the main and the review token, and a call that stays here is not', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const a = await startNode(t, {
    id: 'a',
    peers: { b: b.url },
    forwarding: `{ hop_limit: 2, rules: [{ methods: [session.start], target: { node_id: b } }] }`,
  });
  for (const credential of [asMain, asReview]) {
    const ask = async (method: string, hop: string) => {
      const headers = { ...credential, 'x-app-forward-hop': hop };
      const { json } = await postRpc(a.url, { jsonrpc: '2.0', id: 1, method, params: turn(`s-${hop}`) }, headers);
      return json.error?.data.code ?? 'served';
    };
    assert.equal(await ask('session.start', '5'), 'TASK_FORWARD_HOP_LIMIT_EXCEEDED');
    assert.equal(await ask('session.start', '2'), 'TASK_FORWARD_HOP_LIMIT_EXCEEDED');
    assert.equal(await ask('session.start', '1'), 'served');
    // Malformed ones count for nothing with such a credential.
    assert.equal(await ask('session.start', 'x'), 'served');
    assert.equal(await ask('acp.capabilities', '5'), 'served');
  }
});

test('DB-31: headers that are ignored for their credential are reported once for an address', async (t) => {
  const warnings: string[] = [];
  const logger = { ...silentLogger, warn: (_members: unknown, text: string) => void warnings.push(text) } as Logger;
  const bridge = await startBridge(t, { providers: [createScriptedProvider('first')], isGuarded: true, logger });
  for (let count = 0; count < 3; count += 1) {
    await postRpc(
      bridge.url,
      { jsonrpc: '2.0', id: 1, method: 'acp.capabilities', params: {} },
      { ...asNode(), ...asReview },
    );
  }
  const about = warnings.filter((text) => text.includes('headers of a forwarded request are ignored'));
  assert.equal(about.length, 1);
  assert.match(about[0] ?? '', /set distributed\.task_forward_token/);
});

/** A node that answers everything at once, and counts the methods it is asked for. */
async function startCountingNode(scope: Scope, isDown: () => boolean = () => false) {
  const counts: Record<string, number> = {};
  const { url } = await startScriptedHttp(scope, ({ body, response }) => {
    if (isDown()) {
      response.writeHead(503).end();
      return;
    }
    const { id, method } = JSON.parse(body) as { id: unknown; method: string };
    counts[method] = (counts[method] ?? 0) + 1;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ jsonrpc: '2.0', id, result: {} }));
  });
  return { place: { url, more: 'role: x' }, counts };
}

test('B-89: a thousand messages all go to the node that has the session, after a restart too', async (t) => {
  const b = await startCountingNode(t);
  const c = await startCountingNode(t);
  const peers = { b: b.place, c: c.place };
  const before = await startNode(t, { id: 'a', peers, forwarding: IN_TURN });
  await call(before.url, 'session.start', turn('s1'), asMain);
  assert.deepEqual([b.counts, c.counts], [{ 'session.start': 1 }, {}]);
  const send = async (url: string, count: number) => {
    const client = await openClient(t, url, { headers: asMain });
    const calls = Array.from({ length: count }, (_, index) => client.call('session.message', turn('s1', `m${index}`)));
    for (const { error } of await Promise.all(calls)) assert.equal(error, undefined);
  };
  await send(before.url, 500);
  await before.stop();
  const a = await startNode(t, { id: 'a', peers, forwarding: IN_TURN, after: before });
  // It is the first node's turn again, and then the other's.
  for (const sessionId of ['s2', 's3']) await call(a.url, 'session.start', turn(sessionId), asMain);
  await send(a.url, 500);
  assert.deepEqual(b.counts, { 'session.start': 2, 'session.message': 1000 });
  assert.deepEqual(c.counts, { 'session.start': 1 });
});

test('B-93: 999 starts are spread evenly; a node that is gone is skipped, and used again when it is back', async (t) => {
  let isGone = false;
  const nodes = {
    b: await startCountingNode(t),
    c: await startCountingNode(t, () => isGone),
    d: await startCountingNode(t),
  };
  const { b, c, d } = nodes;
  const a = await startNode(t, { id: 'a', peers: { b: b.place, c: c.place, d: d.place }, forwarding: IN_TURN });
  const client = await openClient(t, a.url, { headers: asMain });
  let next = 0;
  const start = async (count: number) => {
    const before = Object.values(nodes).map(({ counts }) => counts['session.start'] ?? 0);
    for (let left = count; left > 0; left -= 37) {
      const calls = Array.from({ length: Math.min(37, left) }, () => {
        next += 1;
        return client.call('session.start', turn(`s${next}`));
      });
      for (const { error } of await Promise.all(calls)) assert.equal(error, undefined);
    }
    return Object.values(nodes).map(({ counts }, index) => (counts['session.start'] ?? 0) - (before[index] ?? 0));
  };
  assert.deepEqual(await start(999), [333, 333, 333]);
  isGone = true;
  assert.equal((await start(30))[1], 0);
  isGone = false;
  for (let tries = 0; (await start(3))[1] === 0; tries += 1) {
    assert.ok(tries < 400, 'it was never used again');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
});

test('B-85: a name that leads inside at the start and outside later is refused at the connection', async (t) => {
  const addresses = ['127.0.0.1'];
  const b = await startNode(t, { id: 'b' });
  const a = await startNode(t, {
    id: 'a',
    peers: { b: `http://node-b.example:${portOf(b.url)}` },
    forwarding: '{ rules: [{ methods: ["*"], target: { node_id: b } }] }',
    lookup: (_host, options, callback) => {
      const found = addresses.map((address) => ({ address, family: 4 }));
      if (options.all === true) callback(null, found);
      else callback(null, found[0]?.address ?? '', 4);
    },
  });
  assert.equal((await call(a.url, 'session.start', turn('s1'), asMain)).result?.success, true);
  addresses[0] = '93.184.216.34';
  const { error } = await call(a.url, 'session.message', turn('s1'), asMain);
  assert.equal(error?.code, -32060);
  assert.equal(error?.data.code, 'TASK_FORWARD_ENDPOINT_REFUSED');
  assert.equal(b.agent.asked.length, 1);
});

test('B-95: calls for a node that cannot be found are refused, on every way in', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const before = await startNode(t, {
    id: 'a',
    peers: { b: b.url },
    forwarding: '{ rules: [{ methods: [session.start], target: { node_id: b } }] }',
  });
  await call(before.url, 'session.start', turn('s1'), asMain);
  await before.stop();
  // The node was taken out of the configuration while a session lives on it.
  const a = await startNode(t, { id: 'a', peers: { c: 'http://127.0.0.1:9' }, after: before });
  const client = await openClient(t, a.url, { headers: asMain });
  for (const error of [
    (await call(a.url, 'session.message', turn('s1'), asMain)).error,
    (await client.call('session.message', turn('s1'))).error,
    (await client.call('session.cancel', { threadId: 's1' })).error,
  ]) {
    assert.equal(error?.code, -32060);
    assert.equal(error?.data.code, 'TASK_FORWARD_PEER_UNKNOWN');
  }
});

test('forwarding: of many starts of one session at the same time one runs, wherever they come in', async (t) => {
  const gate = Promise.withResolvers<void>();
  const script = async () => {
    await gate.promise;
    return { kind: 'completed', output: 'done', stopReason: 'end_turn' } as const;
  };
  const b = await startNode(t, { id: 'b', script });
  const c = await startNode(t, { id: 'c', script });
  const peers = { b: { url: b.url, more: 'role: x' }, c: { url: c.url, more: 'role: x' } };
  const a = await startNode(t, { id: 'a', peers, forwarding: IN_TURN });
  const starts = Array.from({ length: 6 }, () => call(a.url, 'session.start', turn('s1'), asMain));
  let answered = 0;
  for (const one of starts) {
    void one.then(() => {
      answered += 1;
      if (answered === 5) gate.resolve();
    });
  }
  const answers = await Promise.all(starts);
  assert.equal(answers.filter(({ error }) => error?.data.code === 'SESSION_BUSY').length, 5);
  assert.equal(answers.filter(({ result }) => result?.status === 'completed').length, 1);
  assert.equal(b.agent.asked.length + c.agent.asked.length, 1);
});
