import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startCompletions } from '../../kit/completions/start-completions.ts';
import { answers, completionOf, startScriptedUpstream, streams, streamsLater } from '../../kit/scripted-upstream.ts';
import { weatherConversation, weatherTool } from './read-stream.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as a client reads them
type Json = any;

const MODEL = 'openai/gpt-5-codex';
const USAGE = {
  input_tokens: 30,
  input_tokens_details: { cached_tokens: 10 },
  output_tokens: 9,
  output_tokens_details: { reasoning_tokens: 4 },
};
const REASONING = {
  id: 'rs_1',
  type: 'reasoning',
  summary: [
    { type: 'summary_text', text: 'First' },
    { type: 'summary_text', text: 'then' },
  ],
  encrypted_content: 'gAAAA:x;%',
};
const SAID = { id: 'msg_1', type: 'message', content: [{ type: 'output_text', text: 'Hello' }] };
const CALL = {
  id: 'fc_1',
  type: 'function_call',
  call_id: 'call_1',
  name: 'get_weather',
  arguments: '{"city":"Rome"}',
};
const RESPONSE = {
  id: 'resp_1',
  object: 'response',
  status: 'completed',
  model: 'gpt-5-codex-2026',
  error: null,
  usage: USAGE,
};

async function start(t: Parameters<typeof startCompletions>[0]) {
  const upstream = await startScriptedUpstream(t);
  const { post } = await startCompletions(t, {
    settings: { apis: { openai: { base_url: upstream.url, api_key: 'key-1', responses: true } } },
  });
  const sent = () => upstream.requests.at(-1)?.json as Json;
  return { upstream, post, sent };
}

const chat = (more: object = {}) => ({ model: MODEL, messages: [{ role: 'user', content: 'Hi' }], ...more });

