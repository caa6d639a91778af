import assert from 'node:assert/strict';
import { test } from 'node:test';
import { googleDialect, vertexDialect } from '../../../src/completions/dialects/google/google-dialect.ts';
import { googleSchema } from '../../../src/completions/dialects/google/google-schema.ts';
import { ask, contextFor, PNG, weatherConversation, weatherTool } from './read-stream.ts';

const MODEL = 'gemini-2.5-flash';

function encode(request: Record<string, unknown>, model = MODEL, stream = false) {
  const { path, body, dropped } = googleDialect.encodeRequest(ask(request), contextFor(model, { stream }));
  // biome-ignore lint/suspicious/noExplicitAny: tests look at any part of a body.
  return { path, dropped, body: body as any };
}

test('a conversation with parallel calls becomes contents with calls and their responses', () => {
  const { path, body, dropped } = encode({
    messages: weatherConversation,
    tools: [weatherTool],
    max_tokens: 100,
    temperature: 0.5,
    top_p: 0.9,
    n: 2,
    stop: ['END'],
    seed: 4,
    presence_penalty: 0.5,
    frequency_penalty: 0.25,
  });
  assert.equal(path, '/models/gemini-2.5-flash:generateContent');
  assert.deepEqual(dropped, []);
  assert.deepEqual(body, {
    systemInstruction: { parts: [{ text: 'Be brief.' }] },
    contents: [
      { role: 'user', parts: [{ text: 'Weather in Rome and Oslo?' }] },
      {
        role: 'model',
        parts: [
          { text: 'Let me look.' },
          { functionCall: { id: 'call_1', name: 'get_weather', args: { city: 'Rome' } } },
          { functionCall: { id: 'call_2', name: 'get_weather', args: { city: 'Oslo' } } },
        ],
      },
      {
        role: 'user',
        parts: [
          { functionResponse: { id: 'call_1', name: 'get_weather', response: { output: 'Sunny' } } },
          { functionResponse: { id: 'call_2', name: 'get_weather', response: { output: 'Snow' } } },
          { text: 'Thanks. Which is warmer?' },
        ],
      },
    ],
    tools: [{ functionDeclarations: [weatherTool.function] }],
    generationConfig: {
      temperature: 0.5,
      topP: 0.9,
      maxOutputTokens: 100,
      stopSequences: ['END'],
      candidateCount: 2,
      seed: 4,
      presencePenalty: 0.5,
      frequencyPenalty: 0.25,
    },
  });
});

test('a stream is asked for as server-sent events; the paths of Vertex name the publisher, and its calls have no ids', () => {
  assert.equal(encode({}, MODEL, true).path, '/models/gemini-2.5-flash:streamGenerateContent?alt=sse');
  assert.equal(encode({}, 'tunedModels/mine').path, '/tunedModels/mine:generateContent');
  const vertex = (model: string) => vertexDialect.encodeRequest(ask(), contextFor(model)).path;
  assert.equal(vertex(MODEL), '/publishers/google/models/gemini-2.5-flash:generateContent');
  assert.equal(vertex('google/gemini-2.5-pro'), '/publishers/google/models/gemini-2.5-pro:generateContent');
  assert.equal(vertex('publishers/meta/models/llama'), '/publishers/meta/models/llama:generateContent');
  assert.equal(vertex('endpoints/123'), '/endpoints/123:generateContent');
  const { body } = vertexDialect.encodeRequest(ask({ messages: weatherConversation }), contextFor(MODEL));
  assert.ok(!JSON.stringify(body).includes('call_1'));
});

