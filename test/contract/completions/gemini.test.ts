import assert from 'node:assert/strict';
import { test } from 'node:test';
import { packProof } from '../../../src/completions/ingress/gemini/gemini-content.ts';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  type Behaviour,
  completionOf,
  diesAfter,
  refuses,
  startScriptedUpstream,
  streams,
  streamsLater,
} from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;
type Scope = Parameters<typeof startCompletions>[0];

const MASTER = 'master-key-of-gemini-1';
const GOOGLE_KEY = 'google-key-7716';

async function start(t: Scope, ...behaviours: Behaviour[]) {
  const upstream = await startScriptedUpstream(t, ...behaviours);
  const at = { base_url: upstream.url };
  const running = await startCompletions(t, {
    settings: {
      master_key: MASTER,
      store_content: true,
      apis: {
        gem: { dialect: 'google', api_key: GOOGLE_KEY, ...at },
        plain: { dialect: 'openai', api_key: 'plain-key-1', ...at },
        claude: { dialect: 'anthropic', api_key: 'claude-key-1', ...at },
      },
      prices: { 'gem/dear': { input: 1, output: 1 } },
      models: [
        { name: 'priced', targets: [{ model: 'gem/dear' }] },
        { name: 'safe', targets: [{ model: 'gem/big' }], fallbacks: ['demo/echo'], retries: 0 },
      ],
    },
  });
  const post = (name: string, body: unknown, headers: Record<string, string> = {}, key = MASTER) =>
    running.post(`/v1beta/models/${name}`, body, { headers: { 'x-goog-api-key': key, ...headers } });
  const get = (path: string) => fetch(`${running.url}${path}`, { headers: { 'x-goog-api-key': MASTER } });
  const usageOf = async (model: string) => {
    const headers = { authorization: `Bearer ${MASTER}` };
    const all = (await (await fetch(`${running.url}/v1/usage?group_by=model`, { headers })).json()) as Json;
    return all.data.find(({ group }: Json) => group === model);
  };
  return { upstream, running, post, get, usageOf };
}

/** As a client may write it: both spellings, a single part, spaces, fields that we do not know. */
const ASK = `{"contents": [{"role":"user","parts":{"text":"\\u0048i"}}], "system_instruction":{"parts":[{"text":"Be brief"}]},
 "tools":[{"google_search":{}},{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT","properties":{"model":{"type":"STRING"}}}}]}],
 "safetySettings":[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_NONE"}],"generationConfig":{"maxOutputTokens":50,"newField":1}}`;
const ANSWER = `{"candidates":[{"content":{"parts":[{"text":"Hi","thoughtSignature":"c2ln"}],"role":"model"},"finishReason":"STOP","groundingMetadata":{"a":1}}], "usageMetadata":{"promptTokenCount":20,"candidatesTokenCount":5,"thoughtsTokenCount":3,"cachedContentTokenCount":8,"totalTokenCount":28},"modelVersion":"big-2026"}`;
const event = (body: object) => `data: ${JSON.stringify(body)}\r\n\r\n`;
const piece = (text: string, more: object = {}) =>
  event({
    candidates: [{ content: { parts: [{ text }], role: 'model' }, index: 0, ...more }],
    usageMetadata: { promptTokenCount: 20, candidatesTokenCount: 2 },
  });
const STREAM = [piece('Hel'), piece('lo'), piece('', { finishReason: 'STOP' })];

test('a request for an upstream of Google’s API passes as bytes, with key, address and headers changed', async (t) => {
  const { upstream, running, post, usageOf } = await start(
    t,
    answers(ANSWER, 200, { 'set-cookie': 'a=1', 'x-goog-quota': '3' }),
  );
  const response = await post('gem/big:generateContent', ASK, {
    'user-agent': 'google-genai-sdk/2',
    'x-goog-api-client': 'google-genai-sdk/2',
    'x-goog-user-project': 'project-mine',
    cookie: 'mine=1',
  });
  assert.equal(response.status, 200);
  assert.equal(await response.text(), ANSWER);
  assert.deepEqual(
    ['set-cookie', 'x-goog-quota', 'x-dropped-params'].map((name) => response.headers.get(name)),
    [null, null, null],
  );
  const [seen] = upstream.requests;
  assert.deepEqual([seen?.path, seen?.text], ['/v1/models/big:generateContent', ASK]);
  const { headers } = seen ?? {};
  assert.equal(headers?.['x-goog-api-key'], GOOGLE_KEY);
  assert.deepEqual(
    [headers?.['user-agent'], headers?.['x-goog-api-client']],
    ['google-genai-sdk/2', 'google-genai-sdk/2'],
  );
  for (const name of ['authorization', 'cookie', 'x-goog-user-project']) assert.equal(headers?.[name], undefined, name);
  const used = await usageOf('gem/big');
  assert.deepEqual([used.prompt_tokens, used.completion_tokens], [20, 8]);
  const stored = await running.database.read(running.database.query.selectFrom('usage_contents').selectAll().compile());
  assert.deepEqual([stored[0]?.request, stored[0]?.answer], [ASK, ANSWER]);
});

