import assert from 'node:assert/strict';
import { test } from 'node:test';
import { postRpc } from '../../kit/bridge/bridge-client.ts';
import { call, stream } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN } from '../../kit/bridge/start-bridge.ts';
import { asMain, asReview, everythingTo, FORWARD_TOKEN, startNode, turn } from '../../kit/bridge/start-nodes.ts';
import { freePort } from '../../kit/free-port.ts';
import { type SeenRequest, sendEvents, startScriptedHttp } from '../../kit/scripted-http.ts';
import { timeLimit } from '../../kit/time.ts';

const idOf = ({ body }: SeenRequest) => (JSON.parse(body) as { id: unknown }).id;
const answering = (result: unknown) => (request: SeenRequest) => {
  sendEvents(request.response, [{ jsonrpc: '2.0', id: idOf(request), result }, '[DONE]']);
  request.response.end();
};

test('B-92: a node gets the forward token and nothing of the client but its call', async (t) => {
  const peer = await startScriptedHttp(t, answering({ forward: FORWARD_TOKEN.length }));
  const a = await startNode(t, { id: 'a', peers: { b: peer.url }, forwarding: everythingTo('b') });
  const given = {
    ...asReview,
    cookie: 'session=secret',
    'x-forwarded-for': '1.2.3.4',
    origin: 'http://localhost:3000',
    'x-request-id': 'trace-of-the-client',
    'idempotency-key': 'key-1',
    'last-event-id': '41',
    'x-app-forward-source': 'spoofed',
    // Of these headers only the hop counts: it can only restrict.
    'x-app-forward-hop': '1',
  };
  const { text, headers } = await postRpc(
    a.url,
    { jsonrpc: '2.0', id: 'q', method: 'session.start', params: turn('s1') },
    given,
  );
  const [request] = peer.requests;
  assert.ok(request);
  const { authorization, host: _host, connection: _connection, 'content-length': _length, ...rest } = request.headers;
  assert.equal(authorization, `Bearer ${FORWARD_TOKEN}`);
  assert.deepEqual(rest, {
    'content-type': 'application/json',
    accept: 'text/event-stream',
    'x-app-bridge-forwarded': '1',
    'x-app-forward-source': 'a',
    'x-app-forward-target': 'b',
    'x-app-forward-hop': '2',
    'x-app-forward-trace': 'trace-of-the-client',
    'x-app-forward-owner': 'review',
    'x-app-contract': '1.0.0',
    'x-request-id': 'trace-of-the-client',
    'idempotency-key': 'key-1',
    'last-event-id': '41',
  });
  assert.deepEqual(JSON.parse(request.body), { jsonrpc: '2.0', id: 'q', method: 'session.start', params: turn('s1') });
  assert.equal(request.path, '/acp/rpc');
  assert.ok(!(text + JSON.stringify([...headers])).includes(FORWARD_TOKEN));
});

test('B-92: where no forward token is set the main token is sent, for every caller', async (t) => {
  const peer = await startScriptedHttp(t, answering({}));
  const a = await startNode(t, { id: 'a', peers: { b: peer.url }, forwarding: everythingTo('b'), forwardToken: '' });
  await call(a.url, 'acp.capabilities', {}, asReview);
  assert.equal(peer.requests[0]?.headers.authorization, `Bearer ${MAIN_TOKEN}`);
});

test('forwarding: aliases are this node’s affair, and a method that only the other node has goes through', async (t) => {
  const peer = await startScriptedHttp(t, answering({ fine: true }));
  const a = await startNode(t, {
    id: 'a',
    peers: { b: peer.url },
    forwarding: '{ rules: [{ methods: [app.future.method], target: { node_id: b } }] }',
  });
  assert.deepEqual((await call(a.url, 'app.future.method', { x: 1 }, asMain)).result, { fine: true });
  assert.equal((JSON.parse(peer.requests[0]?.body ?? '') as { method: string }).method, 'app.future.method');
});

