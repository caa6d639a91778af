import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MessagesRequest } from '../../../src/completions/contract/messages.ts';
import { anthropicDialect } from '../../../src/completions/dialects/anthropic/anthropic-dialect.ts';
import { decodeMessagesRequest } from '../../../src/completions/ingress/messages/messages-request.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';

const decode = (request: object) =>
  decodeMessagesRequest({
    model: 'lab/small',
    max_tokens: 100,
    messages: [{ role: 'user', content: 'Hello' }],
    ...request,
  } as MessagesRequest);
const assistant = (content: object[]) =>
  decode({
    messages: [
      { role: 'user', content: 'Go' },
      { role: 'assistant', content },
    ],
  }).chat.messages[1];

test('system text or blocks come first; the limit and sampling travel on', () => {
  const { chat, dropped } = decode({
    system: [
      { type: 'text', text: 'One', cache_control: { type: 'ephemeral' } },
      { type: 'text', text: 'Two' },
    ],
    temperature: 0.3,
    top_p: 0.8,
    top_k: 5,
    stop_sequences: ['END'],
    metadata: { user_id: 'u1' },
    stream: true,
  });
  assert.deepEqual(chat, {
    model: 'lab/small',
    messages: [
      {
        role: 'system',
        content: [
          { type: 'text', text: 'One', cache_control: { type: 'ephemeral' } },
          { type: 'text', text: 'Two' },
        ],
      },
      { role: 'user', content: 'Hello' },
    ],
    stream: true,
    stream_options: { include_usage: true },
    max_completion_tokens: 100,
    temperature: 0.3,
    top_p: 0.8,
    top_k: 5,
    stop: ['END'],
    user: 'u1',
  });
  assert.deepEqual(dropped, []);
});

test('images and documents of every source become parts', () => {
  const { messages } = decode({
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Look' },
          { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA' } },
          { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
          { type: 'document', title: 'a.pdf', source: { type: 'base64', media_type: 'application/pdf', data: 'BB' } },
          { type: 'document', source: { type: 'url', url: 'https://example.com/b.pdf' } },
          { type: 'document', title: 'Notes', source: { type: 'text', media_type: 'text/plain', data: 'n' } },
          { type: 'document', source: { type: 'content', content: [{ type: 'text', text: 'inner' }] } },
          { type: 'document', source: { type: 'file', file_id: 'file_1' } },
          { type: 'search_result', title: 'T', source: 'S', content: [{ type: 'text', text: 'found' }] },
        ],
      },
    ],
  }).chat;
  assert.deepEqual(messages[0]?.content, [
    { type: 'text', text: 'Look' },
    { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
    { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
    { type: 'file', file: { file_data: 'data:application/pdf;base64,BB', filename: 'a.pdf' } },
    { type: 'file', file: { file_data: 'https://example.com/b.pdf', filename: 'document.pdf' } },
    { type: 'text', text: 'Notes\n\nn' },
    { type: 'text', text: 'inner' },
    { type: 'file', file: { file_id: 'file_1' } },
    { type: 'text', text: 'T, S\n\nfound' },
  ]);
});

test('P-24: calls and results of tools become messages in the order that chat completions want', () => {
  const { messages } = decode({
    messages: [
      { role: 'user', content: 'Go' },
      {
        role: 'assistant',
        content: [
          { type: 'text', text: 'I look.' },
          { type: 'tool_use', id: 't1', name: 'read', input: { path: 'a' } },
          { type: 'tool_use', id: 't2', name: 'view', input: {} },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'And now?' },
          { type: 'tool_result', tool_use_id: 't1', content: 'no such file', is_error: true },
          {
            type: 'tool_result',
            tool_use_id: 't2',
            content: [
              { type: 'text', text: 'a picture' },
              { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AA' } },
            ],
          },
        ],
      },
    ],
  }).chat;
  assert.deepEqual(messages.slice(1), [
    {
      role: 'assistant',
      content: 'I look.',
      tool_calls: [
        { id: 't1', type: 'function', function: { name: 'read', arguments: '{"path":"a"}' } },
        { id: 't2', type: 'function', function: { name: 'view', arguments: '{}' } },
      ],
    },
    { role: 'tool', tool_call_id: 't1', content: 'no such file', is_error: true },
    {
      role: 'tool',
      tool_call_id: 't2',
      content: [
        { type: 'text', text: 'a picture' },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
      ],
    },
    { role: 'user', content: 'And now?' },
  ]);
});

test('what a client of Claude sends reaches Claude again, block by block', () => {
  const messages = [
    { role: 'user', content: [{ type: 'text', text: 'Go' }] },
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'First.', signature: 'AAAA' },
        { type: 'text', text: 'Some text' },
        { type: 'redacted_thinking', data: 'BBBB' },
        { type: 'thinking', thinking: 'Second.', signature: 'CCCC' },
        { type: 'text', text: ' and more' },
        { type: 'tool_use', id: 't1', name: 'read', input: { path: 'a' } },
        { type: 'tool_use', id: 't2', name: 'read', input: { path: 'b' } },
      ],
    },
    {
      role: 'user',
      content: [
        { type: 'tool_result', tool_use_id: 't1', content: [{ type: 'text', text: 'text of a' }] },
        { type: 'tool_result', tool_use_id: 't2', content: [{ type: 'text', text: 'text of b' }] },
        { type: 'text', text: 'And now?' },
      ],
    },
  ];
  const tools = [{ name: 'read', description: 'Reads', input_schema: { type: 'object', properties: {} } }];
  const { chat } = decode({ messages, system: 'Rules', tools, temperature: 0.5, stop_sequences: ['END'] });
  const context = { model: 'claude-sonnet-4-5', stream: false, id: 'x', created: 1 };
  const { body, dropped } = anthropicDialect.encodeRequest(chat, context);
  const sent = body as Record<string, unknown>;
  assert.deepEqual(sent.messages, messages);
  assert.deepEqual(sent.tools, tools);
  assert.deepEqual([sent.max_tokens, sent.temperature, sent.stop_sequences], [100, 0.5, ['END']]);
  assert.match(JSON.stringify(sent.system), /Rules/);
  assert.deepEqual(dropped, []);
});

