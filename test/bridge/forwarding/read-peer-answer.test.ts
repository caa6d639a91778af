import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type PeerAnswer, readPeerDocument } from '../../../src/bridge/forwarding/read-peer-answer.ts';

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
