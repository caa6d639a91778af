import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, LAB_KEY, labAt, readStream, startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  completionOf,
  diesAfter,
  eventsOf,
  refuses,
  startScriptedUpstream,
} from '../../kit/scripted-upstream.ts';
import { startProcessorTime } from '../../kit/time.ts';

interface ApiError {
  readonly error: { message: string; type: string; param: string | null; code: string };
}
const errorOf = async (response: Response) => ((await response.json()) as ApiError).error;

test('P-19: what is missing or of the wrong type is 400 and names the field', async (t) => {
  const { post } = await startCompletions(t);
  const cases: [string, object, string][] = [
    ['/v1/chat/completions', { messages: HELLO.messages }, 'model'],
    ['/v1/chat/completions', { model: 'demo/echo' }, 'messages'],
    ['/v1/chat/completions', { model: 'demo/echo', messages: [] }, 'messages'],
    ['/chat/completions', { ...HELLO, messages: 'Hello' }, 'messages'],
    ['/v1/chat/completions', { ...HELLO, stream: 'yes' }, 'stream'],
    ['/v1/chat/completions', { ...HELLO, stop: ['1', '2', '3', '4', '5'] }, 'stop'],
    ['/v1/completions', { model: 'demo/echo' }, 'prompt'],
    ['/v1/embeddings', { model: 'demo/echo' }, 'input'],
  ];
  for (const [path, body, param] of cases) {
    const response = await post(path, body);
    assert.equal(response.status, 400);
    const error = await errorOf(response);
    assert.deepEqual(Object.keys(error), ['message', 'type', 'param', 'code']);
    assert.equal(error.param, param, JSON.stringify(error));
    assert.equal(error.type, 'invalid_request_error');
  }
  const unreadable = await post('/v1/chat/completions', '{"model":');
  assert.equal(unreadable.status, 400);
});

test('P-19: an unknown model is 404 with the nearest names', async (t) => {
  const { post } = await startCompletions(t, {
    settings: { models: [{ name: 'fast', targets: [{ model: 'demo/echo' }] }] },
  });
  for (const [model, nearest] of [
    ['fats', 'fast'],
    ['demo/ecko', 'demo/echo'],
    ['echo', 'demo/echo'],
    ['nobody/nothing', 'trestle models'],
    ['x'.repeat(5000), 'trestle models'],
    ['openai/gpt-4o', 'set OPENAI_API_KEY'],
  ] as const) {
    const response = await post('/v1/chat/completions', { ...HELLO, model });
    assert.equal(response.status, 404, model);
    const { code, message } = await errorOf(response);
    assert.equal(code, 'model_not_found');
    assert.ok(message.includes(nearest), message);
    assert.ok(message.length < 500);
  }
});

test('P-21: numbers out of their bounds are 400', async (t) => {
  const { post } = await startCompletions(t);
  for (const field of [
    { temperature: -0.1 },
    { temperature: 2.1 },
    { top_p: 1.5 },
    { n: 0 },
    { n: 1e9 },
    { n: 1.5 },
    { max_tokens: -1 },
    { max_tokens: 0 },
    { max_completion_tokens: -5 },
    { presence_penalty: 2.5 },
    { frequency_penalty: -3 },
  ]) {
    const response = await post('/v1/chat/completions', { ...HELLO, model: 'demo/echo', ...field });
    assert.equal(response.status, 400, JSON.stringify(field));
    assert.equal((await errorOf(response)).param, Object.keys(field)[0]);
  }
});

test('P-23: a body above the limit is 413, and 50,000 messages are refused immediately', async (t) => {
  const { post } = await startCompletions(t, { settings: { max_request_bytes: 10 * 1024 * 1024 } });
  const large = { ...HELLO, messages: [{ role: 'user', content: 'x'.repeat(10 * 1024 * 1024) }] };
  const tooLarge = await post('/v1/chat/completions', large);
  assert.equal(tooLarge.status, 413);
  assert.equal((await errorOf(tooLarge)).code, 'body_too_large');
  const many = JSON.stringify({ ...HELLO, messages: new Array(50_000).fill({ role: 'user', content: 'x' }) });
  await (await post('/v1/chat/completions', HELLO)).text();
  const processorTime = startProcessorTime();
  const refused = await post('/v1/chat/completions', many);
  assert.ok(processorTime() < 1000);
  assert.equal(refused.status, 400);
});

