import assert from 'node:assert/strict';
import { test } from 'node:test';
import { googleDialect } from '../../../src/completions/dialects/google/google-dialect.ts';
import { ask, context, contextFor, dataEvents, readStream } from './read-stream.ts';

const candidate = (parts: object[], more: object = {}, index = 0) => ({
  content: { role: 'model', parts },
  index,
  ...more,
});

const usageMetadata = {
  promptTokenCount: 10,
  candidatesTokenCount: 20,
  thoughtsTokenCount: 5,
  cachedContentTokenCount: 4,
  toolUsePromptTokenCount: 1,
  totalTokenCount: 36,
};
const usage = {
  prompt_tokens: 11,
  completion_tokens: 25,
  total_tokens: 36,
  prompt_tokens_details: { cached_tokens: 4 },
  completion_tokens_details: { reasoning_tokens: 5 },
};

const head = { responseId: 'resp-1', modelVersion: 'gemini-3-pro' };
const call = (name: string, args: object, more: object = {}) => ({ functionCall: { name, args }, ...more });
const signed = (signature: string) => ({ extra_content: { google: { thought_signature: signature } } });

const calls = [
  {
    id: 'call_resp-1_0',
    type: 'function',
    ...signed('S1'),
    function: { name: 'weather', arguments: '{"city":"Rome"}' },
  },
  { id: 'g-2', type: 'function', function: { name: 'now', arguments: '{}' } },
];

const parts = [
  { text: 'Hm.', thought: true },
  { text: 'Let me look.', thoughtSignature: 'TXT' },
  call('weather', { city: 'Rome' }, { thoughtSignature: 'S1' }),
  { functionCall: { id: 'g-2', name: 'now' } },
];

test('a whole answer: a stop with calls is tool_calls, thoughts are reasoning, signatures are kept', () => {
  const body = { ...head, candidates: [candidate(parts, { finishReason: 'STOP' })], usageMetadata };
  const { completion } = googleDialect.decodeResponse(body, context);
  assert.equal(completion?.model, 'gemini-3-pro');
  const choice = completion?.choices[0];
  assert.equal(choice?.finish_reason, 'tool_calls');
  assert.equal(choice?.message.content, 'Let me look.');
  assert.equal(choice?.message.reasoning_content, 'Hm.');
  assert.equal(choice?.message.reasoning_signature, 'google:p:TXT;google:c0:S1;');
  assert.deepEqual(
    choice?.message.tool_calls,
    calls.map((expected) => ({ ...expected, id: expected.id.replace('resp-1', '1') })),
  );
  assert.deepEqual(completion?.usage, usage);
});

test('a stream says the same, and has its usage after the finish reason', () => {
  const events = dataEvents(
    { ...head, candidates: [candidate([parts[0] as object])], usageMetadata: { promptTokenCount: 10 } },
    { ...head, candidates: [candidate([{ text: 'Let me ' }])] },
    { ...head, candidates: [candidate([{ text: 'look.' }, { text: '', thoughtSignature: 'TXT' }])] },
    { ...head, candidates: [candidate(parts.slice(2))] },
    { ...head, candidates: [candidate([], { finishReason: 'STOP' })], usageMetadata },
  );
  const answer = readStream(googleDialect, events);
  assert.equal(answer.content, 'Let me look.');
  assert.equal(answer.reasoning, 'Hm.');
  assert.equal(answer.signature, 'google:p:TXT;google:c0:S1;');
  assert.deepEqual(
    answer.calls.map(({ function: called }) => called),
    calls.map(({ function: called }) => called),
  );
  assert.deepEqual(answer.finishReasons, ['tool_calls']);
  assert.deepEqual(answer.usage, usage);
  assert.equal(answer.chunks.filter((chunk) => chunk.usage).length, 1);
  assert.equal(answer.chunks[0]?.choices[0]?.delta.role, 'assistant');
});

test('P-24: signatures of text and calls go back to where they were, by either way that a client keeps them', () => {
  const body = { ...head, candidates: [candidate(parts, { finishReason: 'STOP' })] };
  const message = googleDialect.decodeResponse(body, context).completion?.choices[0]?.message;
  const encode = (assistant: object) => {
    const messages = [{ role: 'user', content: 'Hi' }, assistant];
    const { body: sent } = googleDialect.encodeRequest(ask({ messages }), contextFor('gemini-3-pro'));
    return (sent as { contents: { parts: unknown[] }[] }).contents[1]?.parts;
  };
  const expected = [
    { text: 'Let me look.', thoughtSignature: 'TXT' },
    { functionCall: { id: 'call_1_0', name: 'weather', args: { city: 'Rome' } }, thoughtSignature: 'S1' },
    { functionCall: { id: 'g-2', name: 'now', args: {} } },
  ];
  assert.deepEqual(encode(message ?? {}), expected);
  const withoutExtra = message?.tool_calls?.map(({ id, type, function: called }) => ({ id, type, function: called }));
  assert.deepEqual(encode({ ...message, tool_calls: withoutExtra }), expected);
  const { reasoning_signature: _, ...withoutSignature } = message ?? {};
  assert.deepEqual(encode(withoutSignature), [{ text: 'Let me look.' }, ...expected.slice(1)]);
});

