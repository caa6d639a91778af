import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, startScriptedUpstream, streams } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const MASTER = 'master-key-of-the-units-1';
const PRICES = {
  'lab/tokens': { input: 0.000001, output: 0.000002 },
  'gem/tokens': { input: 0.000001, output: 0.000002 },
  'gem/cached': { input: 0.000001, output: 0.000002, cache_read: 0 },
  'cohere/tokens': { input: 0.000001, output: 0.000002 },
  'claude/tokens': { input: 0.000001, output: 0.000002 },
  'lab/draw': { per_image: 0.04 },
  'lab/speak': { per_character: 0.000015 },
  'lab/hear': { per_second: 0.0001 },
  'lab/both': { input: 0.000001, output: 0.000002, per_image: 0.01 },
};

async function start(t: Parameters<typeof startCompletions>[0]) {
  const upstream = await startScriptedUpstream(t);
  const { url, post } = await startCompletions(t, {
    environment: { OPENAI_API_KEY: 'sk-not-called' },
    settings: {
      master_key: MASTER,
      prices: PRICES,
      apis: {
        lab: { dialect: 'openai', base_url: upstream.url, api_key: 'lab-key-1' },
        gem: { dialect: 'google', base_url: upstream.url, api_key: 'gem-key-1' },
        claude: { dialect: 'anthropic', base_url: upstream.url, api_key: 'claude-key-1' },
        cohere: { dialect: 'cohere', base_url: upstream.url, api_key: 'cohere-key-1' },
      },
    },
  });
  const as = (key: string) => ({ authorization: `Bearer ${key}` });
  const costs = async (response: Response): Promise<number> => {
    await response.arrayBuffer();
    const query = `request_id=${response.headers.get('x-request-id')}`;
    const list = await fetch(`${url}/v1/usage/calls?${query}`, { headers: as(MASTER) });
    const [call] = ((await list.json()) as Json).data;
    assert.equal(call.price_known, true);
    return call.cost_usd;
  };
  return { upstream, url, post, as, costs };
}

test('images are charged by the piece, besides the tokens that the upstream reports', async (t) => {
  const { upstream, post, as, costs } = await start(t);
  const headers = as(MASTER);
  upstream.script(answers({ created: 1, data: [{ b64_json: 'aQ==' }, { b64_json: 'aQ==' }] }));
  const drawn = await post('/v1/images/generations', { model: 'lab/draw', prompt: 'a cat', n: 2 }, { headers });
  assert.equal(drawn.headers.get('x-cost-usd'), '0.08');
  assert.equal(await costs(drawn), 0.08);

  const usage = { input_tokens: 10, output_tokens: 100, total_tokens: 110 };
  upstream.script(answers({ created: 1, data: [{ b64_json: 'aQ==' }], usage }));
  const both = await post('/v1/images/generations', { model: 'lab/both', prompt: 'a cat' }, { headers });
  assert.equal(await costs(both), 0.01021);

  const done = { type: 'image_generation.completed', b64_json: 'aQ==', usage };
  upstream.script(streams([`event: ${done.type}\ndata: ${JSON.stringify(done)}\n\n`]));
  const streamed = await post(
    '/v1/images/generations',
    { model: 'lab/both', prompt: 'a cat', stream: true },
    { headers },
  );
  assert.equal(await costs(streamed), 0.01021);
});

