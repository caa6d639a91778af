import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, labAt, readStream, startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  completionOf,
  eventsOf,
  refuses,
  startScriptedUpstream,
  streams,
  USAGE,
} from '../../kit/scripted-upstream.ts';

type Json = Record<string, unknown>;
const jsonOf = async (response: Response) => (await response.json()) as Json;

const TEXT = {
  id: 'cmpl-1',
  object: 'text_completion',
  created: 1_700_000_000,
  model: 'base',
  choices: [{ index: 0, text: ' there', logprobs: null, finish_reason: 'stop' }],
  usage: USAGE,
};

test('P-33: /completions goes to an upstream of the same dialect as it is, whole and as a stream', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(TEXT));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const body = { model: 'lab/base', prompt: ['Hello', 'Hi'], suffix: '!', max_tokens: 4 };
  assert.deepEqual(await jsonOf(await post('/v1/completions', body)), TEXT);
  assert.deepEqual(upstream.requests[0]?.json, { ...body, model: 'base' });
  assert.equal(upstream.requests[0]?.path, '/v1/completions');
  assert.equal((await jsonOf(await post('/completions', body))).created, '1700000000');

  const chunk = (text: string, finish: string | null) => ({
    ...TEXT,
    usage: undefined,
    choices: [{ index: 0, text, logprobs: null, finish_reason: finish }],
  });
  const events = [chunk('a', null), chunk('b', 'stop')].map((each) => `data: ${JSON.stringify(each)}\n\n`);
  const usage = `data: ${JSON.stringify({ ...TEXT, choices: [] })}\n\n`;
  upstream.script(streams([...events, usage, 'data: [DONE]\n\n']));
  const response = await post('/v1/completions', { model: 'lab/base', prompt: 'Hello', stream: true });
  assert.equal(await response.text(), `${events.join('')}data: [DONE]\n\n`);
});

test('a text completion reserves the budget for all answers to all of its prompts', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(TEXT));
  const master = 'master-key-of-the-texts-1';
  const { post } = await startCompletions(t, {
    settings: { ...labAt(upstream.url), master_key: master, prices: { 'lab/base': { input: 0, output: 0.001 } } },
  });
  const budget = { usd: 1, period: 'total' };
  const issued = await post('/keys', { name: 'one', budget }, { headers: { authorization: `Bearer ${master}` } });
  const headers = { authorization: `Bearer ${(await jsonOf(issued)).key}` };
  const statusOf = async (rest: object) =>
    (await post('/v1/completions', { model: 'lab/base', prompt: 'a', max_tokens: 100, ...rest }, { headers })).status;
  for (const rest of [
    { prompt: Array(11).fill('a') },
    { best_of: 11 },
    { n: 11 },
    { prompt: Array(4).fill([1]), n: 3 },
  ]) {
    assert.equal(await statusOf(rest), 429, JSON.stringify(rest));
  }
  assert.equal(upstream.requests.length, 0);
  assert.equal(await statusOf({ prompt: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11] }), 200, 'one prompt of eleven tokens');
});

test('line ends before an answer do not spoil it: some servers send them so that the connection stays open', async (t) => {
  const upstream = await startScriptedUpstream(t);
  const { post, usage } = await startCompletions(t, { settings: labAt(upstream.url) });
  const list = { object: 'list', data: [{ object: 'embedding', index: 0, embedding: [0.1] }], usage: USAGE };
  for (const [path, body, answer] of [
    ['/v1/completions', { prompt: 'Hello' }, TEXT],
    ['/v1/embeddings', { input: 'Hello' }, list],
    ['/v1/rerank', { query: 'a', documents: ['a'] }, { results: [{ index: 0, relevance_score: 1 }], usage: USAGE }],
    ['/v1/chat/completions', { messages: HELLO.messages }, completionOf('ok')],
  ] as const) {
    upstream.script(answers(`\n\r\n ${JSON.stringify(answer)}`));
    const response = await post(path, { ...body, model: 'lab/base' });
    assert.deepEqual([response.status, await response.json()], [200, answer], path);
  }
  assert.equal(upstream.requests.length, 4, 'none was asked again');
  assert.equal((await usage()).total.completion_tokens, 4 * USAGE.completion_tokens);
});

