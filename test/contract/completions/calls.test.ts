import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { labAt, startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  completionOf,
  eventsOf,
  refuses,
  saysNothing,
  startScriptedUpstream,
  streams,
} from '../../kit/scripted-upstream.ts';
import { until } from '../../kit/until.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const MASTER = 'master-key-of-the-calls-1';

test('DC-10: every call is in the log, with its failed attempts, tokens by kind, cost, and its content where that is stored', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const at = { base_url: upstream.url, api_key: 'key-1' };
  const { url, post } = await startCompletions(t, {
    settings: {
      master_key: MASTER,
      store_content: true,
      apis: { a: { ...at, dialect: 'openai' }, b: { ...at, dialect: 'openai' } },
      models: [{ name: 'one', targets: [{ model: 'a/m' }], fallbacks: ['b/m'], retries: 1 }],
      prices: { 'b/m': { input: 0.001, output: 0.01, cache_read: 0 } },
    },
  });
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  const get = async (path: string, key = MASTER): Promise<{ status: number; body: Json }> => {
    const response = await fetch(`${url}${path}`, { headers: as(key) });
    return { status: response.status, body: await response.json() };
  };
  const newKey = async () =>
    (await (await post('/v1/keys', { name: 'one' }, { headers: as(MASTER) })).json()) as Json as {
      id: string;
      key: string;
    };
  const [mine, theirs] = [await newKey(), await newKey()];
  const usage = {
    prompt_tokens: 100,
    completion_tokens: 20,
    total_tokens: 120,
    prompt_tokens_details: { cached_tokens: 90 },
    completion_tokens_details: { reasoning_tokens: 15 },
  };
  upstream.script(refuses(500), refuses(503), answers(completionOf('Hi', { usage })));
  const ask = { model: 'one', messages: [{ role: 'user', content: 'Hello' }] };
  const answer = await post('/v1/chat/completions', ask, {
    headers: { ...as(mine.key), 'x-request-id': 'my-request' },
  });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get('x-cost-usd'), '0.21');
  const said = await answer.text();

  const found = (await get('/v1/usage/calls?request_id=my-request', mine.key)).body;
  assert.deepEqual([found.object, found.data.length, found.has_more], ['list', 1, false]);
  const [call] = found.data;
  assert.deepEqual(
    [call.key, call.model, call.api, call.upstream_model, call.outcome, call.status, call.attempts, call.cost_usd],
    [mine.id, 'one', 'b', 'm', 'ok', 200, 3, 0.21],
  );
  assert.deepEqual(call.usage, {
    prompt_tokens: 100,
    completion_tokens: 20,
    cached_tokens: 90,
    cache_write_tokens: 0,
    reasoning_tokens: 15,
    estimated: false,
  });
  const { body: details } = await get(`/usage/calls/${call.id}`, mine.key);
  assert.deepEqual(
    details.failed_attempts.map(({ target, code }: Json) => [target, code]),
    [
      ['a/m', 'upstream_error'],
      ['a/m', 'upstream_error'],
    ],
  );
  assert.deepEqual(details.content, { request: JSON.stringify(ask), response: said });
  assert.equal((await get(`/v1/usage/calls/${call.id}`)).status, 200);

  const hidden = await get(`/v1/usage/calls/${call.id}`, theirs.key);
  assert.deepEqual([hidden.status, hidden.body.error.code], [404, 'call_not_found']);
  assert.deepEqual((await get('/v1/usage/calls', theirs.key)).body.data, []);
  upstream.script(refuses(400));
  await post('/v1/messages', { ...ask, model: 'a/m', max_tokens: 5 }, { headers: as(theirs.key) });
  const failed = (await get('/v1/usage/calls?outcome=error&api=a')).body.data;
  assert.deepEqual(
    failed.map(({ key, status }: Json) => [key, status]),
    [[theirs.id, 400]],
  );
  for (const wrong of ['limit=0', 'limit=501', 'outcome=odd', 'from=never', 'min_duration_ms=x']) {
    assert.equal((await get(`/v1/usage/calls?${wrong}`)).status, 400, wrong);
  }
});

