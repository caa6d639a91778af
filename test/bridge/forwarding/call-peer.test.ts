import assert from 'node:assert/strict';
import type { LookupFunction } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { readMessage } from '../../../src/bridge/agents/post-for-events.ts';
import {
  type CallPeer,
  createCallPeer,
  type PeerAnswer,
  readPeerDocument,
  requestPeerFile,
} from '../../../src/bridge/forwarding/call-node.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { freePort } from '../../kit/free-port.ts';
import { type SeenRequest, sendEvents, startScriptedHttp } from '../../kit/scripted-http.ts';
import { until } from '../../kit/until.ts';

const error = (code: number, data: object) => JSON.stringify({ id: 1, error: { code, message: 'm', data } });

function summary(answer: PeerAnswer): string {
  return answer.kind === 'failed' ? `${answer.outcome}${answer.isDown ? ' down' : ''}` : answer.kind;
}

for (const [expected, status, text] of [
  ['result', 200, '{"result":{"a":1}}'],
  ['error', 200, error(-32602, { code: 'INVALID_PARAMS' })],
  ['result', 204, ''],
  ['unknown', 200, 'not json'],
  ['unknown', 200, '{}'],
  ['unknown', 200, ''],
  ['unknown', 302, ''],
  ['unknown', 500, '<html>'],
  ['unknown', 502, '<html>'],
  ['unknown', 504, ''],
  ['not_started down', 503, error(-32020, { code: 'SHUTTING_DOWN' })],
  ['not_started down', 503, ''],
  ['not_started down', 503, error(-32020, { code: 'OWNER_UNREACHABLE', outcome: 'not_started' })],
  // An instance behind the node may have the call.
  ['error', 503, error(-32020, { code: 'OWNER_UNREACHABLE', outcome: 'unknown' })],
  ['not_started down', 401, error(-32001, { code: 'UNAUTHORIZED' })],
  ['not_started down', 403, ''],
  ['not_started', 404, ''],
  ['not_started', 413, ''],
  ['not_started', 400, ''],
  ['not_started down', 502, error(-32060, { code: 'TASK_FORWARD_UNREACHABLE', outcome: 'not_started' })],
  ['error', 502, error(-32060, { code: 'TASK_FORWARD_FAILED', outcome: 'unknown' })],
  // An older bridge does not say how far it came.
  ['error', 502, error(-32060, { code: 'TASK_FORWARD_FAILED' })],
] as const) {
  test(`forwarding: an answer of ${status} with ${text.slice(0, 70) || 'nothing'} means ${expected}`, () => {
    assert.equal(summary(readPeerDocument(status, text)), expected);
  });
}

test('forwarding: what a node says when it takes no new work, or got no further, goes with the failure', () => {
  const busy = readPeerDocument(503, error(-32020, { code: 'SHUTTING_DOWN' }));
  const said = { status: 503, code: -32020, message: 'm', data: { code: 'SHUTTING_DOWN' } };
  assert.deepEqual(busy.kind === 'failed' && busy.error, said);
  assert.equal('error' in readPeerDocument(503, 'not json'), false);
  const refused = readPeerDocument(401, error(-32001, { code: 'RELAY_REFUSED' }));
  assert.equal(refused.kind === 'failed' && refused.reason, 'm', 'and not a word about forward tokens');
  const data = { outcome: 'not_started' };
  const onTheWay = readPeerDocument(502, error(-32060, data));
  assert.deepEqual(onTheWay, {
    kind: 'failed',
    code: 'TASK_FORWARD_FAILED',
    reason: 'm',
    outcome: 'not_started',
    isDown: true,
    error: { status: 502, code: -32060, message: 'm', data },
  });
});

test('forwarding: what is wrong with one person is the answer of the node, and says nothing about the node', () => {
  const refused = readPeerDocument(403, error(-32003, { code: 'FORWARD_PERSON_REFUSED' }));
  const said = { status: 403, code: -32003, message: 'm', data: { code: 'FORWARD_PERSON_REFUSED' } };
  assert.deepEqual(refused, { kind: 'error', error: said });
  const away = readPeerDocument(503, error(-32050, { code: 'ISSUER_UNAVAILABLE' }));
  assert.ok(away.kind === 'failed');
  const { reason, outcome, isDown, error: ofNode } = away;
  assert.deepEqual([reason, outcome, isDown, ofNode?.code], ['m', 'not_started', false, -32050]);
});

