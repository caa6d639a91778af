import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ChatChunk, ChatCompletion } from '../../../src/completions/contract/chat.ts';
import { readWhole } from '../../../src/completions/ingress/answer-blocks.ts';
import { createMessagesStream, messageObject } from '../../../src/completions/ingress/messages/messages-answer.ts';
import fc from '../../kit/properties.ts';
import { anyChunk, chunk, toolPiece, USAGE, usageChunk } from './chunks.ts';

// biome-ignore lint/suspicious/noExplicitAny: events as a client reads them
type Json = any;

const MESSAGE_USAGE = {
  input_tokens: 7,
  output_tokens: 7,
  output_tokens_details: { thinking_tokens: 2 },
  cache_creation_input_tokens: 0,
  cache_read_input_tokens: 4,
};

function run(chunks: readonly ChatChunk[], broken = false): Json[] {
  const encoder = createMessagesStream({ id: 'msg_1', requestId: 'req-1', model: 'lab/small', stops: ['END'] });
  return [
    ...encoder.begin(),
    ...chunks.flatMap((each) => encoder.read(each)),
    ...(broken
      ? encoder.fail({ status: 504, code: 'upstream_timeout', message: 'Too late.' }, false)
      : encoder.finish()),
  ].map(({ event, data }) => {
    const value = JSON.parse(data);
    assert.equal(value.type, event);
    return value;
  });
}

const whole = (message: object, finishReason: string): ChatCompletion =>
  ({
    id: 'x',
    object: 'chat.completion',
    created: 1,
    model: 'lab-model',
    choices: [{ index: 0, message: { role: 'assistant', content: null, ...message }, finish_reason: finishReason }],
    usage: USAGE,
  }) as ChatCompletion;
const message = (answer: ChatCompletion): Json => messageObject('msg_1', readWhole(answer, 'call_'), ['END']);

test('a stream has blocks of thinking, text and tool use, then the reason and the usage', () => {
  const events = run([
    chunk({ role: 'assistant', content: '' }),
    chunk({ reasoning_content: 'Hm' }),
    chunk({ reasoning_signature: 'proof' }),
    chunk({ content: 'Hi' }),
    toolPiece(0, { id: 't1', name: 'read', text: '{"a":1}' }),
    chunk({}, 'tool_calls'),
    usageChunk(),
  ]);
  const block = (index: number, content: object) => ({ type: 'content_block_start', index, content_block: content });
  const delta = (index: number, piece: object) => ({ type: 'content_block_delta', index, delta: piece });
  const stop = (index: number) => ({ type: 'content_block_stop', index });
  assert.equal(events[0].message.model, 'lab-model');
  assert.deepEqual(events.slice(1), [
    { type: 'ping' },
    block(0, { type: 'thinking', thinking: '', signature: '' }),
    delta(0, { type: 'thinking_delta', thinking: 'Hm' }),
    delta(0, { type: 'signature_delta', signature: 'proof' }),
    stop(0),
    block(1, { type: 'text', text: '' }),
    delta(1, { type: 'text_delta', text: 'Hi' }),
    stop(1),
    block(2, { type: 'tool_use', id: 't1', name: 'read', input: {} }),
    delta(2, { type: 'input_json_delta', partial_json: '{"a":1}' }),
    stop(2),
    { type: 'message_delta', delta: { stop_reason: 'tool_use', stop_sequence: null }, usage: MESSAGE_USAGE },
    { type: 'message_stop' },
  ]);
});

test('P-07: an answer that breaks off ends in an error event, without message_stop', () => {
  const [broken, silent] = [run([chunk({ content: 'Hi' })], true), run([chunk({ content: 'Hi' })])];
  assert.deepEqual(broken.at(-1), {
    type: 'error',
    error: { type: 'timeout_error', message: 'Too late.' },
    request_id: 'req-1',
  });
  assert.equal(silent.at(-1).error.type, 'api_error');
  for (const events of [broken, silent]) {
    assert.ok(!events.some(({ type }) => type === 'message_stop' || type === 'message_delta'));
  }
});

test('each reason to stop has its counterpart', () => {
  for (const [finish, stop] of [
    ['stop', 'end_turn'],
    ['length', 'max_tokens'],
    ['tool_calls', 'tool_use'],
    ['content_filter', 'refusal'],
  ] as const) {
    assert.equal(message(whole({ content: 'x' }, finish)).stop_reason, stop);
    assert.equal(run([chunk({}, finish)]).at(-2).delta.stop_reason, stop);
  }
  assert.equal(message(whole({ refusal: 'No.' }, 'stop')).stop_reason, 'refusal');
});

test('a whole answer is a message with the same blocks', () => {
  const call = { id: 't1', type: 'function', function: { name: 'read', arguments: '{"a":1}' } };
  const body = message(
    whole({ reasoning_content: 'Hm', reasoning_signature: 'proof', content: 'Hi', tool_calls: [call] }, 'tool_calls'),
  );
  assert.deepEqual(body.content, [
    { type: 'thinking', thinking: 'Hm', signature: 'proof' },
    { type: 'text', text: 'Hi' },
    { type: 'tool_use', id: 't1', name: 'read', input: { a: 1 } },
  ]);
  assert.deepEqual(body.usage, MESSAGE_USAGE);
});

test('P-24: a call whose arguments are no object is an error, unless the model ran out of tokens', () => {
  const call = (text: string) => ({
    tool_calls: [{ id: 't', type: 'function', function: { name: 'x', arguments: text } }],
  });
  assert.throws(() => message(whole(call('{"a":'), 'tool_calls')), { code: 'UPSTREAM_ERROR' });
  assert.throws(() => message(whole(call('[1]'), 'tool_calls')), { code: 'UPSTREAM_ERROR' });
  assert.deepEqual(message(whole(call('{"a":'), 'length')).content[0].input, {});
  assert.deepEqual(message(whole(call(''), 'tool_calls')).content[0].input, {});
});

test('whatever an upstream sends, blocks are in order and the stream ends in exactly one way', () => {
  fc.assert(
    fc.property(fc.array(anyChunk, { maxLength: 20 }), fc.boolean(), (chunks, broken) => {
      const events = run(chunks, broken);
      assert.equal(events[0].type, 'message_start');
      assert.equal(events.filter(({ type }) => type === 'message_start').length, 1);
      const ends = events.filter(({ type }) => type === 'message_stop' || type === 'error');
      assert.equal(ends.length, 1);
      assert.equal(ends[0], events.at(-1));
      let open = -1;
      let next = 0;
      for (const { type, index } of events) {
        if (type === 'content_block_start') {
          assert.equal(open, -1);
          assert.equal(index, next);
          open = index;
          next += 1;
        } else if (type === 'content_block_delta') {
          assert.equal(index, open);
        } else if (type === 'content_block_stop') {
          assert.equal(index, open);
          open = -1;
        }
      }
      if (ends[0].type === 'message_stop') assert.equal(open, -1);
    }),
    { numRuns: 300 },
  );
});
