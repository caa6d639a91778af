import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, refuses, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

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
