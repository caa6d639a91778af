import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CodecName, StreamEvent } from '../../../src/completions/dialects/dialect.ts';
import { loadDialect } from '../../../src/completions/dialects/dialect-table.ts';
import { createSseFraming } from '../../../src/completions/relay/event-splitter.ts';
import { createChunkReader } from '../../../src/completions/relay/stream-readers.ts';
import fc from '../../kit/properties.ts';
import { startProcessorTime } from '../../kit/time.ts';
import { ask, context } from './read-stream.ts';

const NAMES: CodecName[] = [
  'openai',
  'azure',
  'responses',
  'anthropic',
  'google',
  'google-vertex',
  'bedrock',
  'cohere',
];

/** Words that decoders look for, so that generated JSON gets past their first question. */
const KEYS = [
  ...['type', 'index', 'delta', 'message', 'content', 'content_block', 'text', 'thinking', 'signature', 'data', 'id'],
  ...['name', 'input', 'partial_json', 'stop_reason', 'usage', 'input_tokens', 'error', 'choices', 'finish_reason'],
  ...[
    'tool_calls',
    'function',
    'arguments',
    'reasoning',
    'candidates',
    'parts',
    'functionCall',
    'finishReason',
    'args',
  ],
  ...['usageMetadata', 'promptFeedback', 'blockReason', 'thoughtSignature', 'inlineData', 'output', 'stopReason'],
  ...['contentBlockIndex', 'start', 'toolUse', 'toolUseId', 'reasoningContent', 'tool_plan', 'model', '__proto__'],
  ...['constructor', 'details', 'code', 'status', 'created', 'role', 'refusal', 'x_groq', 'citationsContent'],
  ...['response', 'item', 'output_index', 'call_id', 'summary', 'encrypted_content', 'incomplete_details'],
];
const VALUES = [
  ...['content_block_delta', 'content_block_start', 'content_block_stop', 'message_start', 'message_delta'],
  ...['message_stop', 'error', 'ping', 'text_delta', 'input_json_delta', 'thinking_delta', 'signature_delta'],
  ...['tool_use', 'thinking', 'redacted_thinking', 'text', 'STOP', 'MAX_TOKENS', 'MALFORMED_FUNCTION_CALL', 'stop'],
  ...['message-start', 'content-start', 'content-delta', 'tool-call-start', 'tool-call-delta', 'message-end'],
  ...['COMPLETE', 'ERROR', 'TOOL_CALL', 'end_turn', 'structured_answer', '', '[DONE]', 'error'],
  ...['response.created', 'response.output_item.added', 'response.output_item.done', 'response.completed'],
  ...['response.output_text.delta', 'response.function_call_arguments.delta', 'function_call', 'custom_tool_call'],
];
const EVENTS = [
  ...['messageStart', 'contentBlockStart', 'contentBlockDelta', 'contentBlockStop', 'messageStop', 'metadata'],
  ...['exception:throttlingException', 'error:x', 'error', 'message_delta', undefined],
];

const { json } = fc.letrec<{ json: unknown }>((tie) => ({
  json: fc.oneof(
    { depthSize: 'medium', withCrossShrink: true },
    fc.constantFrom<unknown>(...VALUES, null, true, 0, 1, -1, 1e308, 2 ** 53),
    fc.string(),
    fc.array(tie('json'), { maxLength: 3 }),
    fc.dictionary(fc.oneof({ weight: 9, arbitrary: fc.constantFrom(...KEYS) }, fc.string()), tie('json'), {
      maxKeys: 6,
    }),
  ),
}));

const event: fc.Arbitrary<StreamEvent> = fc.record({
  event: fc.constantFrom(...EVENTS),
  data: fc.oneof({ weight: 5, arbitrary: json.map((value) => JSON.stringify(value)) }, fc.string()),
});

