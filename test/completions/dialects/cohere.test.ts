import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cohereDialect } from '../../../src/completions/dialects/cohere/cohere-dialect.ts';
import {
  ask,
  context,
  contextFor,
  dataEvents,
  PNG,
  readStream,
  weatherConversation,
  weatherTool,
} from './read-stream.ts';

const MODEL = 'command-a-03-2025';

function encode(request: Record<string, unknown>, model = MODEL) {
  const { path, body, dropped } = cohereDialect.encodeRequest(ask(request), contextFor(model));
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any part of a body.
  return { path, dropped, body: body as any };
}

test('a conversation with parallel calls', () => {
  const { path, body, dropped } = encode({
    messages: weatherConversation,
    tools: [weatherTool],
    max_completion_tokens: 100,
    temperature: 0.5,
    top_p: 0.9,
    stop: ['END'],
    seed: 3,
    presence_penalty: 1.5,
    frequency_penalty: 0.5,
  });
  assert.equal(path, '/chat');
  assert.deepEqual(dropped, []);
  assert.deepEqual(body, {
    model: MODEL,
    messages: weatherConversation,
    max_tokens: 100,
    temperature: 0.5,
    p: 0.9,
    seed: 3,
    stop_sequences: ['END'],
    presence_penalty: 1,
    frequency_penalty: 0.5,
    tools: [weatherTool],
  });
});

test('roles, plans, images and what cannot be sent', () => {
  const { body, dropped } = encode({
    messages: [
      { role: 'developer', content: 'Rules' },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Look' },
          { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}`, detail: 'low' } },
          { type: 'input_audio', input_audio: { data: PNG, format: 'wav' } },
        ],
      },
      {
        role: 'assistant',
        content: null,
        reasoning_content: 'I will look.',
        // As some clients send a call without arguments; Cohere takes JSON only.
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '' } }],
      },
    ],
  });
  assert.deepEqual(body.messages, [
    { role: 'system', content: 'Rules' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'Look' },
        { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}`, detail: 'low' } },
      ],
    },
    {
      role: 'assistant',
      tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
      tool_plan: 'I will look.',
    },
  ]);
  assert.deepEqual(dropped, ['messages.content.input_audio']);
});

test('tool choices: a function that must be called is the only one offered', () => {
  const other = { type: 'function', function: { name: 'other' } };
  const choose = (tool_choice: unknown) => encode({ tools: [weatherTool, other], tool_choice }).body;
  assert.equal(choose('auto').tool_choice, undefined);
  assert.equal(choose('none').tool_choice, 'NONE');
  assert.equal(choose('required').tool_choice, 'REQUIRED');
  const named = choose({ type: 'function', function: { name: 'other' } });
  assert.equal(named.tool_choice, 'REQUIRED');
  assert.deepEqual(named.tools, [{ type: 'function', function: { name: 'other', parameters: { type: 'object' } } }]);
});

test('structured output, not together with functions', () => {
  const schema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };
  const response_format = { type: 'json_schema', json_schema: { name: 'x', schema } };
  assert.deepEqual(encode({ response_format }).body.response_format, { type: 'json_object', json_schema: schema });
  assert.deepEqual(encode({ response_format: { type: 'json_object' } }).body.response_format, { type: 'json_object' });
  assert.deepEqual(encode({ response_format, tools: [weatherTool] }).dropped, ['response_format']);
});

test('reasoning effort is a budget of models that reason', () => {
  const thinking = (reasoning_effort: string, model: string) => encode({ reasoning_effort }, model);
  assert.deepEqual(thinking('low', 'command-a-reasoning-08-2025').body.thinking, {
    type: 'enabled',
    token_budget: 2048,
  });
  assert.deepEqual(thinking('none', 'command-a-reasoning-08-2025').body.thinking, { type: 'disabled' });
  assert.deepEqual(thinking('low', MODEL).dropped, ['reasoning_effort']);
});

test('P-24: what Cohere lacks is named, and its own fields travel on', () => {
  const { body, dropped } = encode({ n: 2, logit_bias: { 1: 1 }, user: 'u', presence_penalty: -1, k: 9 });
  assert.deepEqual([...dropped].sort(), ['logit_bias', 'n', 'presence_penalty', 'user']);
  assert.equal(body.k, 9);
});