test('an answer that is to come sooner is charged at the highest price for it, also in advance', async (t) => {
  const { upstream, post, as, costs } = await start(t);
  const ask = { model: 'lab/tokens', max_tokens: 7, messages: [{ role: 'user', content: 'Hello' }] };
  const usage = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };
  upstream.script(answers(completionOf('Hi', { usage })));
  const cost = async (path: string, more: object) =>
    costs(await post(path, { ...ask, ...more }, { headers: as(MASTER) }));
  assert.equal(await cost('/v1/chat/completions', {}), 0.000025);
  assert.equal(await cost('/v1/chat/completions', { service_tier: 'default' }), 0.000025);
  assert.equal(await cost('/v1/chat/completions', { service_tier: 'priority' }), 0.0000625);

  const claude = { input_tokens: 11, output_tokens: 7 };
  const message = { type: 'message', content: [{ type: 'text', text: 'Hi' }], stop_reason: 'end_turn', usage: claude };
  upstream.script(answers(message));
  const fast = { model: 'claude/tokens', speed: 'fast', inference_geo: 'us' };
  assert.equal(await cost('/v1/messages', fast), 0.000165);
  // Claude's API has no such field, so it is dropped.
  assert.equal(await cost('/v1/chat/completions', { model: 'claude/tokens', service_tier: 'priority' }), 0.000025);

  const budget = { usd: 0.00004, period: 'day' };
  const created = await post('/v1/keys', { name: 'a', budget }, { headers: as(MASTER) });
  const { key } = (await created.json()) as Json;
  const asked = upstream.requests.length;
  const dear = await post('/v1/chat/completions', { ...ask, service_tier: 'priority' }, { headers: as(key) });
  assert.equal(dear.status, 429);
  assert.equal(upstream.requests.length, asked);
  upstream.script(answers(completionOf('Hi', { usage })));
  assert.equal((await post('/v1/chat/completions', ask, { headers: as(key) })).status, 200);
});

test('a field for faster answers with the name of a member of all objects costs nothing more', async (t) => {
  const { upstream, post, as, costs } = await start(t);
  const usage = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };
  upstream.script(answers(completionOf('Hi', { usage })));
  const ask = { model: 'lab/tokens', max_tokens: 7, messages: [{ role: 'user', content: 'Hello' }] };
  for (const name of ['constructor', '__proto__']) {
    const given = { ...ask, service_tier: name, serviceTier: { type: name }, speed: name, inference_geo: name };
    const answered = await post('/v1/chat/completions', given, { headers: as(MASTER) });
    assert.equal(answered.headers.get('x-cost-usd'), '0.000025');
    assert.equal(await costs(answered), 0.000025);
  }
});

test('answers that a model spoilt are charged, with each try', async (t) => {
  const { upstream, post, as, costs } = await start(t);
  const usageMetadata = { promptTokenCount: 11, candidatesTokenCount: 7 };
  const candidates = [{ content: { parts: [] }, finishReason: 'MALFORMED_FUNCTION_CALL' }];
  upstream.script(answers({ candidates, usageMetadata }));
  const ask = { model: 'gem/tokens', messages: [{ role: 'user', content: 'Hello' }] };
  const spoilt = await post('/v1/chat/completions', ask, { headers: as(MASTER) });
  assert.equal(spoilt.status, 502);
  assert.equal(spoilt.headers.get('x-attempts'), '3');
  assert.equal(await costs(spoilt), 0.000075);

  upstream.script(answers({ candidates, usageMetadata: { ...usageMetadata, cachedContentTokenCount: 10 } }));
  const cached = await post('/v1/chat/completions', { ...ask, model: 'gem/cached' }, { headers: as(MASTER) });
  assert.equal(await costs(cached), 0.000045);

  const event = (value: object) => `data: ${JSON.stringify(value)}\n\n`;
  upstream.script(streams([event({ candidates, usageMetadata })]));
  const streamed = await post('/v1/chat/completions', { ...ask, stream: true }, { headers: as(MASTER) });
  assert.match(await streamed.clone().text(), /is malformed/);
  assert.equal(await costs(streamed), 0.000025);

  upstream.script(answers({ candidates, usageMetadata }));
  const text = await post('/v1/completions', { model: 'gem/tokens', prompt: 'Hello' }, { headers: as(MASTER) });
  assert.equal(await costs(text), 0.000075, 'a prompt that becomes a chat');

  const usage = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };
  const failed = { index: 0, finish_reason: 'error', error: { message: 'it broke', code: 502 }, message: {} };
  const billed = { finish_reason: 'ERROR', message: {}, usage: { tokens: { input_tokens: 11, output_tokens: 7 } } };
  for (const [model, answer] of [
    ['lab/tokens', { choices: [failed], usage }],
    ['lab/tokens', { choices: [], usage }],
    ['cohere/tokens', billed],
  ] as const) {
    upstream.script(answers(answer));
    const answered = await post('/v1/chat/completions', { ...ask, model }, { headers: as(MASTER) });
    assert.equal(answered.status, 502);
    assert.equal(await costs(answered), 0.000075, JSON.stringify(answer));
  }
});