test('every finish reason', () => {
  const finish = (finishReason: string, given: object[] = [{ text: 'Hi' }]) => {
    const body = { candidates: [candidate(given, { finishReason })] };
    const { completion } = googleDialect.decodeResponse(body, context);
    const answer = readStream(googleDialect, dataEvents(body));
    assert.equal(answer.finishReasons[0], completion?.choices[0]?.finish_reason);
    return completion?.choices[0]?.finish_reason;
  };
  assert.equal(finish('STOP'), 'stop');
  assert.equal(finish('MAX_TOKENS'), 'length');
  assert.equal(finish('MAX_TOKENS', []), 'length');
  for (const blocked of [
    'SAFETY',
    'RECITATION',
    'LANGUAGE',
    'BLOCKLIST',
    'PROHIBITED_CONTENT',
    'SPII',
    'IMAGE_SAFETY',
  ]) {
    assert.equal(finish(blocked, []), 'content_filter', blocked);
  }
  assert.equal(finish('OTHER'), 'stop');
  assert.equal(finish('OTHER', []), undefined, 'nothing was said, and nobody knows why: a failure');
});

test('malformed calls are failures, never a finish reason', () => {
  for (const finishReason of ['MALFORMED_FUNCTION_CALL', 'UNEXPECTED_TOOL_CALL', 'TOO_MANY_TOOL_CALLS']) {
    const body = { candidates: [candidate([{ text: 'Hi' }], { finishReason, finishMessage: 'print(f())' })] };
    const { failure } = googleDialect.decodeResponse(body, context);
    assert.equal(failure?.status, 502);
    assert.match(failure?.message ?? '', /malformed.*print\(f\(\)\)/);
    const answer = readStream(googleDialect, dataEvents(body));
    assert.equal(answer.failure?.status, 502);
    assert.equal(answer.content, 'Hi', 'what was said before is not lost');
    assert.deepEqual(answer.finishReasons, []);
  }
});

test('a blocked prompt is refused', () => {
  const body = { promptFeedback: { blockReason: 'PROHIBITED_CONTENT' }, usageMetadata };
  const choice = googleDialect.decodeResponse(body, context).completion?.choices[0];
  assert.equal(choice?.finish_reason, 'content_filter');
  assert.equal(choice?.message.refusal, 'The prompt was blocked (PROHIBITED_CONTENT).');
  const answer = readStream(googleDialect, dataEvents(body));
  assert.deepEqual([answer.finishReasons, answer.done], [['content_filter'], true]);
  assert.equal(answer.usage?.prompt_tokens, 11);
});

test('several candidates are several choices', () => {
  const both = (finishReason?: string) => [
    candidate([{ text: 'A' }], { finishReason }, 0),
    candidate([{ text: 'B' }], { finishReason }, 1),
  ];
  const { completion } = googleDialect.decodeResponse({ candidates: both('STOP') }, context);
  assert.deepEqual(
    completion?.choices.map(({ index, message }) => [index, message.content]),
    [
      [0, 'A'],
      [1, 'B'],
    ],
  );
  const { chunks } = readStream(
    googleDialect,
    dataEvents({ candidates: both() }, { candidates: both('STOP'), usageMetadata }),
  );
  const finished = chunks.flatMap(({ choices }) => choices).filter(({ finish_reason }) => finish_reason !== null);
  assert.deepEqual(
    finished.map(({ index }) => index),
    [0, 1],
  );
  assert.equal(chunks.filter((chunk) => chunk.usage).length, 1, 'usage comes after the last of them');
});

test('images that a model draws are not lost', () => {
  const body = {
    candidates: [candidate([{ inlineData: { mimeType: 'image/png', data: 'AA' } }], { finishReason: 'STOP' })],
  };
  const images = [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } }];
  const message = googleDialect.decodeResponse(body, context).completion?.choices[0]?.message;
  assert.deepEqual((message as { images?: unknown }).images, images);
  const { chunks } = readStream(googleDialect, dataEvents(body));
  assert.deepEqual(chunks[0]?.choices[0]?.delta, { role: 'assistant', images });
});

test('errors, with and without a list around them, and inside a stream', () => {
  const error = { code: 429, message: 'Quota exceeded', status: 'RESOURCE_EXHAUSTED' };
  for (const body of [{ error }, [{ error }]]) {
    assert.deepEqual(googleDialect.decodeFailure(429, body), {
      message: 'Quota exceeded',
      code: 'rate_limit_exceeded',
      param: null,
      status: 429,
    });
  }
  const tooLong = {
    error: { code: 400, message: 'The input token count (9) exceeds the maximum number of tokens allowed (8).' },
  };
  assert.equal(googleDialect.decodeFailure(400, tooLong).code, 'context_length_exceeded');
  const unavailable = { error: { code: 503, message: 'Overloaded', status: 'UNAVAILABLE' } };
  const answer = readStream(googleDialect, dataEvents({ candidates: [candidate([{ text: 'Hi' }])] }, unavailable));
  assert.equal(answer.failure?.code, 'upstream_overloaded');
  assert.deepEqual(answer.finishReasons, []);
});
