import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ResponsesRequest } from '../../../src/completions/contract/responses.ts';
import { decodeResponsesRequest } from '../../../src/completions/ingress/responses/responses-request.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';

const decode = (request: object) =>
  decodeResponsesRequest({ model: 'lab/small', input: 'Hello', ...request } as ResponsesRequest);

function refusal(request: object): AppError {
  try {
    decode(request);
  } catch (error) {
    assert.ok(error instanceof AppError);
    return error;
  }
  throw new Error('it was not refused');
}

test('text alone is one message of the user, with instructions before it', () => {
  assert.deepEqual(decode({}).chat, { model: 'lab/small', messages: [{ role: 'user', content: 'Hello' }] });
  assert.deepEqual(decode({ instructions: 'Be short.' }).chat.messages[0], { role: 'system', content: 'Be short.' });
});

test('parts of a message become text, images, files and sound; text alone stays plain text', () => {
  const { messages } = decode({
    input: [
      { role: 'developer', content: 'Rules' },
      { type: 'message', role: 'system', content: [{ type: 'input_text', text: 'More rules' }] },
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'a' },
          { type: 'input_text', text: 'b' },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'input_text', text: 'Look' },
          { type: 'input_image', image_url: 'data:image/png;base64,AA', detail: 'low' },
          { type: 'input_file', file_data: 'data:application/pdf;base64,BB', filename: 'x.pdf' },
          { type: 'input_file', file_url: 'https://example.com/y.pdf' },
          { type: 'input_audio', input_audio: { data: 'CC', format: 'wav' } },
        ],
      },
    ],
  }).chat;
  assert.deepEqual(messages, [
    { role: 'system', content: 'Rules\n\nMore rules' },
    { role: 'user', content: 'a\n\nb' },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'Look' },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,AA', detail: 'low' } },
        { type: 'file', file: { file_data: 'data:application/pdf;base64,BB', filename: 'x.pdf' } },
        { type: 'file', file: { file_data: 'https://example.com/y.pdf' } },
        { type: 'input_audio', input_audio: { data: 'CC', format: 'wav' } },
      ],
    },
  ]);
});

test('P-24: reasoning, text, calls and their results become messages in the order that chat completions want', () => {
  const { messages } = decode({
    input: [
      { role: 'user', content: 'Go' },
      { type: 'reasoning', summary: [{ type: 'summary_text', text: 'Hm.' }], encrypted_content: 'claude:t3@0:p;' },
      { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'I look.' }] },
      { type: 'function_call', call_id: 'c1', name: 'read', arguments: '{"path":"a"}' },
      { type: 'function_call', call_id: 'c2', name: 'view', arguments: '{}' },
      { type: 'function_call_output', call_id: 'c1', output: 'text of a' },
      {
        type: 'function_call_output',
        call_id: 'c2',
        output: [{ type: 'input_image', image_url: 'data:image/png;base64,AA' }],
      },
      { type: 'custom_tool_call', call_id: 'c3', name: 'apply_patch', input: '*** Begin' },
      { type: 'custom_tool_call_output', call_id: 'c3', output: 'done' },
    ],
    tools: [
      { type: 'custom', name: 'apply_patch', format: { type: 'grammar', syntax: 'lark', definition: 'start: x' } },
    ],
  }).chat;
  const call = (id: string, name: string, text: string) => ({
    id,
    type: 'function',
    function: { name, arguments: text },
  });
  assert.deepEqual(messages, [
    { role: 'user', content: 'Go' },
    {
      role: 'assistant',
      content: 'I look.',
      reasoning_content: 'Hm.',
      reasoning_signature: 'claude:t3@0:p;',
      tool_calls: [call('c1', 'read', '{"path":"a"}'), call('c2', 'view', '{}')],
    },
    { role: 'tool', tool_call_id: 'c1', content: 'text of a' },
    {
      role: 'tool',
      tool_call_id: 'c2',
      content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } }],
    },
    { role: 'assistant', content: null, tool_calls: [call('c3', 'apply_patch', '{"input":"*** Begin"}')] },
    { role: 'tool', tool_call_id: 'c3', content: 'done' },
  ]);
});

test('P-24: functions, custom tools and namespaces are functions; what only OpenAI runs is dropped and named', () => {
  const { chat, tools, dropped } = decode({
    tools: [
      { type: 'function', name: 'read', description: 'Reads', parameters: { type: 'object' }, strict: false },
      {
        type: 'custom',
        name: 'apply_patch',
        description: 'Patches',
        format: { type: 'grammar', definition: 'start: x' },
      },
      { type: 'namespace', name: 'team', tools: [{ type: 'function', name: 'read', parameters: {} }] },
      { type: 'web_search' },
      { type: 'local_shell' },
    ],
    tool_choice: { type: 'custom', name: 'apply_patch' },
    parallel_tool_calls: false,
  });
  assert.deepEqual(
    chat.tools?.map((tool) => tool.function?.name),
    ['read', 'apply_patch', 'team__read'],
  );
  assert.match(chat.tools?.[1]?.function?.description ?? '', /^Patches\n\n.*grammar:\nstart: x$/s);
  assert.deepEqual(chat.tool_choice, { type: 'function', function: { name: 'apply_patch' } });
  assert.equal(chat.parallel_tool_calls, false);
  assert.deepEqual(dropped, ['tools.web_search', 'tools.local_shell']);
  assert.deepEqual(tools.originOf('team__read'), { kind: 'function', name: 'read', namespace: 'team' });
  assert.deepEqual(tools.originOf('apply_patch'), { kind: 'custom', name: 'apply_patch', namespace: undefined });
  assert.equal(tools.originOf('made_up').name, 'made_up');
});

