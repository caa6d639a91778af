import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readMessage } from '../../../src/bridge/agents/post-for-events.ts';
import { type PeerAnswer, readPeerDocument } from '../../../src/bridge/forwarding/call-node.ts';

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
