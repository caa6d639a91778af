import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ChatChunk } from '../../../src/completions/contract/chat.ts';
import type { GenerateContentRequest } from '../../../src/completions/contract/gemini.ts';
import { jsonSchemaOf } from '../../../src/completions/dialects/google/google-schema.ts';
import { createGeminiStream } from '../../../src/completions/ingress/gemini/gemini-answer.ts';
import { packProof, plainNames, readProof } from '../../../src/completions/ingress/gemini/gemini-content.ts';
import { decodeGeminiRequest } from '../../../src/completions/ingress/gemini/gemini-request.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import fc from '../../kit/properties.ts';
import { anyChunk, chunk, toolPiece, usageChunk } from './chunks.ts';

// biome-ignore lint/suspicious/noExplicitAny: parts of an answer as a client reads them
type Json = any;

const USER = { role: 'user', parts: [{ text: 'Hello' }] };
const decode = (request: object, stream = false) =>
  decodeGeminiRequest({ contents: [USER], ...request } as GenerateContentRequest, { model: 'lab/small', stream });
const messages = (...contents: object[]) => decode({ contents }).chat.messages;

test('instructions, sampling and the limit travel on; the address says whether the answer is a stream', () => {
  const { chat, dropped } = decode(
    {
      systemInstruction: { parts: [{ text: 'One' }, { text: 'Two' }] },
      generationConfig: {
        ...{ temperature: 0.3, topP: 0.8, topK: 5, maxOutputTokens: 100, stopSequences: ['END'], seed: 7 },
        ...{ presencePenalty: 1, frequencyPenalty: -1, candidateCount: 1, responseModalities: ['TEXT'] },
      },
    },
    true,
  );
  assert.deepEqual(chat, {
    model: 'lab/small',
    messages: [
      { role: 'system', content: 'One\n\nTwo' },
      { role: 'user', content: 'Hello' },
    ],
    ...{ stream: true, stream_options: { include_usage: true } },
    ...{ temperature: 0.3, top_p: 0.8, top_k: 5, max_completion_tokens: 100, stop: ['END'], seed: 7 },
    ...{ presence_penalty: 1, frequency_penalty: -1 },
  });
  assert.deepEqual(dropped, []);
});

test('both spellings of a name are read, and a single part in the place of a list', () => {
  const schema = { type: 'object', properties: { some_name: { type: 'string' } } };
  const given = {
    contents: { parts: { inline_data: { mime_type: 'image/png', data: 'AA' } } },
    generation_config: { response_json_schema: schema },
  };
  assert.deepEqual(plainNames(given), {
    contents: [{ parts: [{ inlineData: { mimeType: 'image/png', data: 'AA' } }] }],
    generationConfig: { responseJsonSchema: schema },
  });
  const plain = { contents: [USER] };
  assert.equal(plainNames(plain), plain, 'what is plain already is not copied');
  assert.throws(() => plainNames({ cached_content: 'x', cachedContent: null }), AppError);
});

