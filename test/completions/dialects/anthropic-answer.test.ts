import assert from 'node:assert/strict';
import { test } from 'node:test';
import { anthropicDialect } from '../../../src/completions/dialects/anthropic/anthropic-dialect.ts';
import { ask, context, contextFor, dataEvents, readStream } from './read-stream.ts';

const whole = {
  id: 'msg_01',
  type: 'message',
  role: 'assistant',
  model: 'claude-sonnet-4-5-20250929',
  content: [
    { type: 'thinking', thinking: 'First.', signature: 'SIG1' },
    { type: 'redacted_thinking', data: 'HIDDEN' },
    { type: 'text', text: 'Let me look.' },
    { type: 'thinking', thinking: 'Then.', signature: 'SIG2' },
    { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: { city: 'Rome' } },
    { type: 'tool_use', id: 'toolu_2', name: 'now', input: {} },
  ],
  stop_reason: 'tool_use',
  stop_sequence: null,
  usage: {
    input_tokens: 10,
    cache_creation_input_tokens: 20,
    cache_read_input_tokens: 30,
    output_tokens: 40,
    output_tokens_details: { thinking_tokens: 15 },
  },
};

const usage = {
  prompt_tokens: 60,
  completion_tokens: 40,
  total_tokens: 100,
  prompt_tokens_details: { cached_tokens: 30, cache_creation_tokens: 20 },
  completion_tokens_details: { reasoning_tokens: 15 },
};

const calls = [
  { id: 'toolu_1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } },
  { id: 'toolu_2', type: 'function', function: { name: 'now', arguments: '{}' } },
];

const start = (index: number, content_block: object) => ({ type: 'content_block_start', index, content_block });
const delta = (index: number, delta: object) => ({ type: 'content_block_delta', index, delta });
const stop = (index: number) => ({ type: 'content_block_stop', index });
const messageStart = {
  type: 'message_start',
  message: {
    id: 'msg_01',
    type: 'message',
    role: 'assistant',
    model: 'claude-sonnet-4-5-20250929',
    content: [],
    stop_reason: null,
    usage: { input_tokens: 10, cache_creation_input_tokens: 20, cache_read_input_tokens: 30, output_tokens: 1 },
  },
};

const streamed = [
  messageStart,
  { type: 'ping' },
  start(0, { type: 'thinking', thinking: '', signature: '' }),
  delta(0, { type: 'thinking_delta', thinking: 'Fir' }),
  delta(0, { type: 'thinking_delta', thinking: 'st.' }),
  delta(0, { type: 'signature_delta', signature: 'SIG1' }),
  stop(0),
  start(1, { type: 'redacted_thinking', data: 'HIDDEN' }),
  stop(1),
  start(2, { type: 'text', text: '' }),
  delta(2, { type: 'text_delta', text: 'Let me' }),
  delta(2, { type: 'text_delta', text: ' look.' }),
  delta(2, { type: 'citations_delta', citation: {} }),
  stop(2),
  start(3, { type: 'thinking', thinking: 'Th', signature: '' }),
  delta(3, { type: 'thinking_delta', thinking: 'en.' }),
  delta(3, { type: 'signature_delta', signature: 'SIG2' }),
  stop(3),
  start(4, { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: {} }),
  delta(4, { type: 'input_json_delta', partial_json: '' }),
  delta(4, { type: 'input_json_delta', partial_json: '{"city":' }),
  delta(4, { type: 'input_json_delta', partial_json: '"Rome"}' }),
  stop(4),
  start(5, { type: 'tool_use', id: 'toolu_2', name: 'now', input: {} }),
  stop(5),
  start(6, { type: 'server_tool_use', id: 'srv', name: 'web_search', input: {} }),
  stop(6),
  {
    type: 'message_delta',
    delta: { stop_reason: 'tool_use', stop_sequence: null },
    usage: { output_tokens: 40, output_tokens_details: { thinking_tokens: 15 } },
  },
  { type: 'message_stop' },
];

test('a whole answer: text, thinking with its proofs, calls in parallel, usage with the cache', () => {
  const { completion } = anthropicDialect.decodeResponse(whole, context);
  assert.deepEqual(completion, {
    id: 'msg_01',
    object: 'chat.completion',
    created: context.created,
    model: 'claude-sonnet-4-5-20250929',
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: 'Let me look.',
          reasoning_content: 'First.Then.',
          reasoning_signature: 'claude:t6@0:SIG1;claude:r@0:HIDDEN;claude:t5@12:SIG2;',
          tool_calls: calls,
        },
        finish_reason: 'tool_calls',
      },
    ],
    usage,
  });
});

