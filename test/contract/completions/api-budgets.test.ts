import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, refuses, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const MASTER = 'master-key-of-the-apis-1';

/** Two APIs; a call takes 11 and 7 tokens, which is 18 USD. */
async function start(t: Parameters<typeof startCompletions>[0]) {
  const upstream = await startScriptedUpstream(t, answers(completionOf('Hi')));
  const api = { dialect: 'openai', base_url: upstream.url, api_key: 'k' };
  const price = { input: 1, output: 1 };
  const { post, log, database } = await startCompletions(t, {
    settings: {
      master_key: MASTER,
      apis: { dear: api, cheap: api },
      prices: { 'dear/m': price, 'cheap/m': price, 'dear/free': { input: 0, output: 0 } },
      models: [
        {
          name: 'both',
          targets: [
            { model: 'dear/m', weight: 1000 },
            { model: 'cheap/m', weight: 0 },
          ],
        },
        { name: 'safe', targets: [{ model: 'cheap/m' }], fallbacks: ['dear/m'], retries: 0 },
        { name: 'round', targets: [{ model: 'cheap/m' }], fallbacks: ['safe'], retries: 0 },
        { name: 'free', targets: [{ model: 'dear/free' }], fallbacks: ['free-too'] },
        { name: 'free-too', targets: [{ model: 'dear/free' }], fallbacks: ['cheap/m'] },
        { name: 'long', targets: [{ model: 'dear/m' }], context_fallbacks: ['cheap/m'], retries: 0 },
        { name: 'spoilt', targets: [{ model: 'dear/m' }], fallbacks: ['cheap/m'], retries: 0 },
        { name: 'saved', targets: [{ model: 'dear/m' }], fallbacks: ['round'], retries: 0 },
      ],
      tag_budgets: { nothing: { usd: 0, period: 'day' } },
      api_budgets: { dear: { usd: 40, period: 'day' } },
    },
  });
  const headers = { authorization: `Bearer ${MASTER}` };
  const ask = { max_tokens: 7, messages: [{ role: 'user', content: 'Hello' }] };
  const call = (model: string, more: Record<string, string> = {}) =>
    post('/v1/chat/completions', { ...ask, model }, { headers: { ...headers, ...more } });
  return { upstream, call, log, database };
}

test('the budget of an API holds for everyone, and an alias goes to its other targets then', async (t) => {
  const { upstream, call, log, database } = await start(t);
  assert.equal((await call('dear/m')).headers.get('x-model-api'), 'dear');
  assert.equal((await call('both')).headers.get('x-model-api'), 'dear');
  // 36 USD are spent.
  const refused = await call('dear/m');
  assert.equal(refused.status, 429);
  const { error } = (await refused.json()) as Json;
  assert.equal(error.code, 'insufficient_quota');
  assert.match(error.message, /The budget of the API dear is used up: 40 USD \(day\)/);
  assert.equal((await call('both')).headers.get('x-model-api'), 'cheap');
  assert.equal((await call('cheap/m')).status, 200);
  assert.equal((await call('dear/free')).status, 200, 'what is free needs no budget');
  assert.equal((await call('saved')).headers.get('x-model-api'), 'cheap', 'a fallback with room answers');
  const long = await call('long');
  assert.equal(long.status, 429, 'nothing says that the prompt is too long');
  assert.match(await long.text(), /The budget of the API dear is used up/);
  assert.match(log(), /"bucket":"api:dear","percent":80/);

  const asked = upstream.requests.length;
  upstream.script(refuses(500));
  assert.equal((await call('safe')).status, 502);
  assert.equal(upstream.requests.length, asked + 1, 'a fallback is not a way around the budget');
  assert.equal((await call('round')).status, 502);
  assert.equal(upstream.requests.length, asked + 3, 'nor is the fallback of a fallback');
  const spent = () => database.query.selectFrom('key_spending').selectAll().where('key_id', '=', 'api:dear').execute();
  for (let wait = 0; wait < 200 && (await spent()).length === 0; wait += 1) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.deepEqual(
    (await spent()).map(({ cost_nano_usd: nano }) => Number(nano)),
    [36_000_000_000],
  );
});

test('a budget of 0 pays for no fallback of a fallback', async (t) => {
  const { upstream, call } = await start(t);
  const free = { 'x-tags': 'nothing' };
  assert.equal((await call('dear/free', free)).status, 200);
  assert.equal((await call('free', free)).status, 429, 'it may come to cheap/m, which costs something');
  assert.equal(upstream.requests.length, 1);
});

test('a call whose search has no known fee counts its tokens towards the budget of the API', async (t) => {
  const { upstream, call } = await start(t);
  const usage = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };
  upstream.script(answers(completionOf('Hi', { usage: { ...usage, server_tool_use: { web_search_requests: 1 } } })));
  const first = await call('dear/m');
  assert.deepEqual([first.status, first.headers.get('x-cost-usd')], [200, null]);
  assert.equal((await call('dear/m')).status, 200);
  assert.equal((await call('dear/m')).status, 429, '36 of 40 USD are spent');
});

test('a try that an API charged for counts towards its own budget, also if another API answers', async (t) => {
  const { upstream, call } = await start(t);
  const failed = { index: 0, finish_reason: 'error', error: { message: 'it broke', code: 502 }, message: {} };
  const spoilt = answers({ choices: [failed], usage: { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 } });
  const whole = answers(completionOf('Hi'));
  upstream.script(spoilt, whole, spoilt, whole);
  for (let calls = 0; calls < 2; calls += 1) {
    const answered = await call('spoilt');
    assert.deepEqual([answered.status, answered.headers.get('x-model-api')], [200, 'cheap']);
    assert.equal(answered.headers.get('x-cost-usd'), '36');
  }
  assert.equal((await call('dear/m')).status, 429);
  assert.equal((await call('cheap/m')).status, 200);
});

test('what is set aside at an API comes back when the call fails or another one answers', async (t) => {
  const { upstream, call } = await start(t);
  upstream.script(refuses(400));
  for (let tries = 0; tries < 4; tries += 1) assert.equal((await call('dear/m')).status, 400);
  upstream.script(answers(completionOf('Hi')));
  for (let tries = 0; tries < 4; tries += 1) assert.equal((await call('safe')).status, 200);
  assert.equal((await call('dear/m')).status, 200);
});