test('images, recordings and files of a user become parts', () => {
  const [message] = messages({
    parts: [
      { text: 'Look' },
      { inlineData: { mimeType: 'image/png', data: 'AA' } },
      { inlineData: { mimeType: 'audio/mpeg', data: 'BB' } },
      { inlineData: { mimeType: 'application/pdf', data: 'CC', displayName: 'a.pdf' } },
      { fileData: { mimeType: 'image/jpeg', fileUri: 'https://x.example/a' } },
      { fileData: { mimeType: 'text/csv', fileUri: 'https://x.example/b' } },
    ],
  });
  assert.deepEqual(message?.content, [
    { type: 'text', text: 'Look' },
    { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
    { type: 'input_audio', input_audio: { data: 'BB', format: 'mp3' } },
    { type: 'file', file: { file_data: 'data:application/pdf;base64,CC', filename: 'a.pdf' } },
    { type: 'image_url', image_url: { url: 'https://x.example/a' } },
    { type: 'file', file: { file_data: 'https://x.example/b', filename: 'document.csv' } },
  ]);
});

test('calls and results find each other, by id or by name and order', () => {
  const call = (name: string, id?: string) => ({ functionCall: { name, args: { a: 1 }, ...(id && { id }) } });
  const result = (name: string, output: string, id?: string) => ({
    functionResponse: { name, response: { output }, ...(id && { id }) },
  });
  const sent = messages(
    USER,
    { role: 'model', parts: [call('f'), call('f')] },
    { role: 'model', parts: [call('g', 'id_g')] },
    { role: 'function', parts: [result('g', 'third', 'id_g'), result('f', 'first'), result('f', 'second')] },
  );
  assert.deepEqual(
    sent[1]?.tool_calls?.map(({ id }) => id),
    ['call_1', 'call_2', 'id_g'],
  );
  assert.deepEqual(
    sent.slice(2).map(({ role, tool_call_id: id, content }) => [role, id, content]),
    [
      ['tool', 'id_g', 'third'],
      ['tool', 'call_1', 'first'],
      ['tool', 'call_2', 'second'],
    ],
  );
  assert.throws(
    () => messages({ parts: [result('f', 'x')] }),
    (error) => error instanceof AppError && /functionResponse.*no functionCall/.test(String(error.details.message)),
  );
});

test('what a function gave back is its text, its JSON, or what went wrong, with its images', () => {
  const give = (response: object, parts?: object[]) =>
    messages(
      { role: 'model', parts: [{ functionCall: { name: 'f' } }] },
      {
        parts: [{ functionResponse: { name: 'f', response, ...(parts && { parts }) } }],
      },
    ).slice(1);
  assert.equal(give({ output: 'done' })[0]?.content, 'done');
  assert.equal(give({ output: { a: 1 } })[0]?.content, '{"a":1}');
  assert.equal(give({ a: 1, b: 2 })[0]?.content, '{"a":1,"b":2}');
  assert.deepEqual(give({ error: 'no' }), [{ role: 'tool', tool_call_id: 'call_1', content: 'no', is_error: true }]);
  const [result, ...more] = give({ output: 'see' }, [{ inlineData: { mimeType: 'image/png', data: 'AA' } }]);
  assert.deepEqual(result?.content, [
    { type: 'text', text: 'see' },
    { type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } },
  ]);
  assert.deepEqual(more, []);
});

test('thoughts and signatures are kept for their maker: those of Gemini, and those that we packed', () => {
  const [, native] = messages(USER, {
    role: 'model',
    parts: [
      { text: 'hm', thought: true },
      { text: 'Hi', thoughtSignature: 'dGV4dA' },
      { functionCall: { name: 'f' }, thoughtSignature: 'Y2FsbA' },
    ],
  });
  assert.equal(native?.reasoning_content, 'hm');
  assert.equal(native?.reasoning_signature, 'google:p:dGV4dA;google:c0:Y2FsbA;');
  const proof = { thoughts: 'I think — 思', signature: 'claude:t9@0:c2ln;' };
  const packed = packProof(proof);
  // Some clients decode the signature, and write it with the other alphabet of base64.
  const again = Buffer.from(packed, 'base64').toString('base64url');
  for (const signature of [packed, again]) {
    const [, ours] = messages(
      USER,
      { role: 'model', parts: [{ text: proof.thoughts, thought: true }, { text: 'Hi' }] },
      { role: 'model', parts: [{ functionCall: { name: 'f' }, thoughtSignature: signature }] },
    );
    assert.deepEqual([ours?.reasoning_content, ours?.reasoning_signature], [proof.thoughts, proof.signature]);
    assert.deepEqual([ours?.content, ours?.tool_calls?.length], ['Hi', 1]);
  }
  assert.equal(readProof('bmF0aXZl'), undefined);
  assert.deepEqual(readProof(`${packed.slice(0, 14)}!!`), { thoughts: '', signature: '' });
});