test('what the model API counted of an answer that is cut is charged', async (t) => {
  const { upstream, post, as, costs } = await start(t);
  const usage = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };
  const ask = { model: 'lab/tokens', messages: [{ role: 'user', content: 'Hello' }], prompt: 'Hello', input: 'Hello' };
  const paths = ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/images/generations'];
  for (const path of paths) {
    const choices = [{ index: 0, finish_reason: 'stop', text: 'Hi', message: { role: 'assistant', content: 'Hi' } }];
    const data = [{ index: 0, embedding: [0.1], b64_json: 'aQ==' }];
    upstream.script(answers(JSON.stringify({ choices, data, usage, tail: {} }).slice(0, -1)));
    const cut = await post(path, ask, { headers: as(MASTER) });
    assert.equal(cut.status, 502);
    assert.equal(await costs(cut), 0.000075, path);
  }
});

test('speech is charged by the character', async (t) => {
  const { upstream, post, as, costs } = await start(t);
  upstream.script((response) => {
    response.writeHead(200, { 'content-type': 'audio/mpeg' }).end('sound');
  });
  const body = { model: 'lab/speak', input: 'x'.repeat(2000), voice: 'alloy' };
  assert.equal(await costs(await post('/v1/audio/speech', body, { headers: as(MASTER) })), 0.03);
});

test('recordings are charged by the seconds that the upstream reports, else by their size', async (t) => {
  const { upstream, url, as, costs } = await start(t);
  for (const [answer, expected] of [
    [{ text: 'Hi', usage: { type: 'duration', seconds: 90 } }, 0.009],
    [{ text: 'Hi', duration: 29.6, segments: [] }, 0.003],
    [{ text: 'Hi' }, 0.0002],
  ] as const) {
    upstream.script(answers(answer));
    const body = new FormData();
    body.set('model', 'lab/hear');
    body.set('file', new Blob([Buffer.alloc(20_000)]), 'a.mp3');
    const heard = await fetch(`${url}/v1/audio/transcriptions`, { method: 'POST', headers: as(MASTER), body });
    assert.equal(heard.status, 200);
    assert.equal(await costs(heard), expected);
  }
});

test('a budget refuses images that it cannot pay, and lists of models show what one costs', async (t) => {
  const { upstream, url, post, as } = await start(t);
  const budget = { usd: 0.05, period: 'day' };
  const issued = await post('/v1/keys', { name: 'poor', budget }, { headers: as(MASTER) });
  const { key } = (await issued.json()) as Json;
  upstream.script(answers({ created: 1, data: [{ b64_json: 'aQ==' }] }));
  const draw = (n: number) =>
    post('/v1/images/generations', { model: 'lab/draw', prompt: 'a cat', n }, { headers: as(key) });
  assert.equal(((await (await draw(2)).json()) as Json).error.code, 'insufficient_quota');
  assert.equal((await draw(1)).status, 200);
  const shown = await fetch(`${url}/v1/models/openai%2Fwhisper-1`, { headers: as(MASTER) });
  assert.equal(((await shown.json()) as Json).pricing.per_second, 0.0001);
});

test('searches of the web are charged besides the tokens, on lanes and in translated answers', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const at = { base_url: upstream.url, api_key: 'some-key-1' };
  const { post } = await startCompletions(t, {
    settings: {
      apis: { anthropic: at, openai: { ...at, responses: true } },
      prices: { 'openai/dear': { input: 0, output: 0, per_search: 0.5 } },
    },
  });
  const server_tool_use = { web_search_requests: 3 };
  const claude = {
    ...{ id: 'msg_1', type: 'message', role: 'assistant', model: 'm', stop_reason: 'end_turn' },
    content: [{ type: 'text', text: 'Hi' }],
    usage: { input_tokens: 1000, output_tokens: 100, server_tool_use },
  };
  const search = { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'a' } };
  const page = { ...search, id: 'ws_2', action: { type: 'open_page', url: 'https://a.example' } };
  const text = { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Hi', annotations: [] }] };
  const response = {
    ...{ id: 'resp_1', object: 'response', status: 'completed', model: 'm' },
    output: [search, page, { ...search, id: 'ws_3' }, text],
    usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15 },
  };
  const messages = [{ role: 'user', content: 'What is new?' }];
  const sonnet = { model: 'anthropic/claude-sonnet-4-5', max_tokens: 99, messages };
  for (const [path, body, answer, expected] of [
    ['/v1/messages', sonnet, claude, '0.0345'],
    ['/v1/chat/completions', sonnet, claude, '0.0345'],
    ['/v1/responses', { model: 'openai/dear', input: 'What is new?' }, response, '1'],
  ] as const) {
    upstream.script(answers(answer));
    const given = await post(path, body);
    assert.equal(given.status, 200);
    assert.equal(given.headers.get('x-cost-usd'), expected, path);
    if (path === '/v1/chat/completions') {
      assert.deepEqual(((await given.json()) as Json).usage.server_tool_use, server_tool_use);
    }
  }
});