test('P-33: where there is no such operation the prompt becomes a chat, and the answer a text again', async (t) => {
  const upstream = await startScriptedUpstream(t);
  upstream.script(refuses(404, 'Unknown request URL'), answers(completionOf('from a chat')));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const response = await post('/v1/completions', { model: 'lab/small', prompt: 'Hello', logprobs: 2, seed: 7 });
  assert.equal(response.headers.get('x-dropped-params'), 'logprobs');
  const body = await jsonOf(response);
  assert.equal(body.object, 'text_completion');
  assert.deepEqual(body.choices, [{ index: 0, text: 'from a chat', logprobs: null, finish_reason: 'stop' }]);
  assert.deepEqual(body.usage, USAGE);
  assert.deepEqual(upstream.requests[1]?.json, {
    model: 'small',
    messages: [{ role: 'user', content: 'Hello' }],
    seed: 7,
  });

  const echoed = await jsonOf(await post('/completions', { model: 'demo/echo', prompt: 'Hello there' }));
  assert.equal((echoed.choices as Json[])[0]?.text, 'Hello there');
  assert.equal(typeof echoed.created, 'string');
  const stream = { model: 'demo/echo', prompt: 'Hello there', stream: true, stream_options: { include_usage: true } };
  const { events, done } = await readStream(await post('/v1/completions', stream));
  const chunks = events.slice(0, -1).map((data) => JSON.parse(data));
  assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join(''), 'Hello there');
  assert.equal(chunks.at(-2).choices[0].finish_reason, 'stop');
  assert.equal(chunks.at(-1).usage.total_tokens, 4);
  assert.ok(done);
  const several = await post('/v1/completions', { model: 'demo/echo', prompt: ['a', 'b'] });
  assert.equal(several.status, 400);
});

test('embeddings pass to upstreams of the same dialect, and are translated for Cohere and Gemini', async (t) => {
  const list = {
    object: 'list',
    data: [{ object: 'embedding', index: 0, embedding: [0.1, 0.2] }],
    model: 'e',
    usage: { prompt_tokens: 3, total_tokens: 3 },
  };
  const upstream = await startScriptedUpstream(t, answers(list));
  const apis = {
    lab: { dialect: 'openai', base_url: upstream.url },
    cohere: { dialect: 'cohere', base_url: `${upstream.origin}/v2`, api_key: 'cohere-key-123' },
    gem: { dialect: 'google', base_url: `${upstream.origin}/v1beta`, api_key: 'gemini-key-123' },
    claude: { dialect: 'anthropic', base_url: upstream.url, api_key: 'claude-key-123' },
  };
  const { post, usage } = await startCompletions(t, { settings: { apis } });
  const embed = async (model: string, input: unknown = 'Hi', extra = {}) =>
    post('/v1/embeddings', { model, input, ...extra });
  assert.deepEqual(await jsonOf(await embed('lab/e')), list);
  assert.deepEqual(upstream.requests[0]?.json, { model: 'e', input: 'Hi' });

  upstream.script(
    answers({
      embeddings: {
        float: [
          [1, 2],
          [3, 4],
        ],
      },
      meta: { billed_units: { input_tokens: 5 } },
    }),
  );
  const cohere = await jsonOf(await embed('cohere/embed-v4', ['a', 'b']));
  assert.deepEqual(
    (cohere.data as Json[]).map((each) => each.embedding),
    [
      [1, 2],
      [3, 4],
    ],
  );
  assert.deepEqual(cohere.usage, { prompt_tokens: 5, total_tokens: 5 });
  assert.equal(upstream.requests[1]?.path, '/v2/embed');

  upstream.script(answers({ embeddings: [{ values: [0.5, -1] }] }));
  const gemini = await jsonOf(await embed('gem/text-embedding-004', 'a', { encoding_format: 'base64' }));
  const [{ embedding }] = gemini.data as [{ embedding: string }];
  const bytes = Buffer.from(embedding, 'base64');
  assert.deepEqual([bytes.readFloatLE(0), bytes.readFloatLE(4)], [0.5, -1]);
  assert.equal((gemini.usage as Json).estimated, true);
  assert.equal(upstream.requests[2]?.path, '/v1beta/models/text-embedding-004:batchEmbedContents');

  for (const model of ['claude/x', 'demo/echo']) {
    const refused = await embed(model);
    assert.equal(refused.status, 400);
    assert.equal(((await jsonOf(refused)).error as Json).code, 'operation_not_supported');
  }
  assert.equal((await embed('gem/x', [1, 2])).status, 400);
  assert.ok(((await usage()).total.requests ?? 0) >= 3);
});

