import assert from 'node:assert/strict';
import { test } from 'node:test';
import { anthropicDialect } from '../../../src/completions/dialects/anthropic/anthropic-dialect.ts';
import { ask, contextFor, PNG, weatherConversation, weatherTool } from './read-stream.ts';

const MODEL = 'claude-sonnet-4-5';

function encode(request: Record<string, unknown>, model = MODEL, more: object = {}) {
  const { path, headers, body, dropped } = anthropicDialect.encodeRequest(ask(request), contextFor(model, more));
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any part of a body.
  return { path, headers, dropped, body: body as any };
}

test('a conversation with parallel calls becomes alternating turns', () => {
  const { path, headers, body, dropped } = encode({
    messages: weatherConversation,
    tools: [weatherTool],
    max_tokens: 100,
    temperature: 0.5,
    stop: 'END',
    user: 'u-1',
  });
  assert.equal(path, '/messages');
  assert.deepEqual(headers, { 'anthropic-version': '2023-06-01' });
  assert.deepEqual(dropped, []);
  assert.deepEqual(body, {
    model: MODEL,
    max_tokens: 100,
    system: [{ type: 'text', text: 'Be brief.' }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Weather in Rome and Oslo?' }] },
      {
        role: 'assistant',
        content: [
          { type: 'text', text: 'Let me look.' },
          { type: 'tool_use', id: 'call_1', name: 'get_weather', input: { city: 'Rome' } },
          { type: 'tool_use', id: 'call_2', name: 'get_weather', input: { city: 'Oslo' } },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'call_1', content: [{ type: 'text', text: 'Sunny' }] },
          { type: 'tool_result', tool_use_id: 'call_2', content: [{ type: 'text', text: 'Snow' }] },
          { type: 'text', text: 'Thanks. Which is warmer?' },
        ],
      },
    ],
    temperature: 0.5,
    stop_sequences: ['END'],
    tools: [
      {
        name: 'get_weather',
        description: 'The weather of a city.',
        input_schema: weatherTool.function.parameters,
      },
    ],
    metadata: { user_id: 'u-1' },
  });
});

test('system and developer messages are instructions; alone they are the question', () => {
  const { body } = encode({
    messages: [
      { role: 'system', content: [{ type: 'text', text: 'One', cache_control: { type: 'ephemeral' } }] },
      { role: 'user', content: 'Hi' },
      { role: 'developer', content: 'Two' },
    ],
  });
  assert.deepEqual(body.system, [
    { type: 'text', text: 'One', cache_control: { type: 'ephemeral' } },
    { type: 'text', text: 'Two' },
  ]);
  const alone = encode({ messages: [{ role: 'system', content: 'Say hi' }] }).body;
  assert.equal(alone.system, undefined);
  assert.deepEqual(alone.messages, [{ role: 'user', content: [{ type: 'text', text: 'Say hi' }] }]);
});

test('a model that speaks first gets a user’s turn before, and a last turn of its own ends without white space', () => {
  const { body } = encode({
    messages: [
      { role: 'assistant', content: 'Hello!' },
      { role: 'user', content: 'Go on' },
      { role: 'assistant', content: 'Well, \n' },
    ],
  });
  assert.deepEqual(body.messages.at(0), { role: 'user', content: [{ type: 'text', text: '.' }] });
  assert.deepEqual(body.messages.at(-1), { role: 'assistant', content: [{ type: 'text', text: 'Well,' }] });
});