test('a call that used a tool whose fee is not known has no cost; budgets count its tokens', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const at = { base_url: upstream.url, api_key: 'some-key-1' };
  const { url, post } = await startCompletions(t, {
    settings: {
      master_key: MASTER,
      apis: { anthropic: at, google: at, openai: { ...at, responses: true } },
      prices: {
        'openai/plain': { input: 0.001, output: 0 },
        'google/plain': { input: 0.001, output: 0 },
        'google/fee': { input: 0.001, output: 0, per_search: 0.5 },
        'google/none': { input: 0.001, output: 0, per_search: 0 },
      },
    },
  });
  const headers = { authorization: `Bearer ${MASTER}` };
  const grounded = (queries: readonly string[]) => ({
    candidates: [
      {
        content: { role: 'model', parts: [{ text: 'Hi' }] },
        finishReason: 'STOP',
        groundingMetadata: { webSearchQueries: queries },
      },
    ],
    usageMetadata: { promptTokenCount: 10, candidatesTokenCount: 5, totalTokenCount: 15 },
  });
  const responseWith = (type: string) => ({
    ...{ id: 'resp_1', object: 'response', status: 'completed', model: 'm' },
    output: [{ type, id: 'x_1', status: 'completed' }],
    usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15 },
  });
  const message = {
    ...{ id: 'msg_1', type: 'message', role: 'assistant', model: 'm', stop_reason: 'end_turn' },
    content: [{ type: 'text', text: 'Hi' }],
    usage: { input_tokens: 1000, output_tokens: 100 },
  };
  const container = { id: 'container_1', expires_at: '2030-01-01T00:00:00Z' };
  const sonnet = { model: 'anthropic/claude-sonnet-4-5', max_tokens: 99, messages: [{ role: 'user', content: 'Go' }] };
  const asked = { contents: [{ parts: [{ text: 'Go' }] }] };
  const gemini = (model: string, operation = 'generateContent') => `/v1beta/models/google/${model}:${operation}`;
  const events = (body: object) => streams([`data: ${JSON.stringify(body)}\r\n\r\n`]);
  const streamed = 'streamGenerateContent?alt=sse';
  const openai = { model: 'openai/plain', input: 'Go' };
  for (const [path, body, behaviour, cost, known] of [
    [gemini('plain'), asked, answers(grounded([])), 0.01, true],
    [gemini('plain'), asked, answers(grounded(['a', 'b'])), 0.01, false],
    [gemini('plain', streamed), asked, events(grounded(['a', 'b'])), 0.01, false],
    [gemini('fee'), asked, answers(grounded(['a', 'b'])), 1.01, true],
    [gemini('fee', streamed), asked, events(grounded(['a', 'b'])), 1.01, true],
    [gemini('none'), asked, answers(grounded(['a'])), 0.01, true],
    ['/v1/responses', openai, answers(responseWith('message')), 0.01, true],
    ['/v1/responses', openai, answers(responseWith('file_search_call')), 0.01, false],
    ['/v1/responses', openai, answers(responseWith('code_interpreter_call')), 0.01, false],
    ['/v1/responses', openai, answers(responseWith('web_search_call')), 0.01, false],
    ['/v1/messages', sonnet, answers(message), 0.0045, true],
    ['/v1/messages', sonnet, answers({ ...message, container }), 0.0045, false],
    ['/v1/chat/completions', sonnet, answers({ ...message, container }), 0.0045, false],
  ] as const) {
    upstream.script(behaviour);
    const given = await post(path, body, { headers });
    assert.equal(given.status, 200, await given.clone().text());
    await given.arrayBuffer();
    const list = await fetch(`${url}/v1/usage/calls?request_id=${given.headers.get('x-request-id')}`, { headers });
    const [call] = ((await list.json()) as Json).data;
    assert.deepEqual([call.cost_usd, call.price_known], [cost, known], `${path} ${JSON.stringify(body)}`);
    if (!path.includes('stream')) assert.equal(given.headers.get('x-cost-usd') !== null, known, path);
  }
});

