import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { bareEnvelope, plainEnvelope, RemoteError, rawJson } from '../../../src/platform/json-rpc/envelope.ts';
import type { MethodCall } from '../../../src/platform/json-rpc/method-table.ts';
import { createPeer } from '../../../src/platform/json-rpc/peer.ts';
import { createMemoryChannels } from '../../kit/memory-channel.ts';
import { assertFailure, call, type Message, openRawClient, serving } from './carriers.ts';
import { createManualTimers } from './manual-timers.ts';

const hasCode = (code: string) => (error: unknown) => error instanceof AppError && error.code === code;

/** A peer that only calls, and the other end of its channel by hand. */
function openCaller(options: { idPrefix?: string; cancelMethod?: string } = {}) {
  const [near, far] = createMemoryChannels();
  const timers = createManualTimers();
  const peer = createPeer({ ...options, channel: near, envelope: plainEnvelope, clock: timers });
  const received: Message[] = [];
  far.onMessage((text) => received.push(JSON.parse(text)));
  const answer = (message: object) => far.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
  return { peer, far, timers, received, answer };
}

describe('a peer that calls', () => {
  test('both sides call each other on one connection, many calls at the same time', async () => {
    const [left, right] = createMemoryChannels();
    const doubling = serving(async ({ params }) => ({ value: 2 * (params as { value: number }).value }));
    const leftPeer = createPeer({ ...doubling, channel: left, idPrefix: 'left-' });
    const asking = serving(async (incoming) => rightPeer.request('back', incoming.params));
    const rightPeer = createPeer({ ...asking, channel: right });
    const calls = Array.from({ length: 50 }, (_, value) => leftPeer.request('forth', { value }));
    assert.deepEqual(
      await Promise.all(calls),
      Array.from({ length: 50 }, (_, value) => ({ value: 2 * value })),
    );
  });

  test('answers are matched by id, in whatever order they come', async () => {
    const { peer, received, answer } = openCaller();
    const [first, second] = [peer.request('a'), peer.request('b', { x: 1 })];
    await turn();
    assert.deepEqual(received, [
      { jsonrpc: '2.0', id: 1, method: 'a' },
      { jsonrpc: '2.0', id: 2, method: 'b', params: { x: 1 } },
    ]);
    answer({ id: 2, result: 'second' });
    answer({ id: 1, result: 'first' });
    assert.deepEqual(await Promise.all([first, second]), ['first', 'second']);
  });

  test('a prefix makes ids strings, and raw JSON parameters go out as they stand', async () => {
    const { peer, received, answer } = openCaller({ idPrefix: 'mine-' });
    const request = peer.request('a', rawJson('{"x":[1]}'));
    await turn();
    assert.deepEqual(received, [{ jsonrpc: '2.0', id: 'mine-1', method: 'a', params: { x: [1] } }]);
    answer({ id: 'mine-1', result: null });
    assert.equal(await request, null);
  });

  test('an error answer is a RemoteError whose words stay out of its details', async () => {
    const { peer, answer } = openCaller();
    const request = peer.request('a');
    answer({ id: 1, error: { code: -32099, message: 'private words', data: { token: 'private' } } });
    const error = await request.catch((thrown: unknown) => thrown);
    assert.ok(error instanceof RemoteError);
    assert.equal(error.code, 'REMOTE_ERROR');
    assert.deepEqual([error.rpcCode, error.remoteMessage, error.data], [-32099, 'private words', { token: 'private' }]);
    assert.deepEqual(error.details, { rpcCode: -32099 });
    assert.doesNotMatch(error.message, /private/);
  });

  test('an error answer that is badly made is still an error; "error": null is not', async () => {
    for (const error of ['text', {}, { code: '1', message: 2 }, 7]) {
      const { peer, answer } = openCaller();
      const request = peer.request('a');
      answer({ id: 1, error });
      await assert.rejects(request, (thrown) => thrown instanceof RemoteError && thrown.rpcCode === 0);
    }
    const { peer, answer } = openCaller();
    const request = peer.request('a');
    answer({ id: 1, result: { fine: true }, error: null });
    assert.deepEqual(await request, { fine: true });
  });

  test('responses to ids that are not ours are ignored', async () => {
    const { peer, received, answer } = openCaller();
    const request = peer.request('a');
    for (const id of [2, '1', null, { id: 1 }, undefined]) answer({ id, result: 'wrong' });
    answer({ id: 1, result: 'right' });
    answer({ id: 1, result: 'late' });
    assert.equal(await request, 'right');
    await turn();
    assert.equal(received.length, 1);
  });

  test('a peer that only calls answers -32601 to requests and goes on', async () => {
    const { peer, received, answer } = openCaller();
    answer({ id: 'theirs', method: 'm'.repeat(10_000) });
    answer({ method: 'note' });
    await turn();
    assert.equal(received.length, 1);
    assert.deepEqual([received[0]?.id, received[0]?.error?.code], ['theirs', -32601]);
    assert.ok(JSON.stringify(received[0]).length < 1000, 'a long name is not echoed whole');
    const request = peer.request('a');
    answer({ id: 1, result: 1 });
    assert.equal(await request, 1);
  });

  test('a request with no answer in time is rejected and cancelled; its late answer is ignored', async () => {
    const { peer, received, answer, timers } = openCaller({ cancelMethod: '$/cancel_request' });
    const request = peer.request('slow', undefined, { timeoutMs: 100 });
    timers.advance(99);
    await turn();
    assert.equal(received.length, 1);
    timers.advance(1);
    await assert.rejects(request, hasCode('CALL_TIMEOUT'));
    answer({ id: 1, result: 'late' });
    await turn();
    assert.deepEqual(received[1], { jsonrpc: '2.0', method: '$/cancel_request', params: { requestId: 1 } });
  });

  test('an answer in time stops the timer', async () => {
    const { peer, answer, timers } = openCaller();
    const request = peer.request('a', undefined, { timeoutMs: 100 });
    answer({ id: 1, result: 1 });
    await request;
    assert.equal(timers.count(), 0);
  });

  test('a request is cancelled by its signal, before or after it was sent', async () => {
    const { peer, received, timers } = openCaller({ cancelMethod: '$/cancel_request' });
    const controller = new AbortController();
    const request = peer.request('slow', undefined, { signal: controller.signal, timeoutMs: 100 });
    controller.abort();
    await assert.rejects(request, hasCode('CALL_CANCELLED'));
    assert.equal(timers.count(), 0);
    await assert.rejects(peer.request('never', {}, { signal: controller.signal }), hasCode('CALL_CANCELLED'));
    await turn();
    assert.deepEqual(
      received.map(({ method }) => method),
      ['slow', '$/cancel_request'],
    );
  });

  test('without a cancel method nothing is sent when a request is given up', async () => {
    const { peer, received } = openCaller();
    const controller = new AbortController();
    const request = peer.request('slow', undefined, { signal: controller.signal });
    controller.abort();
    await assert.rejects(request, hasCode('CALL_CANCELLED'));
    await turn();
    assert.equal(received.length, 1);
  });

  test('the end of the connection rejects what is pending and what comes after', async () => {
    const { peer, far, timers } = openCaller();
    const requests = [peer.request('a', {}, { timeoutMs: 100 }), peer.request('b')];
    far.close(1001, 'going away');
    for (const request of requests) await assert.rejects(request, hasCode('CONNECTION_CLOSED'));
    await assert.rejects(peer.request('c'), hasCode('CONNECTION_CLOSED'));
    assert.equal(timers.count(), 0);
    assert.deepEqual(await peer.closed, { code: 1001, reason: 'going away' });
    peer.notify('nobody');
  });

  test('parameters that JSON cannot hold reject the request and use up no id', async () => {
    const { peer, received, answer } = openCaller();
    await assert.rejects(peer.request('a', { large: 1n }), TypeError);
    const request = peer.request('b');
    await turn();
    assert.equal(received[0]?.id, 1);
    answer({ id: 1, result: 1 });
    assert.equal(await request, 1);
  });

  test('the bare envelope calls and serves without the version member', async () => {
    const [near, far] = createMemoryChannels();
    const peer = createPeer({ ...serving(), envelope: bareEnvelope, channel: near });
    const received: unknown[] = [];
    far.onMessage((text) => received.push(JSON.parse(text)));
    const request = peer.request('initialize', { a: 1 });
    peer.notify('initialized');
    far.send('{"id":1,"result":{"ready":true}}');
    far.send('{"id":0,"method":"echo","params":{"b":2}}');
    assert.deepEqual(await request, { ready: true });
    await turn();
    assert.deepEqual(received, [
      { id: 1, method: 'initialize', params: { a: 1 } },
      { method: 'initialized' },
      { id: 0, result: { b: 2 } },
    ]);
  });
});

