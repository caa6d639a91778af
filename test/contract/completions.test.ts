import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { startProgram } from '../kit/running-program.ts';

const open = await startProgram({ after });
const KEY = 'master-key-9d8f7a6b5c4e';
const guarded = await startProgram({ after }, { environment: { COMPLETIONS_MASTER_KEY: KEY } });

const post = (url: string, path: string, body: unknown, headers = {}) =>
  fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
const chat = { model: 'demo/echo', messages: [{ role: 'user', content: 'Hello  there, Trestle' }] };

test('P-01: demo/echo answers in the shape of both path families', async () => {
  for (const [path, type] of [
    ['/v1/chat/completions', 'number'],
    ['/chat/completions', 'string'],
  ] as const) {
    const response = await post(open.url, path, chat);
    assert.equal(response.status, 200);
    const body = (await response.json()) as Record<string, unknown>;
    assert.equal(body.object, 'chat.completion');
    assert.equal(typeof body.created, type, path);
    assert.deepEqual(body.choices, [
      { index: 0, message: { role: 'assistant', content: 'Hello  there, Trestle' }, finish_reason: 'stop' },
    ]);
    assert.deepEqual(body.usage, { prompt_tokens: 3, completion_tokens: 3, total_tokens: 6 });
  }
});

test('P-02: a stream is data events that give the text word by word, and ends with [DONE]', async () => {
  const response = await post(open.url, '/v1/chat/completions', {
    ...chat,
    stream: true,
    stream_options: { include_usage: true },
  });
  assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
  assert.equal(response.headers.get('cache-control'), 'no-cache');
  assert.equal(response.headers.get('x-accel-buffering'), 'no');
  const events = (await response.text()).split('\n\n').filter((event) => event !== '');
  assert.equal(events.at(-1), 'data: [DONE]');
  const chunks = events.slice(0, -1).map((event) => JSON.parse(event.replace(/^data: /, '')));
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');
  assert.equal(text, 'Hello  there, Trestle');
  assert.equal(chunks.at(-1).usage.total_tokens, 6);
  assert.equal(chunks.at(-2).choices[0].finish_reason, 'stop');
  assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
});

test('P-19: what is missing or of the wrong type is 400 and names the field; an unknown model is 404', async () => {
  for (const [body, param] of [
    [{ messages: chat.messages }, 'model'],
    [{ model: 'demo/echo' }, 'messages'],
    [{ ...chat, messages: 'Hello' }, 'messages'],
    [{ ...chat, stream: 'yes' }, 'stream'],
  ] as const) {
    const response = await post(open.url, '/v1/chat/completions', body);
    assert.equal(response.status, 400);
    const { error } = (await response.json()) as { error: Record<string, unknown> };
    assert.deepEqual(Object.keys(error), ['message', 'type', 'param', 'code']);
    assert.equal(error.param, param);
    assert.equal(error.type, 'invalid_request_error');
  }
  const unknown = await post(open.url, '/v1/chat/completions', { ...chat, model: 'nobody/nothing' });
  assert.equal(unknown.status, 404);
  const { error } = (await unknown.json()) as { error: Record<string, unknown> };
  assert.equal(error.code, 'model_not_found');
  assert.match(String(error.message), /trestle models/);
});

test('P-23: a body of more than 64 MiB is 413 in the shape of the API', async () => {
  const body = { ...chat, messages: [{ role: 'user', content: 'x'.repeat(64 * 1024 * 1024) }] };
  const response = await post(open.url, '/v1/chat/completions', body);
  assert.equal(response.status, 413);
  assert.equal(((await response.json()) as { error: { code: string } }).error.code, 'body_too_large');
});

test('P-25: with a master key, no or a wrong key is 401 in the shape of the API', async () => {
  for (const headers of [{}, { authorization: 'Bearer wrong' }, { authorization: KEY }]) {
    const response = await post(guarded.url, '/v1/chat/completions', chat, headers);
    assert.equal(response.status, 401);
    const { error } = (await response.json()) as { error: Record<string, unknown> };
    assert.equal(error.type, 'authentication_error');
    assert.equal(error.code, 'invalid_api_key');
  }
  const authorized = { authorization: `Bearer ${KEY}` };
  assert.equal((await post(guarded.url, '/v1/chat/completions', chat, authorized)).status, 200);
  assert.equal((await fetch(`${guarded.url}/v1/models`)).status, 401);
});

test('P-31: the model list has demo/echo', async () => {
  for (const path of ['/models', '/v1/models']) {
    const body = (await (await fetch(`${open.url}${path}`)).json()) as Record<string, unknown>;
    assert.equal(body.object, 'list');
    assert.deepEqual(body.data, [{ id: 'demo/echo', object: 'model', created: 0, owned_by: 'demo' }]);
  }
});

test('P-38: a good request id is taken over and returned, a bad one is replaced', async () => {
  const withId = async (id: string) =>
    (await fetch(`${open.url}/v1/models`, { headers: { 'x-request-id': id } })).headers.get('x-request-id');
  assert.equal(await withId('my-request_1'), 'my-request_1');
  for (const bad of ['has space', 'x'.repeat(129), 'a;b']) {
    const id = await withId(bad);
    assert.match(id ?? '', /^[A-Za-z0-9_-]{1,128}$/);
    assert.notEqual(id, bad);
  }
});

test('P-36: a SIGTERM during streams lets them finish, refuses new ones, and ends with 0', async (t) => {
  const program = await startProgram(t);
  const slow = { ...chat, model: 'demo/echo?delay=150', messages: [{ role: 'user', content: 'a b c d e f g h' }] };
  const streams = await Promise.all(
    Array.from({ length: 50 }, () => post(program.url, '/v1/chat/completions', { ...slow, stream: true })),
  );
  const exit = program.stop('SIGTERM');
  await new Promise((resolve) => setTimeout(resolve, 100));
  const refused = await post(program.url, '/v1/chat/completions', chat).catch(() => undefined);
  assert.ok(refused === undefined || refused.status === 503);
  for (const text of await Promise.all(streams.map((stream) => stream.text()))) {
    assert.ok(text.endsWith('data: [DONE]\n\n'), text.slice(-100));
  }
  assert.equal(await exit, 0);
});