test('equal requests of one key are answered from the cache when the caller or the alias asks for it', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('fresh')));
  const master = 'master-key-9d8f7a6b5c4e';
  const { url, post } = await startCompletions(t, {
    settings: labAt(upstream.url, {
      master_key: master,
      models: [{ name: 'kept', targets: [{ model: 'lab/small' }], cache: { ttl: '1m' } }],
    }),
  });
  const issued = await fetch(`${url}/keys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${master}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'other' }),
  });
  const { key } = (await issued.json()) as { key: string };
  const call = (body: object, bearer: string, headers = {}) =>
    post('/v1/chat/completions', body, { headers: { authorization: `Bearer ${bearer}`, ...headers } });
  const states: (string | null)[] = [];
  const note = async (response: Response) => {
    assert.equal(response.status, 200);
    assert.deepEqual(await jsonOf(response), completionOf('fresh'));
    states.push(response.headers.get('x-cache'));
  };
  const kept = { ...HELLO, model: 'kept' };
  await note(await call(kept, master));
  await note(await call(kept, master));
  await note(await call({ ...kept, seed: 1 }, master));
  await note(await call(kept, key));
  await note(await call(kept, master, { 'x-cache-ttl': '0' }));
  await note(await call(HELLO, master));
  await note(await call(HELLO, master, { 'x-cache-ttl': '60' }));
  await note(await call(HELLO, master, { 'x-cache-ttl': '60' }));
  assert.deepEqual(states, ['miss', 'hit', 'miss', 'miss', null, null, 'miss', 'hit']);
  assert.equal(upstream.requests.length, 6);
});

test('streams, messages, responses and Gemini calls come from the cache as they came from the model', async (t) => {
  const claude = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Hi"}], "stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`;
  const upstream = await startScriptedUpstream(t);
  const at = { base_url: upstream.url, api_key: 'some-key-1' };
  const { post, usage } = await startCompletions(t, {
    settings: { apis: { lab: { dialect: 'openai', ...at }, claude: { dialect: 'anthropic', ...at } } },
  });
  const ask = { messages: [{ role: 'user', content: 'Hi' }] };
  const words = eventsOf(['a', 'b', 'c']);
  const broken = streams(words.slice(0, 2));
  for (const [path, body, behaviour] of [
    ['/v1/chat/completions', { ...ask, model: 'lab/m', stream: true }, streams(words)],
    ['/v1/messages', { ...ask, model: 'claude/m', max_tokens: 9 }, answers(claude)],
    ['/v1/chat/completions', { ...ask, model: 'claude/m', seed: 7, logit_bias: { 5: 1 } }, answers(claude)],
    ['/v1/messages', { ...ask, model: 'lab/m', max_tokens: 9, stream: true }, streams(words)],
    ['/v1/responses', { model: 'lab/m', input: 'Hi' }, answers(completionOf('Hi'))],
    ['/v1/responses', { model: 'lab/m', input: 'Hi', stream: true }, streams(words)],
    ['/v1beta/models/lab/m:streamGenerateContent', { contents: [{ parts: [{ text: 'Hi' }] }] }, streams(words)],
    ['/v1beta/models/lab/m:streamGenerateContent?alt=sse', { contents: [{ parts: [{ text: 'Hi' }] }] }, streams(words)],
  ] as const) {
    const call = (headers = {}) => post(path, body, { headers: { 'x-cache-ttl': '60', ...headers } });
    const before = upstream.requests.length;
    if ('stream' in body && path === '/v1/chat/completions') {
      upstream.script(broken);
      assert.doesNotMatch(await (await call()).text(), /DONE/);
      assert.equal(upstream.requests.length, before + 1);
      upstream.requests.pop();
    }
    upstream.script(behaviour);
    const first = await call();
    const text = await first.text();
    assert.equal(first.headers.get('x-cache'), 'miss', path);
    const again = await call();
    assert.equal(await again.text(), text, path);
    assert.deepEqual(
      ['x-cache', 'content-type', 'x-dropped-params'].map((name) => again.headers.get(name)),
      ['hit', first.headers.get('content-type'), first.headers.get('x-dropped-params')],
    );
    assert.equal(first.headers.get('x-dropped-params'), 'seed' in body ? 'seed, logit_bias' : null, path);
    assert.equal(upstream.requests.length, before + 1, path);
    assert.equal(
      (await call({ 'anthropic-beta': 'other' })).headers.get('x-cache'),
      'miss',
      'a beta is another request',
    );
  }
  const { data } = await usage('outcome');
  assert.equal(data.find(({ group }) => String(group) === 'cached')?.requests, 8);
});