test('a stream of Google’s API passes as bytes, or as the items of an array, however it is cut', async (t) => {
  const { upstream, post, usageOf } = await start(t);
  const whole = STREAM.join('');
  const items = whole
    .split('\r\n\r\n')
    .filter((each) => each !== '')
    .map((each) => JSON.parse(each.slice('data: '.length)));
  const half = Math.floor(whole.length / 2);
  for (const pieces of [STREAM, [whole], [whole.slice(0, half), whole.slice(half)]]) {
    upstream.script(streams(pieces, { apart: true }));
    const events = await post('gem/big:streamGenerateContent?alt=sse', ASK);
    assert.match(events.headers.get('content-type') ?? '', /^text\/event-stream/);
    assert.equal(await events.text(), whole);
    const array = await post('gem/big:streamGenerateContent', ASK);
    assert.match(array.headers.get('content-type') ?? '', /^application\/json/);
    assert.deepEqual(await array.json(), items);
  }
  assert.ok(upstream.requests.every(({ path }) => path === '/v1/models/big:streamGenerateContent?alt=sse'));
  const used = await usageOf('gem/big');
  assert.deepEqual([used.requests, used.prompt_tokens, used.completion_tokens], [6, 120, 12]);
});

test('a stream that breaks ends with an error of ours, for events and for an array, and is metered as one', async (t) => {
  const { upstream, post, usageOf } = await start(t);
  const begun = [piece('Hel')];
  const broken = [
    streams(begun),
    diesAfter(begun),
    streamsLater(begun, [event({ error: { code: 503, message: `busy ${GOOGLE_KEY}`, status: 'UNAVAILABLE' } })]),
    streamsLater(begun, [piece('other', { index: 1, finishReason: 'STOP' })]),
  ];
  for (const behaviour of broken) {
    for (const query of ['?alt=sse', '']) {
      upstream.script(behaviour);
      const text = await (await post(`gem/odd:streamGenerateContent${query}`, ASK)).text();
      assert.doesNotMatch(text, new RegExp(GOOGLE_KEY));
      // The error stands after the last event as well, where Google's own clients look for it.
      const last = query === '' ? JSON.parse(text).at(-1) : JSON.parse(text.slice(text.lastIndexOf('\n\n')));
      assert.ok(last.error.code >= 500, text);
      assert.ok(text.includes('"Hel"'), text);
      if (query !== '') assert.ok(text.includes(`data: ${JSON.stringify(last)}\n\n`), text);
    }
  }
  const used = await usageOf('gem/odd');
  assert.equal(used.errors, 2 * broken.length);
  assert.ok(used.prompt_tokens >= 20 * used.errors, 'what the first event says of the prompt counts');
});

test('a prompt that Google blocks, whole or as a stream, is an answer', async (t) => {
  const blocked = { promptFeedback: { blockReason: 'SAFETY' }, usageMetadata: { promptTokenCount: 4 } };
  const { upstream, post } = await start(t, answers(blocked));
  assert.deepEqual(await (await post('gem/big:generateContent', ASK)).json(), blocked);
  upstream.script(streams([event(blocked)]));
  assert.equal(await (await post('gem/big:streamGenerateContent?alt=sse', ASK)).text(), event(blocked));
});