test('images, documents and files', () => {
  const parts = [
    { type: 'text', text: 'What is this?' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
    { type: 'image_url', image_url: 'https://example.com/a.png' },
    { type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${PNG}` } },
    { type: 'file', file: { filename: 'b.txt', file_data: 'data:text/plain,a%20b' } },
    { type: 'input_audio', input_audio: { data: PNG, format: 'wav' } },
    { type: 'file', file: { file_id: 'file-123' } },
  ];
  const { body, dropped } = encode({ messages: [{ role: 'user', content: parts }] });
  assert.deepEqual(body.messages[0].content, [
    { type: 'text', text: 'What is this?' },
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } },
    { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
    { type: 'document', source: { type: 'base64', media_type: 'application/pdf', data: PNG }, title: 'a.pdf' },
    { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'a b' }, title: 'b.txt' },
  ]);
  assert.deepEqual(dropped, ['messages.content.input_audio', 'messages.content.file']);
});

test('a tool may answer with an image, and ids of other makers are made fit', () => {
  const { body } = encode({
    messages: [
      { role: 'user', content: 'Draw' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'functions.draw:0', type: 'function', function: { name: 'draw', arguments: '' } }],
      },
      {
        role: 'tool',
        tool_call_id: 'functions.draw:0',
        content: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } }],
      },
    ],
  });
  assert.deepEqual(body.messages[1].content, [{ type: 'tool_use', id: 'functions_draw_0', name: 'draw', input: {} }]);
  assert.equal(body.messages[2].content[0].tool_use_id, 'functions_draw_0');
  assert.equal(body.messages[2].content[0].content[0].type, 'image');
  assert.deepEqual(body.tools, [{ name: 'draw', input_schema: { type: 'object' } }]);
  assert.deepEqual(body.tool_choice, { type: 'none' });
});

test('tool choices, one call at a time, and kinds of tools that only OpenAI has', () => {
  const choice = (tool_choice: unknown, more = {}) =>
    encode({ tools: [weatherTool], tool_choice, ...more }).body.tool_choice;
  assert.equal(choice('auto'), undefined);
  assert.deepEqual(choice('none'), { type: 'none' });
  assert.deepEqual(choice('required'), { type: 'any' });
  assert.deepEqual(choice({ type: 'function', function: { name: 'get_weather' } }), {
    type: 'tool',
    name: 'get_weather',
  });
  assert.deepEqual(choice('auto', { parallel_tool_calls: false }), { type: 'auto', disable_parallel_tool_use: true });
  const { body, dropped } = encode({ tools: [weatherTool, { type: 'web_search' }] });
  assert.equal(body.tools.length, 1);
  assert.deepEqual(dropped, ['tools.web_search']);
  const allowed = { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [weatherTool] } };
  const limited = encode({
    tools: [weatherTool, { type: 'function', function: { name: 'x' } }],
    tool_choice: allowed,
  }).body;
  assert.deepEqual([limited.tools.length, limited.tool_choice], [1, { type: 'any' }]);
});

const schema = { type: 'object', properties: { n: { type: 'integer', minimum: 0 } }, required: ['n'] };
const response_format = { type: 'json_schema', json_schema: { name: 'number', schema, strict: true } };

test('structured output: by schema where the model follows one, else by a tool that must be called', () => {
  const modern = encode({ response_format }).body;
  assert.deepEqual(modern.output_config, {
    format: {
      type: 'json_schema',
      schema: { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'], additionalProperties: false },
    },
  });
  assert.equal(modern.tools, undefined);
  for (const model of ['claude-3-5-sonnet-20241022', 'MiniMax-M2']) {
    const old = encode({ response_format }, model).body;
    assert.equal(old.output_config, undefined);
    assert.equal(old.tools[0].name, 'structured_answer');
    assert.deepEqual(old.tools[0].input_schema, schema);
    assert.deepEqual(old.tool_choice, { type: 'tool', name: 'structured_answer' });
  }
});

test('reasoning effort: a budget, or Claude’s own effort from 4.6 on', () => {
  const thinking = (reasoning_effort: string, model: string, more = {}) => {
    const { body, dropped } = encode({ reasoning_effort, ...more }, model);
    return { thinking: body.thinking, output_config: body.output_config, dropped };
  };
  assert.deepEqual(thinking('high', MODEL), {
    thinking: { type: 'enabled', budget_tokens: 16_384 },
    output_config: undefined,
    dropped: [],
  });
  assert.deepEqual(thinking('high', MODEL, { max_tokens: 4000 }).thinking, { type: 'enabled', budget_tokens: 3000 });
  assert.deepEqual(thinking('high', MODEL, { max_tokens: 100 }).dropped, ['reasoning_effort']);
  assert.deepEqual(thinking('none', MODEL).thinking, undefined);
  for (const model of ['claude-opus-4-6', 'claude-sonnet-5', 'claude-mythos-preview']) {
    const adaptive = thinking('medium', model);
    assert.deepEqual(adaptive.thinking, { type: 'adaptive', display: 'summarized' });
    assert.deepEqual(adaptive.output_config, { effort: 'medium' });
  }
  assert.deepEqual(thinking('none', 'claude-opus-4-6').thinking, { type: 'disabled' });
  const forced = { tools: [weatherTool], tool_choice: 'required' };
  assert.deepEqual(thinking('low', MODEL, forced).dropped, ['reasoning_effort']);
  assert.deepEqual(encode({ reasoning_effort: 'low', temperature: 0.3 }).dropped, ['temperature']);
});

test('with a budget, calls whose thinking a client lost do without thinking', () => {
  const { body, dropped } = encode({
    messages: weatherConversation.slice(0, 5),
    tools: [weatherTool],
    reasoning_effort: 'low',
  });
  assert.equal(body.thinking, undefined);
  assert.deepEqual(dropped, ['reasoning_effort']);
});

test('sampling fields that a model refuses are dropped and named', () => {
  const both = { temperature: 1.7, top_p: 0.5 };
  const sampled = (model: string) => {
    const { body, dropped } = encode(both, model);
    return [body.temperature, body.top_p, dropped];
  };
  assert.deepEqual(sampled('claude-3-haiku-20240307'), [1, 0.5, ['temperature']], 'Claude takes 1 at the most');
  assert.deepEqual(sampled('claude-sonnet-4-5-20250929'), [1, undefined, ['top_p', 'temperature']]);
  assert.deepEqual(encode({ temperature: 1 }, 'claude-3-haiku-20240307').dropped, []);
  assert.deepEqual(sampled('claude-opus-4-7'), [undefined, undefined, ['temperature', 'top_p']]);
});

test('a limit is always named: the caller’s, the model’s or one that every such model has', () => {
  assert.equal(encode({ max_completion_tokens: 5 }).body.max_tokens, 5);
  assert.equal(encode({}, MODEL, { maxOutputTokens: 64_000 }).body.max_tokens, 64_000);
  assert.equal(encode({}).body.max_tokens, 32_000);
  assert.equal(encode({}, 'claude-3-haiku-20240307').body.max_tokens, 4096);
});

test('P-24: what Claude lacks is named, and its own fields travel on', () => {
  const { body, dropped } = encode({
    n: 3,
    logit_bias: { 1: 1 },
    seed: 1,
    presence_penalty: 0,
    top_k: 5,
    service: 'x',
  });
  assert.deepEqual([...dropped].sort(), ['logit_bias', 'n', 'seed']);
  assert.equal(body.top_k, 5);
  assert.equal(body.service, 'x');
});