test('a search that chat completions do not count has the fee that was set, or the cost is not known', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const at = { base_url: upstream.url, api_key: 'some-key-1' };
  const plain = { input: 0.001, output: 0 };
  const { url, post } = await startCompletions(t, {
    settings: {
      master_key: MASTER,
      usage_cost: true,
      apis: { anthropic: at, openai: at, perplexity: at },
      prices: {
        'openai/plain': plain,
        'openai/fee': { ...plain, per_search: 0.5 },
        'openai/gpt-4o-search-preview': plain,
        'openai/gpt-5-search-api-2026': { ...plain, per_search: 0.5 },
        'openai/research-api': plain,
      },
    },
  });
  const headers = { authorization: `Bearer ${MASTER}` };
  const messages = [{ role: 'user', content: 'Go' }];
  const figures = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  const said = (usage: object = {}) => ({
    ...{ id: 'c', object: 'chat.completion', created: 1, model: 'm' },
    choices: [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }],
    usage: { ...figures, ...usage },
  });
  const message = {
    ...{ id: 'msg_1', type: 'message', role: 'assistant', model: 'm', stop_reason: 'end_turn' },
    content: [{ type: 'text', text: 'Hi' }],
    usage: { input_tokens: 1000, output_tokens: 100 },
  };
  const search = { web_search_options: {} };
  const chat = '/v1/chat/completions';
  for (const [path, body, answer, cost, known] of [
    [chat, { model: 'openai/plain' }, said(), 0.01, true],
    [chat, { model: 'openai/plain', web_search_options: null }, said(), 0.01, true],
    [chat, { model: 'openai/plain', ...search }, said(), 0.01, false],
    [chat, { model: 'openai/fee', ...search }, said(), 0.51, true],
    [chat, { model: 'openai/gpt-4o-search-preview' }, said(), 0.01, false],
    [chat, { model: 'openai/gpt-5-search-api-2026' }, said(), 0.51, true],
    [chat, { model: 'openai/research-api' }, said(), 0.01, true],
    ['/v1/messages', { model: 'openai/gpt-5-search-api-2026', max_tokens: 9 }, said(), 0.51, true],
    [chat, { model: 'openai/plain' }, said({ num_sources_used: 3 }), 0.01, false],
    [chat, { model: 'perplexity/sonar' }, said({ search_context_size: 'low' }), 0.000015, false],
    [chat, { model: 'anthropic/claude-sonnet-4-5', max_tokens: 9, ...search }, message, 0.0045, true],
  ] as const) {
    upstream.script(answers(answer));
    const given = await post(path, { ...body, messages }, { headers });
    assert.equal(given.status, 200, await given.clone().text());
    const { usage } = (await given.json()) as Json;
    const list = await fetch(`${url}/v1/usage/calls?request_id=${given.headers.get('x-request-id')}`, { headers });
    const [call] = ((await list.json()) as Json).data;
    assert.deepEqual([call.cost_usd, call.price_known], [cost, known], JSON.stringify(body));
    assert.equal(given.headers.get('x-cost-usd') !== null, known, JSON.stringify(body));
    if (path === '/v1/messages') assert.equal(usage.cost, cost);
  }
});

test('images of the built-in table are charged by what each kind of token costs', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const { post } = await startCompletions(t, {
    settings: { apis: { openai: { base_url: upstream.url, api_key: 'some-key-1' } } },
  });
  const input_tokens_details = { text_tokens: 100, image_tokens: 200 };
  const usage = { input_tokens: 300, output_tokens: 1000, total_tokens: 1300, input_tokens_details };
  upstream.script(answers({ created: 1, data: [{ b64_json: 'aQ==' }], usage }));
  const drawn = await post('/v1/images/generations', { model: 'openai/gpt-image-1', prompt: 'a cat' });
  assert.equal(drawn.headers.get('x-cost-usd'), '0.0425');
});
