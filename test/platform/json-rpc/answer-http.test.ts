import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { AppError, type ErrorCode } from '../../../src/platform/errors/app-error.ts';
import { answerHttp } from '../../../src/platform/json-rpc/answer-http.ts';
import type { Dispatch } from '../../../src/platform/json-rpc/method-table.ts';
import { assertFailure, call, type Message, serving, toText } from './carriers.ts';

interface Extra {
  readonly dispatch?: Dispatch<string>;
  readonly codesWithStatus?: ReadonlySet<string>;
  readonly signal?: AbortSignal;
}

function post(message: unknown, extra: Extra = {}) {
  return answerHttp({ ...serving(), ...extra, body: toText(message), requestId: 'http-1' });
}

const failing = (code: ErrorCode) => (): never => {
  throw new AppError(code, { reason: 'so' });
};

test('a JSON-RPC error travels with 200', async () => {
  for (const message of [call(1, 'no.such'), call(1, 'subtract'), call(1, 'break'), { foo: 1 }, '[]', '1']) {
    const answer = await post(message);
    assert.equal(answer.status, 200);
    assert.equal(answer.retryAfter, undefined);
  }
});

test('a parse error is 400, whatever the codes with a status are', async () => {
  for (const codesWithStatus of [new Set<string>(), new Set(['FORBIDDEN'])]) {
    const { status, body = '' } = await post('{', { codesWithStatus });
    assert.equal(status, 400);
    assertFailure(JSON.parse(body), -32700, 'PARSE_ERROR');
  }
});

test('an overload is 503 with Retry-After', async () => {
  const { status, retryAfter, body = '' } = await post(call(1, 'crowded'));
  assert.deepEqual([status, retryAfter], [503, 1]);
  assertFailure(JSON.parse(body), -32020, 'OVERLOADED', 1);
});

test('the named codes keep the status of their row, others do not', async () => {
  const codesWithStatus = new Set(['FORBIDDEN', 'SHUTTING_DOWN', 'REMOTE_ERROR']);
  const statuses = [
    ['FORBIDDEN', 403, undefined],
    ['REMOTE_ERROR', 502, undefined],
    ['SHUTTING_DOWN', 503, 1],
    ['UNAUTHORIZED', 200, undefined],
  ] as const;
  for (const [code, status, retryAfter] of statuses) {
    const answer = await post(call(1, 'any'), { dispatch: failing(code), codesWithStatus });
    assert.deepEqual([answer.status, answer.retryAfter], [status, retryAfter], code);
    assert.equal((JSON.parse(answer.body ?? '') as Message).error?.data.code, code);
  }
});

test('B-03: a notification gets 204 without a body, also when it fails', async () => {
  for (const method of ['echo', 'later', 'crowded', 'break', 'no.such']) {
    assert.deepEqual(await post({ jsonrpc: '2.0', method }), { status: 204 });
  }
});

test('B-09: a batch is 200 whatever happens in it, and 204 when nothing in it is answered', async () => {
  assert.equal((await post([call(1, 'crowded')])).status, 200);
  assert.equal((await post([1])).status, 200);
  assert.deepEqual(await post([{ jsonrpc: '2.0', method: 'echo' }]), { status: 204 });
});

test('B-17: a body that is not UTF-8 is a parse error', async () => {
  const body = Buffer.concat([
    Buffer.from('{"jsonrpc":"2.0","id":1,"method":"'),
    Buffer.from([0xff, 0xfe]),
    Buffer.from('"}'),
  ]);
  const answer = await answerHttp({ ...serving(), body, requestId: 'http-1' });
  assert.equal(answer.status, 400);
  assertFailure(JSON.parse(answer.body ?? ''), -32700, 'PARSE_ERROR');
});

test('a response object is an invalid request here: nothing of ours is open', async () => {
  for (const message of [
    { jsonrpc: '2.0', id: 1, result: {} },
    { jsonrpc: '2.0', id: 1, error: { code: 1 } },
  ]) {
    const { status, body = '' } = await post(message);
    assert.equal(status, 200);
    assertFailure(JSON.parse(body), -32600, 'INVALID_REQUEST');
  }
});

test('what a handler notifies is dropped and takes no number', async () => {
  const { body = '' } = await post(call(1, 'announce', { x: 1 }));
  const { result, seq } = JSON.parse(body) as Message;
  assert.deepEqual([result, seq], [{ x: 1 }, 1]);
});

test('all calls of a request share its id', async () => {
  const seen: string[] = [];
  const dispatch: Dispatch<string> = ({ requestId }) => void seen.push(requestId);
  await post([call(1, 'a'), call(2, 'b')], { dispatch });
  assert.deepEqual(seen, ['http-1', 'http-1']);
});

test('a client that goes away aborts its calls', async () => {
  const waiting: Dispatch<string> = ({ signal }) =>
    new Promise((_, reject) => {
      if (signal.aborted) reject(signal.reason);
      signal.addEventListener('abort', () => reject(signal.reason));
    });
  const controller = new AbortController();
  const running = post(call(1, 'wait'), { dispatch: waiting, signal: controller.signal });
  await turn();
  controller.abort();
  for (const answer of [
    await running,
    await post(call(1, 'wait'), { dispatch: waiting, signal: AbortSignal.abort() }),
  ]) {
    assertFailure(JSON.parse(answer.body ?? ''), -32603, 'CONNECTION_CLOSED', 1);
  }
});
