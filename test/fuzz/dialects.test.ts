import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Compile } from 'typebox/schema';
import { ChatRequest } from '../../src/completions/contract/chat.ts';
import { createRequestReader } from '../../src/completions/contract/read-request.ts';
import type { CodecName } from '../../src/completions/dialects/dialect.ts';
import { loadDialect } from '../../src/completions/dialects/dialect-table.ts';
import { usesLegacyFunctions, withTools } from '../../src/completions/operations/encode-chat.ts';
import { createChunkReader, createFraming } from '../../src/completions/relay/stream-readers.ts';
import { context } from '../completions/dialects/read-stream.ts';
import fc from '../kit/properties.ts';
import { anyCuts, anyText, assertNothingPolluted, cut, jsonWith, outcomeOf, runs } from './any-input.ts';
import { arbitraryFor, type JsonSchema } from './schema-arbitrary.ts';

const NAMES: readonly CodecName[] = [
  ...(['openai', 'azure', 'responses', 'anthropic', 'google', 'google-vertex', 'bedrock', 'cohere'] as const),
];
const MODELS = ['claude-opus-4-5', 'gemini-3-pro', 'gpt-5', 'anthropic.claude-sonnet-4', 'command-a', 'x', '__proto__'];

const REQUEST_WORDS = [
  ...['user', 'assistant', 'system', 'developer', 'tool', 'function', 'text', 'image_url', 'input_audio', 'file'],
  ...[
    'auto',
    'none',
    'required',
    'json_object',
    'json_schema',
    'low',
    'high',
    'minimal',
    'refusal',
    '{}',
    '[1]',
    '{"a":1}',
  ],
  ...[
    'data:image/png;base64,AAAA',
    'data:,',
    'data:;base64,',
    'https://a.example/x.png',
    'gs://b/c',
    'wav',
    '__proto__',
  ],
];
const STREAM_WORDS = [
  ...['type', 'index', 'delta', 'message', 'content', 'content_block', 'text', 'thinking', 'signature', 'id', 'name'],
  ...['input', 'partial_json', 'stop_reason', 'usage', 'input_tokens', 'error', 'choices', 'finish_reason', 'output'],
  ...['tool_calls', 'function', 'arguments', 'candidates', 'parts', 'functionCall', 'finishReason', 'usageMetadata'],
  ...['content_block_delta', 'content_block_start', 'message_start', 'message_delta', 'message_stop', 'text_delta'],
  ...['message-start', 'content-delta', 'tool-call-start', 'message-end', 'STOP', 'stop', 'tool_use', 'toolUse'],
];

const validator = Compile(ChatRequest);
const read = createRequestReader(ChatRequest);
/** What callers say about the arguments of their tools, and about the answer that they want. */
const toolSchema = jsonWith([
  ...[
    'type',
    'object',
    'string',
    'array',
    'properties',
    'required',
    'items',
    'enum',
    'const',
    'anyOf',
    'allOf',
    'oneOf',
  ],
  ...[
    '$ref',
    '#/$defs/a',
    '$defs',
    'a',
    'format',
    'description',
    'additionalProperties',
    'nullable',
    'null',
    'default',
  ],
]);
const shapes = fc.record({
  type: fc.constantFrom('object', 'string', 'array'),
  properties: fc.dictionary(fc.constantFrom('a', 'b', '__proto__'), toolSchema, { minKeys: 1 }),
  required: fc.array(fc.oneof(fc.constantFrom('a', 'b'), toolSchema), { maxLength: 4 }),
  enum: fc.array(toolSchema, { maxLength: 3 }),
  items: toolSchema,
  $defs: toolSchema,
});
const PLAIN = { model: 'm', messages: [{ role: 'user', content: 'Hello' }] };
/** Odd in all of it; or plain but for its tools, because what is odd elsewhere is refused before they are looked at. */
const request = fc.oneof(
  arbitraryFor(ChatRequest as unknown as JsonSchema, { junkWeight: 0, words: REQUEST_WORDS }),
  fc.oneof(toolSchema, shapes).map((parameters) => ({
    ...PLAIN,
    tools: [{ type: 'function', function: { name: 'f', parameters } }],
    response_format: { type: 'json_schema', json_schema: { name: 's', schema: parameters } },
  })),
);
const streamed = jsonWith(STREAM_WORDS);
const bytes = fc.oneof(
  fc
    .array(
      fc.oneof(
        streamed.map((value) => `data: ${JSON.stringify(value)}\n\n`),
        fc
          .tuple(fc.constantFrom(...STREAM_WORDS), streamed)
          .map(([name, value]) => `event: ${name}\ndata: ${JSON.stringify(value)}\r\n\r\n`),
        fc.constantFrom('data: [DONE]\n\n', ': ping\n\n', '\r', '\n'),
        anyText,
      ),
      { maxLength: 8 },
    )
    .map((parts) => Buffer.from(parts.join(''))),
  fc.uint8Array({ maxLength: 100 }).map((given) => Buffer.from(given)),
);

for (const name of NAMES) {
  test(`G18: ${name}: any request that fits its schema becomes one that can be sent, or is refused`, async () => {
    const dialect = await loadDialect(name);
    fc.assert(
      fc.property(request, fc.constantFrom(...MODELS), fc.boolean(), (value, model, stream) => {
        fc.pre(validator.Check(value));
        const chat = read(Buffer.from(JSON.stringify(value)));
        const before = JSON.stringify(chat);
        const outcome = outcomeOf(() => {
          return dialect.encodeRequest(usesLegacyFunctions(chat) ? withTools(chat) : chat, {
            ...context,
            model,
            stream,
          });
        });
        if ('value' in outcome) {
          const { path, headers, body, dropped } = outcome.value;
          assert.ok(path.startsWith('/') && dropped.every((field) => typeof field === 'string'));
          assert.doesNotThrow(() => new Headers({ ...headers }));
          assert.equal(typeof JSON.stringify(body), 'string');
        }
        assert.equal(JSON.stringify(chat), before, 'the request itself stays as it was');
        assertNothingPolluted();
      }),
      runs(70),
    );
  });

  test(`G18: ${name}: any stream means the same wherever its bytes are cut`, async () => {
    const dialect = await loadDialect(name);
    await fc.assert(
      fc.asyncProperty(bytes, anyCuts, async (given, places) => {
        const readers = [await readerFor(), await readerFor()] as const;
        assert.deepEqual(
          outcomeOf(() => readAll(readers[0], cut(given, places))),
          outcomeOf(() => readAll(readers[1], [given])),
        );
      }),
      runs(80),
    );

    async function readerFor() {
      const framing = await createFraming(dialect.framing);
      return createChunkReader({
        dialect,
        context: { ...context, stream: true },
        framing,
        choices: 1,
        promptTokens: 3,
      });
    }
  });
}

type Reader = ReturnType<typeof createChunkReader>;

function readAll(reader: Reader, chunks: readonly Buffer[]) {
  const pieces: unknown[] = [];
  for (const chunk of chunks) {
    const { piece, done, failure } = reader.feed(chunk);
    pieces.push(...(piece ?? []));
    if (done || failure !== undefined) return { pieces, done, failure, usage: reader.usage() };
  }
  const { piece, done, failure } = reader.end();
  pieces.push(...(piece ?? []));
  return { pieces, done, failure, usage: reader.usage() };
}