test('DC-11: a model that only /responses serves is called there from chat completions, with everything that both have', async (t) => {
  const { upstream, post, sent } = await start(t);
  upstream.script(answers({ ...RESPONSE, output: [REASONING, SAID, CALL] }));
  const file = { file_data: 'data:application/pdf;base64,QQ==', filename: 'a.pdf' };
  const response = await post('/v1/chat/completions', {
    ...chat(),
    messages: [
      ...weatherConversation,
      {
        role: 'user',
        content: [
          { type: 'image_url', image_url: { url: 'https://a.example/b.png', detail: 'low' } },
          { type: 'file', file },
        ],
      },
    ],
    tools: [
      weatherTool,
      { type: 'custom', custom: { name: 'sh', format: { type: 'grammar', grammar: { syntax: 'lark' } } } },
    ],
    tool_choice: { type: 'function', function: { name: 'get_weather' } },
    max_completion_tokens: 5,
    reasoning_effort: 'low',
    verbosity: 'high',
    prompt_cache_key: 'k',
    response_format: { type: 'json_schema', json_schema: { name: 'it', schema: { type: 'object' }, strict: true } },
    stop: ['HALT'],
    n: 1,
  });
  assert.equal(response.headers.get('x-dropped-params'), 'stop');
  const { id, model, choices, usage } = (await response.json()) as Json;
  assert.deepEqual([id, model], ['resp_1', 'gpt-5-codex-2026']);
  const { message, finish_reason: reason } = choices[0];
  assert.deepEqual([message.content, message.reasoning_content, reason], ['Hello', 'First\n\nthen', 'tool_calls']);
  assert.deepEqual(message.tool_calls, [
    { id: 'call_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } },
  ]);
  assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [30, 9]);
  assert.deepEqual(usage.completion_tokens_details, { reasoning_tokens: 4 });
  assert.equal(upstream.requests[0]?.path, '/v1/responses');
  const { input, tools, ...rest } = sent();
  assert.deepEqual(rest, {
    model: 'gpt-5-codex',
    prompt_cache_key: 'k',
    max_output_tokens: 16,
    tool_choice: { type: 'function', name: 'get_weather' },
    text: { format: { type: 'json_schema', name: 'it', schema: { type: 'object' }, strict: true }, verbosity: 'high' },
    reasoning: { effort: 'low', summary: 'auto' },
    include: ['reasoning.encrypted_content'],
    store: false,
  });
  assert.equal(tools[0].name, 'get_weather');
  assert.deepEqual(tools[1], { type: 'custom', name: 'sh', format: { type: 'grammar', syntax: 'lark' } });
  assert.deepEqual(input.map(({ type, role, call_id: call }: Json) => call ?? role ?? type).slice(0, 3), [
    'system',
    'user',
    'assistant',
  ]);
  assert.deepEqual(input.at(-1).content, [
    { type: 'input_image', image_url: 'https://a.example/b.png', detail: 'low' },
    { type: 'input_file', ...file },
  ]);
  assert.ok(JSON.stringify(input).includes('"function_call_output"'));

  const back = [{ role: 'user', content: 'Hi' }, message, { role: 'tool', tool_call_id: 'call_1', content: 'Sunny' }];
  await post('/v1/chat/completions', chat({ messages: back }));
  assert.deepEqual(sent().input.slice(1), [
    { type: 'reasoning', summary: [{ type: 'summary_text', text: 'First\n\nthen' }], encrypted_content: 'gAAAA:x;%' },
    { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Hello' }] },
    { type: 'function_call', call_id: 'call_1', name: 'get_weather', arguments: '{"city":"Rome"}' },
    { type: 'function_call_output', call_id: 'call_1', output: 'Sunny' },
  ]);
  upstream.script(answers(completionOf('Hi')));
  await post('/v1/chat/completions', chat({ model: 'openai/gpt-4o' }));
  assert.equal(upstream.requests.at(-1)?.path, '/v1/chat/completions');
});

const named = (type: string, data: object = {}) => `event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`;
const CUSTOM = { type: 'custom_tool_call', call_id: 'call_2', name: 'sh', input: '' };
const STREAM = [
  named('response.created', { response: { ...RESPONSE, status: 'in_progress', output: [], usage: null } }),
  named('response.output_item.added', { output_index: 0, item: { ...REASONING, summary: [] } }),
  ...REASONING.summary.flatMap(({ text }, index) => [
    named('response.reasoning_summary_part.added', { output_index: 0, summary_index: index }),
    named('response.reasoning_summary_text.delta', { output_index: 0, summary_index: index, delta: text }),
  ]),
  named('response.output_item.done', { output_index: 0, item: REASONING }),
  named('response.output_text.delta', { output_index: 1, delta: 'Hel' }),
  named('response.output_text.delta', { output_index: 1, delta: 'lo' }),
  named('response.output_item.added', { output_index: 2, item: { ...CALL, arguments: '' } }),
  named('response.function_call_arguments.delta', { output_index: 2, delta: '{"city":' }),
  named('response.function_call_arguments.delta', { output_index: 2, delta: '"Rome"}' }),
  named('response.output_item.done', { output_index: 2, item: CALL }),
  named('response.output_item.added', { output_index: 3, item: CUSTOM }),
  named('response.output_item.done', { output_index: 3, item: { ...CUSTOM, input: 'ls' } }),
];
const COMPLETED = named('response.completed', { response: { ...RESPONSE, output: [] } });

test('DC-11: its stream is read as chunks, messages and responses, and a failure in it is an error', async (t) => {
  const { upstream, post } = await start(t);
  upstream.script(streams([...STREAM, COMPLETED], { apart: true }));
  const ask = chat({ stream: true, stream_options: { include_usage: true } });
  const text = await (await post('/v1/chat/completions', ask)).text();
  assert.ok(text.endsWith('data: [DONE]\n\n'));
  const chunks: Json[] = [...text.matchAll(/^data: (\{.*)$/gm)].map(([, data = '']) => JSON.parse(data));
  const deltas: Json[] = chunks.flatMap(({ choices }) => choices.map(({ delta }: Json) => delta));
  const joined = (name: string) => deltas.map((delta) => delta[name] ?? '').join('');
  assert.deepEqual([joined('content'), joined('reasoning_content')], ['Hello', 'First\n\nthen']);
  assert.match(joined('reasoning_signature'), /^openai:s11:/);
  const calls = deltas.flatMap((delta) => delta.tool_calls ?? []);
  const pieces = (index: number, read: (call: Json) => string | undefined) =>
    calls
      .filter((call) => call.index === index)
      .map((call) => read(call) ?? '')
      .join('');
  assert.equal(
    pieces(0, (call) => call.function?.arguments),
    '{"city":"Rome"}',
  );
  assert.equal(
    pieces(1, (call) => call.custom?.input),
    'ls',
  );
  assert.equal(chunks.at(-2).choices[0].finish_reason, 'tool_calls');
  assert.equal(chunks.at(-1).usage.prompt_tokens, 30);

  const message = { model: MODEL, max_tokens: 100, stream: true, messages: [{ role: 'user', content: 'Hi' }] };
  const events = await (await post('/v1/messages', message)).text();
  assert.match(events, /"type":"tool_use","id":"call_1","name":"get_weather"/);
  assert.match(events, /"stop_reason":"tool_use"/);

  const failed = named('response.failed', {
    response: { status: 'failed', error: { code: 'server_error', message: 'No' } },
  });
  for (const behaviour of [streamsLater(STREAM.slice(0, 8), [failed]), streams(STREAM.slice(0, 8))]) {
    upstream.script(behaviour);
    const broken = await (await post('/v1/chat/completions', ask)).text();
    assert.match(broken, /data: \{"error":\{.*"code":"upstream_error"/);
    assert.doesNotMatch(broken, /\[DONE\]/);
  }
});

test('proofs of reasoning reach their maker alone, on a lane and translated', async (t) => {
  const { upstream, post, sent } = await start(t);
  upstream.script(answers({ ...RESPONSE, output: [SAID] }));
  const item = (encrypted: string) => ({
    type: 'reasoning',
    summary: [{ type: 'summary_text', text: 'hm' }],
    encrypted_content: encrypted,
  });
  const ask = async (encrypted: string) => {
    const input = [{ role: 'user', content: 'Hi' }, item(encrypted), { role: 'user', content: 'And?' }];
    await post('/v1/responses', { model: MODEL, input });
    return sent().input.filter(({ type }: Json) => type === 'reasoning');
  };
  assert.deepEqual(await ask('gAAAA'), [item('gAAAA')], 'as OpenAI gave it');
  assert.deepEqual(await ask('openai:s2:gAAAA;'), [item('gAAAA')], 'as we packed it');
  assert.deepEqual(await ask('claude:t2@0:c2ln;'), [], 'of another maker');
});
