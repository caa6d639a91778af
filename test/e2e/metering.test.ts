import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type TestContext, test } from 'node:test';
import { startProgram, temporaryFolder } from '../kit/running-program.ts';

const MASTER_KEY = 'master-key-1a2b3c4d5e6f7';
const USAGE = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };
const messages = [{ role: 'user', content: 'What did the secret prompt say?' }];

/** A model API that says what it used, and a collector of spans, on one port. */
async function startUpstream(t: TestContext) {
  const spans: string[] = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    if (request.url === '/v1/traces') {
      spans.push(text);
      response.end('{}');
      return;
    }
    if (request.method === 'GET') {
      response.end('{"data":[]}');
      return;
    }
    const { model, stream } = JSON.parse(text);
    const head = { id: 'chatcmpl-1', created: 1, model };
    const message = { role: 'assistant', content: 'The secret answer.' };
    if (stream !== true) {
      const choices = [{ index: 0, message, finish_reason: 'stop' }];
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ ...head, object: 'chat.completion', choices, usage: USAGE }));
      return;
    }
    response.setHeader('content-type', 'text/event-stream');
    const send = (fields: object) =>
      response.write(`data: ${JSON.stringify({ ...head, object: 'chat.completion.chunk', ...fields })}\n\n`);
    send({ choices: [{ index: 0, delta: message, finish_reason: null }] });
    send({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] });
    send({ choices: [], usage: { prompt_tokens: 1000, completion_tokens: 1000, total_tokens: 2000 } });
    response.end('data: [DONE]\n\n');
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, spans };
}

async function start(t: TestContext, completions: object = {}, rest: object = {}) {
  const upstream = await startUpstream(t);
  const folder = await temporaryFolder(t);
  const config = join(folder, 'trestle.yaml');
  const settings = {
    completions: {
      master_key: MASTER_KEY,
      apis: { lab: { base_url: `${upstream.url}/v1` } },
      prices: { 'lab/small': { input: 0.001, output: 0.002 } },
      ...completions,
    },
    ...rest,
  };
  await writeFile(config, JSON.stringify(settings).replaceAll('UPSTREAM', upstream.url), { mode: 0o600 });
  const program = await startProgram(t, { args: ['--config', config] });
  const call = async (path: string, key: string, body?: object) => {
    const response = await fetch(`${program.url}${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${key}`, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, json: () => JSON.parse(text) };
  };
  const issue = async (limits: object): Promise<{ id: string; key: string }> =>
    (await call('/keys', MASTER_KEY, { name: 'test', ...limits })).json();
  return { ...program, upstream, call, issue };
}

test('P-34: what is metered is what the upstream says it used, at the configured price', async (t) => {
  const { call, issue } = await start(t);
  const { key } = await issue({});
  const chat = { model: 'lab/small', messages };
  assert.equal((await call('/v1/chat/completions', key, chat)).status, 200);
  await call('/v1/chat/completions', key, { ...chat, stream: true });
  await call('/v1/chat/completions', key, { ...chat, model: 'lab/unpriced' });
  const { data, total } = (await call('/v1/usage?group_by=model', key)).json();
  const [small, unpriced] = data;
  assert.equal(small.group, 'lab/small');
  assert.equal(small.requests, 2);
  assert.equal(small.prompt_tokens, USAGE.prompt_tokens + 1000);
  assert.equal(small.completion_tokens, USAGE.completion_tokens + 1000);
  assert.equal(small.cost_usd.toFixed(6), (0.011 + 0.014 + 1 + 2).toFixed(6));
  assert.equal(unpriced.cost_usd, 0);
  assert.equal(total.requests, 3);
});

test('P-27: a stream that uses up the budget finishes; the next call is 402, or 429 under /v1', async (t) => {
  const { call, issue } = await start(t);
  const { key } = await issue({ budget: { usd: 2, period: 'day' } });
  const chat = { model: 'lab/small', messages, max_tokens: 10 };
  const stream = await call('/v1/chat/completions', key, { ...chat, stream: true });
  assert.equal(stream.status, 200);
  assert.match(stream.text, /The secret answer.*data: \[DONE\]/s);
  const document = await call('/chat/completions', key, chat);
  assert.equal(document.status, 402);
  const openai = await call('/v1/chat/completions', key, chat);
  assert.equal(openai.status, 429);
  assert.equal(openai.json().error.code, 'insufficient_quota');
  assert.equal((await call('/v1/models', key)).status, 200);
  assert.equal((await call('/v1/chat/completions', (await issue({})).key, chat)).status, 200);
});

test('50 parallel calls over HTTP get no more than their limits, whichever it is', async (t) => {
  const { call, issue } = await start(t);
  const chat = { model: 'lab/small', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 10 };
  const answered = async (limits: object) => {
    const { key } = await issue(limits);
    const startedAt = performance.now();
    const answers = await Promise.all(Array.from({ length: 50 }, () => call('/v1/chat/completions', key, chat)));
    const ok = answers.filter(({ status }) => status === 200).length;
    assert.ok(answers.every(({ status }) => status === 200 || status === 429));
    return { ok, minutes: (performance.now() - startedAt) / 60_000 };
  };
  const byRequests = await answered({ requests_per_minute: 20 });
  assert.ok(byRequests.ok >= 20 && byRequests.ok <= 20 + Math.ceil(20 * byRequests.minutes), String(byRequests.ok));
  // Each call costs 0.025 USD and reserves no more than that.
  const byBudget = await answered({ budget: { usd: 0.25, period: 'total' } });
  assert.ok(byBudget.ok >= 5 && byBudget.ok <= 10, String(byBudget.ok));
});

test('P-29: prompts and answers are stored only where that is configured', async (t) => {
  const chat = { model: 'lab/small', messages };
  for (const [store_content, expected] of [
    [false, 0],
    [true, 2],
  ] as const) {
    const { call, dataDirectory, stop, stderr } = await start(t, { store_content });
    await call('/v1/chat/completions', MASTER_KEY, chat);
    await call('/v1/chat/completions', MASTER_KEY, { ...chat, stream: true });
    await stop();
    using database = new DatabaseSync(join(dataDirectory, 'completions.db'), { readOnly: true });
    const rows = database.prepare('SELECT request, answer FROM usage_contents').all();
    assert.equal(rows.length, expected);
    for (const row of rows) {
      assert.match(String(row.request), /secret prompt/);
      assert.match(String(row.answer), /secret answer/);
    }
    assert.ok(!stderr().includes('secret prompt'));
  }
});

test('spans go to the configured collector, and a stop sends the last of them', async (t) => {
  const { call, stop, upstream } = await start(t, {}, { telemetry: { otlp_endpoint: 'UPSTREAM' } });
  await call('/v1/chat/completions', MASTER_KEY, { model: 'lab/small', messages });
  assert.equal(await stop(), 0);
  const sent = upstream.spans.join('');
  assert.match(sent, /gen_ai.request.model[^}]*lab\/small/);
  assert.match(sent, /gen_ai.usage.input_tokens/);
  assert.ok(!sent.includes('secret prompt'));
});

test('/metrics counts calls by model and API', async (t) => {
  const { call, url } = await start(t);
  await call('/v1/chat/completions', MASTER_KEY, { model: 'lab/small', messages });
  const text = await (await fetch(`${url}/metrics`)).text();
  assert.match(text, /completions_calls_total\{model="lab\/small",api="lab",outcome="ok"\} 1/);
  assert.match(text, /completions_tokens_total\{model="lab\/small",api="lab",kind="prompt"\} 11/);
});
