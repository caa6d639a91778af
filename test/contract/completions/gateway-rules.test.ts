import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, type Behaviour, startScriptedUpstream, streamsLater } from '../../kit/scripted-upstream.ts';

// The rules that Anthropic publishes for gateways in front of Claude Code (its "Gateway protocol reference"), one test for each.

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const KEY = 'key-of-the-gateway-rules-1';
const UPSTREAM_KEY = 'sk-ant-upstream-4711';
const ANSWER = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'claude-opus-4-8',
  content: [{ type: 'text', text: 'Hi' }],
  stop_reason: 'end_turn',
  usage: { input_tokens: 3, output_tokens: 1 },
};
const BODY = {
  model: 'claude-opus-4-8',
  max_tokens: 9,
  messages: [{ role: 'user', content: 'Hello' }],
};

async function start(t: Parameters<typeof startCompletions>[0], ...behaviours: Behaviour[]) {
  const upstream = await startScriptedUpstream(t, ...behaviours);
  const { url } = await startCompletions(t, {
    settings: {
      master_key: KEY,
      apis: { anthropic: { api_key: UPSTREAM_KEY, base_url: upstream.url } },
      models: [{ name: 'claude-team', targets: [{ model: 'anthropic/claude-opus-4-8' }] }],
    },
  });
  const send = (path: string, body: object | string, headers: Record<string, string> = {}) =>
    fetch(`${url}${path}`, {
      method: 'POST',
      headers: { 'x-api-key': KEY, 'content-type': 'application/json', ...headers },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  return { upstream, url, send };
}

test('messages are matched by their path, with or without beta=true', async (t) => {
  const { upstream, send } = await start(t, answers(JSON.stringify(ANSWER)));
  for (const query of ['', '?beta=true']) {
    assert.equal((await send(`/v1/messages${query}`, BODY)).status, 200);
    assert.equal(upstream.requests.at(-1)?.path, `/v1/messages${query}`);
  }
});

test('tokens are counted by the upstream', async (t) => {
  const { upstream, send } = await start(t, answers('{"input_tokens":42}'));
  const { max_tokens: _, ...counted } = BODY;
  const response = await send('/v1/messages/count_tokens?beta=true', counted, { 'anthropic-beta': 'token-counting-1' });
  assert.deepEqual(await response.json(), { input_tokens: 42 });
  assert.equal(upstream.requests[0]?.path, '/v1/messages/count_tokens?beta=true');
  assert.equal(upstream.requests[0]?.headers['anthropic-beta'], 'token-counting-1');
});

test('anthropic-beta passes verbatim, whatever it names, and so does anthropic-version', async (t) => {
  const { upstream, send } = await start(t, answers(JSON.stringify(ANSWER)));
  const betas = 'claude-code-20250219,not-invented-yet-2031-01-01, oauth-2025-04-20';
  await send('/v1/messages', BODY, { 'anthropic-beta': betas, 'anthropic-version': '2031-02-03' });
  const { headers } = upstream.requests[0] ?? assert.fail();
  assert.deepEqual([headers['anthropic-beta'], headers['anthropic-version']], [betas, '2031-02-03']);
});

test('headers are an open list: those of Anthropic and of Claude Code that are not known yet pass, all others stay here', async (t) => {
  const { upstream, send } = await start(t, answers(JSON.stringify(ANSWER)));
  const passed = {
    'anthropic-workspace-id': 'wrkspc_1',
    'anthropic-of-next-year': 'yes',
    'x-claude-code-session-id': 'session-1',
    'x-claude-code-agent-id': 'agent-1',
    'x-claude-code-parent-agent-id': 'agent-0',
    'x-claude-code-of-next-year': 'yes',
  };
  await send('/v1/messages', BODY, { ...passed, 'x-team': 'blue', cookie: 'a=b', 'x-forwarded-for': '192.0.2.7' });
  const { headers } = upstream.requests[0] ?? assert.fail();
  for (const [name, value] of Object.entries(passed)) assert.equal(headers[name], value, name);
  for (const name of ['x-team', 'cookie', 'x-forwarded-for']) assert.equal(headers[name], undefined, name);
});

test('the credential of the developer is taken in either header or in both, and never reaches the upstream', async (t) => {
  const { upstream, url } = await start(t, answers(JSON.stringify(ANSWER)));
  const bearer = { authorization: `Bearer ${KEY}` };
  const plain = { 'x-api-key': KEY };
  for (const given of [bearer, plain, { ...bearer, ...plain }]) {
    const response = await fetch(`${url}/v1/messages`, {
      method: 'POST',
      headers: { ...given, 'content-type': 'application/json' },
      body: JSON.stringify(BODY),
    });
    assert.equal(response.status, 200);
    const { headers } = upstream.requests.at(-1) ?? assert.fail();
    assert.equal(headers['x-api-key'], UPSTREAM_KEY);
    assert.ok(!JSON.stringify(headers).includes(KEY));
  }
});

test('body fields are an open list: features and their betas travel together, byte for byte', async (t) => {
  const { upstream, send } = await start(t, answers(JSON.stringify(ANSWER)));
  const pairs = [
    ['', '"thinking":{"type":"adaptive"}'],
    [
      'context-management-2025-06-27',
      '"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}',
    ],
    ['effort-2025-11-24', '"output_config":{"effort":"high"}'],
    [
      'advanced-tool-use-1',
      '"tools":[{"name":"a","input_schema":{"type":"object"},"strict":true,"defer_loading":true}]',
    ],
    ['of-next-year-1', '"of_next_year":{"a":[1.0, 2]}'],
  ] as const;
  for (const [beta, field] of pairs) {
    const body = `{"model":"claude-opus-4-8",${field}, "max_tokens":9,"messages":[{"role":"user","content":"Hello"}]}`;
    await send('/v1/messages?beta=true', body, beta === '' ? {} : { 'anthropic-beta': beta });
    const seen = upstream.requests.at(-1) ?? assert.fail();
    assert.equal(seen.text, body);
    assert.equal(seen.headers['anthropic-beta'], beta === '' ? undefined : beta);
  }
});

test('the attribution block stays the first entry of the system prompt', async (t) => {
  const { upstream, send } = await start(t, answers(JSON.stringify(ANSWER)));
  const system = [
    { type: 'text', text: 'x-anthropic-billing-header: cc_version=2.1.181.abc; cc_entrypoint=cli;' },
    { type: 'text', text: 'You are Claude Code.', cache_control: { type: 'ephemeral' } },
  ];
  await send('/v1/messages', { ...BODY, system });
  assert.deepEqual(JSON.parse(upstream.requests[0]?.text ?? '').system, system);
});

test('responses stream as they come, pings included', async (t) => {
  const begin = `event: message_start\ndata: ${JSON.stringify({ type: 'message_start', message: { ...ANSWER, content: [] } })}\n\n`;
  const ping = 'event: ping\ndata: {"type":"ping"}\n\n';
  const rest =
    'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}\n\n' +
    'event: message_stop\ndata: {"type":"message_stop"}\n\n';
  const { send } = await start(t, streamsLater([begin, ping], [rest]));
  const response = await send('/v1/messages', { ...BODY, stream: true });
  const reader = response.body?.getReader() ?? assert.fail();
  const decoder = new TextDecoder();
  let text = '';
  while (!text.includes(ping)) {
    const { value, done } = await reader.read();
    assert.ok(!done, 'the ping comes before the end');
    text += decoder.decode(value);
  }
  assert.ok(!text.includes('message_stop'), 'nothing waits for the end');
  for (let more = await reader.read(); !more.done; more = await reader.read()) text += decoder.decode(more.value);
  assert.equal(text, begin + ping + rest);
});

test('errors keep the status, the type and the words that Claude Code looks for, without the key of the operator', async (t) => {
  const { upstream, send } = await start(t);
  for (const [status, type, message] of [
    [
      400,
      'invalid_request_error',
      "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags",
    ],
    [400, 'invalid_request_error', 'messages.1.content.0: Invalid `signature` in `thinking` block'],
    [413, 'request_too_large', 'prompt is too long: 210000 tokens > 200000 maximum'],
  ] as const) {
    upstream.script(answers({ type: 'error', error: { type, message: `${message} ${UPSTREAM_KEY}` } }, status));
    const response = await send('/v1/messages', BODY);
    const { type: outer, error } = (await response.json()) as Json;
    assert.equal(outer, 'error');
    assert.ok(response.status === status || response.status === 400, `${response.status} for ${message}`);
    assert.ok(error.message.includes(message), error.message);
    assert.ok(!error.message.includes(UPSTREAM_KEY));
  }
});

test('Claude Code finds the models by GET /v1/models?limit=1000, with x-api-key alone and without a redirect', async (t) => {
  const { url } = await start(t);
  const response = await fetch(`${url}/v1/models?limit=1000`, { headers: { 'x-api-key': KEY }, redirect: 'error' });
  assert.equal(response.status, 200);
  const { data } = (await response.json()) as Json;
  const ids: string[] = data.map(({ id }: Json) => id);
  assert.ok(ids.includes('claude-team'), 'an alias that begins with claude is offered');
  assert.ok(
    ids.some((id) => id.startsWith('anthropic/')),
    'so are the models of Anthropic',
  );
});