test('demo/echo can be told to be slow, to refuse and to break off', async (t) => {
  const { post } = await startCompletions(t);
  const say = (model: string, rest = {}) =>
    post('/v1/chat/completions', { model, messages: [{ role: 'user', content: 'one two three' }], ...rest });
  const started = performance.now();
  const slow = await readStream(await say('demo/echo?delay=30', { stream: true }));
  assert.equal(slow.text, 'one two three');
  assert.ok(performance.now() - started >= 60);
  assert.equal((await say('demo/echo?status=503')).status, 502);
  assert.equal((await say('demo/echo?status=429')).status, 429);
  const broken = await readStream(await say('demo/echo?break=2', { stream: true }));
  assert.equal(broken.text, 'one two');
  assert.equal(broken.error?.code, 'upstream_error');
  const short = await jsonOf(await say('demo/echo', { max_tokens: 2 }));
  assert.equal((short.choices as Json[])[0]?.finish_reason, 'length');
  assert.equal((await say('demo/other')).status, 404);
});

test('demo/agent calls the tool that a prompt asks for, where it is offered, and tells what the tool answered', async (t) => {
  const { post } = await startCompletions(t);
  const tools = ['write_file', 'run_command'].map((name) => ({ type: 'function', function: { name, parameters: {} } }));
  const say = (content: string, rest: object = {}) =>
    post('/v1/chat/completions', { model: 'demo/agent', messages: [{ role: 'user', content }], tools, ...rest });
  interface Choice {
    readonly finish_reason: string;
    readonly message: { content: string; tool_calls: { id: string; function: { name: string; arguments: string } }[] };
  }
  const choice = async (response: Response) => ((await jsonOf(response)).choices as Choice[])[0];
  const write = await choice(await say('Write notes.txt about long bridges'));
  assert.equal(write?.finish_reason, 'tool_calls');
  const [call] = write?.message.tool_calls ?? [];
  assert.ok(call !== undefined);
  assert.equal(call.function.name, 'write_file');
  assert.deepEqual(JSON.parse(call.function.arguments), { path: 'notes.txt', content: 'About long bridges.\n' });
  const run = await choice(await say('run ls -l'));
  assert.deepEqual(JSON.parse(run?.message.tool_calls[0]?.function.arguments ?? ''), { command: 'ls', args: ['-l'] });
  const streamed = await (await say('run ls', { stream: true })).text();
  assert.match(streamed, /"tool_calls":\[\{"index":0,"id":"[^"]+","type":"function","function":\{"name":"run_command"/);
  for (const [text, rest] of [
    ['run ls', { tools: [] }],
    ['What is a bridge?', {}],
  ] as const) {
    assert.equal((await choice(await say(text, rest)))?.message.content, text);
  }
  const messages = [
    { role: 'user', content: 'run ls' },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: call.id, content: 'a.txt' },
  ];
  assert.equal((await choice(await say('', { messages })))?.message.content, 'The tool answered: a.txt');
});

test('programs that work for owners share one id, and see nothing of each other', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('fresh')));
  const { url, post, completions } = await startCompletions(t, {
    settings: labAt(upstream.url, { master_key: 'master-key-of-the-programs-1', store_content: true }),
  });
  const [mine, theirs] = ['user:usr_1', 'user:usr_2'].map((owner) => completions.temporaryKey({ owner }));
  const call = async (key: string | undefined, path: string, body: object) => {
    const headers = { authorization: `Bearer ${key}`, 'x-cache-ttl': '60' };
    const response = await post(path, { model: 'lab/small', ...body }, { headers });
    assert.equal(response.status, 200, path);
    return response;
  };
  const asked = { messages: HELLO.messages };
  for (const [key, cached] of [
    [mine, 'miss'],
    [mine, 'hit'],
    [theirs, 'miss'],
  ] as const) {
    assert.equal((await call(key, '/v1/chat/completions', asked)).headers.get('x-cache'), cached);
  }
  const said = await jsonOf(await call(mine, '/v1/responses', { input: 'Hello' }));
  const [{ id }] = said.output as [{ id: string }];
  const input = [
    { type: 'item_reference', id },
    { role: 'user', content: 'Go on' },
  ];
  await call(mine, '/v1/responses', { input });
  const headers = { authorization: `Bearer ${theirs}` };
  const refused = await post('/v1/responses', { model: 'lab/small', input }, { headers });
  assert.equal(((await jsonOf(refused)).error as Json).code, 'nothing_stored');

  const read = async (key: string | undefined, path: string) =>
    jsonOf(await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${key}` } }));
  const [own, other] = [await read(mine, '/v1/usage/calls'), await read(theirs, '/v1/usage/calls')];
  const [first] = own.data as Json[];
  assert.deepEqual([(own.data as Json[]).length, (other.data as Json[]).length], [4, 2]);
  assert.equal(((await read(theirs, `/v1/usage/calls/${first?.id}`)).error as Json).code, 'call_not_found');
  const requests = async (key: string | undefined) =>
    ((await read(key, '/v1/usage?group_by=day')).total as Json).requests;
  assert.deepEqual([await requests(mine), await requests(theirs)], [4, 2]);
});

test('an answer is kept for the models that were allowed to give it', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(completionOf('fresh')));
  const { post } = await startCompletions(t, { settings: labAt(upstream.url) });
  const ask = (headers: object) =>
    post('/v1/chat/completions', HELLO, { headers: { 'x-cache-ttl': '60', ...headers } });
  const other = { 'x-fallback-models': 'demo/echo' };
  const states: (string | null)[] = [];
  for (const headers of [other, {}, other, {}]) states.push((await ask(headers)).headers.get('x-cache'));
  assert.deepEqual(states, ['miss', 'miss', 'hit', 'hit']);
});

test('an answer to a part of a request is no answer for a caller who wants all of it', async (t) => {
  const { post } = await startCompletions(t, { settings: {} });
  const body = { model: 'demo/echo', messages: HELLO.messages, logit_bias: { 1: 5 } };
  const ask = (headers: object) => post('/v1/chat/completions', body, { headers: { 'x-cache-ttl': '60', ...headers } });
  assert.equal((await ask({})).headers.get('x-cache'), 'miss');
  assert.equal((await ask({})).headers.get('x-cache'), 'hit');
  assert.equal((await ask({ 'x-strict-params': 'true' })).status, 400);
});