test('thinking that came from our own answer goes back as it was', () => {
  const packed = 'claude:t6@0:AAAA;google::x;';
  const message = assistant([{ type: 'thinking', thinking: 'First.', signature: packed }]);
  assert.equal(message?.reasoning_signature, packed);
});

test('P-24: tools with a schema are functions; those of Anthropic are dropped and named', () => {
  const { chat, dropped } = decode({
    tools: [
      { name: 'read', description: 'Reads', input_schema: { type: 'object' } },
      { type: 'custom', name: 'write', input_schema: {} },
      { type: 'web_search_20250305', name: 'web_search' },
      { type: 'bash_20250124', name: 'bash' },
    ],
    tool_choice: { type: 'any', disable_parallel_tool_use: true },
  });
  assert.deepEqual(chat.tools, [
    { type: 'function', function: { name: 'read', description: 'Reads', parameters: { type: 'object' } } },
    { type: 'function', function: { name: 'write', parameters: {} } },
  ]);
  assert.equal(chat.tool_choice, 'required');
  assert.equal(chat.parallel_tool_calls, false);
  assert.deepEqual(dropped, ['tools.web_search_20250305', 'tools.bash_20250124']);
});

test('each choice of a tool has its counterpart', () => {
  const tools = [{ name: 'read', input_schema: {} }];
  const choose = (choice: object) => decode({ tools, tool_choice: choice }).chat.tool_choice;
  assert.equal(choose({ type: 'auto' }), 'auto');
  assert.equal(choose({ type: 'none' }), 'none');
  assert.deepEqual(choose({ type: 'tool', name: 'read' }), { type: 'function', function: { name: 'read' } });
  assert.equal(decode({ tool_choice: { type: 'auto' } }).chat.tool_choice, undefined);
});

test('a budget of thinking is an effort, and structured output a response format', () => {
  const effort = (request: object) => decode(request).chat.reasoning_effort;
  assert.equal(effort({ thinking: { type: 'enabled', budget_tokens: 1024 } }), 'low');
  assert.equal(effort({ thinking: { type: 'enabled', budget_tokens: 8000 } }), 'medium');
  assert.equal(effort({ thinking: { type: 'enabled', budget_tokens: 30_000 } }), 'high');
  assert.equal(effort({ thinking: { type: 'adaptive' }, output_config: { effort: 'max' } }), 'max');
  assert.equal(effort({ thinking: { type: 'disabled' }, output_config: { effort: 'low' } }), undefined);
  const schema = { type: 'object' };
  assert.deepEqual(decode({ output_config: { format: { type: 'json_schema', schema } } }).chat.response_format, {
    type: 'json_schema',
    json_schema: { name: 'answer', schema, strict: true },
  });
});

test('an id of a user that is too long for others becomes a digest of it', () => {
  const { user } = decode({ metadata: { user_id: `user_${'x'.repeat(100)}` } }).chat;
  assert.match(user ?? '', /^[0-9a-f]{64}$/);
});

test('what has no place in a chat completion is named', () => {
  const { dropped } = decode({
    messages: [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'x' },
          { type: 'container_upload', file_id: 'f' },
        ],
      },
      { role: 'assistant', content: [{ type: 'server_tool_use', id: 's', name: 'web_search', input: {} }] },
    ],
    service_tier: 'auto',
    mcp_servers: [],
  });
  assert.deepEqual(dropped, ['service_tier', 'mcp_servers', 'messages.container_upload', 'messages.server_tool_use']);
});

test('a block without what it needs is refused by name', () => {
  for (const [content, path] of [
    [[{ type: 'text' }], 'messages[0].content[0].text'],
    [[{ type: 'image' }], 'messages[0].content[0].source'],
    [[{ type: 'image', source: { type: 'odd' } }], 'messages[0].content[0].source.type'],
    [[{ type: 'tool_result', content: 'x' }], 'messages[0].content[0].tool_use_id'],
    [[{ type: 'tool_result', tool_use_id: 't', content: 3 }], 'messages[0].content[0].content'],
    [[], 'messages'],
  ] as const) {
    assert.throws(
      () => decode({ messages: [{ role: 'user', content }] }),
      (error) => error instanceof AppError && error.details.param === path,
    );
  }
});