for (const name of NAMES) {
  test(`P-22: ${name}: any events give chunks or a failure, never a throw, and pollute nothing`, async () => {
    const dialect = await loadDialect(name);
    fc.assert(
      fc.property(fc.array(event, { maxLength: 12 }), (events) => {
        let state = dialect.startStream({ ...context, stream: true });
        let other = dialect.startStream({ ...context, stream: true });
        for (const given of events) {
          const step = dialect.decodeEvent(state, given);
          const again = dialect.decodeEvent(other, given);
          assert.deepEqual(again.chunks, step.chunks, 'the same events mean the same');
          for (const chunk of step.chunks) {
            assert.equal(chunk.object, 'chat.completion.chunk');
            assert.equal(typeof chunk.id, 'string');
            assert.ok(Array.isArray(chunk.choices));
            JSON.stringify(chunk);
          }
          if (step.failure !== undefined) assert.ok(step.failure.status >= 400 && step.failure.message !== '');
          state = step.state;
          other = again.state;
        }
        assert.deepEqual(Object.keys(Object.prototype), []);
      }),
      { numRuns: 300 },
    );
  });

  test(`P-22: ${name}: any whole answer is a completion or a failure, and so is any refusal`, async () => {
    const dialect = await loadDialect(name);
    fc.assert(
      fc.property(json, fc.integer({ min: 300, max: 599 }), (body, status) => {
        const { completion, failure } = dialect.decodeResponse(body, context);
        assert.notEqual(completion === undefined, failure === undefined);
        if (completion !== undefined) {
          assert.ok(completion.choices.every(({ message }) => message.role !== undefined));
          JSON.stringify(completion);
        }
        assert.ok(dialect.decodeFailure(status, body).message !== '');
      }),
      { numRuns: 500 },
    );
  });
}

test('arguments that come in many pieces cost no more than linear time', async () => {
  const piece = 'x'.repeat(100);
  const count = 50_000;
  const start = {
    type: 'content_block_start',
    index: 0,
    content_block: { type: 'tool_use', id: 't', name: 'f', input: {} },
  };
  const delta = { type: 'content_block_delta', index: 0, delta: { type: 'input_json_delta', partial_json: piece } };
  const dialect = await loadDialect('anthropic');
  let { state } = dialect.decodeEvent(dialect.startStream(context), { event: undefined, data: JSON.stringify(start) });
  const given = { event: undefined, data: JSON.stringify(delta) };
  let length = 0;
  const processorTime = startProcessorTime();
  for (let number = 0; number < count; number += 1) {
    const step = dialect.decodeEvent(state, given);
    state = step.state;
    length += step.chunks[0]?.choices[0]?.delta.tool_calls?.[0]?.function?.arguments?.length ?? 0;
  }
  assert.equal(length, count * piece.length);
  assert.ok(processorTime() < 10_000);
});

test('an image of 8 MB is not copied on its way into a request', async () => {
  const url = `data:image/png;base64,${'A'.repeat(8 * 1024 * 1024)}`;
  const request = ask({ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url } }] }] });
  for (const name of ['anthropic', 'google', 'bedrock'] as const) {
    const dialect = await loadDialect(name);
    const before = process.memoryUsage().heapUsed;
    const bodies = Array.from({ length: 20 }, () => dialect.encodeRequest(request, context).body);
    const grown = process.memoryUsage().heapUsed - before;
    assert.equal(bodies.length, 20);
    assert.ok(grown < 20 * 1024 * 1024, `${name}: ${grown} bytes for 20 requests`);
  }
});

const MESSAGES = [
  '{"type":"message_start","message":{"id":"msg_1","model":"claude","usage":{"input_tokens":3}}}',
  '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
  '{"type":"content_block_delta","index":0,\n"delta":{"type":"text_delta","text":"Grüße 🌍"}}',
  '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}',
  '{"type":"message_stop"}',
];

test('P-04: CRLF, CR, multi-line data, comments, BOM and event, id and retry lines, cut anywhere, are read right', async () => {
  const dialect = await loadDialect('anthropic');
  fc.assert(
    fc.property(
      fc.constantFrom('\n', '\r\n', '\r'),
      fc.boolean(),
      fc.array(fc.nat(2000), { maxLength: 20 }),
      (lineEnd, withMark, cuts) => {
        const events = MESSAGES.map((data, index) => [
          ': comment',
          'event: anything',
          `id: ${index}`,
          'retry: 10',
          ...data.split('\n').map((line) => `data: ${line}`),
          '',
        ]);
        const text =
          (withMark ? '\ufeff' : '') +
          events
            .flat()
            .map((line) => line + lineEnd)
            .join('');
        const bytes = Buffer.from(text);
        const reader = createChunkReader({
          dialect,
          context,
          framing: createSseFraming(),
          choices: 1,
          promptTokens: 0,
        });
        const pieces = [...new Set(cuts.map((cut) => cut % bytes.length))].sort((a, b) => a - b);
        let content = '';
        let done = false;
        let from = 0;
        for (const cut of [...pieces, bytes.length]) {
          const reading = reader.feed(bytes.subarray(from, cut));
          from = cut;
          assert.equal(reading.failure, undefined);
          for (const { choices } of reading.piece ?? []) content += choices[0]?.delta.content ?? '';
          done ||= reading.done;
        }
        done ||= reader.end().done;
        assert.equal(content, 'Grüße 🌍');
        assert.ok(done);
        assert.deepEqual(reader.usage().usage, { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 });
      },
    ),
    { numRuns: 200 },
  );
});