test('functions and the choice among them; schemas of Gemini become JSON Schema', () => {
  const parameters = {
    type: 'OBJECT',
    properties: {
      type: { type: 'STRING', nullable: true, enum: ['a'], format: 'enum' },
      list: { type: 'ARRAY', items: { type: 'INTEGER' }, minItems: '2', max_items: 3 },
      either: { anyOf: [{ type: 'STRING' }, { type: 'NUMBER' }], nullable: true },
    },
    propertyOrdering: ['type', 'list'],
    required: ['type'],
  };
  const tools = [{ functionDeclarations: [{ name: 'f', description: 'F', parameters }, { name: 'g' }] }];
  const choose = (config: object) => decode({ tools, toolConfig: { functionCallingConfig: config } }).chat;
  const all = choose({ mode: 'AUTO' });
  assert.deepEqual(all.tools, [
    {
      type: 'function',
      function: {
        name: 'f',
        description: 'F',
        parameters: {
          type: 'object',
          properties: {
            type: { type: ['string', 'null'], enum: ['a', null] },
            list: { type: 'array', items: { type: 'integer' }, minItems: 2, maxItems: 3 },
            either: { anyOf: [{ type: 'string' }, { type: 'number' }, { type: 'null' }] },
          },
          required: ['type'],
        },
      },
    },
    { type: 'function', function: { name: 'g' } },
  ]);
  assert.equal(all.tool_choice, undefined);
  assert.equal(choose({ mode: 'NONE' }).tool_choice, 'none');
  assert.equal(choose({ mode: 'ANY' }).tool_choice, 'required');
  const named = choose({ mode: 'ANY', allowedFunctionNames: ['g'] });
  assert.deepEqual([named.tools?.length, named.tools?.[0]?.function?.name, named.tool_choice], [1, 'g', 'required']);
  assert.throws(() => choose({ mode: 'ANY', allowedFunctionNames: ['h'] }), AppError);
  const plain = { type: 'object', properties: { a: { type: ['string', 'null'] } }, additionalProperties: false };
  assert.deepEqual(jsonSchemaOf(plain), plain, 'JSON Schema stays as it is');
});

test('formats and thinking; what nobody else has is dropped and named', () => {
  const format = (config: object) => decode({ generationConfig: config }).chat.response_format;
  const json = { responseMimeType: 'application/json' };
  assert.deepEqual(format(json), { type: 'json_object' });
  assert.deepEqual(format({ ...json, responseSchema: { type: 'STRING' } })?.json_schema?.schema, { type: 'string' });
  assert.deepEqual(format({ ...json, responseJsonSchema: { type: 'null' } })?.json_schema?.schema, { type: 'null' });
  assert.equal(format({ responseMimeType: 'text/plain' }), undefined);
  const effort = (thinkingConfig: object) => decode({ generationConfig: { thinkingConfig } }).chat.reasoning_effort;
  assert.deepEqual(
    [{ thinkingBudget: 1024 }, { thinkingBudget: 0 }, { thinkingBudget: -1 }, { thinkingLevel: 'HIGH' }, {}].map(
      effort,
    ),
    ['low', undefined, undefined, 'high', undefined],
  );
  const { dropped } = decode({
    contents: [{ parts: [{ text: 'Hi' }, { executableCode: {} }] }],
    safetySettings: [{ category: 'c', threshold: 't' }],
    tools: [{ googleSearch: {} }],
    toolConfig: { retrievalConfig: {} },
    generationConfig: { responseMimeType: 'text/x.enum', candidateCount: 2, speechConfig: {} },
  });
  assert.deepEqual(dropped.toSorted(), [
    'contents.parts.executableCode',
    'generationConfig.candidateCount',
    'generationConfig.responseMimeType',
    'generationConfig.speechConfig',
    'safetySettings',
    'toolConfig.retrievalConfig',
    'tools.googleSearch',
  ]);
  assert.throws(() => decode({ generationConfig: { stopSequences: ['1', '2', '3', '4', '5'] } }), AppError);
  assert.throws(() => messages({ role: 'assistant', parts: [{ text: 'Hi' }] }), AppError);
});

