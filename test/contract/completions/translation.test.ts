import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HELLO, readStream, startCompletions } from '../../kit/completions/start-completions.ts';
import {
  answers,
  diesAfter,
  refuses,
  startScriptedUpstream,
  streams,
  streamsLater,
} from '../../kit/scripted-upstream.ts';

const event = (type: string, data: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;

/** A short stream of Anthropic's dialect. */
const CLAUDE = [
  event('message_start', {
    message: {
      id: 'msg_1',
      model: 'claude-x',
      role: 'assistant',
      content: [],
      usage: { input_tokens: 9, output_tokens: 1 },
    },
  }),
  event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
  event('ping', {}),
  event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'Hel' } }),
  event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'lo' } }),
  event('content_block_stop', { index: 0 }),
  event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 5 } }),
  event('message_stop', {}),
];

async function start(
  t: Parameters<typeof startCompletions>[0],
  ...behaviours: Parameters<typeof startScriptedUpstream>[1][]
) {
  const upstream = await startScriptedUpstream(t, ...behaviours);
  const apis = { claude: { dialect: 'anthropic', base_url: upstream.url, api_key: 'claude-key-8812' } };
  const models = [{ name: 'm', targets: [{ model: 'claude/x' }], retries: 0, fallbacks: ['demo/echo'] }];
  return { upstream, ...(await startCompletions(t, { settings: { apis, models } })) };
}
const ASK = { ...HELLO, model: 'claude/claude-x', stream: true };

test('P-04: a stream of another dialect is read by the rules of server-sent events, however it is cut', async (t) => {
  const { upstream, post } = await start(t);
  const crlf = CLAUDE.map((text) => text.replaceAll('\n', '\r\n'));
  const bytewise = [...Buffer.from(CLAUDE.join(''))].map((byte) => Buffer.from([byte]));
  for (const pieces of [CLAUDE, crlf, [': note\n\n', ...CLAUDE], bytewise]) {
    upstream.script(streams(pieces, { apart: pieces === bytewise }));
    const asked = { ...ASK, stream_options: { include_usage: true } };
    const { text, done, events } = await readStream(await post('/v1/chat/completions', asked));
    assert.equal(text, 'Hello');
    assert.ok(done);
    const last = JSON.parse(events.at(-2) ?? '');
    assert.equal(last.usage.prompt_tokens, 9);
    assert.equal(last.usage.completion_tokens, 5);
    assert.equal(JSON.parse(events.at(-3) ?? '').choices[0].finish_reason, 'stop');
  }
  const plain = await readStream(await post('/v1/chat/completions', ASK));
  assert.ok(plain.events.every((data) => !data.includes('prompt_tokens')));
});

test('a whole answer of another dialect has the shape of both families', async (t) => {
  const message = {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'claude-x',
    content: [{ type: 'text', text: 'Hello' }],
    stop_reason: 'end_turn',
    usage: { input_tokens: 3, output_tokens: 2 },
  };
  const { upstream, post } = await start(t, answers(message));
  for (const [path, type] of [
    ['/v1/chat/completions', 'number'],
    ['/chat/completions', 'string'],
  ] as const) {
    const body = (await (await post(path, { ...ASK, stream: false })).json()) as Record<string, unknown>;
    assert.equal(typeof body.created, type);
    assert.deepEqual(body.usage, { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 });
  }
  assert.equal(upstream.requests[0]?.headers['x-api-key'], 'claude-key-8812');
  assert.equal(upstream.requests[0]?.path, '/v1/messages');
});

test('P-07: a translated stream that breaks, or says that it failed, ends in one error event', async (t) => {
  const overloaded = event('error', { error: { type: 'overloaded_error', message: 'Overloaded' } });
  const { upstream, post } = await start(t);
  for (const behaviour of [
    diesAfter(CLAUDE.slice(0, 4)),
    streams(CLAUDE.slice(0, 4)),
    streamsLater(CLAUDE.slice(0, 4), [overloaded]),
  ]) {
    upstream.script(behaviour);
    const { text, error, done } = await readStream(await post('/v1/chat/completions', ASK));
    assert.equal(text, 'Hel');
    assert.equal(error?.code, 'upstream_error');
    assert.equal(done, false);
  }
});

test('P-06: a translated call that fails early falls back to another dialect', async (t) => {
  const { upstream, post } = await start(t);
  const startOnly = event('error', { error: { type: 'overloaded_error', message: 'Overloaded' } });
  for (const behaviour of [refuses(529), streams([startOnly]), streams([])]) {
    upstream.script(behaviour);
    const response = await post('/v1/chat/completions', { ...ASK, model: 'm' });
    assert.equal(response.headers.get('x-model-api'), 'demo');
    assert.equal((await readStream(response)).text, 'Hello');
  }
});
