import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refusalBody } from '../../../src/platform/json-rpc/answer-http.ts';
import { bareEnvelope, type Envelope, hybridEnvelope, plainEnvelope } from '../../../src/platform/json-rpc/envelope.ts';

const version = { jsonrpc: '2.0' };
const response = { ...version, id: 'a' };

const shapes: { name: string; envelope: Envelope; expected: object[] }[] = [
  {
    name: 'hybrid',
    envelope: hybridEnvelope,
    expected: [
      { ...response, result: { x: 1 }, ok: true, type: 'res', payload: { x: 1 }, seq: 3 },
      { ...response, error: { code: -1 }, ok: false, type: 'res', payload: null, seq: 4 },
      { ...version, method: 'm', params: [1], type: 'event', event: 'm', payload: [1], seq: 5 },
      { ...version, method: 'm', params: {}, type: 'event', event: 'm', payload: {}, seq: 6 },
      { ...response, method: 'm' },
    ],
  },
  {
    name: 'plain',
    envelope: plainEnvelope,
    expected: [
      { ...response, result: { x: 1 } },
      { ...response, error: { code: -1 } },
      { ...version, method: 'm', params: [1] },
      { ...version, method: 'm' },
      { ...response, method: 'm' },
    ],
  },
  {
    name: 'bare',
    envelope: bareEnvelope,
    expected: [
      { id: 'a', result: { x: 1 } },
      { id: 'a', error: { code: -1 } },
      { method: 'm', params: [1] },
      { method: 'm' },
      { id: 'a', method: 'm' },
    ],
  },
];

for (const { name, envelope, expected } of shapes) {
  test(`the ${name} envelope has exactly its members`, () => {
    const texts = [
      envelope.success('"a"', '{"x":1}', 3),
      envelope.failure('"a"', '{"code":-1}', 4),
      envelope.notification('"m"', '[1]', 5),
      envelope.notification('"m"', undefined, 6),
      envelope.request('"a"', '"m"', undefined),
    ];
    assert.deepEqual(
      texts.map((text) => JSON.parse(text)),
      expected,
    );
  });
}

test('a refusal before any call has id null, the first number and the request id', () => {
  const error = {
    code: 'UNAUTHORIZED',
    status: 401,
    rpc: -32001,
    message: 'No.',
    details: { hint: 1 },
    requestId: 'r',
  };
  assert.deepEqual(refusalBody(hybridEnvelope, error), {
    ...version,
    id: null,
    error: { code: -32001, message: 'No.', data: { code: 'UNAUTHORIZED', hint: 1, requestId: 'r' } },
    ok: false,
    type: 'res',
    payload: null,
    seq: 1,
  });
});
