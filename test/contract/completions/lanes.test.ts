import assert from 'node:assert/strict';
import { test } from 'node:test';
import { packThinking } from '../../../src/completions/dialects/anthropic/anthropic-messages.ts';
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
import { until } from '../../kit/until.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;
type Scope = Parameters<typeof startCompletions>[0];

const MASTER = 'master-key-of-the-lanes-1';
const CLAUDE_KEY = 'claude-key-8812';

async function start(t: Scope, ...behaviours: Behaviour[]) {
  const upstream = await startScriptedUpstream(t, ...behaviours);
  const at = { base_url: upstream.url };
  const running = await startCompletions(t, {
    settings: {
      master_key: MASTER,
      store_content: true,
      apis: {
        claude: { dialect: 'anthropic', api_key: CLAUDE_KEY, headers: { 'anthropic-beta': 'own-beta' }, ...at },
        plain: { dialect: 'openai', api_key: 'plain-key-1', ...at },
        maker: { dialect: 'openai', api_key: 'maker-key-1', responses: true, ...at },
        other: { dialect: 'openai', api_key: 'other-key-1', responses: true, ...at },
      },
      models: [
        { name: 'safe', targets: [{ model: 'claude/big' }], fallbacks: ['demo/echo'], retries: 0 },
        { name: 'both', targets: [{ model: 'maker/big' }, { model: 'other/big' }, { model: 'plain/big' }] },
      ],
    },
  });
  const post = (path: string, body: unknown, headers: Record<string, string> = {}, key = MASTER) =>
    running.post(path, body, { headers: { authorization: `Bearer ${key}`, ...headers } });
  const newKey = async (): Promise<string> =>
    ((await (await post('/v1/keys', { name: 'one', models: [] })).json()) as Json).key;
  const usageOf = async (model: string) => {
    const all = (await (
      await fetch(`${running.url}/v1/usage?group_by=model`, { headers: { authorization: `Bearer ${MASTER}` } })
    ).json()) as Json;
    return all.data.find(({ group }: Json) => group === model);
  };
  return { upstream, running, post, newKey, usageOf };
}

/** As Claude Code writes it: members in its own order, cache markers, server tools, escapes, a tool with a field `model`. */
const ASK_CLAUDE = `{"model":"claude/big","max_tokens":1000,"temperature":1.0,"system":[{"type":"text","text":"\\u001b[1m Be brief","cache_control":{"type":"ephemeral","ttl":"1h"}}],
 "messages":[{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"x"}},{"type":"tool_use","id":"toolu_1","name":"task","input":{"model":"m"}}]},
 {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","is_error":true,"content":"no"}]}],"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":3},{"name":"task","input_schema":{"type":"object","properties":{"model":{"type":"string"}}}}],
 "thinking":{"type":"adaptive"},"context_management":{"edits":[{"type":"clear_thinking_20251015"}]},"betas":null}`;

const CLAUDE_ANSWER = `{"id":"msg_01","type":"message","role":"assistant","model":"big-2026","content":[{"type":"text","text":"Hi","citations":[{"type":"web_search_result_location","url":"https://a.example"}]}], "stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":20,"cache_read_input_tokens":100,"output_tokens":2,"server_tool_use":{"web_search_requests":1}}}`;