test('errors have Google’s shape, and a lane falls back to a model that must be translated', async (t) => {
  const { upstream, post, get } = await start(t, refuses(400, `bad ${GOOGLE_KEY}`));
  const refused = await post('gem/big:generateContent', ASK);
  assert.equal(refused.status, 400);
  const { error } = (await refused.json()) as Json;
  assert.deepEqual([error.code, error.message, error.status], [400, 'bad [hidden]', 'INVALID_ARGUMENT']);
  const cases: readonly [Response, number, string, string][] = [
    [await post('nobody/x:generateContent', ASK), 404, 'NOT_FOUND', 'MODEL_NOT_FOUND'],
    [await post('gem/big:generateContent', ASK, {}, 'wrong'), 401, 'UNAUTHENTICATED', 'INVALID_API_KEY'],
    [await post('gem/big:generateContent', {}), 400, 'INVALID_ARGUMENT', 'INVALID_PARAMETER'],
    [await post('gem/big:tune', ASK), 404, 'NOT_FOUND', 'NOT_FOUND'],
    [await post('gem/big', ASK), 404, 'NOT_FOUND', 'NOT_FOUND'],
    [await post('gem/big:streamGenerateContent?alt=proto', ASK), 400, 'INVALID_ARGUMENT', 'INVALID_PARAMETER'],
    [await get('/v1beta/models/nobody'), 404, 'NOT_FOUND', 'MODEL_NOT_FOUND'],
    [await get('/v1beta/files'), 404, 'NOT_FOUND', 'NOT_FOUND'],
  ];
  for (const [response, status, word, reason] of cases) {
    const body = ((await response.json()) as Json).error;
    assert.deepEqual([response.status, body.code, body.status, body.details[0].reason], [status, status, word, reason]);
  }
  for (const behaviour of [refuses(503), answers('not JSON'), answers({ candidates: [] })]) {
    upstream.script(behaviour);
    const response = await post('safe:generateContent', {
      contents: [{ parts: [{ text: 'Hello' }] }],
      safetySettings: [],
    });
    assert.equal(response.headers.get('x-model-api'), 'demo');
    assert.equal(((await response.json()) as Json).candidates[0].content.parts[0].text, 'Hello');
  }
});

test('limits of a key hold, with the time to wait in Google’s words', async (t) => {
  const { running, post } = await start(t, answers(ANSWER));
  const options = { headers: { authorization: `Bearer ${MASTER}` } };
  const made = await running.post('/v1/keys', { name: 'one', requests_per_minute: 1 }, options);
  const { key } = (await made.json()) as Json;
  assert.equal((await post('gem/big:generateContent', ASK, {}, key)).status, 200);
  const over = await post('gem/big:generateContent', ASK, {}, key);
  const { error } = (await over.json()) as Json;
  assert.deepEqual([over.status, error.status], [429, 'RESOURCE_EXHAUSTED']);
  assert.match(error.details[1].retryDelay, /^\d+s$/);
  const spent = await running.post('/v1/keys', { name: 'two', budget: { usd: 1e-9, period: 'total' } }, options);
  const poor = ((await spent.json()) as Json).key;
  const refused = await post('priced:generateContent', ASK, {}, poor);
  assert.deepEqual(
    [refused.status, ((await refused.json()) as Json).error.details[0].reason],
    [429, 'INSUFFICIENT_QUOTA'],
  );
});

test('a key in the address is refused with 400, on every row, and no log line has it', async (t) => {
  const { running, upstream } = await start(t, answers(ANSWER));
  for (const path of ['/v1beta/models', '/v1beta/models/gem/big', '/v1beta/models/gem/big:generateContent']) {
    const body = path.endsWith('Content') ? { method: 'POST', body: ASK } : {};
    for (const headers of [{}, { 'x-goog-api-key': MASTER }]) {
      const response = await fetch(`${running.url}${path}?key=${MASTER}`, {
        ...body,
        headers: { ...headers, 'content-type': 'application/json' },
      });
      assert.equal(response.status, 400);
      const text = await response.text();
      assert.match(text, /x-goog-api-key/);
      assert.ok(!text.includes(MASTER));
    }
  }
  await fetch(`${running.url}/v1beta/elsewhere?key=${MASTER}`);
  assert.equal(upstream.requests.length, 0);
  assert.ok(!running.log().includes(MASTER));
});