test('a complete response says what it cost, in every API; a stream, a failure and an unknown price say nothing', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('Hi')));
  const { post } = await startCompletions(t, {
    settings: labAt(upstream.url, { prices: { 'lab/small': { input: 0.000001, output: 0.0000001 } } }),
  });
  const costOf = async (path: string, body: object) => {
    const response = await post(path, body);
    await response.text();
    return response.headers.get('x-cost-usd');
  };
  const [model, messages] = ['lab/small', [{ role: 'user', content: 'Hello' }]];
  const chat = { model, messages };
  // 11 tokens of prompt and 7 of the answer.
  for (const [path, body] of [
    ['/chat/completions', chat],
    ['/v1/chat/completions', chat],
    ['/v1/completions', { model, prompt: 'Hello' }],
    ['/v1/messages', { ...chat, max_tokens: 9 }],
    ['/v1/responses', { model, input: 'Hello' }],
  ] as const) {
    assert.equal(await costOf(path, body), '0.0000117', path);
  }
  assert.equal(await costOf('/v1/chat/completions', { ...chat, model: 'demo/echo' }), '0');
  assert.equal(await costOf('/v1/chat/completions', { ...chat, model: 'lab/other' }), null);
  assert.equal(await costOf('/v1/chat/completions', { ...chat, model: 'demo/echo', stream: true }), null);
  upstream.script(refuses(400));
  assert.equal(await costOf('/v1/chat/completions', chat), null);
});

test('with usage_cost the usage of translated answers under /v1 has what the call cost, whole and streamed; bytes and the document paths never', async (t) => {
  const claude = { id: 'msg_1', type: 'message', role: 'assistant', model: 'c', stop_reason: 'end_turn' };
  const whole = {
    ...claude,
    content: [{ type: 'text', text: 'Hi' }],
    usage: { input_tokens: 10, output_tokens: 2 },
  };
  const upstream = await startScriptedUpstream(t, answers(whole));
  const at = { base_url: upstream.url, api_key: 'key-1' };
  const settings = {
    apis: { claude: { ...at, dialect: 'anthropic' }, lab: { ...at, dialect: 'openai' } },
    prices: {
      'claude/c': { input: 0.001, output: 0.1, cache_read: 0 },
      'lab/small': { input: 0.001, output: 0.1 },
    },
  };
  const { post } = await startCompletions(t, { settings: { ...settings, usage_cost: true } });
  const { post: postWithout } = await startCompletions(t, { settings });
  const messages = [{ role: 'user', content: 'Hello' }];
  const usageOf = async (send: typeof post, path: string, body: object): Promise<Json> =>
    ((await (await send(path, body)).json()) as Json).usage;
  const chat = { model: 'claude/c', messages };
  assert.equal((await usageOf(post, '/v1/chat/completions', chat)).cost, 0.21);
  assert.equal((await usageOf(post, '/v1/completions', { model: 'claude/c', prompt: 'Hello' })).cost, 0.21);
  assert.equal((await usageOf(post, '/v1/responses', { model: 'claude/c', input: 'Hello' })).cost, 0.21);
  // Claude has no such service, so it costs nothing more.
  const sooner = { ...chat, service_tier: 'priority' };
  assert.equal((await usageOf(post, '/v1/chat/completions', sooner)).cost, 0.21);
  const response = { model: 'claude/c', input: 'Hello', service_tier: 'priority' };
  assert.equal((await usageOf(post, '/v1/responses', response)).cost, 0.21);
  assert.equal((await usageOf(post, '/v1/chat/completions', { model: 'demo/echo', messages })).cost, 0);
  assert.equal('cost' in (await usageOf(post, '/v1/chat/completions', { ...chat, model: 'claude/other' })), false);
  assert.equal('cost' in (await usageOf(post, '/chat/completions', chat)), false);
  assert.equal('cost' in (await usageOf(post, '/completions', { model: 'claude/c', prompt: 'Hello' })), false);
  assert.equal('cost' in (await usageOf(postWithout, '/v1/chat/completions', chat)), false);
  // In a lane the bytes stay as they are.
  assert.deepEqual(await usageOf(post, '/v1/messages', { ...chat, max_tokens: 9 }), whole.usage);

  upstream.script(streams(eventsOf(['Hi'])));
  const streamed = await post('/v1/messages', { model: 'lab/small', messages, max_tokens: 9, stream: true });
  assert.match(await streamed.text(), /"usage":\{[^}]*"output_tokens":7[^}]*"cost":0\.711\}/);
});

