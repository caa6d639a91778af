import assert from 'node:assert/strict';
import { test } from 'node:test';
import { knownModels } from '../../../src/completions/apis/known-models.ts';
import type { ChatRequest } from '../../../src/completions/contract/chat.ts';
import { anthropicDialect } from '../../../src/completions/dialects/anthropic/anthropic-dialect.ts';
import { bedrockDialect } from '../../../src/completions/dialects/bedrock/bedrock-dialect.ts';
import { cohereDialect } from '../../../src/completions/dialects/cohere/cohere-dialect.ts';
import { type ModelFacts, takenBy } from '../../../src/completions/dialects/dialect.ts';
import { googleDialect } from '../../../src/completions/dialects/google/google-dialect.ts';
import { openaiDialect } from '../../../src/completions/dialects/openai/openai-dialect.ts';

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

test('the row of a model says how it is asked to think, whatever its name is', () => {
  const encode = (dialect: Encoder, thinking: ModelFacts['thinking'], effort: string, model = 'house-model') => {
    const request = {
      model: 'x',
      messages: [{ role: 'user', content: 'Hi' }],
      reasoning_effort: effort,
      max_tokens: 40_000,
    };
    const context = {
      model,
      stream: false,
      id: 'a',
      created: 1,
      facts: { reasoning: true, ...(thinking && { thinking }) },
    };
    return dialect.encodeRequest(request as unknown as ChatRequest, context).body as Json;
  };
  const adaptive = { style: 'adaptive', efforts: ['low', 'high'] } as const;
  const claude = encode(anthropicDialect, adaptive, 'medium');
  assert.deepEqual([claude.thinking.type, claude.output_config], ['adaptive', { effort: 'high' }]);
  assert.deepEqual(encode(anthropicDialect, adaptive, 'none').output_config, { effort: 'low' });
  const stops = { style: 'adaptive', efforts: ['none', 'low'] } as const;
  assert.deepEqual(encode(anthropicDialect, stops, 'none').thinking, { type: 'disabled' });
  const budget = { style: 'budget', efforts: ['none'] } as const;
  const old = encode(anthropicDialect, budget, 'low', 'claude-opus-4-8');
  assert.deepEqual([old.thinking, old.output_config], [{ type: 'enabled', budget_tokens: 2048 }, undefined]);

  const gemini = (thinking: ModelFacts['thinking'], effort: string) =>
    encode(googleDialect, thinking, effort).generationConfig.thinkingConfig;
  const level = { style: 'level', efforts: ['low', 'high'] } as const;
  assert.deepEqual(gemini(level, 'medium'), { thinkingLevel: 'high', includeThoughts: true });
  assert.deepEqual(gemini(budget, 'none'), { thinkingBudget: 0 });
  assert.deepEqual(gemini({ style: 'budget', efforts: [] }, 'none'), { thinkingBudget: 128 });

  const converse = (thinking: ModelFacts['thinking'], effort: string) =>
    encode(bedrockDialect, thinking, effort, 'arn:aws:bedrock:profile/1').additionalModelRequestFields;
  assert.deepEqual(converse(adaptive, 'high').output_config, { effort: 'high' });
  assert.deepEqual(converse({ style: 'effort', efforts: ['low', 'medium'] }, 'high'), { reasoning_effort: 'medium' });
  const config = { style: 'config', efforts: ['low', 'medium', 'high'] } as const;
  assert.deepEqual(converse(config, 'xhigh'), { reasoningConfig: { type: 'enabled', maxReasoningEffort: 'high' } });
  assert.equal(converse(config, 'none'), undefined);

  assert.deepEqual(encode(cohereDialect, budget, 'low').thinking, { type: 'enabled', token_budget: 2048 });
});

test('the rows of all Claude and Gemini models that think say how, so that no name of theirs decides', () => {
  let seen = 0;
  for (const api of ['anthropic', 'google', 'google-vertex', 'amazon-bedrock']) {
    for (const { id, reasoning, thinking } of knownModels(api).values()) {
      const families = api === 'amazon-bedrock' ? /claude|gpt-oss|nova-2/ : /claude|gemini/;
      if (reasoning !== true || !families.test(id)) continue;
      assert.ok(thinking, `${api}/${id}`);
      seen += 1;
    }
  }
  assert.ok(seen > 80);
});

test('Claude 4.6 has the highest effort without the one below it, with its row and without', () => {
  const request = {
    ...{ model: 'x', messages: [{ role: 'user', content: 'Hi' }], reasoning_effort: 'xhigh', max_tokens: 40_000 },
  } as ChatRequest;
  for (const model of ['claude-opus-4-6', 'claude-sonnet-4-6']) {
    const { thinking } = knownModels('anthropic').get(model) ?? {};
    assert.ok(thinking);
    for (const facts of [{ thinking }, {}]) {
      const context = { model, stream: false, id: 'a', created: 1, facts };
      const { output_config: output } = anthropicDialect.encodeRequest(request, context).body as Json;
      assert.deepEqual(output, { effort: 'max' }, model);
    }
  }
});