test('forwarding: job calls go where the job was submitted, and so do calls about its session', async (t) => {
  const jobs = await startScriptedHttp(t, (request) => {
    const { method, params } = JSON.parse(request.body) as { method: string; params: Record<string, string> };
    const result =
      method === 'app.jobs.submit' ? { jobId: 'job-1', status: 'pending', sessionId: 'job-1' } : { method, ...params };
    answering(result)(request);
  });
  const other = await startScriptedHttp(t, answering({ jobId: 'job-2', sessionId: 'job-2' }));
  const a = await startNode(t, {
    id: 'a',
    peers: { b: { url: jobs.url, more: 'role: jobs' }, c: { url: other.url, more: 'role: jobs' } },
    forwarding:
      '{ rules: [{ methods: [app.jobs.submit], target: { selector: { role: jobs }, strategy: round_robin } }] }',
  });
  const submit = { taskPrompt: 'work', idempotencyKey: 'key' };
  assert.equal((await call(a.url, 'app.jobs.submit', submit, asMain)).result?.jobId, 'job-1');
  // The same key goes to the same node, although it is the other one's turn.
  assert.equal((await call(a.url, 'app.jobs.submit', submit, asMain)).result?.jobId, 'job-1');
  assert.equal((await call(a.url, 'app.jobs.get', { jobId: 'job-1' }, asMain)).result?.method, 'app.jobs.get');
  assert.equal((await call(a.url, 'session.cancel', { sessionId: 'job-1' }, asMain)).result?.method, 'session.cancel');
  assert.equal(other.requests.length, 0);
  assert.equal((await call(a.url, 'app.jobs.submit', { taskPrompt: 'more' }, asMain)).result?.jobId, 'job-2');
});

test('forwarding: a redirect is not followed, and the outcome of the call is unknown', async (t) => {
  const elsewhere = await startScriptedHttp(t, answering({}));
  const peer = await startScriptedHttp(t, ({ response }) => {
    response.writeHead(307, { location: `${elsewhere.url}/acp/rpc` });
    response.end();
  });
  const a = await startNode(t, { id: 'a', peers: { b: peer.url }, forwarding: everythingTo('b') });
  const { status, json } = await postRpc(
    a.url,
    { jsonrpc: '2.0', id: 1, method: 'session.start', params: turn('s') },
    asMain,
  );
  assert.equal(status, 502);
  assert.equal(json.error?.data.code, 'TASK_FORWARD_FAILED');
  assert.equal(json.error?.data.outcome, 'unknown');
  assert.equal(elsewhere.requests.length, 0);
});

test('forwarding: a session that nodes have refused, and not started, may go to any of them', async (t) => {
  let isFull = true;
  const peer = (name: string) =>
    startScriptedHttp(t, (request) => {
      if (!isFull) return answering({ ranOn: name })(request);
      request.response.writeHead(413).end();
    });
  const [b, c] = [await peer('b'), await peer('c')];
  const rule = '{ methods: [session.start], target: { selector: { role: x }, strategy: round_robin } }';
  const a = await startNode(t, {
    id: 'a',
    peers: { b: { url: b.url, more: 'role: x' }, c: { url: c.url, more: 'role: x' } },
    forwarding: `{ rules: [${rule}] }`,
  });
  const start = async (sessionId: string) =>
    (await call(a.url, 'session.start', turn(sessionId), asMain)).result?.ranOn;
  assert.equal(await start('s'), undefined);
  assert.deepEqual([b.requests.length, c.requests.length], [1, 1], 'c was the last that refused it');
  isFull = false;
  assert.deepEqual([await start('other'), await start('s')], ['c', 'b']);
  assert.deepEqual([await start('more'), await start('s')], ['c', 'b'], 'it stays where it was started');
});

const BREAKS: readonly (readonly [what: string, serve: (request: SeenRequest) => void])[] = [
  ['dies before its answer', ({ response }) => response.destroy()],
  [
    'dies in the middle of its answer',
    ({ response }) => {
      sendEvents(response, [{ jsonrpc: '2.0', method: 'session.update', params: { seq: 1 } }], () => 1);
      setTimeout(() => response.destroy(), 20);
    },
  ],
  ['ends its stream without an answer', ({ response }) => response.end(sendEvents(response, ['[DONE]']))],
  ['says nothing at all', () => undefined],
  ['falls silent in the middle', ({ response }) => sendEvents(response, [{ method: 'session.update', params: {} }])],
  ['sends what is not JSON', ({ response }) => sendEvents(response, ['what?'])],
  ['answers with a page of its own', ({ response }) => response.writeHead(500).end('<html>')],
];