const named = (type: string, data: object = {}) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
const BEGIN = named('message_start', {
  message: { id: 'msg_01', role: 'assistant', content: [], usage: { input_tokens: 3, cache_read_input_tokens: 100 } },
});
const OPEN = named('content_block_start', { index: 0, content_block: { type: 'text', text: '' } });
const SAID = named('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'Hi' } });
const CITED = named('content_block_delta', { index: 0, delta: { type: 'citations_delta', citation: { url: 'x' } } });
const CLOSE = named('content_block_stop', { index: 0 });
const ENDED = named('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 7 } });
const STOP = named('message_stop');
const CLAUDE_STREAM = [BEGIN, ': ping\n\n', OPEN, SAID, CITED, CLOSE, ENDED, STOP];
const STREAMED = ASK_CLAUDE.replace('"max_tokens"', '"stream":true,"max_tokens"');

const THEIRS = {
  'set-cookie': 'session=of-the-operator',
  'anthropic-organization-id': 'org-of-the-operator',
  'openai-organization': 'org-of-the-operator',
  'anthropic-ratelimit-requests-remaining': '3',
  'x-ratelimit-remaining-requests': '3',
};

test('DC-6: a message for an upstream of Anthropic’s API passes as bytes, with key, model and headers changed', async (t) => {
  const { upstream, post, usageOf, running } = await start(t, answers(CLAUDE_ANSWER, 200, THEIRS));
  const response = await post('/v1/messages?beta=true&x=1', ASK_CLAUDE, {
    'anthropic-beta': 'context-management-2025-06-27',
    'anthropic-version': '2024-01-01',
    'user-agent': 'claude-cli/3.0',
    'x-claude-code-session-id': 'session-1',
    cookie: 'mine=1',
    'openai-organization': 'org-mine',
    'x-forwarded-for': '192.0.2.7',
  });
  assert.equal(response.status, 200);
  assert.equal(await response.text(), CLAUDE_ANSWER);
  for (const name of Object.keys(THEIRS)) assert.equal(response.headers.get(name), null, name);
  assert.equal(response.headers.get('x-dropped-params'), null);
  assert.equal(response.headers.get('x-model-api'), 'claude');
  const [seen] = upstream.requests;
  assert.equal(seen?.path, '/v1/messages?beta=true');
  assert.equal(seen?.text, ASK_CLAUDE.replace('claude/big', 'big'));
  const { headers } = seen ?? {};
  assert.equal(headers?.['x-api-key'], CLAUDE_KEY);
  assert.equal(headers?.['anthropic-beta'], 'own-beta,context-management-2025-06-27');
  assert.equal(headers?.['anthropic-version'], '2024-01-01');
  assert.equal(headers?.['user-agent'], 'claude-cli/3.0');
  assert.equal(headers?.['x-claude-code-session-id'], 'session-1');
  for (const name of ['authorization', 'cookie', 'openai-organization', 'x-forwarded-for'])
    assert.equal(headers?.[name], undefined, name);
  const used = await usageOf('claude/big');
  assert.deepEqual([used.prompt_tokens, used.completion_tokens], [123, 2]);
  const [content] = await running.database.read(
    running.database.query.selectFrom('usage_contents').selectAll().compile(),
  );
  assert.deepEqual([content?.request, content?.answer], [ASK_CLAUDE, CLAUDE_ANSWER], 'DC-10: stored content');
  await post('/v1/messages', ASK_CLAUDE);
  assert.equal(upstream.requests[1]?.headers['anthropic-version'], '2023-06-01');
});

test('DC-6: a stream of messages passes as bytes, however it is cut, and is metered', async (t) => {
  const { upstream, post, usageOf } = await start(t);
  const whole = CLAUDE_STREAM.join('');
  const third = Math.floor(whole.length / 3);
  for (const pieces of [CLAUDE_STREAM, [whole], [whole.slice(0, third), whole.slice(third)]]) {
    upstream.script(streams(pieces, { apart: true }));
    const response = await post('/v1/messages', STREAMED);
    assert.match(response.headers.get('content-type') ?? '', /^text\/event-stream/);
    assert.equal(await response.text(), whole);
  }
  const used = await usageOf('claude/big');
  assert.deepEqual([used.requests, used.prompt_tokens, used.completion_tokens], [3, 309, 21]);
});

test('DC-14, DC-26: what an upstream does wrong in a stream of messages is corrected, or is an error of ours', async (t) => {
  const { upstream, post, usageOf } = await start(t);
  const ask = async (...behaviours: Behaviour[]) => {
    upstream.script(...behaviours);
    return (await post('/v1/messages', { ...JSON.parse(STREAMED), model: 'claude/odd' })).text();
  };
  assert.equal(await ask(streams([BEGIN, OPEN, SAID, CLOSE, ENDED])), [BEGIN, OPEN, SAID, CLOSE, ENDED, STOP].join(''));
  assert.equal(await ask(streams([BEGIN, OPEN, BEGIN, SAID, ENDED, STOP])), [BEGIN, OPEN, SAID, ENDED, STOP].join(''));
  const overloaded = `event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded ${CLAUDE_KEY}"}}\n\n`;
  for (const behaviour of [
    streamsLater([BEGIN, OPEN, SAID], [overloaded]),
    streamsLater([BEGIN, OPEN, SAID], ['data: {"message":"it broke"}\n\n']),
    streamsLater([BEGIN, OPEN, SAID], [STOP]),
    streams([BEGIN, OPEN, SAID]),
    diesAfter([BEGIN, OPEN, SAID]),
  ]) {
    const text = await ask(behaviour);
    assert.ok(text.startsWith(BEGIN + OPEN + SAID), text);
    const last = text.slice((BEGIN + OPEN + SAID).length);
    assert.match(last, /^event: error\ndata: \{"type":"error","error":\{"type":"api_error".*"request_id":".*\}\n\n$/);
    assert.doesNotMatch(text, new RegExp(`${CLAUDE_KEY}|message_stop`));
  }
  const used = await usageOf('claude/odd');
  assert.equal(used.errors, 5);
  assert.ok(used.prompt_tokens >= 7 * 103, 'what the first event says of the prompt counts for a stream that breaks');
});

test('errors of a lane are ours, and a lane falls back to a model that must be translated', async (t) => {
  const { upstream, post } = await start(t, refuses(400, `bad ${CLAUDE_KEY}`, THEIRS));
  const refused = await post('/v1/messages', ASK_CLAUDE);
  assert.equal(refused.status, 400);
  const body = (await refused.json()) as Json;
  assert.deepEqual(
    [body.type, body.error.type, body.error.message],
    ['error', 'invalid_request_error', 'bad [hidden]'],
  );
  assert.equal(refused.headers.get('set-cookie'), null);
  for (const [behaviour, stream] of [
    [refuses(529), false],
    [streams([named('error', { error: { type: 'overloaded_error', message: 'Overloaded' } })]), true],
    [answers({ type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }), false],
    [answers('not JSON'), false],
  ] as const) {
    upstream.script(behaviour);
    const ask = {
      model: 'safe',
      max_tokens: 10,
      stream,
      container: 'container_1',
      messages: [{ role: 'user', content: 'Hello' }],
    };
    const response = await post('/v1/messages', { ...ask, container: undefined, top_k: 3 });
    assert.equal(response.headers.get('x-model-api'), 'demo');
    assert.match(await response.text(), /Hello/);
  }
});

test('proofs that were packed for a translated answer reach Claude as its own, and those of others do not', async (t) => {
  const { upstream, post } = await start(t, answers(CLAUDE_ANSWER));
  const thinking = (signature: string) => ({ type: 'thinking', thinking: 'hm', signature });
  const said = { type: 'text', text: 'Hi' };
  const packed = packThinking(2, 0, 'c2ln');
  for (const [given, sent] of [
    [packed, [thinking('c2ln'), said]],
    ['google:x:cHJvb2Y', [said]],
  ] as const) {
    const messages = [
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: [thinking(given), said] },
      { role: 'user', content: 'And?' },
    ];
    await post('/v1/messages', { model: 'claude/big', max_tokens: 10, messages });
    const seen = upstream.requests.at(-1)?.json as { messages: Json[] } | undefined;
    assert.deepEqual(seen?.messages[1].content, sent);
  }
});

test('tokens of a message are counted by the API of the model, or estimated where it does not count', async (t) => {
  const { upstream, post, usageOf } = await start(t, answers({ input_tokens: 42 }));
  const ask = { model: 'claude/big', messages: [{ role: 'user', content: 'Hello' }] };
  const count = async (model: string) =>
    (await (await post('/v1/messages/count_tokens', { ...ask, model }, { 'anthropic-beta': 'b' })).json()) as Json;
  assert.deepEqual(await count('claude/big'), { input_tokens: 42 });
  const [seen] = upstream.requests;
  assert.deepEqual([seen?.path, seen?.headers['anthropic-beta']], ['/v1/messages/count_tokens', 'own-beta,b']);
  assert.equal((await count('plain/big')).estimated, true);
  upstream.script(refuses(404));
  assert.equal((await count('claude/big')).estimated, true);
  assert.equal((await usageOf('claude/big')).prompt_tokens, 0);
});

const ASK_MAKER = `{"model":"maker/big","instructions":"\\u001b Be brief","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]},{"type":"reasoning","summary":[],"encrypted_content":"gAAA"}],
 "tools":[{"type":"web_search"},{"type":"function","name":"task","parameters":{"type":"object","properties":{"model":{"type":"string"}}},"strict":false}],"include":["reasoning.encrypted_content"],"prompt_cache_key":"k","text":{"verbosity":"low"},"store":false}`;
const RESPONSE = (id: string, more: object = {}) => ({
  id,
  object: 'response',
  status: 'completed',
  error: null,
  store: true,
  metadata: { id: 'resp_of_somebody_else' },
  output: [{ id: `${id}_item`, type: 'message', content: [{ type: 'output_text', text: 'Hi' }] }],
  usage: { input_tokens: 20, input_tokens_details: { cached_tokens: 8 }, output_tokens: 5, total_tokens: 25 },
  ...more,
});

test('a response for an upstream of OpenAI’s API passes as bytes, with key, model and headers changed', async (t) => {
  const answer = JSON.stringify(RESPONSE('resp_1', { store: false }), undefined, 1);
  const { upstream, post, usageOf } = await start(t, answers(answer, 200, THEIRS));
  const response = await post('/v1/responses', ASK_MAKER, {
    session_id: 'session-1',
    originator: 'codex_cli_rs',
    'user-agent': 'codex_cli_rs/1.0',
    'openai-organization': 'org-mine',
    'openai-project': 'project-mine',
  });
  assert.equal(await response.text(), answer);
  for (const name of Object.keys(THEIRS)) assert.equal(response.headers.get(name), null, name);
  const [seen] = upstream.requests;
  assert.deepEqual([seen?.path, seen?.text], ['/v1/responses', ASK_MAKER.replace('maker/big', 'big')]);
  const { headers } = seen ?? {};
  assert.equal(headers?.authorization, 'Bearer maker-key-1');
  assert.deepEqual([headers?.session_id, headers?.originator], ['session-1', 'codex_cli_rs']);
  assert.deepEqual([headers?.['openai-organization'], headers?.['openai-project']], [undefined, undefined]);
  const used = await usageOf('maker/big');
  assert.deepEqual([used.prompt_tokens, used.completion_tokens], [20, 5]);
  upstream.script(answers(completionOf('Hi')));
  await post('/v1/responses', ASK_MAKER.replace('maker/', 'plain/'));
  assert.equal(upstream.requests[1]?.path, '/v1/chat/completions', 'an API that has no /responses gets a translation');
});

test('a stream of responses passes as bytes up to its last event, and its failures are errors of ours', async (t) => {
  const { upstream, post, usageOf } = await start(t);
  const created = named('response.created', {
    response: RESPONSE('resp_1', { status: 'in_progress', output: [], usage: null }),
  });
  const delta = named('response.output_text.delta', { item_id: 'i', output_index: 0, delta: 'say "type":"error"' });
  const completed = named('response.completed', { response: RESPONSE('resp_1') });
  const ask = async (...behaviours: Behaviour[]) => {
    upstream.script(...behaviours);
    return (await post('/v1/responses', { model: 'maker/big', input: 'Hi', stream: true })).text();
  };
  assert.equal(
    await ask(streams([created, delta, completed, 'data: [DONE]\n\n'], { apart: true })),
    created + delta + completed,
  );
  const incomplete = named('response.incomplete', { response: RESPONSE('resp_1', { status: 'incomplete' }) });
  assert.equal(await ask(streams([created, incomplete])), created + incomplete);
  const failed = RESPONSE('resp_1', { status: 'failed', error: { code: 'server_error', message: 'of maker-key-1' } });
  for (const behaviour of [
    streamsLater([created, delta], [named('response.failed', { response: failed })]),
    streamsLater([created, delta], [named('error', { code: 'server_error', message: 'broken' })]),
    streams([created, delta]),
  ]) {
    const text = await ask(behaviour);
    assert.ok(text.startsWith(created + delta));
    assert.match(text, /event: response\.failed\n.*\n\nevent: error\ndata: \{"type":"error".*\}\n\n$/);
    assert.doesNotMatch(text, /maker-key-1/);
  }
  const used = await usageOf('maker/big');
  assert.deepEqual([used.requests, used.errors], [5, 3]);
});

test('what an API stores is named only by the caller that it was stored for, and on that API', async (t) => {
  const { upstream, post, newKey, running } = await start(t);
  const [mine, theirs] = [await newKey(), await newKey()];
  let made = 0;
  upstream.script((response, request) => {
    made += 1;
    answers(RESPONSE(`resp_${made}`))(response, request);
  });
  const ask = async (more: object, key = mine) => {
    const before = upstream.requests.length;
    const response = await post('/v1/responses', { model: 'maker/big', input: 'Hi', ...more }, {}, key);
    const body = (await response.json()) as Json;
    return { status: response.status, id: body.id, error: body.error, passed: upstream.requests.length > before };
  };
  const tool = (given: object) => ({ tools: [given] });
  const item = (given: object) => ({ input: [given] });
  const search = tool({ type: 'file_search', vector_store_ids: ['vs_1'] });
  const { id } = await ask({});
  assert.equal((await ask({ previous_response_id: id })).status, 200);
  assert.equal((await ask({ input: [{ type: 'item_reference', id: `${id}_item` }] })).status, 200);
  for (const [more, key, param] of [
    [{ previous_response_id: id }, theirs, 'previous_response_id'],
    [{ previous_response_id: 'resp_of_somebody_else' }, mine, 'previous_response_id'],
    [{ previous_response_id: id, model: 'other/big' }, mine, 'previous_response_id'],
    [{ previous_response_id: id, model: 'plain/big' }, mine, 'previous_response_id'],
    [{ conversation: { id: 'conv_1' } }, mine, 'conversation'],
    [{ prompt: { id: 'pmpt_1' } }, mine, 'prompt'],
    [{ background: true }, mine, 'background'],
    [{ input: [{ type: 'item_reference', id: 'rs_1' }] }, mine, 'input[0].id'],
    [
      { input: [{ role: 'user', content: [{ type: 'input_file', file_id: 'file-1' }] }] },
      mine,
      'input[0].content[0].file_id',
    ],
    [search, mine, 'tools[0].vector_store_ids[0]'],
    [tool({ type: 'code_interpreter', container: 'cntr_1' }), mine, 'tools[0].container'],
    [tool({ type: 'image_generation', input_image_mask: { file_id: 'f' } }), mine, 'tools[0].input_image_mask.file_id'],
    [tool({ type: 'shell', environment: { container_id: 'cntr_1' } }), mine, 'tools[0].environment.container_id'],
    [item({ type: 'additional_tools', ...search }), mine, 'input[0].tools[0].vector_store_ids[0]'],
    [item({ type: 'computer_call_output', output: { file_id: 'f' } }), mine, 'input[0].output.file_id'],
  ] as const) {
    const { status, error, passed } = await ask(more, key);
    assert.deepEqual(
      [status, error.code, error.param, passed],
      [400, 'nothing_stored', param, false],
      JSON.stringify(more),
    );
  }
  for (let tries = 0; tries < 6; tries += 1) {
    const { status } = await ask({ previous_response_id: id, model: 'both' });
    assert.equal(status, 200);
    assert.equal(
      upstream.requests.at(-1)?.headers.authorization,
      'Bearer maker-key-1',
      'pinned to the API that has it',
    );
  }
  await ask({ store: false });
  const { database } = running;
  const rows = () => database.read(database.query.selectFrom('upstream_objects').selectAll().compile());
  await until('all are stored', async () => (await rows()).length >= 18);
  assert.ok((await rows()).every(({ api, id: kept }) => api === 'maker' && /^resp_\d+(?:_item)?$/.test(kept)));
});

test('a container of Claude is the caller’s own, and files of the operator are not', async (t) => {
  const withContainer = { ...JSON.parse(CLAUDE_ANSWER), container: { id: 'container_1', expires_at: 'later' } };
  const { upstream, post, newKey } = await start(t, answers(withContainer));
  const [mine, theirs] = [await newKey(), await newKey()];
  const ask = async (more: object, key = mine) =>
    post(
      '/v1/messages',
      { model: 'claude/big', max_tokens: 10, messages: [{ role: 'user', content: 'Hi' }], ...more },
      {},
      key,
    );
  assert.equal((await ask({})).status, 200);
  assert.equal((await ask({ container: 'container_1' })).status, 200);
  assert.equal((await ask({ container: { id: 'container_1', skills: [] } })).status, 200);
  const file = [{ type: 'document', source: { type: 'file', file_id: 'file_1' } }];
  const result = [{ type: 'tool_result', tool_use_id: 'toolu_1', content: file }];
  const passed = upstream.requests.length;
  for (const [more, key] of [
    [{ container: 'container_1' }, theirs],
    [{ container: { id: 'container_1', skills: [{ type: 'custom', skill_id: 'skill_1' }] } }, mine],
    [{ messages: [{ role: 'user', content: file }] }, mine],
    [{ messages: [{ role: 'user', content: result }] }, mine],
    [{ messages: [{ role: 'user', content: [{ type: 'container_upload', file_id: 'file_1' }] }] }, mine],
  ] as const) {
    const response = await ask(more, key);
    assert.equal(response.status, 400);
    assert.match(((await response.json()) as Json).error.message, /nothing is stored for you/);
  }
  assert.equal(upstream.requests.length, passed);
});