test('tools given among the items count like the others', () => {
  const item = { type: 'additional_tools', role: 'developer', tools: [{ type: 'custom', name: 'exec' }] };
  const { chat, dropped } = decode({ input: [item, { role: 'user', content: 'Go' }], tool_choice: 'required' });
  assert.deepEqual(chat.tools?.[0]?.function?.name, 'exec');
  assert.equal(chat.tool_choice, 'required');
  assert.equal(chat.messages.length, 1);
  assert.deepEqual(dropped, []);
});

test('names of tools stay within what chat completions take, and never meet', () => {
  const namespace = 'n'.repeat(80);
  const { chat, tools } = decode({
    tools: [{ type: 'namespace', name: namespace, tools: ['a', 'b'].map((name) => ({ type: 'function', name })) }],
  });
  const names = chat.tools?.map((tool) => tool.function?.name ?? '') ?? [];
  assert.equal(new Set(names).size, 2);
  for (const [index, name] of names.entries()) {
    assert.ok(name.length <= 64);
    assert.equal(tools.originOf(name).name, 'ab'[index]);
    assert.equal(tools.chatName(namespace, 'ab'[index] ?? ''), name);
  }
});

test('without a usable tool neither tools nor a choice of them is sent', () => {
  const { chat } = decode({ tools: [{ type: 'web_search' }], tool_choice: 'auto', parallel_tool_calls: true });
  assert.deepEqual(Object.keys(chat), ['model', 'messages']);
});

test('sampling, format, effort and the stream travel on', () => {
  const schema = { type: 'object' };
  const { chat, dropped } = decode({
    stream: true,
    max_output_tokens: 100,
    temperature: 0.5,
    top_p: 0.9,
    user: 'u',
    reasoning: { effort: 'low', summary: 'auto' },
    text: { format: { type: 'json_schema', name: 'answer', schema, strict: true }, verbosity: 'low' },
    store: false,
    include: ['reasoning.encrypted_content'],
    metadata: { a: 'b' },
  });
  const { messages: _, ...rest } = chat;
  assert.deepEqual(rest, {
    model: 'lab/small',
    stream: true,
    stream_options: { include_usage: true },
    max_completion_tokens: 100,
    temperature: 0.5,
    top_p: 0.9,
    user: 'u',
    reasoning_effort: 'low',
    response_format: { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } },
    verbosity: 'low',
  });
  assert.deepEqual(dropped, []);
});

test('what has no place in a chat completion is named, in words that fit a header', () => {
  const { dropped } = decode({
    input: [
      { role: 'user', content: 'x' },
      { type: 'web_search_call', id: 'ws_1' },
    ],
    store: true,
    truncation: 'auto',
    include: ['web_search_call.results'],
    tool_choice: { type: 'web_search' },
    'bad\r\nname': 1,
    nothing: null,
  });
  assert.deepEqual(dropped, [
    'bad__name',
    'store',
    'truncation',
    'include.web_search_call.results',
    'tool_choice.web_search',
    'input.web_search_call',
  ]);
});

test('what refers to a stored response is refused, and the fix is named', () => {
  for (const request of [
    { previous_response_id: 'resp_1' },
    { conversation: 'conv_1' },
    { prompt: { id: 'pmpt_1' } },
    { background: true },
    { input: [{ type: 'item_reference', id: 'msg_1' }] },
  ]) {
    assert.equal(refusal(request).code, 'NOTHING_STORED');
  }
});

test('an item without what it needs is refused by name', () => {
  for (const [item, path] of [
    [{ type: 'function_call', name: 'x', arguments: '{}' }, 'input[0].call_id'],
    [{ type: 'function_call', call_id: 'c', arguments: '{}' }, 'input[0].name'],
    [{ type: 'function_call', call_id: 'c', name: 'x', arguments: {} }, 'input[0].arguments'],
    [{ type: 'custom_tool_call', call_id: 'c', name: 'x' }, 'input[0].input'],
    [{ role: 'user', content: [{ type: 'input_image' }] }, 'input[0].content[0].image_url'],
    [{ role: 'user', content: [{ type: 'input_text' }] }, 'input[0].content[0].text'],
    [{ type: 'web_search_call' }, 'input'],
  ] as const) {
    const { code, details } = refusal({ input: [item] });
    assert.equal(code, 'INVALID_PARAMETER');
    assert.equal(details.param, path);
  }
});