const usage = {
  billed_units: { input_tokens: 5, output_tokens: 6 },
  tokens: { input_tokens: 50, output_tokens: 60 },
  cached_tokens: 8,
};
const ourUsage = {
  prompt_tokens: 50,
  completion_tokens: 60,
  total_tokens: 110,
  prompt_tokens_details: { cached_tokens: 8 },
};
const calls = [
  { id: 'get_weather_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } },
  { id: 'now_2', type: 'function', function: { name: 'now', arguments: '{}' } },
];

const event = (type: string, message: object, index = 0) => ({ type, index, delta: { message } });
const streamed = [
  { type: 'message-start', id: 'msg-1', delta: { message: { role: 'assistant', content: [], tool_plan: '' } } },
  event('tool-plan-delta', { tool_plan: 'I will ' }),
  event('tool-plan-delta', { tool_plan: 'look.' }),
  event('tool-call-start', { tool_calls: { ...calls[0], function: { name: 'get_weather', arguments: '' } } }),
  event('tool-call-delta', { tool_calls: { function: { arguments: '{"city":' } } }),
  event('tool-call-delta', { tool_calls: { function: { arguments: '"Rome"}' } } }),
  { type: 'tool-call-end', index: 0 },
  event(
    'tool-call-start',
    { tool_calls: { id: 'now_2', type: 'function', function: { name: 'now', arguments: '' } } },
    1,
  ),
  { type: 'tool-call-end', index: 1 },
  { type: 'citation-start', index: 0, delta: { message: { citations: {} } } },
  { type: 'message-end', delta: { finish_reason: 'TOOL_CALL', usage } },
];

test('calls: a whole answer and a stream say the same', () => {
  const body = {
    id: 'msg-1',
    finish_reason: 'TOOL_CALL',
    message: {
      role: 'assistant',
      tool_plan: 'I will look.',
      tool_calls: [calls[0], { ...calls[1], function: { name: 'now', arguments: 'null' } }],
    },
    usage,
  };
  const { completion } = cohereDialect.decodeResponse(body, contextFor(MODEL));
  assert.deepEqual(completion?.choices[0], {
    index: 0,
    message: { role: 'assistant', content: null, reasoning_content: 'I will look.', tool_calls: calls },
    finish_reason: 'tool_calls',
  });
  assert.equal(completion?.id, 'msg-1');
  assert.equal(completion?.model, MODEL);
  assert.deepEqual(completion?.usage, ourUsage);
  const answer = readStream(cohereDialect, dataEvents(...streamed));
  assert.equal(answer.reasoning, 'I will look.');
  assert.deepEqual(answer.calls, calls);
  assert.deepEqual(answer.finishReasons, ['tool_calls']);
  assert.deepEqual(answer.usage, ourUsage);
  assert.equal(answer.done, true);
});

test('text and thinking: a whole answer and a stream say the same', () => {
  const content = [
    { type: 'thinking', thinking: 'Hm.' },
    { type: 'text', text: 'Hi there' },
  ];
  const body = { id: 'm', finish_reason: 'COMPLETE', message: { role: 'assistant', content } };
  const message = cohereDialect.decodeResponse(body, context).completion?.choices[0]?.message;
  assert.deepEqual(message, { role: 'assistant', content: 'Hi there', reasoning_content: 'Hm.' });
  const answer = readStream(
    cohereDialect,
    dataEvents(
      event('content-start', { content: { type: 'thinking', thinking: '' } }),
      event('content-delta', { content: { thinking: 'Hm.' } }),
      { type: 'content-end', index: 0 },
      event('content-start', { content: { type: 'text', text: '' } }, 1),
      event('content-delta', { content: { text: 'Hi ' } }, 1),
      event('content-delta', { content: { text: 'there' } }, 1),
      { type: 'content-end', index: 1 },
      { type: 'message-end', delta: { finish_reason: 'COMPLETE', usage } },
    ),
  );
  assert.deepEqual([answer.content, answer.reasoning, answer.finishReasons], ['Hi there', 'Hm.', ['stop']]);
});

test('every finish reason; errors are failures', () => {
  const reasons = {
    COMPLETE: 'stop',
    STOP_SEQUENCE: 'stop',
    MAX_TOKENS: 'length',
    ERROR_TOXIC: 'content_filter',
    ERROR: undefined,
    ERROR_LIMIT: undefined,
    TIMEOUT: undefined,
  };
  for (const [finish_reason, expected] of Object.entries(reasons)) {
    const body = { finish_reason, message: { content: [{ type: 'text', text: 'Hi' }] } };
    const decoded = cohereDialect.decodeResponse(body, context);
    assert.equal(decoded.completion?.choices[0]?.finish_reason, expected, finish_reason);
    const answer = readStream(
      cohereDialect,
      dataEvents({ type: 'message-end', delta: { finish_reason, error: 'Why' } }),
    );
    assert.equal(answer.finishReasons[0], expected);
    assert.equal(answer.failure?.message, expected === undefined ? 'Why' : undefined);
  }
});

test('errors', () => {
  assert.deepEqual(cohereDialect.decodeFailure(429, { id: 'x', message: 'You are using a trial key' }), {
    message: 'You are using a trial key',
    code: 'rate_limit_exceeded',
    param: null,
    status: 429,
  });
  assert.equal(cohereDialect.decodeFailure(400, { message: 'too many tokens: 9' }).code, 'context_length_exceeded');
  assert.equal(cohereDialect.decodeResponse({ message: 'broken' }, context).failure?.message, 'broken');
  assert.equal(readStream(cohereDialect, dataEvents({ message: 'broken' })).failure?.message, 'broken');
});