test('images, audio and files, by value and by address', () => {
  const { body, dropped } = encode({
    messages: [
      {
        role: 'user',
        content: [
          { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
          { type: 'image_url', image_url: { url: 'https://example.com/cat.webp?x=1' } },
          { type: 'input_audio', input_audio: { data: PNG, format: 'mp3' } },
          { type: 'file', file: { filename: 'a.pdf', file_data: PNG } },
          { type: 'file', file: { file_id: 'gs://bucket/b.pdf' } },
          { type: 'file', file: { file_data: 'https://www.youtube.com/watch?v=9hE5-98ZeCg' } },
          { type: 'file', file: { file_id: 'https://youtu.be/9hE5-98ZeCg' } },
          { type: 'strange\nthing' },
        ],
      },
    ],
  });
  assert.deepEqual(body.contents[0].parts, [
    { inlineData: { mimeType: 'image/png', data: PNG } },
    { fileData: { mimeType: 'image/webp', fileUri: 'https://example.com/cat.webp?x=1' } },
    { inlineData: { mimeType: 'audio/mp3', data: PNG } },
    { inlineData: { mimeType: 'application/pdf', data: PNG } },
    { fileData: { mimeType: 'application/pdf', fileUri: 'gs://bucket/b.pdf' } },
    { fileData: { mimeType: 'video/mp4', fileUri: 'https://www.youtube.com/watch?v=9hE5-98ZeCg' } },
    { fileData: { mimeType: 'video/mp4', fileUri: 'https://youtu.be/9hE5-98ZeCg' } },
  ]);
  assert.deepEqual(dropped, ['messages.content.unknown'], 'what a caller wrote does not get into a header');
});

test('tool choices', () => {
  const config = (tool_choice: unknown) => encode({ tools: [weatherTool], tool_choice }).body.toolConfig;
  assert.equal(config('auto'), undefined);
  assert.deepEqual(config('none'), { functionCallingConfig: { mode: 'NONE' } });
  assert.deepEqual(config('required'), { functionCallingConfig: { mode: 'ANY' } });
  assert.deepEqual(config({ type: 'function', function: { name: 'get_weather' } }), {
    functionCallingConfig: { mode: 'ANY', allowedFunctionNames: ['get_weather'] },
  });
  const bare = encode({
    tools: [{ type: 'function', function: { name: 'now', parameters: { type: 'object' } } }],
  }).body;
  assert.deepEqual(bare.tools, [{ functionDeclarations: [{ name: 'now' }] }]);
});

test('structured output, with functions only where the model can do both', () => {
  const response_format = {
    type: 'json_schema',
    json_schema: { schema: { type: 'object', properties: { a: { type: 'string' } } } },
  };
  assert.deepEqual(encode({ response_format }).body.generationConfig, {
    responseMimeType: 'application/json',
    responseSchema: { type: 'object', properties: { a: { type: 'string' } } },
  });
  assert.deepEqual(encode({ response_format: { type: 'json_object' } }).body.generationConfig, {
    responseMimeType: 'application/json',
  });
  assert.deepEqual(encode({ response_format, tools: [weatherTool] }).dropped, ['response_format']);
  assert.deepEqual(encode({ response_format, tools: [weatherTool] }, 'gemini-3-pro-preview').dropped, []);
});

test('reasoning effort: a budget, or a level from Gemini 3 on', () => {
  const thinking = (reasoning_effort: string, model: string) =>
    encode({ reasoning_effort }, model).body.generationConfig.thinkingConfig;
  assert.deepEqual(thinking('medium', MODEL), { thinkingBudget: 8192, includeThoughts: true });
  assert.deepEqual(thinking('none', MODEL), { thinkingBudget: 0 });
  assert.deepEqual(thinking('none', 'gemini-2.5-pro'), { thinkingBudget: 128 });
  assert.deepEqual(thinking('high', 'gemini-3.1-pro'), { thinkingLevel: 'high', includeThoughts: true });
  assert.deepEqual(thinking('minimal', 'gemini-3-flash'), { thinkingLevel: 'minimal', includeThoughts: true });
  assert.deepEqual(encode({ reasoning_effort: 'high' }, 'gemini-2.0-flash').dropped, ['reasoning_effort']);
});

test('from Gemini 3 on a call whose signature is lost gets the one that Google names for that', () => {
  const parts = encode({ messages: weatherConversation }, 'gemini-3-pro-preview').body.contents[1].parts;
  assert.equal(parts[1].thoughtSignature, 'skip_thought_signature_validator');
  assert.equal(parts[2].thoughtSignature, undefined);
});

test('P-24: what Gemini lacks is named, and its own fields travel on', () => {
  const safetySettings = [{ category: 'X', threshold: 'BLOCK_NONE' }];
  const { body, dropped } = encode({ logit_bias: { 1: 1 }, user: 'u', safetySettings, generationConfig: { topK: 3 } });
  assert.deepEqual([...dropped].sort(), ['logit_bias', 'user']);
  assert.deepEqual(body.safetySettings, safetySettings);
  assert.deepEqual(body.generationConfig, { topK: 3 });
});

test('schemas lose what Gemini refuses, and keep what they mean', () => {
  assert.deepEqual(
    googleSchema({
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      additionalProperties: false,
      properties: {
        kind: { const: 'a' },
        size: { type: ['integer', 'null'], exclusiveMinimum: 0, format: 'int32' },
        when: { type: 'string', format: 'date-time' },
        mail: { type: 'string', format: 'email' },
        choice: { oneOf: [{ type: 'string' }, { type: 'number' }, { type: 'null' }] },
        maybe: { anyOf: [{ $ref: '#/$defs/point' }, { type: 'null' }], description: 'A point.' },
        mixed: { type: ['string', 'number'] },
        all: { allOf: [{ type: 'object', properties: { x: { type: 'string' } } }, { $ref: '#/$defs/point' }] },
        list: { type: 'array' },
        tree: { $ref: '#/$defs/tree' },
      },
      required: ['kind', 'gone'],
      $defs: {
        point: { type: 'object', properties: { y: { type: 'number' } }, required: ['y'] },
        tree: { type: 'object', properties: { next: { type: 'string' } } },
      },
    }),
    {
      type: 'object',
      properties: {
        kind: { type: 'string', enum: ['a'] },
        size: { nullable: true, type: 'integer', format: 'int32' },
        when: { type: 'string', format: 'date-time' },
        mail: { type: 'string' },
        choice: { nullable: true, anyOf: [{ type: 'string' }, { type: 'number' }] },
        maybe: {
          type: 'object',
          properties: { y: { type: 'number' } },
          required: ['y'],
          description: 'A point.',
          nullable: true,
        },
        mixed: { anyOf: [{ type: 'string' }, { type: 'number' }] },
        all: { type: 'object', properties: { x: { type: 'string' }, y: { type: 'number' } }, required: ['y'] },
        list: { type: 'array', items: { type: 'string' } },
        tree: { type: 'object', properties: { next: { type: 'string' } } },
      },
      required: ['kind'],
    },
  );
});

test('a schema that contains itself ends', () => {
  const schema = googleSchema({
    $ref: '#/$defs/a',
    $defs: { a: { type: 'object', properties: { a: { $ref: '#/$defs/a' } } } },
  });
  assert.ok(JSON.stringify(schema).length < 5000);
});
