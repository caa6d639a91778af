import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, refuses, startScriptedUpstream, streams } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

test('tries that failed are charged at the price of their own target, also before an answer', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const { url, post } = await startCompletions(t, {
    settings: {
      usage_cost: true,
      prices: { 'gem/dear': { input: 0.00001, output: 0.00002 }, 'lab/cheap': { input: 0.000001, output: 0.000002 } },
      apis: {
        gem: { dialect: 'google', base_url: upstream.url, api_key: 'gem-key-1' },
        lab: { dialect: 'openai', base_url: upstream.url, api_key: 'lab-key-1' },
      },
      models: [{ name: 'mixed', targets: [{ model: 'gem/dear' }], fallbacks: ['lab/cheap'], retries: 0 }],
    },
  });
  const recorded = async (response: Response): Promise<Json> => {
    await response.arrayBuffer();
    const list = await fetch(`${url}/v1/usage/calls?request_id=${response.headers.get('x-request-id')}`);
    return ((await list.json()) as Json).data[0];
  };
  const spoilt = answers({
    candidates: [{ content: { parts: [] }, finishReason: 'MALFORMED_FUNCTION_CALL' }],
    usageMetadata: { promptTokenCount: 11, candidatesTokenCount: 7 },
  });
  const ask = { model: 'mixed', messages: [{ role: 'user', content: 'Hello' }] };
  upstream.script(spoilt, refuses(500));
  const failed = await post('/v1/chat/completions', ask);
  assert.deepEqual([failed.status, failed.headers.get('x-model-api')], [502, 'lab']);
  assert.equal((await recorded(failed)).cost_usd, 0.00025);

  const usage = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };
  upstream.script(spoilt, answers(completionOf('Hi', { usage })));
  const answered = await post('/v1/chat/completions', ask);
  assert.equal(answered.headers.get('x-attempts'), '2');
  assert.deepEqual(((await answered.clone().json()) as Json).usage, usage);
  assert.equal(answered.headers.get('x-cost-usd'), '0.000275');
  const { usage: counted, cost_usd } = await recorded(answered);
  assert.deepEqual([counted.prompt_tokens, counted.completion_tokens, cost_usd], [22, 14, 0.000275]);

  upstream.script(spoilt, answers(completionOf('Hi', { usage })));
  const translated = await post('/v1/responses', { model: 'mixed', input: 'Hello' });
  assert.deepEqual(((await translated.json()) as Json).usage.cost, 0.000275);
});

test('what a failed response used is charged, passed as bytes or translated, whole or as a stream', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const { url, post } = await startCompletions(t, {
    settings: {
      prices: { 'openai/gpt-5-codex': { input: 0.00001, output: 0.00002 } },
      apis: { openai: { base_url: upstream.url, api_key: 'key-1', responses: true } },
      models: [{ name: 'think', targets: [{ model: 'openai/gpt-5-codex' }], retries: 0 }],
    },
  });
  const response = {
    ...{ id: 'resp_1', object: 'response', created_at: 1, model: 'think', status: 'failed', output: [] },
    error: { code: 'server_error', message: 'It failed.' },
    usage: { input_tokens: 11, output_tokens: 7, total_tokens: 18 },
  };
  const named = (type: string, data: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
  const events = [
    named('response.created', { response: { ...response, status: 'in_progress', error: null, usage: null } }),
    named('response.failed', { response }),
  ];
  const messages = [{ role: 'user', content: 'Hello' }];
  for (const [path, body] of [
    ['/v1/responses', { input: 'Hello' }],
    ['/v1/chat/completions', { messages }],
  ] as const) {
    for (const stream of [false, true]) {
      upstream.script(stream ? streams(events) : answers(response));
      const failed = await post(path, { model: 'think', ...body, stream });
      await failed.arrayBuffer();
      const list = await fetch(`${url}/v1/usage/calls?request_id=${failed.headers.get('x-request-id')}`);
      const [call] = ((await list.json()) as Json).data;
      assert.deepEqual([path, stream, call.cost_usd], [path, stream, 0.00025]);
    }
  }
});
