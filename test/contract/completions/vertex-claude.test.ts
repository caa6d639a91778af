import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, type Behaviour, startScriptedUpstream, streams } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const KNOWN = 'google-vertex/claude-sonnet-4-5@20250929';
const ANSWER = {
  id: 'msg_vrtx_1',
  type: 'message',
  role: 'assistant',
  model: 'claude-sonnet-4-5-20250929',
  content: [{ type: 'text', text: 'Hi' }],
  stop_reason: 'end_turn',
  usage: { input_tokens: 3, output_tokens: 1 },
};
const named = (type: string, data: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
const EVENTS = [
  named('message_start', { message: { ...ANSWER, content: [], stop_reason: null } }),
  named('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
  named('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'Hi' } }),
  named('content_block_stop', { index: 0 }),
  named('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 1 } }),
  named('message_stop', {}),
];
const PUBLISHED = '/v1/publishers/anthropic/models';

async function start(t: Parameters<typeof startCompletions>[0], ...behaviours: Behaviour[]) {
  const upstream = await startScriptedUpstream(t, ...behaviours);
  const { post } = await startCompletions(t, {
    settings: { apis: { 'google-vertex': { base_url: upstream.url, api_key: 'ya29.token' } } },
  });
  return { upstream, post };
}

test('a chat with Claude on Vertex goes to rawPredict, in the form of the Messages API', async (t) => {
  const { upstream, post } = await start(t, answers(ANSWER));
  for (const model of [
    KNOWN,
    'google-vertex/publishers/anthropic/models/claude-sonnet-4-5@20250929',
    'google-vertex/anthropic/claude-sonnet-4-5@20250929',
  ]) {
    const response = await post('/v1/chat/completions', { model, messages: [{ role: 'user', content: 'Hello' }] });
    const body = (await response.json()) as Json;
    assert.equal(body.choices[0].message.content, 'Hi', model);
    assert.equal(body.usage.prompt_tokens, 3);
    const seen = upstream.requests.at(-1) ?? assert.fail();
    assert.equal(seen.path, `${PUBLISHED}/claude-sonnet-4-5@20250929:rawPredict`);
    assert.equal(seen.headers.authorization, 'Bearer ya29.token');
    const sent = seen.json as Json;
    assert.equal(sent.anthropic_version, 'vertex-2023-10-16');
    assert.deepEqual([sent.model, sent.messages.length, sent.max_tokens > 0], [undefined, 1, true]);
  }
});

test('a streamed chat with Claude on Vertex goes to streamRawPredict', async (t) => {
  const { upstream, post } = await start(t, streams(EVENTS));
  const ask = { model: KNOWN, stream: true, messages: [{ role: 'user', content: 'Hello' }] };
  const text = await (await post('/v1/chat/completions', ask)).text();
  assert.match(text, /"content":"Hi"/);
  assert.match(text, /data: \[DONE\]/);
  const seen = upstream.requests[0] ?? assert.fail();
  assert.equal(seen.path, `${PUBLISHED}/claude-sonnet-4-5@20250929:streamRawPredict`);
  assert.equal((seen.json as Json).stream, true);
});

test('messages for Claude on Vertex keep their fields and betas, and answers pass as bytes', async (t) => {
  const { upstream, post } = await start(t, answers(ANSWER));
  const body = {
    model: KNOWN,
    max_tokens: 9,
    messages: [{ role: 'user', content: 'Hello' }],
    context_management: { edits: [{ type: 'clear_thinking_20251015' }] },
    of_next_year: 1,
  };
  const headers = { 'anthropic-beta': 'context-management-2025-06-27' };
  const response = await post('/v1/messages', body, { headers });
  assert.deepEqual(await response.json(), ANSWER);
  const seen = upstream.requests[0] ?? assert.fail();
  assert.equal(seen.path, `${PUBLISHED}/claude-sonnet-4-5@20250929:rawPredict`);
  assert.equal(seen.headers['anthropic-beta'], headers['anthropic-beta']);
  const { model: _, ...rest } = body;
  assert.deepEqual(seen.json, { anthropic_version: 'vertex-2023-10-16', ...rest });

  upstream.script(streams(EVENTS));
  const streamed = await post('/v1/messages', { ...body, stream: true });
  assert.equal(await streamed.text(), EVENTS.join(''));
  assert.equal(upstream.requests[1]?.path, `${PUBLISHED}/claude-sonnet-4-5@20250929:streamRawPredict`);
});

test('the tokens of a message for Claude on Vertex are counted there', async (t) => {
  const { upstream, post } = await start(t, answers({ input_tokens: 17 }));
  const response = await post('/v1/messages/count_tokens', {
    model: KNOWN,
    messages: [{ role: 'user', content: 'Hello' }],
  });
  assert.deepEqual(await response.json(), { input_tokens: 17 });
  const seen = upstream.requests[0] ?? assert.fail();
  assert.equal(seen.path, `${PUBLISHED}/count-tokens:rawPredict`);
  assert.equal((seen.json as Json).model, 'claude-sonnet-4-5@20250929');
});

test('other models on Vertex are called as before', async (t) => {
  const gemini = { candidates: [{ content: { role: 'model', parts: [{ text: 'Hi' }] }, finishReason: 'STOP' }] };
  const { upstream, post } = await start(t, answers(gemini));
  const model = 'google-vertex/gemini-2.5-flash';
  await post('/v1/chat/completions', { model, messages: [{ role: 'user', content: 'Hello' }] });
  assert.equal(upstream.requests[0]?.path, '/v1/publishers/google/models/gemini-2.5-flash:generateContent');
  const response = await post('/v1/messages', { model, max_tokens: 9, messages: [{ role: 'user', content: 'Hello' }] });
  assert.equal(((await response.json()) as Json).content[0].text, 'Hi');
});
