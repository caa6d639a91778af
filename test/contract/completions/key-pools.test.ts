import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { HELLO, settingsOf, startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  completionOf,
  eventsOf,
  refuses,
  type ScriptedUpstream,
  startScriptedUpstream,
} from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const KEYS = [
  { name: 'a', key: 'pool-key-aaaa-1111', weight: 3 },
  { name: 'b', key: 'pool-key-bbbb-2222' },
];

const keysOf = ({ requests }: ScriptedUpstream) => requests.map(({ headers }) => headers.authorization?.slice(16, 17));
const poolAt = ({ url }: ScriptedUpstream, keys: readonly object[] = KEYS, rest: object = {}) => ({
  apis: { lab: { dialect: 'openai', base_url: url, api_keys: keys, ...rest } },
});

async function start(t: TestContext, keys?: readonly object[], rest?: object) {
  const upstream = await startScriptedUpstream(t, answers(completionOf('ok')));
  const running = await startCompletions(t, { settings: poolAt(upstream, keys, rest) });
  const chat = (model = 'lab/small') => running.post('/v1/chat/completions', { ...HELLO, model });
  return { upstream, chat, ...running };
}

test('several keys of one API share its calls by weight', async (t) => {
  const { upstream, chat, url } = await start(t);
  for (let count = 0; count < 8; count += 1) assert.equal((await chat()).status, 200);
  assert.deepEqual(keysOf(upstream).sort(), ['a', 'a', 'a', 'a', 'a', 'a', 'b', 'b']);
  const { data } = (await (await fetch(`${url}/v1/targets`)).json()) as Json;
  assert.deepEqual(data.map(({ target }: Json) => target).sort(), ['lab/small#a', 'lab/small#b']);
});

test('a key that is refused or out of quota is passed over without a pause, and is never shown', async (t) => {
  for (const status of [401, 403, 429]) {
    const { upstream, chat, url, log } = await start(t);
    upstream.script(
      refuses(status, 'not with pool-key-aaaa-1111', { 'retry-after': '3600' }),
      answers(completionOf('ok')),
    );
    const answer = await chat();
    assert.deepEqual([answer.status, answer.headers.get('x-attempts')], [200, '2'], String(status));
    assert.deepEqual(keysOf(upstream), ['a', 'b']);
    await answer.text();
    const { data } = (await (await fetch(`${url}/v1/usage/calls`)).json()) as Json;
    const call = (await (await fetch(`${url}/v1/usage/calls/${data[0].id}`)).json()) as Json;
    assert.equal(call.failed_attempts[0].target, 'lab/small#a');
    // Some upstreams repeat the key that they refuse.
    upstream.script((response, seen) => refuses(429, `not with ${seen.headers.authorization}`)(response, seen));
    const refused = await chat();
    assert.equal(refused.status, 429);
    assert.doesNotMatch((await refused.text()) + log(), /pool-key-/);
  }
});

test('the limits of a key count for all models together', async (t) => {
  const { upstream, chat } = await start(t, [
    { ...KEYS[0], requests_per_minute: 2 },
    { ...KEYS[1], weight: 0 },
  ]);
  for (const model of ['lab/one', 'lab/two', 'lab/three', 'lab/four']) assert.equal((await chat(model)).status, 200);
  assert.deepEqual(keysOf(upstream), ['a', 'a', 'b', 'b']);
});

test('a reload replaces keys without downtime: calls under way end with their key, later ones get the new keys', async (t) => {
  const { upstream, chat, post, completions } = await start(t, [KEYS[0] as object]);
  let finish: () => void = () => undefined;
  const [first = '', ...others] = eventsOf(['Hel', 'lo']);
  upstream.script(
    (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(first);
      finish = () => response.end(others.join(''));
    },
    answers(completionOf('ok')),
  );
  const running = await post('/v1/chat/completions', { ...HELLO, stream: true });
  completions.reload(settingsOf(poolAt(upstream, [KEYS[1] as object])));
  assert.equal((await chat()).status, 200);
  finish();
  assert.match(await running.text(), /Hel.*lo.*\[DONE\]/s);
  completions.reload(settingsOf(poolAt(upstream, [], { api_key: 'pool-key-cccc-3333' })));
  assert.equal((await chat()).status, 200);
  assert.deepEqual(keysOf(upstream), ['a', 'b', 'c']);
});

test('what an API stores belongs to the account of the key that was used, so only that key is asked for it', async (t) => {
  const { upstream, post } = await start(t, KEYS, { responses: true });
  const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
  let count = 0;
  upstream.script((response) => {
    count += 1;
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ id: `resp_${count}`, object: 'response', status: 'completed', output: [], usage }));
  });
  const respond = (rest: object = {}) => post('/v1/responses', { model: 'lab/small', input: 'Hello', ...rest });
  for (let index = 0; index < 4; index += 1) await (await respond()).text();
  const used = keysOf(upstream);
  assert.deepEqual([...used].sort(), ['a', 'a', 'a', 'b']);
  for (const [index, key] of used.entries()) {
    for (let again = 0; again < 2; again += 1) {
      assert.equal((await respond({ previous_response_id: `resp_${index + 1}` })).status, 200);
      assert.equal(keysOf(upstream).at(-1), key);
    }
  }
});

test('api_keys: the same name twice, a key beside the list and a key that is missing are refused by name', () => {
  const problem = (lab: object) => {
    try {
      settingsOf({ apis: { lab: { base_url: 'http://127.0.0.1:1/v1', ...lab } } });
    } catch (error) {
      return String(error);
    }
    return assert.fail('it was accepted');
  };
  assert.match(
    problem({ api_keys: [KEYS[0], KEYS[0]] }),
    /completions\.apis\.lab\.api_keys\[1\]\.name.*is there twice/,
  );
  assert.match(problem({ api_key: 'one-key-1234', api_keys: KEYS }), /completions\.apis\.lab\.api_key\b/);
  assert.match(problem({ api_keys: [{ name: 'a' }] }), /api_keys\[0\]\.key/);
});
