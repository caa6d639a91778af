import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, startScriptedUpstream, streams } from '../../kit/scripted-upstream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const MASTER = 'master-key-of-the-proofs-1';
const THOUGHT = { type: 'thinking', thinking: 'I need the weather.', signature: 'c2lnbmVk' };
const CALL = { type: 'tool_use', id: 'toolu_1', name: 'weather', input: { city: 'Ulm' } };
const ANSWER = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'claude-sonnet-4-5',
  content: [THOUGHT, CALL],
  stop_reason: 'tool_use',
  usage: { input_tokens: 3, output_tokens: 9 },
};
const named = (type: string, data: object) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
const EVENTS = [
  named('message_start', { message: { ...ANSWER, content: [], stop_reason: null } }),
  named('content_block_start', { index: 0, content_block: { type: 'thinking', thinking: '', signature: '' } }),
  named('content_block_delta', { index: 0, delta: { type: 'thinking_delta', thinking: 'I need ' } }),
  named('content_block_delta', { index: 0, delta: { type: 'thinking_delta', thinking: 'the weather.' } }),
  named('content_block_delta', { index: 0, delta: { type: 'signature_delta', signature: 'c2lnbmVk' } }),
  named('content_block_stop', { index: 0 }),
  named('content_block_start', { index: 1, content_block: { ...CALL, input: {} } }),
  named('content_block_delta', { index: 1, delta: { type: 'input_json_delta', partial_json: '{"city":"Ulm"}' } }),
  named('content_block_stop', { index: 1 }),
  named('message_delta', { delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 9 } }),
  named('message_stop', {}),
];
const ASK = {
  model: 'anthropic/claude-sonnet-4-5',
  reasoning_effort: 'medium',
  max_tokens: 20_000,
  tools: [{ type: 'function', function: { name: 'weather', parameters: { type: 'object' } } }],
  messages: [{ role: 'user', content: 'Do I need an umbrella?' }],
};
/** As a plain client sends it: the calls, without the thinking before them. */
const RESULT = {
  ...ASK,
  messages: [
    ...ASK.messages,
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'toolu_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Ulm"}' } }],
    },
    { role: 'tool', tool_call_id: 'toolu_1', content: 'Rain' },
  ],
};

async function start(t: Parameters<typeof startCompletions>[0], settings: object = {}) {
  const upstream = await startScriptedUpstream(t);
  const { post } = await startCompletions(t, {
    settings: { master_key: MASTER, apis: { anthropic: { api_key: 'k', base_url: upstream.url } }, ...settings },
  });
  const ask = async (body: object, key = MASTER) => {
    const response = await post('/v1/chat/completions', body, { headers: { authorization: `Bearer ${key}` } });
    assert.equal(response.status, 200);
    await response.text();
    return upstream.requests.at(-1)?.json as Json;
  };
  const newKey = async () => {
    const issued = await post('/v1/keys', { name: 'other' }, { headers: { authorization: `Bearer ${MASTER}` } });
    return ((await issued.json()) as Json).key as string;
  };
  return { upstream, ask, newKey };
}

for (const stream of [false, true]) {
  test(`thinking before a call comes back with its proof (${stream ? 'a stream' : 'a whole response'})`, async (t) => {
    const { upstream, ask, newKey } = await start(t);
    upstream.script(stream ? streams(EVENTS) : answers(ANSWER));
    await ask({ ...ASK, stream });
    upstream.script(answers(ANSWER));
    const sent = await ask(RESULT);
    assert.deepEqual(sent.messages[1].content, [THOUGHT, CALL]);
    assert.equal(sent.thinking.type, 'enabled', 'the model goes on thinking');

    const others = await ask(RESULT, await newKey());
    assert.deepEqual(others.messages[1].content, [CALL], 'another key does not get it');
    assert.equal(others.thinking, undefined, 'without it, thinking is off for the turn, which is not an error');
  });
}

test('thinking that the caller sends itself is left alone, and what is not known stays as it is', async (t) => {
  const { upstream, ask } = await start(t);
  upstream.script(answers(ANSWER));
  const sent = await ask(RESULT);
  assert.deepEqual(sent.messages[1].content, [CALL]);
});

test('with guardrails nothing is kept: what they take out must not come back', async (t) => {
  const { upstream, ask } = await start(t, { guardrails: [{ name: 'mail', kind: 'pii', action: 'mask' }] });
  upstream.script(answers(ANSWER));
  await ask(ASK);
  const sent = await ask(RESULT);
  assert.deepEqual(sent.messages[1].content, [CALL]);
});

test('items of a translated response may come back as references, from its own key alone', async (t) => {
  const upstream = await startScriptedUpstream(t, answers(ANSWER));
  const { post } = await startCompletions(t, {
    settings: { master_key: MASTER, apis: { anthropic: { api_key: 'k', base_url: upstream.url } } },
  });
  const tools = [{ type: 'function', name: 'weather', parameters: { type: 'object' } }];
  const ask = (more: object, key = MASTER) =>
    post('/v1/responses', { model: ASK.model, tools, ...more }, { headers: { authorization: `Bearer ${key}` } });
  const question = { role: 'user', content: 'Do I need an umbrella?' };
  const result = { type: 'function_call_output', call_id: 'toolu_1', output: 'Rain' };
  const referring = (output: readonly Json[]) => ({
    input: [question, ...output.map(({ id }) => ({ type: 'item_reference', id })), result],
  });
  const outputOf = async (more: object): Promise<readonly Json[]> => {
    upstream.script(answers(ANSWER));
    return ((await (await ask({ input: [question], ...more })).json()) as Json).output;
  };
  const issued = await post('/v1/keys', { name: 'other' }, { headers: { authorization: `Bearer ${MASTER}` } });
  const { key: stranger } = (await issued.json()) as Json;

  const output = await outputOf({});
  assert.deepEqual(
    output.map(({ type }) => type),
    ['reasoning', 'function_call'],
  );
  const answered = await ask(referring(output));
  assert.equal(answered.status, 200, await answered.text());
  assert.deepEqual(upstream.requests.at(-1)?.json.messages, [
    { role: 'user', content: [{ type: 'text', text: question.content }] },
    { role: 'assistant', content: [THOUGHT, CALL] },
    {
      role: 'user',
      content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: [{ type: 'text', text: 'Rain' }] }],
    },
  ]);
  upstream.script(streams(EVENTS));
  const events = await (await ask({ input: [question], stream: true })).text();
  const completed = events.split('\n').findLast((line) => line.startsWith('data: ')) ?? '';
  const streamed = JSON.parse(completed.slice('data: '.length)).response.output as readonly Json[];
  upstream.script(answers(ANSWER));
  assert.equal((await ask(referring(streamed))).status, 200, 'of a stream');

  const codeOf = async (response: Response) => ((await response.json()) as Json).error?.code;
  assert.equal(await codeOf(await ask(referring(output), stranger)), 'nothing_stored');
  assert.equal(await codeOf(await ask(referring([...output, ...output]))), 'nothing_stored', 'named twice');
  assert.equal(await codeOf(await ask(referring(await outputOf({ store: false })))), 'nothing_stored');
});