test('what Google keeps for its account is refused: cached prompts, uploaded files, stores of files', async (t) => {
  const { upstream, post } = await start(t, answers(ANSWER));
  const file = (fileUri: string) => ({
    contents: [{ parts: [{ file_data: { mime_type: 'image/png', file_uri: fileUri } }] }],
  });
  const hello = { contents: [{ parts: [{ text: 'Hi' }] }] };
  for (const [body, field] of [
    [{ ...hello, cached_content: 'cachedContents/1' }, 'cachedContent'],
    [file('files/abc'), 'contents.0.parts.0.fileData.fileUri'],
    [file('https://generativelanguage.googleapis.com/v1beta/files/abc'), 'contents.0.parts.0.fileData.fileUri'],
    [file('https://generativelanguage.googleapis.com:443/v1beta/files/abc'), 'contents.0.parts.0.fileData.fileUri'],
    [file(' https://generativelanguage.googleapis.com./v1beta/files/abc'), 'contents.0.parts.0.fileData.fileUri'],
    [{ ...hello, tools: [{ file_search: { file_search_store_names: ['fileSearchStores/a'] } }] }, 'tools.0.fileSearch'],
  ] as const) {
    for (const name of ['gem/big:generateContent', 'gem/big:countTokens', 'plain/big:generateContent']) {
      const asked = name.endsWith('countTokens') ? { generateContentRequest: body } : body;
      const { error } = (await (await post(name, asked)).json()) as Json;
      assert.deepEqual([error.code, error.details[0].reason], [400, 'NOTHING_STORED'], name);
      assert.ok(error.message.startsWith(field), error.message);
    }
  }
  const twice = await post('gem/big:generateContent', {
    ...hello,
    cached_content: 'cachedContents/1',
    cachedContent: null,
  });
  assert.equal(twice.status, 400, 'a member in two spellings');
  assert.equal(upstream.requests.length, 0);
  assert.equal((await post('gem/big:generateContent', file('https://example.com/files/a.png'))).status, 200);
});

test('proofs of a translated answer reach Gemini as its own signatures, and calls of others as Google asks for', async (t) => {
  const { upstream, post } = await start(t, answers(ANSWER));
  const call = (signature: string) => ({ functionCall: { name: 'f', args: {} }, thoughtSignature: signature });
  const result = { role: 'user', parts: [{ functionResponse: { name: 'f', response: {} } }] };
  const ask = async (parts: readonly object[]) => {
    const contents = [{ role: 'user', parts: [{ text: 'Hi' }] }, { role: 'model', parts }, result];
    await post('gem/big:generateContent', { model: 'models/other', contents });
    const sent = upstream.requests.at(-1)?.json as { model?: string; contents: Json[] } | undefined;
    assert.equal(sent?.model, undefined, 'only the address names the model');
    return sent?.contents[1].parts;
  };
  const own = packProof({ thoughts: 'hm', signature: 'google:c0:c2ln;google:p:dGV4dA==;' });
  assert.deepEqual(await ask([call(own)]), [call('c2ln')]);
  assert.deepEqual(await ask([{ text: 'Hi', thoughtSignature: own }, call('bmF0aXZl')]), [
    { text: 'Hi', thoughtSignature: 'dGV4dA==' },
    call('bmF0aXZl'),
  ]);
  const foreign = packProof({ thoughts: 'hm', signature: 'claude:t2@0:c2ln;' });
  assert.deepEqual(await ask([call(foreign)]), [call('skip_thought_signature_validator')]);
  assert.deepEqual(await ask([{ text: 'Hi' }, { text: '', thoughtSignature: foreign }]), [{ text: 'Hi' }]);
});

test('thinking of Claude goes through a client of Gemini and back, with calls', async (t) => {
  const said = {
    ...{ id: 'msg_1', type: 'message', role: 'assistant', model: 'big', stop_reason: 'tool_use' },
    content: [
      { type: 'thinking', thinking: 'I think.', signature: 'c2ln' },
      { type: 'text', text: 'I look.' },
      { type: 'tool_use', id: 'toolu_1', name: 'f', input: { a: 1 } },
    ],
    usage: { input_tokens: 3, output_tokens: 4 },
  };
  const { upstream, post } = await start(t, answers(said));
  const ask = {
    contents: [{ role: 'user', parts: [{ text: 'Go' }] }],
    tools: [{ functionDeclarations: [{ name: 'f' }] }],
  };
  const answer = (await (await post('claude/big:generateContent', ask)).json()) as Json;
  const [text, call] = answer.candidates[0].content.parts;
  assert.deepEqual(text, { text: 'I look.' });
  assert.deepEqual(call.functionCall, { id: 'toolu_1', name: 'f', args: { a: 1 } });
  const result = { parts: [{ functionResponse: { name: 'f', response: { output: 'done' } } }] };
  await post('claude/big:generateContent', {
    ...ask,
    contents: [...ask.contents, answer.candidates[0].content, result],
  });
  const { messages = [] } = (upstream.requests.at(-1)?.json ?? {}) as { messages?: Json[] };
  assert.deepEqual(messages[1].content, said.content);
  assert.deepEqual(
    messages[2].content.map(({ type, tool_use_id: id }: Json) => [type, id]),
    [['tool_result', 'toolu_1']],
  );
});

