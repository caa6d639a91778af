import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, refuses, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;
type Scope = Parameters<typeof startCompletions>[0];

const MASTER = 'master-key-of-the-names-1';

async function start(t: Scope, more: object = {}, apis: readonly string[] = ['openai', 'lab']) {
  const upstream = await startScriptedUpstream(t, answers(completionOf('Hi')));
  const at = { base_url: upstream.url, api_key: 'key-1', dialect: 'openai' };
  const running = await startCompletions(t, {
    settings: { master_key: MASTER, apis: Object.fromEntries(apis.map((id) => [id, at])), ...more },
  });
  const post = (path: string, body: object, headers: Record<string, string> = {}, key = MASTER) =>
    running.post(path, body, { headers: { authorization: `Bearer ${key}`, ...headers } });
  const ask = async (model: string, headers: Record<string, string> = {}, key = MASTER) => {
    const messages = [{ role: 'user', content: 'Hello' }];
    const response = await post('/v1/chat/completions', { model, messages }, headers, key);
    const body = (await response.json()) as Json;
    const target = `${response.headers.get('x-model-api')}/${response.headers.get('x-model-id')}`;
    return { status: response.status, target, code: body.error?.code, message: body.error?.message };
  };
  const keyFor = async (...models: string[]): Promise<string> =>
    ((await (await post('/v1/keys', { name: 'one', models })).json()) as Json).key;
  return { upstream, running, ask, keyFor };
}

test('a name is an alias, else <api>/<model>, else the longest pattern that fits, else the one API that has it', async (t) => {
  const { ask, running } = await start(t, {
    models: [{ name: 'gpt-4o-mini', targets: [{ model: 'lab/own' }] }],
    model_patterns: {
      'gpt-*': 'openai/gpt-*',
      'gpt-5*': 'lab/big$&*',
      '*-latest': 'lab/latest',
      'openai/x-*': 'lab/never',
      'team/*': 'lab/team-*',
      'far-*': 'anthropic/far-*',
    },
  });
  for (const [name, target] of [
    ['gpt-4o-mini', 'lab/own'],
    ['openai/x-1', 'openai/x-1'],
    ['gpt-4o', 'openai/gpt-4o'],
    ['gpt-5.1', 'lab/big$&.1'],
    ['some-latest', 'lab/latest'],
    ['team/one', 'lab/team-one'],
    ['o3', 'openai/o3'],
  ] as const) {
    const { status, target: got } = await ask(name);
    assert.deepEqual([status, got], [200, target], name);
  }
  const { status, code, message } = await ask('o33');
  assert.deepEqual([status, code], [404, 'model_not_found']);
  assert.match(message, /openai\/o3/);
  assert.equal((await ask('far-1')).status, 404, 'the API of a pattern has no key here');
  const headers = { authorization: `Bearer ${MASTER}` };
  const usage = (await (await fetch(`${running.url}/v1/usage?group_by=model`, { headers })).json()) as Json;
  assert.ok(
    usage.data.some(({ group }: Json) => group === 'openai/o3'),
    'usage is recorded by the resolved name',
  );
});

test('a name that several configured APIs have is refused with their names, unless an order says which is meant', async (t) => {
  const several = await start(t, {}, ['openai', 'azure']);
  const { status, message } = await several.ask('gpt-4o');
  assert.equal(status, 404);
  assert.match(message, /"azure\/gpt-4o" or "openai\/gpt-4o".*completions\.api_order/);
  const ordered = await start(t, { api_order: ['groq', 'azure', 'openai'] }, ['openai', 'azure']);
  assert.equal((await ordered.ask('gpt-4o')).target, 'azure/gpt-4o');
});

test('a key is checked against what a name stands for', async (t) => {
  const { ask, keyFor, upstream } = await start(t, { model_patterns: { 'gpt-*': 'openai/gpt-*' } });
  assert.equal((await ask('gpt-4o', {}, await keyFor('openai/*'))).status, 200);
  assert.equal((await ask('o3', {}, await keyFor('openai/o3'))).status, 200);
  const before = upstream.requests.length;
  for (const pattern of ['gpt-*', 'lab/*']) {
    const { status, code } = await ask('gpt-4o', {}, await keyFor(pattern));
    assert.deepEqual([status, code], [403, 'model_not_allowed'], pattern);
  }
  assert.equal(upstream.requests.length, before);
});

test('x-fallback-models names what is tried next, also when the content is refused, and within the rights of the key', async (t) => {
  const { ask, keyFor, upstream } = await start(t, {
    models: [{ name: 'one', targets: [{ model: 'lab/a' }], retries: 0 }],
  });
  const fallbacks = { 'x-fallback-models': 'openai/b, demo/echo' };
  upstream.script(refuses(500), answers(completionOf('Hi')));
  assert.equal((await ask('one', fallbacks)).target, 'openai/b');
  upstream.script(
    answers({ error: { message: 'filtered', code: 'content_filter' } }, 400),
    answers(completionOf('Hi')),
  );
  assert.equal((await ask('one', fallbacks)).target, 'openai/b');
  upstream.script(refuses(400));
  assert.equal((await ask('one', fallbacks)).status, 400, 'a wrong request is wrong anywhere');
  upstream.script(refuses(500));
  assert.equal((await ask('one', fallbacks)).target, 'demo/echo');
  const { status, code } = await ask('one', fallbacks, await keyFor('one', 'demo/*'));
  assert.deepEqual([status, code], [403, 'model_not_allowed']);
  assert.equal((await ask('one', { 'x-fallback-models': 'nothing' })).status, 404);
  for (const wrong of ['', 'a,,b', 'a,b,c,d,e,f']) {
    assert.equal((await ask('one', { 'x-fallback-models': wrong })).status, 400, wrong);
  }
});
