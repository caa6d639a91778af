import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ChatRequest } from '../../../src/completions/contract/chat.ts';
import { anthropicDialect } from '../../../src/completions/dialects/anthropic/anthropic-dialect.ts';
import type { ModelFacts } from '../../../src/completions/dialects/dialect.ts';
import { googleDialect } from '../../../src/completions/dialects/google/google-dialect.ts';

// biome-ignore lint/suspicious/noExplicitAny: bodies as upstreams read them
type Json = any;
type Encoder = Pick<typeof anthropicDialect, 'encodeRequest'>;

test('the catalogue says what a model takes, and wins over its name', () => {
  const request = {
    model: 'x',
    messages: [{ role: 'user' as const, content: 'Hi' }],
    temperature: 0.5,
    reasoning_effort: 'high',
    max_tokens: 40_000,
    response_format: {
      type: 'json_schema' as const,
      json_schema: { name: 'a', strict: true, schema: { type: 'object', properties: {}, additionalProperties: false } },
    },
  };
  const encode = (dialect: Encoder, model: string, facts: ModelFacts) => {
    const context = { model, stream: false, id: 'a', created: 1, facts };
    const { body, dropped } = dialect.encodeRequest(request as unknown as ChatRequest, context);
    return { body: body as Json, dropped };
  };
  const named = encode(anthropicDialect, 'claude-sonnet-4-5', {});
  assert.deepEqual([named.body.thinking.type, named.dropped], ['enabled', ['temperature']]);
  const plain = encode(anthropicDialect, 'claude-sonnet-4-5', { reasoning: false });
  assert.deepEqual(
    [plain.body.thinking, plain.body.temperature, plain.dropped],
    [undefined, 0.5, ['reasoning_effort']],
  );
  const fixed = encode(anthropicDialect, 'claude-sonnet-4-5', { reasoning: false, temperature: false });
  assert.deepEqual(
    [fixed.body.temperature, fixed.dropped.toSorted()],
    [undefined, ['reasoning_effort', 'temperature']],
  );
  assert.equal(encode(anthropicDialect, 'claude-3-haiku-20240307', {}).body.output_config, undefined);
  const schema = encode(anthropicDialect, 'claude-3-haiku-20240307', { structuredOutput: true });
  assert.equal(schema.body.output_config.format.type, 'json_schema');
  assert.equal(encode(googleDialect, 'gemini-flash-latest', {}).body.generationConfig.thinkingConfig, undefined);
  const gemini = encode(googleDialect, 'gemini-flash-latest', { reasoning: true });
  assert.equal(gemini.body.generationConfig.thinkingConfig.thinkingBudget, 24_576);
  const still = encode(googleDialect, 'gemini-2.5-flash-image', { reasoning: false });
  assert.deepEqual([still.body.generationConfig.thinkingConfig, still.dropped], [undefined, ['reasoning_effort']]);
});