for (const [what, serve] of BREAKS) {
  test(`B-90: after a node that ${what} the outcome is unknown, and no other node is asked`, async (t) => {
    const broken = await startScriptedHttp(t, serve);
    const fine = await startScriptedHttp(t, answering({}));
    const a = await startNode(t, {
      id: 'a',
      peers: { b: { url: broken.url, more: 'role: x' }, c: { url: fine.url, more: 'role: x' } },
      forwarding: '{ rules: [{ methods: [session.start], target: { selector: { role: x } } }] }',
      limits: { turnHeadersMs: 300, idleMs: 300 },
    });
    for (const streamed of [false, true]) {
      const id = streamed ? 'streamed' : 'plain';
      const message = { method: 'session.start', params: turn(id) };
      const error = streamed
        ? (await stream(a.url, message, asMain)).final?.error
        : (await call(a.url, message.method, message.params, asMain)).error;
      // Where nothing was streamed yet the refusal is a document, which `stream` does not read.
      if (error === undefined && streamed) continue;
      assert.equal(error?.code, -32060);
      assert.equal(error?.data.code, 'TASK_FORWARD_FAILED');
      assert.equal(error?.data.outcome, 'unknown');
      assert.equal(error?.data.nodeId, 'b');
    }
    assert.equal(broken.requests.length, 2);
    assert.equal(fine.requests.length, 0);
    // The session is bound to that node: asking again does not start it elsewhere.
    await call(a.url, 'session.start', turn('plain'), asMain);
    assert.equal(fine.requests.length, 0);
  });
}

for (const [what, status] of [
  ['takes no new work', 503],
  ['does not know our token', 401],
  ['serves nothing at the path', 404],
] as const) {
  test(`forwarding: a node that ${what} has started nothing, and the next one is asked`, async (t) => {
    const busy = await startScriptedHttp(t, ({ response }) => {
      response.writeHead(status).end();
    });
    const fine = await startScriptedHttp(t, answering({ success: true }));
    const a = await startNode(t, {
      id: 'a',
      peers: { b: { url: busy.url, more: 'role: x' }, c: { url: fine.url, more: 'role: x' } },
      forwarding: '{ rules: [{ methods: [session.start], target: { selector: { role: x } } }] }',
    });
    assert.equal((await call(a.url, 'session.start', turn('s1'), asMain)).result?.success, true);
    // It lives on the node that took it.
    assert.equal((await call(a.url, 'session.message', turn('s1'), asMain)).result?.success, true);
    assert.equal(fine.requests.length, 2);
  });
}

test('B-90: a node that is down is an error within five seconds, never a start somewhere else', async (t) => {
  const port = await freePort();
  const a = await startNode(t, { id: 'a', peers: { b: `http://127.0.0.1:${port}` }, forwarding: everythingTo('b') });
  const before = performance.now();
  const { status, json } = await postRpc(
    a.url,
    { jsonrpc: '2.0', id: 1, method: 'session.start', params: turn('s') },
    asMain,
  );
  assert.ok(performance.now() - before < timeLimit(5000));
  assert.equal(status, 502);
  assert.equal(json.error?.code, -32060);
  assert.equal(json.error?.data.code, 'TASK_FORWARD_UNREACHABLE');
  assert.equal(json.error?.data.outcome, 'not_started');
  assert.equal(a.agent.asked.length, 0);
  // Who asked for a stream gets the status as well, since none has begun.
  const streamed = await fetch(`${a.url}/acp/rpc`, {
    method: 'POST',
    headers: { ...asMain, accept: 'text/event-stream', 'content-type': 'application/json' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session.start', params: turn('s') }),
  });
  assert.equal(streamed.status, 502);
});

test('forwarding: an answer that is one document is taken as well, for older bridges', async (t) => {
  const peer = await startScriptedHttp(t, (request) => {
    request.response.setHeader('content-type', 'application/json');
    request.response.end(JSON.stringify({ jsonrpc: '2.0', id: idOf(request), result: { old: true } }));
  });
  const a = await startNode(t, { id: 'a', peers: { b: peer.url }, forwarding: everythingTo('b') });
  assert.deepEqual((await call(a.url, 'acp.capabilities', {}, asMain)).result, { old: true });
});
