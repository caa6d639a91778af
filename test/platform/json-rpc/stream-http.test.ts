import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { streamHttp } from '../../../src/platform/json-rpc/answer-http.ts';
import type { Dispatch, MethodCall } from '../../../src/platform/json-rpc/method-table.ts';
import { assertFailure, call, type Message, serving, toText } from './carriers.ts';

type Sent = ['open'] | ['notification' | 'final', Message, string | number | undefined];

function stream(message: unknown, dispatch?: Dispatch<string>) {
  const sent: Sent[] = [];
  const answer = streamHttp({
    ...serving(dispatch),
    body: toText(message),
    requestId: 'http-1',
    codesWithStatus: new Set(['FORBIDDEN']),
    sink: {
      open: () => void sent.push(['open']),
      notification: (text, eventId) => void sent.push(['notification', JSON.parse(text), eventId]),
      final: (text, eventId) => void sent.push(['final', JSON.parse(text), eventId]),
    },
  });
  return { sent, answer };
}

test('B-19: notifications come first, each with its event id; the final envelope bears the last one', async () => {
  const { sent, answer } = stream(call('a', 'announce', { x: 1 }));
  assert.equal(await answer, undefined);
  assert.deepEqual(
    sent.map(([kind, message, eventId]) => [kind, message?.event, message?.payload, message?.seq, eventId]),
    [
      ['notification', 'news', { x: 1 }, 1, 1],
      ['notification', 'news', { x: 1 }, 2, 2],
      ['final', undefined, { x: 1 }, 3, 2],
    ],
  );
});

test('a call with nothing to notify has only its final envelope, without an event id', async () => {
  const { sent, answer } = stream(call('a', 'later', { x: 1 }));
  assert.equal(await answer, undefined);
  assert.equal(sent.length, 1);
  assert.deepEqual([sent[0]?.[0], sent[0]?.[1]?.result, sent[0]?.[2]], ['final', { x: 1 }, undefined]);
});

test('a call that is accepted opens the stream immediately, long before its answer', async () => {
  const gate = Promise.withResolvers<object>();
  const { sent, answer } = stream(call(1, 'any'), (incoming) => {
    incoming.accept();
    return gate.promise;
  });
  await turn();
  assert.deepEqual(sent, [['open']]);
  gate.resolve({});
  assert.equal(await answer, undefined);
  assert.equal(sent[1]?.[0], 'final');
});

test('an ordinary error is the final envelope', async () => {
  const { sent, answer } = stream(call(1, 'no.such'));
  assert.equal(await answer, undefined);
  assertFailure(sent[0]?.[1], -32601, 'METHOD_NOT_FOUND', 1);
});

test('an error with a status of its own is a plain answer while nothing was sent, and the final envelope after', async () => {
  for (const [code, status] of [
    ['FORBIDDEN', 403],
    ['OVERLOADED', 503],
  ] as const) {
    const early = stream(call(1, 'any'), async () => {
      throw new AppError(code);
    });
    assert.equal((await early.answer)?.status, status);
    assert.deepEqual(early.sent, []);
    for (const start of [
      (incoming: MethodCall<string>) => incoming.accept(),
      (incoming: MethodCall<string>) => incoming.notify('news', {}),
    ]) {
      const late = stream(call(1, 'any'), async (incoming) => {
        start(incoming);
        throw new AppError(code);
      });
      assert.equal(await late.answer, undefined);
      assert.equal(late.sent.at(-1)?.[0], 'final');
      assert.equal(late.sent.at(-1)?.[1]?.error?.data.code, code);
    }
  }
});

test('B-05: a body that is not JSON is a plain 400', async () => {
  const { sent, answer } = stream('{"jsonrpc":');
  assert.equal((await answer)?.status, 400);
  assert.deepEqual(sent, []);
});

test('a notification is a plain 204, whatever its handler sends', async () => {
  const { sent, answer } = stream({ jsonrpc: '2.0', method: 'any' }, async (incoming) => {
    incoming.accept();
    incoming.notify('news', {});
  });
  assert.deepEqual(await answer, { status: 204 });
  assert.deepEqual(sent, []);
});

test('a batch is a plain answer, also behind white space and a byte order mark', async () => {
  for (const before of ['', ' \r\n\t', '\ufeff']) {
    const { sent, answer } = stream(`${before}${JSON.stringify([call(1, 'announce'), call(2, 'echo')])}`);
    const { status, body = '' } = (await answer) ?? {};
    assert.equal(status, 200);
    assert.equal((JSON.parse(body) as Message[]).length, 2);
    assert.deepEqual(sent, []);
  }
});

test('what a handler says after its answer goes nowhere', async () => {
  let kept: MethodCall<string> | undefined;
  const { sent, answer } = stream(call(1, 'any'), (incoming) => {
    kept = incoming;
    return {};
  });
  await answer;
  kept?.notify('late', {});
  kept?.accept();
  assert.equal(sent.length, 1);
});