const HEAD = { id: 'gen_1', model: 'lab/small', includeThoughts: true };
function streamed(chunks: readonly ChatChunk[], head = HEAD): Json[] {
  const stream = createGeminiStream(head);
  const events = [...stream.begin(), ...chunks.flatMap((each) => stream.read(each)), ...stream.finish()];
  return events.map(({ data }) => JSON.parse(data));
}
const partsOf = (bodies: readonly Json[]) => bodies.flatMap(({ candidates }) => candidates[0].content.parts);

test('a stream has thoughts, text and whole calls; the last response has reason and usage', () => {
  const chunks = [
    chunk({ reasoning_content: 'hm', reasoning_signature: 'claude:t2@0:c2ln;' }),
    chunk({ content: 'Hi' }),
    toolPiece(0, { id: 'call_1', name: 'f', text: '{"a"' }),
    toolPiece(0, { text: ':1}' }),
    toolPiece(1, { id: 'call_2', name: 'g', text: '' }),
    chunk({}, 'tool_calls'),
    usageChunk(),
  ];
  const bodies = streamed(chunks);
  const proof = packProof({ thoughts: 'hm', signature: 'claude:t2@0:c2ln;' });
  assert.deepEqual(partsOf(bodies), [
    { text: 'hm', thought: true },
    { text: 'Hi' },
    { functionCall: { id: 'call_1', name: 'f', args: { a: 1 } }, thoughtSignature: proof },
    { functionCall: { id: 'call_2', name: 'g', args: {} } },
  ]);
  const last = bodies.at(-1);
  assert.equal(last.candidates[0].finishReason, 'STOP');
  assert.deepEqual(last.usageMetadata, {
    ...{ promptTokenCount: 11, candidatesTokenCount: 5, totalTokenCount: 18 },
    ...{ thoughtsTokenCount: 2, cachedContentTokenCount: 4 },
  });
  assert.ok(bodies.slice(0, -1).every(({ candidates }) => candidates[0].finishReason === undefined));
  const quiet = partsOf(streamed(chunks, { ...HEAD, includeThoughts: false }));
  assert.deepEqual([quiet[0], quiet[1].thoughtSignature], [{ text: 'Hi' }, proof], 'proofs come without thoughts, too');
});

test('proofs without a call come at the end, refusals are no text, and every reason has its word', () => {
  const [, , last] = streamed([
    chunk({ reasoning_content: 'hm', reasoning_signature: 's' }),
    chunk({ content: 'Hi' }),
    chunk({}, 'stop'),
  ]);
  assert.deepEqual(last.candidates[0].content.parts, [
    { text: '', thoughtSignature: packProof({ thoughts: 'hm', signature: 's' }) },
  ]);
  const [refused] = streamed([chunk({ refusal: 'I will not.' }, 'stop')]);
  const { content, finishReason, finishMessage } = refused.candidates[0];
  assert.deepEqual([content.parts, finishReason, finishMessage], [[{ text: '' }], 'SAFETY', 'I will not.']);
  for (const [reason, word] of [
    ['stop', 'STOP'],
    ['length', 'MAX_TOKENS'],
    ['content_filter', 'SAFETY'],
    ['odd', 'OTHER'],
  ] as const) {
    assert.equal(streamed([chunk({ content: 'Hi' }, reason)]).at(-1).candidates[0].finishReason, word);
  }
  assert.equal(streamed([chunk({ content: 'Hi' })]).at(-1).error.code, 502, 'no reason is no end');
});

test('whatever an upstream streams gives responses with parts, or an error', () => {
  fc.assert(
    fc.property(fc.array(anyChunk, { maxLength: 8 }), (chunks) => {
      try {
        for (const body of streamed(chunks)) {
          if (body.error === undefined) assert.ok(Array.isArray(body.candidates[0].content.parts));
        }
      } catch (error) {
        assert.ok(error instanceof AppError && error.code === 'UPSTREAM_ERROR', String(error));
      }
    }),
  );
});