test('a stream says the same as the whole answer', () => {
  const { completion } = anthropicDialect.decodeResponse(whole, context);
  const message = completion?.choices[0]?.message;
  const answer = readStream(anthropicDialect, dataEvents(...streamed));
  assert.equal(answer.content, message?.content);
  assert.equal(answer.reasoning, message?.reasoning_content);
  assert.equal(answer.signature, message?.reasoning_signature);
  assert.deepEqual(answer.calls, calls);
  assert.deepEqual(answer.finishReasons, ['tool_calls']);
  assert.deepEqual(answer.usage, usage);
  assert.equal(answer.done, true);
  assert.ok(answer.chunks.every(({ id, model }) => id === 'msg_01' && model === 'claude-sonnet-4-5-20250929'));
  assert.deepEqual(answer.chunks[0]?.choices[0]?.delta, { role: 'assistant', content: '' });
});

test('P-24: thinking and calls go back to Claude exactly as they came', () => {
  const answer = readStream(anthropicDialect, dataEvents(...streamed));
  const { body } = anthropicDialect.encodeRequest(
    ask({
      messages: [
        { role: 'user', content: 'Weather?' },
        {
          role: 'assistant',
          content: answer.content,
          reasoning_content: answer.reasoning,
          reasoning_signature: answer.signature,
          tool_calls: answer.calls,
        },
        { role: 'tool', tool_call_id: 'toolu_1', content: 'Sunny' },
        { role: 'tool', tool_call_id: 'toolu_2', content: '12:00' },
      ],
    }),
    contextFor('claude-sonnet-4-5'),
  );
  assert.deepEqual((body as { messages: { content: unknown }[] }).messages[1]?.content, whole.content);
});

test('thinking that was altered, or signed by another maker, stays here', () => {
  const sent = (reasoning_content: string, reasoning_signature: string) => {
    const messages = [{ role: 'assistant', content: 'Hi', reasoning_content, reasoning_signature }];
    const { body } = anthropicDialect.encodeRequest(ask({ messages }), contextFor('claude-sonnet-4-5'));
    return (body as { messages: { content: { type: string }[] }[] }).messages[1]?.content.map(({ type }) => type);
  };
  assert.deepEqual(sent('abc', 'claude:t3@0:S;'), ['thinking', 'text']);
  assert.deepEqual(sent('abc', 'RAW+SIGNATURE=='), ['thinking', 'text']);
  assert.deepEqual(sent('abcd', 'claude:t3@0:S;'), ['text']);
  assert.deepEqual(sent('abc', 'google:p:S;'), ['text']);
  assert.deepEqual(sent('abc', ''), ['text']);
});