test('forwarding: every refusal says in its own words what the node did not like', () => {
  const statuses = [400, 401, 403, 404, 405, 413, 415, 421, 426, 429, 431];
  const reasons = statuses.map((status) => {
    const answer = readPeerDocument(status, '');
    assert.ok(answer.kind === 'failed' && answer.outcome === 'not_started', String(status));
    return answer.reason;
  });
  // A wrong path and a missing upgrade are one thing to whoever has to mend them.
  assert.equal(new Set(reasons).size, statuses.length - 1);
  for (const reason of reasons) assert.notEqual(reason, '');
  const odd = readPeerDocument(418, '');
  assert.equal(odd.kind === 'failed' && odd.reason, 'it answered with status 418');
});

test('forwarding: an error without a proper code is an internal one, and null is none', () => {
  const odd = readPeerDocument(200, '{"error":{"code":"x"}}');
  assert.deepEqual(odd.kind === 'error' && [odd.error.code, odd.error.message], [-32603, '']);
  assert.deepEqual(readPeerDocument(200, '{"error":null,"result":[1]}'), { kind: 'result', result: [1] });
});

test('forwarding: only an object is a message', () => {
  for (const text of ['null', '1', '"text"', 'true', '', '{']) assert.equal(readMessage(text), undefined, text);
  assert.deepEqual(readMessage('{"a":1}'), { a: 1 });
});

const never = new AbortController().signal;
/** Where a name leads that is outside of all tunnels. */
const outside = ((_host: string, _options: unknown, found: (error: null, addresses: object[]) => void) =>
  found(null, [{ address: '8.8.8.8', family: 4 }])) as unknown as LookupFunction;

type PeerCall = Parameters<CallPeer>[0];

/** Calls a node that the test plays, and notes what happens on the way. */
function startCall(endpoint: string, changes: Partial<PeerCall> = {}, signal = never, lookup?: LookupFunction) {
  const clock = createFakeClock();
  const events: string[] = [];
  const answer = createCallPeer({ clock, lookup, idleMs: 300 })(
    {
      ...{ endpoint, path: '/acp/rpc', headers: { 'x-given': 'yes' }, id: 7, method: 'app.x', params: { a: 1 } },
      ...{ connectMs: 1000, headersMs: 300 },
      beforeSend: async () => void events.push('connected'),
      accepted: () => void events.push('accepted'),
      notified: async (method, params, id) => void events.push(`${method} ${JSON.stringify(params)} ${id}`),
      ...changes,
    },
    signal,
  );
  return { answer, events, clock };
}
const cut = { code: 'TASK_FORWARD_FAILED', reason: 'the connection was cut', outcome: 'unknown', isDown: false };

test('forwarding: a node gets the call as it was given, and what it tells comes before its answer', async (t) => {
  const node = await startScriptedHttp(t, ({ response }) => {
    sendEvents(response, [{ method: 'session.update', params: { seq: 1 } }], () => 4);
    sendEvents(response, [{ jsonrpc: '2.0', id: 7, result: { done: true } }]);
    response.end();
  });
  const { answer, events } = startCall(node.url);
  assert.deepEqual(await answer, { kind: 'result', result: { done: true } });
  assert.deepEqual(events, ['connected', 'accepted', 'session.update {"seq":1} 4']);
  const [request] = node.requests;
  assert.deepEqual(
    [request?.path, request?.headers['x-given'], JSON.parse(request?.body ?? '')],
    ['/acp/rpc', 'yes', { jsonrpc: '2.0', id: 7, method: 'app.x', params: { a: 1 } }],
  );
  await until('its connection to end', () => request?.response.socket?.destroyed !== false);
  const framed = startCall(node.url, { frame: (text) => ({ body: `<${text.length}>`, headers: { 'x-frame': '1' } }) });
  await framed.answer;
  assert.deepEqual([node.requests[1]?.body, node.requests[1]?.headers['x-frame']], ['<58>', '1']);
});

test('forwarding: an answer without a stream is read as a document, and was not accepted before', async (t) => {
  const node = await startScriptedHttp(t, ({ response }) => void response.end('{"result":[1]}'));
  const { answer, events } = startCall(node.url);
  assert.deepEqual([await answer, events], [{ kind: 'result', result: [1] }, ['connected']]);
});