test('a key with max_parallel gets 429 while its calls run; one that the caller leaves makes room', async (t) => {
  const upstream = await startScriptedUpstream(t, saysNothing);
  const { post } = await startCompletions(t, { settings: labAt(upstream.url, { master_key: MASTER }) });
  const asMaster = { authorization: `Bearer ${MASTER}` };
  const { key } = (await (await post('/keys', { name: 'one', max_parallel: 1 }, { headers: asMaster })).json()) as Json;
  const headers = { authorization: `Bearer ${key}` };
  const chat = { model: 'lab/small', messages: [{ role: 'user', content: 'Hello' }] };
  const leaving = new AbortController();
  const running = post('/v1/chat/completions', chat, { headers, signal: leaving.signal }).catch(() => undefined);
  await until('the first call to be at the upstream', () => upstream.requests.length === 1);
  const refused = await post('/v1/chat/completions', chat, { headers });
  assert.deepEqual([refused.status, refused.headers.get('retry-after')], [429, '1']);
  assert.equal(((await refused.json()) as Json).error.code, 'too_many_parallel_calls');
  leaving.abort();
  await running;
  upstream.script(...Array.from({ length: 50 }, () => answers(completionOf('Hi'))));
  await until('the place to be free', async () => {
    return (await post('/v1/chat/completions', chat, { headers })).status === 200;
  });
});

test('targets: a key sees the aliases that it may use and how their models fare; models that others named are for the operator', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const { url, post } = await startCompletions(t, {
    settings: {
      master_key: MASTER,
      apis: { lab: { base_url: upstream.url, api_key: 'key-1', dialect: 'openai' } },
      models: [
        { name: 'fast', targets: [{ model: 'lab/small', weight: 3 }], fallbacks: ['lab/large'] },
        { name: 'hidden', targets: [{ model: 'lab/hidden' }] },
      ],
    },
  });
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  const made = await post('/v1/keys', { name: 'one', models: ['fast'] }, { headers: as(MASTER) });
  const { key } = (await made.json()) as Json;
  for (const model of ['fast', 'hidden', 'lab/secret-project']) {
    const answer = await post(
      '/v1/chat/completions',
      { model, messages: [{ role: 'user', content: 'Hi' }] },
      { headers: as(MASTER) },
    );
    assert.equal(answer.status, 200);
  }
  const read = async (credential: string): Promise<Json> =>
    (await fetch(`${url}/v1/targets`, { headers: as(credential) })).json();
  assert.deepEqual(await read(key), {
    object: 'list',
    data: [{ target: 'lab/small', state: 'closed', in_flight: 0 }],
    aliases: [
      {
        name: 'fast',
        strategy: 'weighted',
        targets: [{ target: 'lab/small', weight: 3, priority: 1 }],
        fallbacks: ['lab/large'],
      },
    ],
  });
  const all = await read(MASTER);
  const names = all.data.map(({ target }: Json) => target).sort();
  assert.deepEqual(names, ['lab/hidden', 'lab/secret-project', 'lab/small']);
});

test('an alert of a budget reaches the log and the operator’s address, which may fail at first', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('Hi')));
  const receiver = await startScriptedUpstream(t, refuses(503), answers({}));
  const alerts = { url: `${receiver.origin}/alerts`, token: 'token-of-the-alerts-1' };
  const prices = { 'lab/small': { input: 0.01, output: 0 } };
  const { post, log } = await startCompletions(t, {
    settings: labAt(upstream.url, { master_key: MASTER, prices, alerts }),
  });
  const budget = { usd: 0.2, period: 'total' };
  const issued = await post('/keys', { name: 'one', budget }, { headers: { authorization: `Bearer ${MASTER}` } });
  const { key, id } = (await issued.json()) as Json;
  const chat = { model: 'lab/small', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 5 };
  const answer = await post('/v1/chat/completions', chat, { headers: { authorization: `Bearer ${key}` } });
  assert.equal(answer.status, 200);
  await until('the alert was repeated', () => receiver.requests.length === 2);
  const [first, second] = receiver.requests;
  assert.deepEqual(
    [second?.path, second?.headers.authorization, second?.text],
    ['/alerts', `Bearer ${alerts.token}`, first?.text],
  );
  assert.equal(first?.headers['idempotency-key'], second?.headers['idempotency-key']);
  const { at, id: alertId, ...alert } = second?.json ?? {};
  assert.ok(!Number.isNaN(Date.parse(String(at))));
  // Made of what it says, so that other instances send the same.
  const what = JSON.stringify([id, 'total', 0.2, 50]);
  assert.equal(alertId, `alr_${createHash('sha256').update(what).digest('base64url').slice(0, 22)}`);
  assert.equal(second?.headers['idempotency-key'], alertId);
  assert.deepEqual(alert, {
    type: 'budget.alert',
    bucket: id,
    percent: 50,
    spent_usd: 0.11,
    budget_usd: 0.2,
    period: 'total',
  });
  assert.match(log(), /"percent":50/);
  assert.doesNotMatch(log(), /token-of-the-alerts/);
});