test('every stop reason', () => {
  const reasons = {
    end_turn: 'stop',
    stop_sequence: 'stop',
    pause_turn: 'stop',
    max_tokens: 'length',
    model_context_window_exceeded: 'length',
    refusal: 'content_filter',
    something_new: 'stop',
  };
  for (const [given, expected] of Object.entries(reasons)) {
    const body = { ...whole, content: [{ type: 'text', text: 'Hi' }], stop_reason: given };
    assert.equal(anthropicDialect.decodeResponse(body, context).completion?.choices[0]?.finish_reason, expected);
    const events = dataEvents(messageStart, { type: 'message_delta', delta: { stop_reason: given }, usage: {} });
    assert.deepEqual(readStream(anthropicDialect, events).finishReasons, [expected]);
  }
  const refused = { ...whole, content: [], stop_reason: 'refusal', stop_details: { explanation: 'No.' } };
  const message = anthropicDialect.decodeResponse(refused, context).completion?.choices[0]?.message;
  assert.deepEqual(message, { role: 'assistant', content: null, refusal: 'No.' });
});

test('the tool that stands for structured output becomes the text of the answer', () => {
  const content = [{ type: 'tool_use', id: 't', name: 'structured_answer', input: { n: 4 } }];
  const choice = anthropicDialect.decodeResponse({ ...whole, content }, context).completion?.choices[0];
  assert.deepEqual(
    [choice?.message.content, choice?.message.tool_calls, choice?.finish_reason],
    ['{"n":4}', undefined, 'stop'],
  );
  const answer = readStream(
    anthropicDialect,
    dataEvents(
      messageStart,
      start(0, { type: 'tool_use', id: 't', name: 'structured_answer', input: {} }),
      delta(0, { type: 'input_json_delta', partial_json: '{"n"' }),
      delta(0, { type: 'input_json_delta', partial_json: ':4}' }),
      stop(0),
      { type: 'message_delta', delta: { stop_reason: 'tool_use' }, usage: { output_tokens: 3 } },
      { type: 'message_stop' },
    ),
  );
  assert.deepEqual([answer.content, answer.calls, answer.finishReasons], ['{"n":4}', [], ['stop']]);
});

test('errors: types, too long prompts, and errors inside a stream', () => {
  const failure = (status: number, type: string, message = 'No.') =>
    anthropicDialect.decodeFailure(status, { type: 'error', error: { type, message }, request_id: 'r' });
  assert.equal(failure(400, 'invalid_request_error').code, 'invalid_request_error');
  assert.equal(failure(400, 'invalid_request_error', 'prompt is too long: 9 > 8').code, 'context_length_exceeded');
  assert.equal(failure(401, 'authentication_error').code, 'upstream_authentication');
  assert.equal(failure(402, 'billing_error').code, 'insufficient_quota');
  assert.equal(failure(403, 'permission_error').code, 'upstream_authentication');
  assert.equal(failure(404, 'not_found_error').code, 'model_not_found');
  assert.equal(failure(413, 'request_too_large').code, 'request_too_large');
  assert.equal(failure(429, 'rate_limit_error').code, 'rate_limit_exceeded');
  assert.equal(failure(500, 'api_error').code, 'upstream_error');
  assert.equal(failure(529, 'overloaded_error').code, 'upstream_overloaded');
  assert.equal(anthropicDialect.decodeFailure(502, '<html>bad gateway</html>').status, 502);
  const late = { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } };
  const answer = readStream(anthropicDialect, dataEvents(messageStart, start(0, { type: 'text', text: 'Hi' }), late));
  assert.deepEqual(answer.failure, { message: 'Overloaded', code: 'upstream_overloaded', param: null, status: 529 });
  assert.deepEqual(answer.finishReasons, [], 'no finish reason is made up');
});

test('keys in an error text are hidden', () => {
  const { message } = anthropicDialect.decodeFailure(400, { error: { message: 'bad key sk-ant-api03-abcdefghijkl' } });
  assert.ok(!message.includes('abcdefghijkl'), message);
});

test('a stream that opens blocks without end fails', () => {
  const events = Array.from({ length: 400 }, (_, index) => start(index, { type: 'tool_use', id: 'x', name: 'f' }));
  const answer = readStream(anthropicDialect, dataEvents(messageStart, ...events));
  assert.equal(answer.failure?.code, 'upstream_error');
});
