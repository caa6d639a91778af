import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Compile } from 'typebox/schema';
import type { ChatChunk } from '../../../src/completions/contract/chat.ts';
import { ResponseObject, type ResponsesRequest } from '../../../src/completions/contract/responses.ts';
import { readWhole } from '../../../src/completions/ingress/answer-blocks.ts';
import {
  createResponsesStream,
  finishedResponse,
} from '../../../src/completions/ingress/responses/responses-answer.ts';
import { decodeResponsesRequest } from '../../../src/completions/ingress/responses/responses-request.ts';
import type { StreamEvent } from '../../../src/platform/sse/sse-writer.ts';
import fc from '../../kit/properties.ts';
import { anyChunk, chunk, toolPiece, usageChunk } from './chunks.ts';

// biome-ignore lint/suspicious/noExplicitAny: events as a client reads them
type Json = any;

const request = {
  model: 'lab/small',
  input: 'Hello',
  tools: [
    { type: 'function', name: 'read', parameters: {} },
    { type: 'custom', name: 'apply_patch' },
    { type: 'namespace', name: 'team', tools: [{ type: 'function', name: 'spawn' }] },
  ],
} as ResponsesRequest;
const head = () => ({
  id: 'resp_1',
  createdAt: 5,
  request,
  toolsOf: () => decodeResponsesRequest(request).tools,
  keep: () => undefined,
});
const parse = (events: readonly StreamEvent[]): Json[] =>
  events.map(({ event, data }) => {
    const value = JSON.parse(data);
    assert.equal(value.type, event);
    return value;
  });

function run(chunks: readonly ChatChunk[], broken = false): Json[] {
  const encoder = createResponsesStream(head());
  return parse([
    ...encoder.begin(),
    ...chunks.flatMap((each) => encoder.read(each)),
    ...(broken ? encoder.fail({ status: 502, code: 'upstream_error', message: 'It broke.' }, false) : encoder.finish()),
  ]);
}

const types = (events: readonly Json[]) => events.map(({ type }) => type.replace(/^response\./, ''));

test('a stream has the whole sequence of events, numbered without a gap', () => {
  const events = run([
    chunk({ reasoning_content: 'Hm' }),
    chunk({ reasoning_signature: 'proof' }),
    chunk({ content: 'Hel' }),
    chunk({ content: 'lo' }),
    toolPiece(0, { id: 'c1', name: 'read', text: '{"a":' }),
    toolPiece(0, { text: '1}' }),
    chunk({}, 'tool_calls'),
    usageChunk(),
  ]);
  assert.deepEqual(types(events), [
    ...['created', 'in_progress', 'output_item.added', 'reasoning_summary_part.added', 'reasoning_summary_text.delta'],
    ...['reasoning_summary_text.done', 'reasoning_summary_part.done', 'output_item.done'],
    ...['output_item.added', 'content_part.added', 'output_text.delta', 'output_text.delta'],
    ...['output_text.done', 'content_part.done', 'output_item.done'],
    ...['output_item.added', 'function_call_arguments.delta', 'function_call_arguments.delta'],
    ...['function_call_arguments.done', 'output_item.done', 'completed'],
  ]);
  assert.deepEqual(
    events.map((event) => event.sequence_number),
    events.map((_, index) => index),
  );
  const { response } = events.at(-1);
  assert.equal(response.status, 'completed');
  assert.equal(response.model, 'lab-model');
  assert.deepEqual(response.usage, {
    input_tokens: 11,
    input_tokens_details: { cached_tokens: 4 },
    output_tokens: 7,
    output_tokens_details: { reasoning_tokens: 2 },
    total_tokens: 18,
  });
  const done = events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item);
  assert.deepEqual(response.output, done);
  assert.deepEqual(done[0], {
    id: 'rs_1_0',
    type: 'reasoning',
    summary: [{ type: 'summary_text', text: 'Hm' }],
    encrypted_content: 'proof',
  });
  assert.equal(done[1].content[0].text, 'Hello');
  assert.deepEqual(done[2], {
    type: 'function_call',
    id: 'fc_1_2',
    call_id: 'c1',
    name: 'read',
    status: 'completed',
    arguments: '{"a":1}',
  });
});

