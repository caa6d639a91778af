import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, labAt, startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

const errorOf = async (response: Response) =>
  ((await response.json()) as { readonly error: { message: string; code: string } }).error;

/** One target without retries, so that a test sees what a single failure does. */
const once = (url: string, alias: object = {}) =>
  labAt(url, { models: [{ name: 'once', targets: [{ model: 'lab/small' }], retries: 0, ...alias }] });
const ONCE = { ...HELLO, model: 'once' };

test('P-07: a whole answer that is cut is a failure, with any length and wherever its usage is', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const { post, usage: recorded } = await startCompletions(t, { settings: once(upstream.url) });
  const { usage, ...rest } = completionOf('one } two') as { usage: object };
  const whole = JSON.stringify({ ...rest, usage, service_tier: 'default', tail: [{ a: '}' }] });
  const ends = [2, 6, 40, whole.length - whole.indexOf('"usage"') - 10, whole.length - whole.indexOf('one')];
  const cuts = ends.map((end) => whole.slice(0, -end));
  const first = JSON.stringify({ usage, ...rest });
  cuts.push(first.slice(0, -4), JSON.stringify({ usage, ...completionOf('x'.repeat(9000)) }).slice(0, -1));
  const nested = JSON.stringify({ x_groq: { usage }, ...rest });
  cuts.push(`${JSON.stringify(completionOf('twice'))}{}`, nested.slice(0, -1));
  for (const cut of cuts) {
    upstream.script(answers(cut));
    const response = await post('/v1/chat/completions', ONCE);
    assert.equal(response.status, 502, cut.slice(-60));
    assert.equal((await errorOf(response)).code, 'upstream_error');
  }
  for (const uncut of [whole, first, nested, `${whole} \r\n`]) {
    upstream.script(answers(uncut));
    const response = await post('/v1/chat/completions', ONCE);
    assert.equal(response.status, 200, uncut.slice(-60));
    assert.equal(await response.text(), uncut);
  }
  const { total } = await recorded();
  assert.equal(total.errors, cuts.length);

  for (const path of ['/v1/completions', '/v1/embeddings', '/v1/images/generations']) {
    const data = path.endsWith('completions')
      ? { choices: [{ index: 0, text: 'Hi', finish_reason: 'stop' }] }
      : { data: [{ index: 0, embedding: [0.1, 0.2], b64_json: 'aQ==' }] };
    const body = { ...ONCE, prompt: 'Hello', input: 'Hello' };
    for (const text of [JSON.stringify({ object: 'list', ...data }), JSON.stringify({ ...data, usage, tail: {} })]) {
      for (const end of [1, 2, 3]) {
        upstream.script(answers(text.slice(0, -end)));
        assert.equal((await post(path, body)).status, 502, `${path} ${text.slice(0, -end)}`);
      }
      upstream.script(answers(`${text}\n`));
      const response = await post(path, body);
      assert.equal(await response.text(), `${text}\n`);
      assert.equal(response.status, 200, path);
    }
  }
});

test('a refusal whose text trickles is answered after three seconds, with its status', async (t) => {
  const upstream = await startScriptedUpstream(t, async (response, { closed }) => {
    response.writeHead(429, { 'content-type': 'text/plain', 'retry-after': '7200' });
    const timer = setInterval(() => response.write('busy '), 20);
    await closed;
    clearInterval(timer);
  });
  const { post } = await startCompletions(t, { settings: once(upstream.url, { timeouts: { total: '20s' } }) });
  const given = await Promise.all([false, true].map((stream) => post('/v1/chat/completions', { ...ONCE, stream })));
  for (const response of given) {
    assert.equal(response.status, 429);
    assert.equal(response.headers.get('retry-after'), '7200');
    assert.match((await errorOf(response)).message, /^busy busy/);
  }
  await Promise.all(upstream.requests.map(({ closed }) => closed));
});

test('an upstream whose status is not one of HTTP is an error that names the status', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const { post } = await startCompletions(t, { settings: once(upstream.url) });
  for (const status of [600, 799, 999]) {
    upstream.script(answers({ error: { message: 'odd' } }, status));
    for (const stream of [false, true]) {
      const response = await post('/v1/chat/completions', { ...ONCE, stream });
      assert.equal(response.status, 502);
      const { code, message } = await errorOf(response);
      assert.equal(code, 'upstream_error');
      assert.match(message, new RegExp(`status ${status}\\b`));
    }
  }
});

test('calls in an odd form end the call, also for the older way to call functions', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const { post, usage: recorded } = await startCompletions(t, { settings: once(upstream.url) });
  const odd = [{}, 'x', [null], [5], [{ function: null }]];
  for (const calls of odd) {
    const message = { role: 'assistant', content: 'Hi', tool_calls: calls };
    upstream.script(answers(completionOf('Hi', { choices: [{ index: 0, message, finish_reason: 'stop' }] })));
    const response = await post('/v1/chat/completions', { ...ONCE, functions: [{ name: 'get' }] });
    assert.equal(response.status, 200, JSON.stringify(calls));
    const { choices } = (await response.json()) as { choices: { message: object }[] };
    assert.deepEqual(choices[0]?.message, { role: 'assistant', content: 'Hi' });
  }
  assert.equal((await recorded()).total.requests, odd.length);
});

test('an answer that cannot be translated back says which API gave it', async (t) => {
  const call = { id: 'call_1', type: 'function', function: { name: 'get', arguments: '{"a":' } };
  const message = { role: 'assistant', content: null, tool_calls: [call] };
  const choices = [{ index: 0, message, finish_reason: 'tool_calls' }];
  const upstream = await startScriptedUpstream(t, answers(completionOf('', { choices })));
  const { post } = await startCompletions(t, { settings: once(upstream.url) });
  const response = await post('/v1/messages', { ...ONCE, max_tokens: 9 });
  assert.equal(response.status, 502);
  assert.equal(response.headers.get('x-model-api'), 'lab');
  assert.equal(response.headers.get('x-attempts'), '1');
});
