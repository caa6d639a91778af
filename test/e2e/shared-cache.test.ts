import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../kit/completions/start-completions.ts';
import { startRedis } from '../kit/real-redis.ts';
import type { Scope } from '../kit/running-program.ts';
import { answers, completionOf, startScriptedUpstream } from '../kit/scripted-upstream.ts';
import { until } from '../kit/until.ts';

const MASTER = 'master-key-of-the-shared-cache';
const HELLO = { model: 'lab/small', messages: [{ role: 'user', content: 'Hello' }] };
/** What a call may wait for a Redis that does not answer, with much room for a slow machine. */
const PATIENCE_MS = 5000;

/** Two instances that have nothing in common but a Redis server. */
async function startTwo(scope: Scope, url: string, apis: object, more: object = {}) {
  const settings = { master_key: MASTER, apis, cache: { url }, ...more };
  const [one, two] = [await startCompletions(scope, { settings }), await startCompletions(scope, { settings })];
  const headers = { authorization: `Bearer ${MASTER}`, 'x-cache-ttl': '60' };
  const ask =
    ({ post }: typeof one) =>
    async (body: object, path = '/v1/chat/completions') => {
      const response = await post(path, body, { headers });
      assert.equal(response.status, 200);
      return { state: response.headers.get('x-cache'), text: await response.text() };
    };
  return { first: ask(one), second: ask(two), log: () => one.log() + two.log() };
}

const said = (content: string) => ({ ...HELLO, messages: [{ role: 'user', content }] });

test('an answer that one instance has cached in Redis is given by another', async (t) => {
  const redis = await startRedis(t);
  const upstream = await startScriptedUpstream(t, answers(completionOf('fresh')));
  const apis = { lab: { dialect: 'openai', base_url: upstream.url, api_key: 'lab-key-1' } };
  const { first, second, log } = await startTwo(t, redis.url, apis);
  // Each time another text: what it has seen once, an instance has in its own memory.
  let count = 0;
  await until('a chat to be shared', async () => {
    count += 1;
    await first(said(`Hello ${count}`));
    return (await second(said(`Hello ${count}`))).state === 'hit';
  });
  await until('a response to be shared', async () => {
    count += 1;
    const body = { model: 'lab/small', input: `Hi ${count}` };
    const made = await first(body, '/v1/responses');
    const given = await second(body, '/v1/responses');
    return given.state === 'hit' && given.text === made.text;
  });

  // What it wrote is not for another prefix, which stands for other models.
  const stranger = await startTwo(t, redis.url, apis, { cache: { url: redis.url, prefix: 'other' } });
  assert.equal((await stranger.first(said('Hello 1'))).state, 'miss');
  assert.doesNotMatch(log(), /redis-password-1/);
});

test('a call neither fails nor waits for long when Redis stands still, is gone or comes back', async (t) => {
  const redis = await startRedis(t);
  const upstream = await startScriptedUpstream(t, answers(completionOf('fresh')));
  const apis = { lab: { dialect: 'openai', base_url: upstream.url, api_key: 'lab-key-1' } };
  const { first, second, log } = await startTwo(t, redis.url, apis);
  let count = 0;
  await until('Redis to be used', async () => {
    count += 1;
    await first(said(`before ${count}`));
    return (await second(said(`before ${count}`))).state === 'hit';
  });
  redis.freeze();
  const begun = performance.now();
  for (let index = 0; index < 20; index += 1) assert.equal((await first(said(`frozen ${index}`))).state, 'miss');
  assert.ok(performance.now() - begun < PATIENCE_MS, 'only the first call waits');
  assert.equal((await first(said('frozen 3'))).state, 'hit', 'its own memory');
  assert.match(log(), /Redis is away/);
  redis.thaw();
  await redis.stop();
  assert.equal((await first(said('gone'))).state, 'miss');
  assert.equal((await second(said('gone'))).state, 'miss');
  await redis.start();
  await until('Redis to be used again', async () => {
    count += 1;
    await first(said(`back ${count}`));
    return (await second(said(`back ${count}`))).state === 'hit';
  });
  assert.match(log(), /Redis is back/);
});

test('thinking that one instance keeps in Redis comes back through another', async (t) => {
  const redis = await startRedis(t);
  const thought = { type: 'thinking', thinking: 'I need the weather.', signature: 'c2lnbmVk' };
  const call = { type: 'tool_use', id: 'toolu_1', name: 'weather', input: {} };
  const claude = { id: 'msg_1', type: 'message', role: 'assistant', model: 'm', stop_reason: 'tool_use' };
  const usage = { input_tokens: 3, output_tokens: 9 };
  const upstream = await startScriptedUpstream(t, answers({ ...claude, content: [thought, call], usage }));
  const { first, second } = await startTwo(t, redis.url, { anthropic: { api_key: 'k', base_url: upstream.url } });
  const asked = {
    model: 'anthropic/claude-sonnet-4-5',
    reasoning_effort: 'medium',
    max_tokens: 20_000,
    tools: [{ type: 'function', function: { name: 'weather', parameters: { type: 'object' } } }],
  };
  const question = { role: 'user', content: 'Do I need an umbrella?' };
  const calls = [{ id: 'toolu_1', type: 'function', function: { name: 'weather', arguments: '{}' } }];
  const messages = [question, { role: 'assistant', content: null, tool_calls: calls }];
  let count = 0;
  await until('the thinking to be there', async () => {
    count += 1;
    await first({ ...asked, messages: [question], metadata: { try: String(count) } });
    await second({ ...asked, messages: [...messages, { role: 'tool', tool_call_id: 'toolu_1', content: `${count}` }] });
    return JSON.stringify(upstream.requests.at(-1)?.json.messages).includes('c2lnbmVk');
  });
  const { thinking } = upstream.requests.at(-1)?.json ?? assert.fail();
  assert.equal((thinking as { type?: string }).type, 'enabled');
});