describe('a peer that serves', () => {
  test('B-47: calls beyond the limit are answered OVERLOADED until one of the running ends', async () => {
    const gate = Promise.withResolvers<object>();
    const client = openRawClient({
      dispatch: ({ method }) => (method === 'wait' ? gate.promise : {}),
      limits: { callsInFlight: 3 },
    });
    for (const id of [1, 2, 3]) assert.deepEqual(await client.exchange(call(id, 'wait')), []);
    for (const method of ['wait', 'fast']) {
      const [refusal] = await client.exchange(call(4, method));
      assertFailure(refusal, -32020, 'OVERLOADED', 4);
    }
    gate.resolve({});
    assert.equal((await client.exchange({ jsonrpc: '2.0', method: 'fast' })).length, 3);
    assert.equal(((await client.exchange(call(5, 'fast')))[0] as Message).ok, true);
  });

  test('B-47: notifications and calls in batches count as calls in flight', async () => {
    const client = openRawClient({ dispatch: () => new Promise(() => undefined), limits: { callsInFlight: 2 } });
    client.send({ jsonrpc: '2.0', method: 'wait' });
    client.send([{ jsonrpc: '2.0', method: 'wait' }]);
    assertFailure((await client.exchange(call(1, 'wait')))[0], -32020, 'OVERLOADED', 1);
  });

  test('a slow call does not hold up the ones after it', async () => {
    const gate = Promise.withResolvers<object>();
    const client = openRawClient({ dispatch: ({ method }) => (method === 'wait' ? gate.promise : {}) });
    client.send(call(1, 'wait'));
    assert.deepEqual(
      ((await client.exchange(call(2, 'fast'))) as Message[]).map(({ id }) => id),
      [2],
    );
    gate.resolve({});
    assert.deepEqual(((await client.exchange(call(3, 'fast'))) as Message[]).map(({ id }) => id).sort(), [1, 3]);
  });

  test('the cancel notification aborts the call of that id alone, and is itself never answered', async () => {
    const calls: MethodCall<string>[] = [];
    const client = openRawClient({
      cancelMethod: '$/cancel_request',
      dispatch(incoming) {
        calls.push(incoming);
        return new Promise((_, reject) => {
          incoming.signal.addEventListener('abort', () => reject(incoming.signal.reason));
        });
      },
    });
    for (const id of [1, '1', 2]) client.send(call(id, 'wait'));
    for (const params of [undefined, [], {}, { requestId: 99 }, { requestId: null }]) {
      assert.deepEqual(await client.exchange({ jsonrpc: '2.0', method: '$/cancel_request', params }), []);
    }
    const answers = await client.exchange({ jsonrpc: '2.0', method: '$/cancel_request', params: { requestId: '1' } });
    assert.equal(answers.length, 1);
    assertFailure(answers[0], -32603, 'CALL_CANCELLED', '1');
    assert.deepEqual(
      calls.map(({ signal }) => signal.aborted),
      [false, true, false],
    );
  });

  test('a library that throws its own abort error counts as cancelled, and is not reported', async () => {
    const options = serving(({ signal }) => {
      return new Promise((_, reject) => {
        signal.addEventListener('abort', () => reject(new DOMException('stopped', 'AbortError')));
      });
    });
    const client = openRawClient({ ...options, cancelMethod: 'cancel' });
    client.send(call(1, 'wait'));
    const [answer] = await client.exchange({ jsonrpc: '2.0', method: 'cancel', params: { requestId: 1 } });
    assertFailure(answer, -32603, 'CALL_CANCELLED', 1);
    assert.deepEqual(options.unexpected, []);
  });

  test('the end of the connection aborts the running calls, also for handlers that look at the signal later', async () => {
    const gate = Promise.withResolvers<void>();
    const seen: unknown[] = [];
    const client = openRawClient({
      async dispatch(incoming) {
        if (incoming.method === 'early') incoming.signal.addEventListener('abort', () => seen.push('early'));
        await gate.promise;
        seen.push(incoming.signal.aborted, (incoming.signal.reason as AppError).code);
        incoming.notify('nobody', {});
      },
    });
    client.send(call(1, 'early'));
    await client.exchange(call(2, 'late'));
    client.channel.close(1001);
    gate.resolve();
    await turn();
    assert.deepEqual(seen, ['early', true, 'CONNECTION_CLOSED', true, 'CONNECTION_CLOSED']);
    assert.deepEqual(client.received, []);
  });

  test('a handler sees the caller, its id and one request id for the whole call', async () => {
    let made = 0;
    const seen: unknown[] = [];
    const client = openRawClient({
      makeRequestId: () => `made-${++made}`,
      dispatch(incoming) {
        if (incoming.method === 'look') seen.push(incoming.caller, incoming.id, incoming.requestId, incoming.requestId);
        return {};
      },
    });
    await client.exchange(call(1, 'ignore'));
    await client.exchange(call('x', 'look'));
    assert.deepEqual(seen, ['someone', 'x', 'made-1', 'made-1']);
  });

  test('closing tells the other side why', async () => {
    const client = openRawClient();
    const ended = new Promise((resolve) => client.channel.onEnd(resolve));
    client.peer.close(1008, 'no longer allowed');
    assert.deepEqual(await ended, { code: 1008, reason: 'no longer allowed' });
    assert.deepEqual(await client.peer.closed, { code: 1008, reason: 'no longer allowed' });
  });
});