test('the row of a model says what its API takes, whatever its name is', () => {
  const schema = {
    type: 'object',
    properties: { a: { type: 'string' } },
    required: ['a'],
    additionalProperties: false,
  };
  const request = {
    ...{ model: 'x', messages: [{ role: 'user', content: 'Hi' }], temperature: 1.5, top_p: 0.5 },
    response_format: { type: 'json_schema', json_schema: { name: 'a', strict: true, schema } },
  } as ChatRequest;
  const encode = (dialect: Encoder, model: string, facts: ModelFacts, more: object = {}) => {
    const context = { model, stream: false, id: 'a', created: 1, facts };
    const { body, dropped } = dialect.encodeRequest({ ...request, ...more } as ChatRequest, context);
    return { body: body as Json, dropped: dropped.toSorted() };
  };
  const claude = (facts: ModelFacts, model = 'house-model') => encode(anthropicDialect, model, facts);
  assert.deepEqual([claude({}).body.temperature, claude({}).body.top_p], [1, 0.5]);
  assert.deepEqual(
    [claude({ sampling: 1 }).body.temperature, claude({ sampling: 1 }).dropped],
    [1, ['temperature', 'top_p']],
  );
  assert.deepEqual(claude({ sampling: 0 }).dropped, ['temperature', 'top_p']);
  assert.deepEqual(claude({ sampling: 2 }, 'claude-opus-4-8').dropped, ['temperature']);
  assert.equal(claude({ structuredOutput: true }).body.output_config.format.type, 'json_schema');
  assert.equal(claude({ structuredOutput: false }, 'claude-opus-4-8').body.output_config, undefined);
  assert.equal(claude({}).body.max_tokens, 8192);
  assert.equal(claude({}, 'claude-3-opus').body.max_tokens, 4096);

  const converse = (facts: ModelFacts, model = 'arn:aws:bedrock:profile/1') =>
    encode(bedrockDialect, model, facts).body;
  assert.equal(converse({}).inferenceConfig.temperature, 1.5);
  assert.equal(converse({ maxTemperature: 1 }).inferenceConfig.temperature, 1);
  assert.equal(converse({ isClaude: true }).inferenceConfig.temperature, 1);
  const lost = (facts: ModelFacts) => encode(bedrockDialect, 'arn:aws:bedrock:profile/1', facts).dropped;
  assert.deepEqual([lost({}), lost({ maxTemperature: 1 })], [[], ['temperature']]);
  assert.equal(converse({}, 'amazon.nova-pro-v1:0').outputConfig, undefined);
  assert.equal(
    converse({ structuredOutput: true }, 'amazon.nova-pro-v1:0').outputConfig.textFormat.type,
    'json_schema',
  );

  const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object', patternProperties: {} } } }];
  const asked = [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }];
  const messages = [
    { role: 'user', content: 'Hi' },
    { role: 'assistant', content: null, tool_calls: asked },
    { role: 'tool', tool_call_id: 'c', content: 'ok' },
  ];
  const gemini = (model: string, facts: ModelFacts) => {
    const { body, dropped } = encode(googleDialect, model, facts, { tools, messages });
    const [declared] = body.tools[0].functionDeclarations;
    const signed = body.contents[1].parts[0].thoughtSignature !== undefined;
    return [declared.parametersJsonSchema !== undefined, !dropped.includes('response_format'), signed];
  };
  assert.deepEqual(gemini('house-model', {}), [false, false, false]);
  assert.deepEqual(gemini('house-model', { jsonSchema: true }), [true, false, false]);
  assert.deepEqual(gemini('house-model', { jsonWithTools: true }), [false, true, false]);
  assert.deepEqual(gemini('house-model', { needsProofs: true }), [false, false, true]);
  const nothing = { jsonSchema: false, jsonWithTools: false, needsProofs: false };
  assert.deepEqual(gemini('gemini-3-pro-preview', {}), [true, true, true]);
  assert.deepEqual(gemini('gemini-3-pro-preview', nothing), [false, false, false]);
});

test('the rows of all Claude, Gemini and Nova models say what their APIs take, as their names let one expect', () => {
  let seen = 0;
  for (const api of ['anthropic', 'google', 'google-vertex', 'amazon-bedrock']) {
    for (const { id, ...row } of knownModels(api).values()) {
      if (!/claude|gemini-\d|amazon\.nova/.test(id) || id.includes('embedding')) continue;
      const { defaultMaxTokens: _, ...expected } = takenBy({ model: id });
      for (const [fact, value] of Object.entries(expected)) {
        assert.equal((row as Json)[fact], value, `${api}/${id}: ${fact}`);
      }
      seen += 1;
    }
  }
  assert.ok(seen > 100);
});

test('the row of a model of OpenAI says whether it counts what it thinks, and the limit has its name then', () => {
  const limits = (model: string, facts: ModelFacts, servesResponses = true) => {
    const request = { model: 'x', messages: [{ role: 'user', content: 'Hi' }], max_tokens: 9 } as ChatRequest;
    const context = { model, stream: false, id: 'a', created: 1, facts, servesResponses };
    const { max_tokens: old, max_completion_tokens: modern } = openaiDialect.encodeRequest(request, context)
      .body as Json;
    return [old, modern];
  };
  assert.deepEqual(limits('house-model', { reasoning: true }), [undefined, 9]);
  assert.deepEqual(limits('gpt-5-chat-latest', { reasoning: false }), [9, undefined]);
  assert.deepEqual(limits('gpt-5', {}), [undefined, 9]);
  assert.deepEqual(limits('deepseek-reasoner', { reasoning: true }, false), [9, undefined], 'of another maker');
});
