import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { sql } from 'kysely';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, type Behaviour, refuses, startScriptedUpstream } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const MASTER = 'master-key-of-the-files-1';
const CHAT = '/v1/chat/completions';

async function start(t: TestContext, ...behaviours: Behaviour[]) {
  const upstream = await startScriptedUpstream(t, ...behaviours);
  const at = { base_url: upstream.url };
  const running = await startCompletions(t, {
    settings: {
      master_key: MASTER,
      files_api: 'lab',
      apis: {
        lab: { dialect: 'openai', api_key: 'lab-key-1', responses: true, ...at },
        pool: {
          dialect: 'openai',
          api_keys: [
            { name: 'a', key: 'key-a' },
            { name: 'b', key: 'key-b', weight: 0 },
          ],
          ...at,
        },
        claude: { dialect: 'anthropic', api_key: 'claude-key-1', ...at },
        west: { dialect: 'cohere', api_key: 'west-key-1', ...at },
      },
      models: [{ name: 'cheap', targets: [{ model: 'lab/small' }] }],
      prices: { 'lab/small': { input: 0.001, output: 0.01, batch_input: 0.0005, batch_output: 0.005 } },
    },
  });
  const ask = (method: string, path: string, { key = MASTER, body, headers = {} }: Json = {}) =>
    fetch(`${running.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(typeof body === 'object' && !(body instanceof FormData) && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: body instanceof FormData ? body : JSON.stringify(body) }),
    });
  const newKey = async (rest: object = {}): Promise<string> =>
    ((await (await ask('POST', '/v1/keys', { body: { name: 'one', models: [], ...rest } })).json()) as Json).key;
  const upload = (content: string, purpose: string, options: Json = {}) => {
    const form = new FormData();
    form.append('purpose', purpose);
    form.append('file', new Blob([content]), 'input.jsonl');
    return ask('POST', '/v1/files', { ...options, body: form });
  };
  const calls = async (): Promise<Json[]> => ((await (await ask('GET', '/v1/usage/calls')).json()) as Json).data;
  return { upstream, running, ask, newKey, upload, calls };
}

const line = (model: string, rest: object = {}, url = CHAT) =>
  `${JSON.stringify({ custom_id: 'a', method: 'POST', url, body: { model, messages: [{ role: 'user', content: 'Hello' }], ...rest } })}\n`;
const FILE = { id: 'file-1', object: 'file', filename: 'input.jsonl', purpose: 'user_data' };
const code = async (response: Response) => ((await response.json()) as Json).error.code;

test('a file goes to the API that keeps it, and only its owner can reach it again', async (t) => {
  const { upstream, ask, newKey, upload, calls } = await start(t, answers(FILE));
  const [mine, other] = [await newKey(), await newKey()];
  const created = await upload('text of mine', 'user_data', { key: mine });
  assert.equal(created.status, 200);
  assert.deepEqual(await created.json(), FILE);
  const [seen] = upstream.requests;
  assert.deepEqual([seen?.method, seen?.path, seen?.headers.authorization], ['POST', '/v1/files', 'Bearer lab-key-1']);
  assert.match(seen?.text ?? '', /name="purpose"\r\n\r\nuser_data\r\n/);
  assert.match(seen?.text ?? '', /filename="input.jsonl"[\s\S]*text of mine/);
  for (const [method, path] of [
    ['GET', '/v1/files/file-1'],
    ['DELETE', '/v1/files/file-1'],
    ['GET', '/v1/files/file-1/content'],
    ['GET', '/v1/batches/file-1'],
    ['POST', '/v1/batches/file-1/cancel'],
    ['GET', '/v1/files?after=file-1'],
  ] as const) {
    const key = path.startsWith('/v1/batches') ? mine : other;
    const refused = await ask(method, path, { key });
    assert.deepEqual([refused.status, await code(refused)], [400, 'nothing_stored'], `${method} ${path}`);
  }
  assert.equal(upstream.requests.length, 1, 'nothing of a stranger reaches the API');
  const shown = await ask('GET', '/v1/files/file-1', { key: mine });
  assert.deepEqual(await shown.json(), FILE);
  assert.deepEqual([upstream.requests[1]?.method, upstream.requests[1]?.path], ['GET', '/v1/files/file-1']);
  upstream.script((response) => void response.writeHead(200, { 'content-type': 'text/html' }).end('<b>'));
  const content = await ask('GET', '/v1/files/file-1/content', { key: mine });
  assert.equal(await content.text(), '<b>');
  assert.equal(content.headers.get('content-type'), 'application/octet-stream');
  assert.equal(upstream.requests[2]?.path, '/v1/files/file-1/content');
  upstream.script(answers({ id: 'file-1', deleted: true }));
  assert.equal(((await (await ask('DELETE', '/v1/files/file-1', { key: mine })).json()) as Json).deleted, true);
  assert.equal(upstream.requests[3]?.method, 'DELETE');
  assert.equal((await ask('GET', '/v1/files/file-1', { key: mine })).status, 400);
  const noted = (await calls()).filter(({ operation }) => operation === 'file');
  assert.equal(noted.length, 4);
  assert.ok(noted.every(({ model, outcome }) => model === 'lab/files' && outcome === 'ok'));
});

test('lists have what is the caller’s alone, in pages, without what the API has lost', async (t) => {
  const { upstream, ask, newKey, upload, calls } = await start(t);
  const [mine, other] = [await newKey(), await newKey()];
  for (const [id, key] of [
    ['file-1', mine],
    ['file-2', other],
    ['file-3', mine],
    ['file-4', mine],
  ] as const) {
    upstream.script(answers({ ...FILE, id }));
    await upload('x', 'user_data', { key });
  }
  const byPath: Behaviour = (response, seen) =>
    seen.path.endsWith('file-3')
      ? refuses(404)(response, seen)
      : answers({ ...FILE, id: seen.path.split('/').at(-1) })(response, seen);
  upstream.script(byPath);
  const list = async (query: string) => (await (await ask('GET', `/v1/files${query}`, { key: mine })).json()) as Json;
  const before = (await calls()).length;
  const first = await list('?limit=2');
  const [listed, ...earlier] = await calls();
  assert.equal(earlier.length, before, 'a list is one call, however many objects it has');
  assert.deepEqual([listed.operation, listed.outcome, listed.api], ['file', 'ok', 'lab']);
  assert.deepEqual([first.data.map(({ id }: Json) => id), first.has_more, first.last_id], [['file-4'], true, 'file-3']);
  assert.deepEqual(
    (await list('')).data.map(({ id }: Json) => id),
    ['file-4', 'file-1'],
  );
  assert.deepEqual(
    (await list('?after=file-4')).data.map(({ id }: Json) => id),
    ['file-1'],
  );
});

test('a batch is charged for its lines at the price of batches, and its results are its owner’s', async (t) => {
  const { upstream, ask, newKey, upload, calls } = await start(t, answers({ ...FILE, purpose: 'batch' }));
  const mine = await newKey({ models: ['cheap'], tokens_per_minute: 100 });
  const created = await upload(line('cheap', { max_tokens: 1000 }) + line('cheap', { max_tokens: 500 }), 'batch', {
    key: mine,
  });
  assert.equal(created.status, 200);
  assert.match(
    upstream.requests[0]?.text ?? '',
    /"body":\{"model":"small","messages"/,
    'lines have the API’s own name',
  );
  const batch = { id: 'batch_1', object: 'batch', status: 'validating', output_file_id: null };
  upstream.script(answers(batch));
  const asked = { input_file_id: 'file-1', endpoint: CHAT, completion_window: '24h', metadata: { a: 'b' } };
  const wrong = await ask('POST', '/v1/batches', { key: mine, body: { ...asked, endpoint: '/v1/embeddings' } });
  assert.equal(((await wrong.json()) as Json).error.param, 'endpoint');
  const started = await ask('POST', '/v1/batches', { key: mine, body: { ...asked, model: 'lab/dear' } });
  assert.deepEqual(await started.json(), batch);
  assert.deepEqual([upstream.requests[1]?.path, upstream.requests[1]?.json], ['/v1/batches', asked]);
  const [call] = await calls();
  const { prompt_tokens: prompt, completion_tokens: completion, estimated } = call.usage;
  assert.deepEqual([call.operation, call.model, completion, estimated], ['batch', 'cheap', 1500, true]);
  assert.ok(prompt > 0);
  assert.equal(call.cost_usd, Number((prompt * 0.0005 + 1500 * 0.005).toFixed(9)));
  upstream.script(answers({ ...batch, status: 'completed', output_file_id: 'file-out', error_file_id: 'file-err' }));
  assert.equal((await ask('GET', '/v1/files/file-out', { key: mine })).status, 400, 'not known yet');
  assert.equal((await ask('GET', '/v1/batches/batch_1', { key: mine })).status, 200);
  for (const id of ['file-out', 'file-err']) {
    upstream.script(answers('{"custom_id":"a"}\n'));
    const results = await ask('GET', `/v1/files/${id}/content`, { key: mine });
    assert.equal(await results.text(), '{"custom_id":"a"}\n');
    assert.equal((await ask('GET', `/v1/files/${id}/content`, { key: await newKey() })).status, 400);
  }
  upstream.script(answers({ ...batch, status: 'cancelling' }));
  assert.equal((await ask('POST', '/v1/batches/batch_1/cancel', { key: mine })).status, 200);
  assert.equal(upstream.requests.at(-1)?.path, '/v1/batches/batch_1/cancel');
});

test('a budget refuses the batch that it cannot pay, and never the results of one that it paid', async (t) => {
  const { upstream, ask, newKey, upload } = await start(t, answers({ ...FILE, purpose: 'batch' }));
  const mine = await newKey({ budget: { usd: 6, period: 'total' } });
  const asked = { input_file_id: 'file-1', endpoint: CHAT, completion_window: '24h' };
  await upload(line('lab/small', { max_tokens: 1000 }), 'batch', { key: mine });
  upstream.script(answers({ id: 'batch_1', status: 'completed', output_file_id: 'file-out' }));
  assert.equal((await ask('POST', '/v1/batches', { key: mine, body: asked })).status, 200);
  const second = await ask('POST', '/v1/batches', { key: mine, body: asked });
  assert.deepEqual([second.status, await code(second)], [429, 'insufficient_quota']);
  upstream.script(answers('{}'));
  assert.equal((await ask('GET', '/v1/files/file-out/content', { key: mine })).status, 200);
});

test('a batch that has ended is charged for what its API says it used, once, and its budget has room again', async (t) => {
  const { upstream, ask, newKey, upload, calls } = await start(t, answers({ ...FILE, purpose: 'batch' }));
  const mine = await newKey({ budget: { usd: 6, period: 'month' } });
  const total = async () => ((await (await ask('GET', '/v1/usage?group_by=model')).json()) as Json).total;
  const asked = { input_file_id: 'file-1', endpoint: CHAT, completion_window: '24h' };
  await upload(line('lab/small', { max_tokens: 1000 }), 'batch', { key: mine });
  const batch = { id: 'batch_1', object: 'batch', status: 'in_progress', request_counts: { total: 1, completed: 0 } };
  upstream.script(answers(batch));
  assert.equal((await ask('POST', '/v1/batches', { key: mine, body: asked })).status, 200);
  assert.equal((await ask('GET', '/v1/batches/batch_1', { key: mine })).status, 200);
  const refused = await ask('POST', '/v1/batches', { key: mine, body: asked });
  assert.deepEqual([refused.status, await code(refused)], [429, 'insufficient_quota'], 'its estimate holds');
  assert.equal((await total()).completion_tokens, 1000, 'it has not ended');

  const usage = { input_tokens: 20, output_tokens: 100, total_tokens: 120 };
  const ended = { ...batch, status: 'completed', request_counts: { total: 1, completed: 1 }, usage };
  upstream.script(answers(ended));
  const before = (await total()).requests;
  const both = await Promise.all([1, 2].map(() => ask('GET', '/v1/batches/batch_1', { key: mine })));
  assert.deepEqual(
    both.map(({ status }) => status),
    [200, 200],
  );
  assert.equal((await ask('GET', '/v1/batches', { key: mine })).status, 200);
  const corrections = (await calls()).filter(({ cost_usd: cost }) => cost < 0);
  assert.equal(corrections.length, 1);
  assert.deepEqual([corrections[0].model, corrections[0].usage.completion_tokens], ['lab/small', -900]);
  const sums = await total();
  assert.equal(sums.requests, before + 3, 'a correction is not a request');
  assert.deepEqual([sums.prompt_tokens, sums.completion_tokens], [20, 100]);
  assert.equal(sums.cost_usd, 20 * 0.0005 + 100 * 0.005);

  upstream.script(answers({ ...batch, id: 'batch_2' }));
  assert.equal((await ask('POST', '/v1/batches', { key: mine, body: asked })).status, 200, 'the budget has room');
  upstream.script(answers({ ...batch, id: 'batch_2', status: 'failed' }));
  assert.equal((await ask('POST', '/v1/batches/batch_2/cancel', { key: mine })).status, 200);
  assert.equal((await total()).cost_usd, sums.cost_usd, 'a batch that did nothing costs nothing');
});

test('a batch of text completions is charged for all answers to all prompts', async (t) => {
  const { upstream, ask, upload, calls } = await start(t, answers({ ...FILE, purpose: 'batch' }));
  const url = '/v1/completions';
  const lines = [
    { prompt: ['a', 'b', 'c'], n: 2 },
    { prompt: 'a', best_of: 5 },
    { prompt: [1, 2], n: 1 },
  ];
  assert.equal(
    (await upload(lines.map((each) => line('cheap', { ...each, max_tokens: 10 }, url)).join(''), 'batch')).status,
    200,
  );
  upstream.script(answers({ id: 'batch_1', object: 'batch', status: 'validating' }));
  const body = { input_file_id: 'file-1', endpoint: url, completion_window: '24h' };
  assert.equal((await ask('POST', '/v1/batches', { body })).status, 200);
  assert.equal((await calls())[0].usage.completion_tokens, (6 + 5 + 1) * 10);

  upstream.script(answers({ ...FILE, id: 'file-2', purpose: 'batch' }));
  const input = Array(500).fill(7);
  assert.equal((await upload(line('cheap', { messages: undefined, input }, '/v1/embeddings'), 'batch')).status, 200);
  upstream.script(answers({ id: 'batch_2', object: 'batch', status: 'validating' }));
  const embeddings = { ...body, input_file_id: 'file-2', endpoint: '/v1/embeddings' };
  assert.equal((await ask('POST', '/v1/batches', { body: embeddings })).status, 200);
  const { prompt_tokens: prompt } = (await calls())[0].usage;
  assert.ok(prompt >= 500, `${prompt} for 500 numbers of tokens`);
});

test('a line of a batch asks for nothing that a request may not ask for', async (t) => {
  const { upstream, newKey, upload } = await start(t, answers(FILE));
  const limited = await newKey({ models: ['cheap'] });
  const rows: [content: string, status: number, message: RegExp][] = [
    ['', 400, /Line 1 of the file: the file has no line/],
    ['{"a":', 400, /Line 1 of the file: it is not valid JSON/],
    [`${line('cheap')}\n[]\n`, 400, /Line 3 of the file: it is not an object with a body/],
    [line('cheap', {}, '/v1/images/generations'), 400, /its url must be one of \/v1\/chat\/completions/],
    [line('lab/small'), 403, /may not use the model "lab\/small"/],
    [line('cheap') + line('lab/small'), 400, /all lines must name one model; the first names "cheap"/],
    [line('cheap') + line('cheap', { input: 'x' }, '/v1/responses'), 400, /all lines must have one url/],
    [
      line('cheap', { previous_response_id: 'resp_1' }, '/v1/responses'),
      400,
      /previous_response_id refers to content stored at a model API/,
    ],
    [
      line('cheap', { messages: [{ role: 'user', content: [{ type: 'file', file: { file_id: 'file-of-others' } }] }] }),
      400,
      /file_id refers to content stored at a model API/,
    ],
    [line('cheap', { messages: 'Hello' }), 400, /its body has no messages/],
    [line('cheap', { messages: [{ role: 'user', content: 7 }] }), 400, /neither text nor a list of parts/],
  ];
  for (const [content, status, message] of rows) {
    const refused = await upload(content, 'batch', { key: limited });
    assert.equal(refused.status, status, content);
    assert.match(((await refused.json()) as Json).error.message, message);
  }
  assert.equal((await upload('x', 'user_data', { key: limited })).status, 403, 'lab/files is not among its models');
  assert.equal(upstream.requests.length, 0);
});

test('a file stays with the key of the pool that stored it', async (t) => {
  const { upstream, ask, upload } = await start(t, refuses(401), answers(FILE));
  const created = await upload('x', 'user_data', { headers: { 'x-model-api': 'pool' } });
  assert.equal(created.status, 200);
  const keys = () => upstream.requests.map(({ headers }) => headers.authorization);
  assert.deepEqual(keys(), ['Bearer key-a', 'Bearer key-b']);
  await ask('GET', '/v1/files/file-1');
  await ask('GET', '/v1/files/file-1');
  assert.deepEqual(keys().slice(2), ['Bearer key-b', 'Bearer key-b']);
});

test('a response may name a file of the caller’s own, and one of nobody else', async (t) => {
  const { upstream, ask, newKey, upload } = await start(t, answers(FILE));
  const mine = await newKey();
  await upload('x', 'user_data', { key: mine });
  const body = {
    model: 'lab/small',
    input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'file-1' }] }],
  };
  upstream.script(answers({ id: 'resp_1', object: 'response', status: 'completed', output: [] }));
  assert.equal((await ask('POST', '/v1/responses', { key: mine, body })).status, 200);
  const refused = await ask('POST', '/v1/responses', { key: await newKey(), body });
  assert.deepEqual([refused.status, await code(refused)], [400, 'nothing_stored']);
});

test('files of Anthropic’s clients go to APIs of its dialect, with the headers that it defines', async (t) => {
  const { upstream, upload, ask } = await start(t, answers({ id: 'file_011', type: 'file', filename: 'input.jsonl' }));
  const headers = { 'x-model-api': 'claude', 'anthropic-beta': 'files-api-2025-04-14' };
  assert.equal((await upload('x', '', { headers })).status, 200);
  const [seen] = upstream.requests;
  assert.deepEqual(
    [seen?.path, seen?.headers['x-api-key'], seen?.headers['anthropic-beta'], seen?.headers['anthropic-version']],
    ['/v1/files', 'claude-key-1', 'files-api-2025-04-14', '2023-06-01'],
  );
  const byOwnHeader = await fetch(`${new URL((await ask('GET', '/v1/files')).url).origin}/v1/files/file_011`, {
    headers: { 'x-api-key': MASTER },
  });
  assert.equal(byOwnHeader.status, 200);
});

test('an API without files says so, and a wrong one is named', async (t) => {
  const { upload } = await start(t, refuses(404));
  const cohere = await upload('x', 'user_data', { headers: { 'x-model-api': 'west' } });
  assert.deepEqual([cohere.status, await code(cohere)], [400, 'operation_not_supported']);
  const lacking = await upload('x', 'user_data');
  assert.deepEqual([lacking.status, await code(lacking)], [400, 'operation_not_supported']);
  const unknown = await upload('x', 'user_data', { headers: { 'x-model-api': 'nobody' } });
  assert.deepEqual([unknown.status, await code(unknown)], [404, 'model_not_found']);
  const page = await upload('x', 'user_data', { headers: { origin: 'https://evil.example' } });
  assert.equal(page.status, 403);
});

test('the demo API keeps files and runs batches', async (t) => {
  const { upload, ask } = await start(t);
  const headers = { 'x-model-api': 'demo' };
  const uploaded = (await (await upload(line('demo/echo'), 'batch')).json()) as Json;
  const body = { input_file_id: uploaded.id, endpoint: CHAT, completion_window: '24h' };
  const batch = (await (await ask('POST', '/v1/batches', { body })).json()) as Json;
  assert.equal(batch.status, 'completed');
  const shown = (await (await ask('GET', `/v1/batches/${batch.id}`)).json()) as Json;
  const output = await (await ask('GET', `/v1/files/${shown.output_file_id}/content`)).text();
  const [result] = output.split('\n').map((each) => JSON.parse(each));
  assert.equal(result.response.body.choices[0].message.content, 'Hello');
  assert.equal(result.custom_id, 'a');
  const plain = (await (await upload('plain', 'user_data', { headers })).json()) as Json;
  assert.equal(await (await ask('GET', `/v1/files/${plain.id}/content`)).text(), 'plain');
  assert.equal((await ask('DELETE', `/v1/files/${plain.id}`)).status, 200);
  const large = await upload('x'.repeat(1024 * 1024 + 1), 'user_data', { headers });
  assert.match(((await large.json()) as Json).error.message, /at most 1048576 bytes/);
});

test('a call whose object cannot be noted ends: its place is free again, and a batch is charged', async (t) => {
  const { running, ask, newKey, upload, calls } = await start(t, answers(FILE), answers({ ...FILE, id: 'batch-1' }));
  const key = await newKey({ max_parallel: 1 });
  const refuse = (when: string) =>
    running.database.write([
      sql
        .raw(
          `create trigger full_${when} before insert on upstream_objects when new.kind = '${when}' begin select raise(abort, 'full'); end`,
        )
        .compile(running.database.query),
    ]);
  const uploaded = (await (await upload(line('lab/small'), 'batch', { key })).json()) as Json;
  await refuse('batch');
  const body = { input_file_id: uploaded.id, endpoint: CHAT, completion_window: '24h' };
  assert.equal((await ask('POST', '/v1/batches', { key, body })).status, 500);
  const [last] = await calls();
  assert.deepEqual([last.operation, last.outcome, last.cost_usd > 0], ['batch', 'error', true], JSON.stringify(last));
  await refuse('file');
  assert.equal((await upload('text', 'user_data', { key })).status, 500);
  assert.equal((await ask('GET', '/v1/files', { key })).status, 200, 'the only place of the key is free');
});