test('tokens are counted by Google where it serves the model, and estimated elsewhere', async (t) => {
  const { upstream, post } = await start(t, answers({ totalTokens: 42, promptTokensDetails: [] }));
  const count = async (name: string, body: object) => (await (await post(`${name}:countTokens`, body)).json()) as Json;
  const contents = [{ parts: [{ text: 'Hello there' }] }];
  assert.equal((await count('gem/big', { contents })).totalTokens, 42);
  assert.equal(upstream.requests[0]?.path, '/v1/models/big:countTokens');
  await count('gem/big', { generate_content_request: { model: 'models/gem/big', contents } });
  assert.deepEqual(upstream.requests[1]?.json, { generateContentRequest: { model: 'models/big', contents } });
  assert.equal((await count('plain/big', { contents })).estimated, true);
  upstream.script(refuses(404));
  assert.equal((await count('gem/big', { contents })).estimated, true);
  assert.equal((await post('gem/big:countTokens', {})).status, 400);
});

test('embeddings are made by Google and by others, one or many', async (t) => {
  const { upstream, post, usageOf } = await start(t, answers({ embeddings: [{ values: [0.1, 0.2] }] }));
  const text = (each: string) => ({ content: { parts: [{ text: each }] } });
  const one = await post('gem/embed:embedContent', {
    ...text('a'),
    taskType: 'RETRIEVAL_QUERY',
    outputDimensionality: 2,
  });
  assert.deepEqual(await one.json(), { embedding: { values: [0.1, 0.2] } });
  const sent = upstream.requests[0]?.json as { requests: Json[] } | undefined;
  assert.deepEqual(sent?.requests[0], {
    model: 'models/embed',
    content: { parts: [{ text: 'a' }] },
    taskType: 'RETRIEVAL_QUERY',
    outputDimensionality: 2,
  });
  upstream.script(
    answers({
      object: 'list',
      data: [{ embedding: [1] }, { embedding: [2] }],
      usage: { prompt_tokens: 4, total_tokens: 4 },
    }),
  );
  const requests = [
    { ...text('a'), taskType: 'CLUSTERING' },
    { ...text('b'), taskType: 'CLUSTERING' },
  ];
  const many = await post('plain/embed:batchEmbedContents', { requests });
  assert.deepEqual(await many.json(), { embeddings: [{ values: [1] }, { values: [2] }] });
  assert.equal(many.headers.get('x-dropped-params'), 'taskType');
  assert.deepEqual(upstream.requests[1]?.json, { model: 'embed', input: ['a', 'b'], encoding_format: 'float' });
  const mixed = await post('plain/embed:batchEmbedContents', { requests: [requests[0], text('b')] });
  assert.equal(mixed.status, 400);
  const image = { content: { parts: [{ inlineData: { mimeType: 'image/png', data: 'AA' } }] } };
  assert.equal((await post('plain/embed:embedContent', image)).status, 400);
  assert.equal((await usageOf('plain/embed')).prompt_tokens, 4);
});

test('models are listed in pages, and shown one by one', async (t) => {
  const { get } = await start(t, answers(completionOf('')));
  const names: string[] = [];
  let token: string | undefined;
  do {
    const page = (await (
      await get(`/v1beta/models?pageSize=1${token === undefined ? '' : `&pageToken=${encodeURIComponent(token)}`}`)
    ).json()) as Json;
    names.push(...page.models.map(({ name }: Json) => name));
    token = page.nextPageToken;
  } while (token !== undefined && names.length < 2);
  assert.deepEqual(names.slice(0, 2), ['models/priced', 'models/safe']);
  assert.equal((await get('/v1beta/models?pageToken=nothing')).status, 400);
  const shown = (await (await get('/v1beta/models/demo/echo')).json()) as Json;
  assert.deepEqual([shown.name, shown.supportedGenerationMethods[0]], ['models/demo/echo', 'generateContent']);
});