test('P-24: a custom tool is called with its text, and a tool of a namespace by both its names', () => {
  const events = run([
    toolPiece(0, { id: 'c1', name: 'apply_patch', text: '{"input":"*** Be' }),
    toolPiece(0, { text: 'gin\\n"}' }),
    toolPiece(1, { id: 'c2', name: 'team__spawn', text: '{}' }),
    chunk({}, 'tool_calls'),
  ]);
  assert.deepEqual(
    events.filter(({ type }) => type === 'response.custom_tool_call_input.delta').map(({ delta }) => delta),
    ['*** Be', 'gin\n'],
  );
  const [patch, spawn] = events.at(-1).response.output;
  assert.deepEqual([patch.type, patch.name, patch.input], ['custom_tool_call', 'apply_patch', '*** Begin\n']);
  assert.deepEqual([spawn.type, spawn.namespace, spawn.name], ['function_call', 'team', 'spawn']);
});

test('an answer that ran out of tokens or was filtered is incomplete, and says why', () => {
  for (const [finish, reason] of [
    ['length', 'max_output_tokens'],
    ['content_filter', 'content_filter'],
    ['odd', 'odd'],
  ]) {
    const events = run([chunk({ content: 'Hel' }), chunk({}, finish ?? null)]);
    const last = events.at(-1);
    assert.equal(last.type, 'response.incomplete');
    assert.deepEqual(last.response.incomplete_details, { reason });
    assert.equal(last.response.output[0].status, 'incomplete');
    assert.equal(events.at(-2).item.status, 'incomplete');
  }
});

test('P-07: an answer that breaks off ends in response.failed and an error, never in response.completed', () => {
  for (const events of [run([chunk({ content: 'Hel' })], true), run([chunk({ content: 'Hel' })])]) {
    assert.deepEqual(types(events).slice(-3), ['output_text.delta', 'failed', 'error']);
    const { response } = events.at(-2);
    assert.equal(response.status, 'failed');
    assert.equal(response.error.code, 'upstream_error');
    assert.equal(response.output[0].status, 'incomplete');
    assert.equal(events.at(-1).code, 'upstream_error');
  }
});

test('a refusal is a part of its own kind', () => {
  const events = run([chunk({ refusal: 'No.' }), chunk({}, 'stop')]);
  assert.ok(types(events).includes('refusal.delta'));
  assert.deepEqual(events.at(-1).response.output[0].content, [{ type: 'refusal', refusal: 'No.' }]);
});

test('a whole answer is the response with which its stream would have ended', () => {
  const whole = finishedResponse(
    head(),
    readWhole(
      {
        id: 'x',
        object: 'chat.completion',
        created: 1,
        model: 'lab-model',
        choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
      },
      'call_',
    ),
  );
  const streamed = run([chunk({ content: 'Hello' }), chunk({}, 'stop')]).at(-1).response;
  assert.deepEqual(JSON.parse(JSON.stringify(whole)), streamed);
});

test('whatever an upstream sends, the stream ends in exactly one way and its items agree', () => {
  const isResponse = Compile(ResponseObject);
  fc.assert(
    fc.property(fc.array(anyChunk, { maxLength: 20 }), fc.boolean(), (chunks, broken) => {
      const events = run(chunks, broken);
      const ends = events.filter(({ type }) => /^response\.(?:completed|incomplete|failed)$/.test(type));
      assert.equal(ends.length, 1);
      if (broken) assert.equal(ends[0].type, 'response.failed');
      assert.ok(isResponse.Check(ends[0].response));
      if (ends[0].type === 'response.failed') return;
      const done = events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item);
      assert.deepEqual(ends[0].response.output, done);
      const texts = new Map<string, string>();
      for (const { type, item_id: id, delta } of events) {
        if (type === 'response.output_text.delta') texts.set(id, (texts.get(id) ?? '') + delta);
      }
      for (const [id, text] of texts) assert.equal(done.find((item) => item.id === id).content[0].text, text);
    }),
    { numRuns: 300 },
  );
});
