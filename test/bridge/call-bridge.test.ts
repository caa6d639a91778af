import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { callBridge } from '../../src/bridge/agents/post-for-events.ts';
import { type SeenRequest, sendEvents, startScriptedHttp } from '../kit/scripted-http.ts';

const NOTICE = { jsonrpc: '2.0', method: 'session.update', params: { seq: 7 } };
const RESULT = { jsonrpc: '2.0', id: 'call-1', result: { status: 'completed' } };

/** Calls a bridge that responds as `respond` does; returns the response and everything that was passed on before it. */
async function callWith(context: TestContext, respond: (request: SeenRequest) => void) {
  const http = await startScriptedHttp(context, respond);
  const seen: unknown[] = [];
  const response = await callBridge({
    url: `${http.url}/acp/rpc`,
    headers: {},
    id: 'call-1',
    method: 'session.start',
    params: { sessionId: 's1' },
    signal: context.signal,
    headersTimeoutMs: 30_000,
    idleTimeoutMs: 30_000,
    maxEventCharacters: 10_000,
    accepted: () => seen.push('accepted'),
    async notified(method, params, eventId) {
      seen.push([method, params, eventId]);
    },
  });
  return { response, seen };
}

/** Sends the events, each with the id 7, and ends the stream. */
function events(...given: readonly unknown[]) {
  return ({ response }: SeenRequest): void => {
    sendEvents(response, given, () => 7);
    response.end();
  };
}

test('a call is sent as JSON-RPC, and its notifications come before its envelope', async (context) => {
  let body: unknown;
  const { response, seen } = await callWith(context, (request) => {
    body = JSON.parse(request.body);
    events(NOTICE, RESULT, '[DONE]')(request);
  });
  assert.deepEqual(body, { jsonrpc: '2.0', id: 'call-1', method: 'session.start', params: { sessionId: 's1' } });
  assert.deepEqual(seen, ['accepted', ['session.update', { seq: 7 }, '7']]);
  assert.deepEqual(response, { kind: 'envelope', message: RESULT });
});

const NOT_JSON = { kind: 'broken', reason: 'it sent what is not JSON', isCut: false };
const CUT = { kind: 'broken', reason: 'the connection was cut', isCut: true };

const BROKEN: readonly (readonly [what: string, events: readonly unknown[], expected: object])[] = [
  ['text that is not JSON', ['{'], NOT_JSON],
  ['JSON that is not an object', [5], NOT_JSON],
  ['an end without an envelope', [NOTICE], CUT],
  ['a final mark without an envelope', [NOTICE, '[DONE]', RESULT], CUT],
];

for (const [what, given, expected] of BROKEN) {
  test(`a stream with ${what} is broken, and only a cut one may go on elsewhere`, async (context) => {
    assert.deepEqual((await callWith(context, events(...given))).response, expected);
  });
}

test('a refusal is returned as a document, and the call was not accepted', async (context) => {
  const { response, seen } = await callWith(context, (request) => {
    request.response.writeHead(503, { 'content-type': 'application/json' }).end('{"error":{}}');
  });
  assert.ok(response.kind === 'document');
  assert.deepEqual([response.status, response.text, seen], [503, '{"error":{}}', []]);
});
