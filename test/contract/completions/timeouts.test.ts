import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { describe, test } from 'node:test';
import { HELLO, labAt, parseStream, startCompletions } from '../../kit/completions/start-completions.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import {
  answers,
  completionOf,
  eventsOf,
  refuses,
  saysNothing,
  startScriptedUpstream,
} from '../../kit/scripted-upstream.ts';
import { until } from '../../kit/until.ts';

const MINUTE_MS = 60_000;
const codeOf = async (response: Response) => ((await response.json()) as { error: { code: string } }).error.code;

/** A response whose body is read as it comes. */
async function openText(url: string, path: string, body: object) {
  const request = httpRequest(`${url}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' } });
  request.end(JSON.stringify(body));
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const read = { text: '', ended: false };
  response.setEncoding('utf8').on('data', (piece: string) => {
    read.text += piece;
  });
  response.on('end', () => {
    read.ended = true;
  });
  return { response, read };
}

test('DC-3: a model that thinks for nine minutes is not cut off, streamed or not', async (t) => {
  for (const stream of [false, true]) {
    const clock = createFakeClock();
    let answer: () => void = () => undefined;
    const upstream = await startScriptedUpstream(t, (response, request) => {
      answer = () =>
        stream ? response.end(eventsOf(['thought']).join('')) : answers(completionOf('thought'))(response, request);
      if (stream) response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    });
    const { post } = await startCompletions(t, { clock, settings: labAt(upstream.url) });
    const running = post('/v1/chat/completions', { ...HELLO, stream });
    await until('the request', () => upstream.requests.length === 1);
    for (let minute = 0; minute < 9; minute += 1) await clock.advance(MINUTE_MS);
    answer();
    const response = await running;
    assert.equal(response.status, 200);
    assert.match(await response.text(), /thought/);
    assert.equal(upstream.requests.length, 1);
  }
});

test('DC-3: without an answer the default limit is ten minutes, and a timeout is not retried', async (t) => {
  const clock = createFakeClock();
  const upstream = await startScriptedUpstream(t, saysNothing);
  const { post } = await startCompletions(t, { clock, settings: labAt(upstream.url) });
  const running = post('/v1/chat/completions', HELLO);
  await until('the request', () => upstream.requests.length === 1);
  await clock.advance(10 * MINUTE_MS + 100);
  const response = await running;
  assert.equal(response.status, 504);
  assert.equal(await codeOf(response), 'upstream_timeout');
  assert.equal(response.headers.get('x-attempts'), '1');
});

describe('DC-3: a limit of an alias wins over that of the API, and that over the one for all', () => {
  const cases = [
    ['all', 'lab/x', { timeouts: { first_byte: '60ms' } }],
    ['the API', 'lab/x', { timeouts: { first_byte: '1h' }, api: { first_byte: '60ms' } }],
    ['the alias', 'm', { timeouts: { first_byte: '1h' }, api: { first_byte: '1h' }, alias: { first_byte: '60ms' } }],
  ] as const;
  for (const [what, model, limits] of cases) {
    test(`DC-3: the limit of ${what} applies`, async (t) => {
      const upstream = await startScriptedUpstream(t, saysNothing);
      const { api = {}, alias = {} } = limits as { api?: object; alias?: object };
      const { post } = await startCompletions(t, {
        settings: {
          timeouts: limits.timeouts,
          apis: { lab: { base_url: upstream.url, timeouts: api } },
          models: [{ name: 'm', targets: [{ model: 'lab/x' }], timeouts: alias }],
        },
      });
      const response = await post('/v1/chat/completions', { ...HELLO, model });
      assert.equal(response.status, 504);
      assert.match(await response.text(), /first_byte/);
    });
  }
});

describe('DC-3: a request may set a shorter limit with x-timeout-ms', () => {
  const messages = [{ role: 'user', content: 'Hello' }];
  const paths = [
    ['/v1/chat/completions', { messages }],
    ['/v1/chat/completions', { messages, stream: true }],
    ['/v1/completions', { prompt: 'Hello' }],
    ['/v1/embeddings', { input: 'Hello' }],
    ['/v1/messages', { messages, max_tokens: 5 }],
    ['/v1/responses', { input: 'Hello' }],
  ] as const;
  for (const [path, body] of paths) {
    test(`DC-3: x-timeout-ms ends a call of ${path}${'stream' in body ? ', streamed' : ''}`, async (t) => {
      const upstream = await startScriptedUpstream(t, saysNothing);
      const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
      const call = (limit: string) => post(path, { model: 'lab/x', ...body }, { headers: { 'x-timeout-ms': limit } });
      const response = await call('80');
      assert.equal(response.status, 504);
      assert.match(await response.text(), /x-timeout-ms/);
      assert.equal(response.headers.get('x-attempts'), '1');
      for (const wrong of ['0', '-1', 'soon', '1.5']) assert.equal((await call(wrong)).status, 400, wrong);
    });
  }
});

describe('DC-3: after 15 s of silence a stream gets headers and comments, and can still fall back', () => {
  const messages = [{ role: 'user', content: 'Hello' }];
  const paths = [
    ['/v1/chat/completions', { messages }],
    ['/v1/completions', { prompt: 'Hello' }],
    ['/v1/messages', { messages, max_tokens: 5 }],
    ['/v1/responses', { input: 'Hello' }],
  ] as const;
  for (const [path, body] of paths) {
    test(`DC-3: a silent stream of ${path} is kept alive, then answered by the fallback`, async (t) => {
      const clock = createFakeClock();
      let fail: () => void = () => undefined;
      const slow = await startScriptedUpstream(t, (response, request) => {
        fail = () => refuses(500)(response, request);
      });
      const { url } = await startCompletions(t, {
        clock,
        settings: labAt(slow.url, {
          models: [{ name: 'm', targets: [{ model: 'lab/x' }], retries: 0, fallbacks: ['demo/echo'] }],
        }),
      });
      const opening = openText(url, path, { model: 'm', stream: true, ...body });
      await until('the request', () => slow.requests.length === 1);
      await clock.advance(15_000);
      const { response, read } = await opening;
      assert.equal(response.statusCode, 200);
      await until('a comment', () => read.text.includes(': keep-alive'));
      await clock.advance(15_000);
      await until('the next comment', () => read.text.split(': keep-alive').length === 3);
      fail();
      await until('the end', () => read.ended);
      assert.match(read.text, /Hello/);
      assert.doesNotMatch(read.text, /event: error|response\.failed|"error":\{/);
    });

    test(`DC-3: a silent stream of ${path} that fails later ends with an error event`, async (t) => {
      const clock = createFakeClock();
      const upstream = await startScriptedUpstream(t, saysNothing);
      const { url } = await startCompletions(t, { clock, settings: labAt(upstream.url) });
      const opening = openText(url, path, { model: 'lab/x', stream: true, ...body });
      await until('the request', () => upstream.requests.length === 1);
      await clock.advance(15_000);
      const { read } = await opening;
      for (let minute = 0; minute < 10; minute += 1) await clock.advance(MINUTE_MS);
      await until('the end', () => read.ended);
      assert.match(read.text, /first_byte/);
      assert.ok(!read.text.includes('[DONE]'));
    });
  }
});

test('DC-3: comments of an upstream do not prolong the wait for its first event', async (t) => {
  const upstream = await startScriptedUpstream(t, async (response, { closed }) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    const timer = setInterval(() => response.write(': still here\n\n'), 10);
    await closed;
    clearInterval(timer);
  });
  const { post } = await startCompletions(t, {
    settings: labAt(upstream.url, { timeouts: { first_byte: '150ms' } }),
  });
  const response = await post('/v1/chat/completions', { ...HELLO, stream: true });
  assert.equal(response.status, 504);
  assert.match(await response.text(), /first_byte/);
});

test('DC-3: between two pieces a stream may be silent for less than five minutes', async (t) => {
  const clock = createFakeClock();
  let go: () => void = () => undefined;
  const events = eventsOf(['one', ' two']);
  const upstream = await startScriptedUpstream(t, (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(events.slice(0, 2).join(''));
    go = () => response.end(events.slice(2).join(''));
  });
  const { url } = await startCompletions(t, { clock, settings: labAt(upstream.url) });
  const { read } = await openText(url, '/v1/chat/completions', { ...HELLO, stream: true });
  await until('the first word', () => read.text.includes('one'));
  await clock.advance(4 * MINUTE_MS);
  go();
  await until('the end', () => read.ended);
  assert.equal(parseStream(read.text.replaceAll(': keep-alive\n\n', '')).text, 'one two');
});