test('P-29: neither prompts nor answers nor keys are logged, whatever happens', async (t) => {
  const secret = 'SECRET-WORDS';
  const upstream = await startScriptedUpstream(t);
  const { post, log } = await startCompletions(t, { settings: labAt(upstream.url) });
  const ask = { ...HELLO, messages: [{ role: 'user', content: secret }] };
  upstream.script(answers(completionOf(secret)));
  await (await post('/v1/chat/completions', ask)).text();
  upstream.script(diesAfter(eventsOf([secret]).slice(0, 2)));
  await readStream(await post('/v1/chat/completions', { ...ask, stream: true }));
  upstream.script(refuses(500, `${secret} ${LAB_KEY}`));
  const failed = await (await post('/v1/chat/completions', ask)).text();
  upstream.script(refuses(400, `bad key ${LAB_KEY}`));
  await (await post('/v1/chat/completions', ask)).text();
  assert.ok(!log().includes(secret));
  assert.ok(!log().includes(LAB_KEY));
  assert.ok(!failed.includes(LAB_KEY), 'a key that the upstream repeats is hidden');
  assert.ok(!failed.includes('node:'), 'no stack');
});

test('P-38: a good request id is taken over, returned and logged', async (t) => {
  const { post, log } = await startCompletions(t);
  const body = { ...HELLO, model: 'demo/echo' };
  for (const stream of [false, true]) {
    const response = await post(
      '/v1/chat/completions',
      { ...body, stream },
      { headers: { 'x-request-id': 'mine_1-a' } },
    );
    await response.text();
    assert.equal(response.headers.get('x-request-id'), 'mine_1-a');
  }
  assert.match(log(), /mine_1-a/);
  const bad = await post('/v1/chat/completions', body, { headers: { 'x-request-id': 'a b' } });
  assert.match(bad.headers.get('x-request-id') ?? '', /^[A-Za-z0-9_-]{1,128}$/);
});

test('a key learns nothing of models that it may not use, and its limits are not touched', async (t) => {
  const master = 'master-key-9d8f7a6b5c4e';
  const models = [{ name: 'secret-alias', targets: [{ model: 'demo/echo' }] }];
  const { url, post } = await startCompletions(t, { settings: { master_key: master, models } });
  const issued = await fetch(`${url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${master}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'narrow', models: ['demo/echo'], requests_per_minute: 1 }),
  });
  const { key } = (await issued.json()) as { key: string };
  const headers = { authorization: `Bearer ${key}` };
  for (const model of ['secret-alias', 'secret-alia', 'nobody/nothing']) {
    const response = await post('/v1/chat/completions', { ...HELLO, model }, { headers });
    assert.equal(response.status, 403, model);
    const { code, message } = await errorOf(response);
    assert.equal(code, 'model_not_allowed');
    assert.ok(model === 'secret-alias' || !message.includes('secret-alias'), message);
  }
  const allowed = await post('/v1/chat/completions', { ...HELLO, model: 'demo/echo' }, { headers });
  assert.equal(allowed.status, 200);
});

test('a used-up budget is 402 without /v1, and insufficient_quota as 429 under it', async (t) => {
  const master = 'master-key-9d8f7a6b5c4e';
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const { url, post } = await startCompletions(t, {
    settings: labAt(upstream.url, { master_key: master, prices: { 'lab/small': { input: 0.5, output: 0.5 } } }),
  });
  const issued = await fetch(`${url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${master}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'poor', budget: { usd: 1, period: 'day' } }),
  });
  const { key } = (await issued.json()) as { key: string };
  const headers = { authorization: `Bearer ${key}` };
  const plain = await post('/chat/completions', HELLO, { headers });
  assert.equal(plain.status, 402);
  assert.equal((await errorOf(plain)).code, 'budget_exceeded');
  const openai = await post('/v1/chat/completions', HELLO, { headers });
  assert.equal(openai.status, 429);
  const error = await errorOf(openai);
  assert.equal(error.code, 'insufficient_quota');
  assert.equal(error.type, 'insufficient_quota');
});
