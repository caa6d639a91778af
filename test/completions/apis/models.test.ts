import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { createCatalogue } from '../../../src/completions/apis/catalogue.ts';
import { createListUpstreamModels } from '../../../src/completions/apis/live-models.ts';
import { createModels, nearestModels } from '../../../src/completions/apis/models.ts';
import { createAuthoriseUpstream } from '../../../src/completions/dialects/authorise-upstream.ts';
import { matchesAny } from '../../../src/completions/keys/issued-key.ts';
import type { CompletionsSettings } from '../../../src/completions/settings.ts';
import { settingsOf } from '../../kit/completions/start-completions.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { holderOf } from '../keys/calls.ts';

const SETTINGS = settingsOf({});

const anybody = holderOf();
const allowed = (...patterns: string[]) => holderOf(undefined, { mayUse: (model) => matchesAny(patterns, model) });
const named = (base_url: string, changes = {}) => {
  const api = settingsOf({ apis: { it: { base_url, ...changes } } }).apis.it;
  assert.ok(api !== undefined);
  return api;
};

type Answer = { readonly status?: number; readonly body?: string; readonly hang?: boolean };

async function startUpstream(t: TestContext, answer: () => Answer) {
  const requests: { path: string; authorization: string | undefined }[] = [];
  const server = createServer((request, response) => {
    requests.push({ path: request.url ?? '', authorization: request.headers.authorization });
    const { status = 200, body = '', hang = false } = answer();
    if (!hang) response.writeHead(status, { 'content-type': 'application/json' }).end(body);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, requests };
}

function start(settings: Partial<CompletionsSettings>, environment: Record<string, string> = {}) {
  const clock = createFakeClock();
  const authorise = createAuthoriseUpstream({
    clock,
    fetch: () => assert.fail('no access token is needed'),
    readFile: () => assert.fail('no file is needed'),
  });
  const listed: string[] = [];
  const list = createListUpstreamModels(authorise);
  const models = createModels({
    settings: { ...SETTINGS, ...settings },
    environment,
    catalogue: createCatalogue(),
    clock,
    listUpstream(api, signal) {
      listed.push(api.id);
      // Servers that may really run on this machine are none of this test's business.
      return api.local === true ? Promise.resolve([]) : list(api, signal);
    },
  });
  return { clock, models, listed };
}

test('P-31: a fresh machine lists the demo model alone, and asks only local servers with a port of their own', async () => {
  const { models, listed } = start({});
  assert.deepEqual(
    (await models.list(anybody)).map(({ id }) => id),
    ['demo/echo'],
  );
  assert.deepEqual(listed.sort(), ['atomic-chat', 'docker-model-runner', 'lmstudio', 'ollama', 'xinference']);
});

test('a demo model that answers calls is found by its name, and is suggested for a name that comes near', () => {
  const { models } = start({});
  for (const id of ['demo/agent', 'demo/agent?delay=5', 'demo/image']) assert.equal(models.find(id, anybody)?.id, id);
  for (const id of ['demo/', 'demo/agents', 'demo/embed']) assert.equal(models.find(id, anybody), undefined, id);
  assert.equal(models.find('demo/agent', allowed('mistral/*')), undefined);
  assert.match(nearestModels('demo/agnt', models.knownNames()), /^Nearest: demo\/agent\./);
});

test('P-31: the list has aliases and the known models of usable APIs, with what is known of each', async () => {
  const target = {
    model: 'deepseek/deepseek-chat',
    weight: 1,
    priority: 1,
    requests_per_minute: 0,
    tokens_per_minute: 0,
  };
  const alias = (name: string, targets: number) => ({
    name,
    targets: Array.from({ length: targets }, () => target),
    fallbacks: [],
    strategy: 'weighted' as const,
    context_fallbacks: [],
    retries: 2,
    timeouts: { connect: 1, first_byte: 1, idle: 1, total: 1 },
    cache: { ttl: 0 },
  });
  const { models } = start({ models: [alias('fast', 1), alias('mixed', 2)] }, { DEEPSEEK_API_KEY: 'k' });
  const list = await models.list(anybody);
  assert.deepEqual(
    list.map(({ id }) => id),
    [
      'fast',
      'mixed',
      'demo/echo',
      'deepseek/deepseek-chat',
      'deepseek/deepseek-reasoner',
      'deepseek/deepseek-v4-flash',
      'deepseek/deepseek-v4-pro',
    ],
  );
  const facts = {
    object: 'model',
    created: 0,
    context_window: 1_000_000,
    max_output_tokens: 384_000,
    pricing: { input: 1.4e-7, output: 2.8e-7, cache_read: 2.8e-9 },
    input_modalities: ['text'],
    tools: true,
    reasoning: false,
  };
  assert.deepEqual(list[3], { ...facts, id: 'deepseek/deepseek-chat', owned_by: 'deepseek' });
  assert.deepEqual(list[0], { ...facts, id: 'fast', owned_by: 'trestle' });
  assert.deepEqual(list[1], { id: 'mixed', object: 'model', created: 0, owned_by: 'trestle' });
});

test('P-31: a key sees the models it may use, and no others', async () => {
  const { models } = start({}, { DEEPSEEK_API_KEY: 'k', MISTRAL_API_KEY: 'k' });
  const ids = async (...patterns: string[]) => (await models.list(allowed(...patterns))).map(({ id }) => id);
  assert.deepEqual(await ids('demo/*'), ['demo/echo']);
  assert.ok((await ids('deepseek/*')).every((id) => id.startsWith('deepseek/')));
  assert.equal((await ids('deepseek/*')).length, 4);
  assert.equal(models.find('deepseek/deepseek-chat', allowed('mistral/*')), undefined);
  assert.equal(models.find('deepseek/deepseek-chat', anybody)?.id, 'deepseek/deepseek-chat');
});

test('a model of a usable API is found though nobody listed it; one of an unusable API is not', () => {
  const { models } = start({}, { OPENROUTER_API_KEY: 'k' });
  assert.deepEqual(models.find('openrouter/maker/brand-new', anybody), {
    id: 'openrouter/maker/brand-new',
    object: 'model',
    created: 0,
    owned_by: 'openrouter',
  });
  for (const id of ['groq/x', 'openrouter', 'openrouter/', '', 'nobody/x', '__proto__/x']) {
    assert.equal(models.find(id, anybody), undefined, id);
  }
});

test('P-31: an API without known models is asked for them, once a minute, with its key', async (t) => {
  const { url, requests } = await startUpstream(t, () => ({
    body: JSON.stringify({
      data: [{ id: 'small' }, { id: 'small' }, { id: 'has space' }, { id: 7 }, { id: 'big/one' }],
    }),
  }));
  const { clock, models } = start({ apis: { lab: named(url, { api_key: 'lab-key' }) } });
  const ids = async () => (await models.list(anybody)).map(({ id }) => id);
  assert.deepEqual(await ids(), ['demo/echo', 'lab/small', 'lab/big/one']);
  await ids();
  assert.deepEqual(requests, [{ path: '/v1/models', authorization: 'Bearer lab-key' }]);
  await clock.advance(60_000);
  await ids();
  assert.equal(requests.length, 2);
});

test('P-31: while an upstream is down its last list is served', async (t) => {
  let answer: Answer = { body: '["first"]' };
  const { url, requests } = await startUpstream(t, () => answer);
  const { clock, models } = start({ apis: { lab: named(url) } });
  const ids = async () => (await models.list(anybody)).map(({ id }) => id);
  assert.deepEqual(await ids(), ['demo/echo', 'lab/first']);
  for (const broken of [{ status: 500 }, { body: 'no JSON' }, { status: 302 }] as const) {
    answer = broken;
    await clock.advance(61_000);
    assert.deepEqual(await ids(), ['demo/echo', 'lab/first'], JSON.stringify(broken));
  }
  assert.equal(requests.length, 4);
  answer = { body: '{"models":[{"name":"second"}]}' };
  await clock.advance(61_000);
  assert.deepEqual(await ids(), ['demo/echo', 'lab/second']);
});

test('P-31: an upstream that does not answer holds up the list for a moment only', async (t) => {
  const { url } = await startUpstream(t, () => ({ hang: true }));
  const { clock, models } = start({ apis: { lab: named(url) } });
  const listing = models.list(anybody);
  await clock.advance(1500);
  assert.deepEqual(
    (await listing).map(({ id }) => id),
    ['demo/echo'],
  );
  models.stop();
});

test('after a reload another key is used, and another API listed', async (t) => {
  const { url, requests } = await startUpstream(t, () => ({ body: '["one"]' }));
  const { models } = start({ apis: { lab: named(url, { api_key: 'old' }) } });
  await models.list(anybody);
  models.reload({ ...SETTINGS, apis: { lab: named(url, { api_key: 'new' }) } });
  await models.list(anybody);
  assert.deepEqual(
    requests.map(({ authorization }) => authorization),
    ['Bearer old', 'Bearer new'],
  );
  assert.equal(models.findApi('lab')?.credentials.key, 'new');
});

test('P-19: the nearest names are suggested, the same model at any API first', () => {
  const names = ['fast', 'demo/echo', 'openai/gpt-4o', 'azure/gpt-4o', 'openai/gpt-4o-mini'];
  assert.equal(nearestModels('gpt-4o', names), 'Nearest: openai/gpt-4o, azure/gpt-4o.');
  assert.equal(nearestModels('openai/gtp-4o', names).split(/[.,]/)[0], 'Nearest: openai/gpt-4o');
  assert.equal(nearestModels('demo/ecko', names), 'Nearest: demo/echo.');
  assert.match(nearestModels('nothing-like-it', names), /trestle models/);
  assert.match(nearestModels('', ['fast']), /trestle models/);
});