const ENDS: readonly (readonly [what: string, serve: (request: SeenRequest) => unknown, answer: object])[] = [
  [
    'refuses in its stream',
    ({ response }) => response.end(sendEvents(response, [{ error: { code: -32602, message: 'm', data: {} } }])),
    { kind: 'error', error: { status: 200, code: -32602, message: 'm', data: {} } },
  ],
  [
    'ends with an envelope that holds nothing',
    ({ response }) => response.end(sendEvents(response, [{ id: 7 }])),
    { kind: 'failed', ...cut, reason: 'its answer has neither a result nor an error' },
  ],
  [
    'ends without an answer',
    ({ response }) => response.end(sendEvents(response, ['[DONE]'])),
    { kind: 'failed', ...cut },
  ],
  ['hangs up', ({ response }) => response.destroy(), { kind: 'failed', ...cut }],
  [
    'sends what is not JSON',
    ({ response }) => sendEvents(response, ['what?']),
    { kind: 'failed', ...cut, reason: 'it sent what is not JSON' },
  ],
  ['says nothing', () => undefined, { kind: 'failed', ...cut, reason: 'it did not answer in time' }],
  [
    'falls silent',
    ({ response }) => sendEvents(response, [{ method: 'session.update', params: {} }]),
    { kind: 'failed', ...cut, reason: 'it fell silent in the middle of the answer' },
  ],
];

for (const [what, serve, expected] of ENDS) {
  test(`forwarding: the answer of a node that ${what} says so`, async (t) => {
    const node = await startScriptedHttp(t, (request) => void serve(request));
    assert.deepEqual(await startCall(node.url).answer, expected);
    assert.equal(node.requests.length, 1, 'it is not asked again');
  });
}

test('forwarding: a node that cannot be reached is down, and has got nothing', async (t) => {
  const down = { kind: 'failed', code: 'TASK_FORWARD_UNREACHABLE', outcome: 'not_started', isDown: true };
  const away = startCall(`http://127.0.0.1:${await freePort()}`);
  assert.deepEqual(await away.answer, { ...down, reason: 'nothing listens at its address' });
  const refused = startCall('http://node.example:1', {}, never, outside);
  assert.deepEqual(await refused.answer, {
    ...{ ...down, code: 'TASK_FORWARD_ENDPOINT_REFUSED' },
    reason: '8.8.8.8 is not a loopback, private or link-local address',
  });
  const slow = startCall('http://node.example:1', {}, never, () => undefined);
  await until('its time to begin', () => slow.clock.pending() > 0);
  await slow.clock.advance(1000);
  assert.deepEqual(await slow.answer, { ...down, reason: 'it could not be reached in time' });
  assert.deepEqual([away.events, refused.events, slow.events], [[], [], []]);
  const node = await startScriptedHttp(t, () => undefined);
  const bound = new Error('bound elsewhere');
  await assert.rejects(startCall(node.url, { beforeSend: () => Promise.reject(bound) }).answer, bound);
  assert.equal(node.requests.length, 0);
});

test('forwarding: when this node stops, nobody knows what became of a call that was sent', async (t) => {
  const node = await startScriptedHttp(t, () => undefined);
  const stop = new AbortController();
  const { answer } = startCall(node.url, { headersMs: 60_000 }, stop.signal);
  await node.arrived(1);
  stop.abort();
  assert.deepEqual(await answer, { kind: 'failed', ...cut, reason: 'this node is shutting down' });
});

test('forwarding: a file comes over a connection of its own, which ends with it, and from no address outside', async (t) => {
  const node = await startScriptedHttp(t, ({ path, response }) => {
    if (path === '/broken') response.writeHead(500);
    response.end('contents');
  });
  const read = (scope: TestContext, url: string, lookup?: LookupFunction) =>
    requestPeerFile(
      { nodeId: 'b', url, headers: { 'x-given': 'yes' }, signal: scope.signal },
      { clock: createFakeClock(), lookup, connectMs: 1000 },
    );
  const file = await read(t, `${node.url}/file`);
  assert.deepEqual([file.sizeBytes, await textOf(file.body)], [8, 'contents']);
  assert.equal(node.requests[0]?.headers['x-given'], 'yes');
  const details = { place: 'b', reason: 'it answered with status 500' };
  await assert.rejects(read(t, `${node.url}/broken`), { code: 'ARTIFACT_UNREACHABLE', details });
  for (const { response } of node.requests) {
    await until('its connection to end', () => response.socket?.destroyed !== false);
  }
  await assert.rejects(read(t, 'http://node.example:1/file', outside), {
    code: 'ARTIFACT_UNREACHABLE',
    details: { place: 'b', reason: '8.8.8.8 is not a loopback, private or link-local address' },
  });
});
