import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MessagesRequest } from '../../../src/completions/contract/messages.ts';
import { groundingOf, readGrounding } from '../../../src/completions/dialects/citations.ts';
import { loadDialect } from '../../../src/completions/dialects/dialect-table.ts';
import { createMessagesStream } from '../../../src/completions/ingress/messages/messages-answer.ts';
import { withOwnProofs } from '../../../src/completions/ingress/messages/messages-request.ts';
import fc from '../../kit/properties.ts';
import { contextFor, dataEvents, readStream } from './read-stream.ts';
import type { Json } from './translate-request.ts';

const page = (url: string, more: object = {}) => ({ type: 'url_citation', url_citation: { url, ...more } });

test('places are characters in chat completions and bytes in Gemini, both ways', () => {
  const text = 'Grüße 🌍 aus Köln.';
  const start = text.indexOf('aus');
  const segment = {
    startIndex: Buffer.byteLength(text.slice(0, start)),
    endIndex: Buffer.byteLength(text),
    text: 'aus Köln.',
  };
  const grounding = {
    groundingChunks: [{ web: { uri: 'https://a.example/', title: 'A' } }],
    groundingSupports: [{ segment, groundingChunkIndices: [0] }],
  };
  const annotations = readGrounding({ groundingMetadata: grounding }, text);
  assert.deepEqual(annotations, [
    page('https://a.example/', { title: 'A', start_index: start, end_index: text.length }),
  ]);
  assert.deepEqual(groundingOf(annotations, text), grounding);
});

test('any places of any text come back from Gemini as they were', () => {
  const places = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }).chain((text) =>
    fc.record({
      text: fc.constant(text.toWellFormed()),
      cuts: fc.array(fc.tuple(fc.nat(text.length), fc.nat(text.length)), { minLength: 1, maxLength: 5 }),
    }),
  );
  fc.assert(
    fc.property(places, ({ text, cuts }) => {
      const whole = (at: number) => (/^[\uDC00-\uDFFF]/.test(text.slice(at)) ? at + 1 : at);
      const given = cuts.map(([a, b], number) => {
        const [start, end] = [whole(Math.min(a, b)), whole(Math.max(a, b))];
        return page(`https://${number}.example/`, { start_index: start, end_index: end });
      });
      const grounding = groundingOf(given, text) ?? {};
      assert.deepEqual(JSON.parse(JSON.stringify(readGrounding({ groundingMetadata: grounding }, text))), given);
    }),
  );
});

test('a source of Claude is for the text of its own block, whether streamed or not', async () => {
  const dialect = await loadDialect('anthropic');
  const citation = { type: 'web_search_result_location', url: 'https://a.example/', title: 'A', encrypted_index: 'x' };
  const content = [
    { type: 'text', text: 'I looked. ' },
    { type: 'text', text: 'It rains.', citations: [citation] },
  ];
  const whole = dialect.decodeResponse({ content, stop_reason: 'end_turn' }, contextFor('claude'));
  const block = (index: number, type: string, more: object) => ({ type: `content_block_${type}`, index, ...more });
  const streamed = readStream(
    dialect,
    dataEvents(
      ...content.flatMap(({ text, citations = [] }, index) => [
        block(index, 'start', { content_block: { type: 'text', text: '' } }),
        ...citations.map((each) => block(index, 'delta', { delta: { type: 'citations_delta', citation: each } })),
        block(index, 'delta', { delta: { type: 'text_delta', text } }),
        block(index, 'stop', {}),
      ]),
      { type: 'message_delta', delta: { stop_reason: 'end_turn' } },
    ),
  );
  const wanted = [page('https://a.example/', { title: 'A', encrypted_index: 'x', start_index: 10, end_index: 19 })];
  assert.deepEqual(whole.completion?.choices[0]?.message.annotations, wanted);
  assert.deepEqual(
    streamed.chunks.flatMap(({ choices }) => choices[0]?.delta.annotations ?? []),
    wanted,
  );
});

test('pages that a server lists beside its answer are sources, once in a stream', async () => {
  const dialect = await loadDialect('openai');
  const lists = { citations: ['https://a.example/'], search_results: [{ title: 'A', url: 'https://a.example/' }] };
  const message = { role: 'assistant', content: 'Yes.' };
  const whole = dialect.decodeResponse({ choices: [{ message }], ...lists }, contextFor('sonar'));
  const wanted = [page('https://a.example/', { title: 'A' })];
  assert.deepEqual(whole.completion?.choices[0]?.message.annotations, wanted);
  const { chunks } = readStream(
    dialect,
    dataEvents(
      { choices: [{ delta: { content: 'Yes.' } }], ...lists },
      { choices: [{ delta: {}, finish_reason: 'stop' }], ...lists },
      '[DONE]',
    ),
  );
  assert.deepEqual(
    chunks.flatMap(({ choices }) => choices[0]?.delta.annotations ?? []),
    wanted,
  );
});

test('sources that come after a call are in a block of their own, and Claude gets neither them nor the block', () => {
  const encoder = createMessagesStream({ id: 'msg_1', requestId: 'r', model: 'm', stops: [] });
  const chunk = (delta: object, reason: string | null = null): Json => ({
    choices: [{ index: 0, delta, finish_reason: reason }],
  });
  const events = [
    chunk({ content: 'I look.' }),
    chunk({ tool_calls: [{ index: 0, id: 'c', function: { name: 'f', arguments: '{}' } }] }),
    chunk({ annotations: [page('https://a.example/', { title: 'A' })] }, 'tool_calls'),
  ].flatMap((each) => encoder.read(each));
  const told: Json[] = [...events, ...encoder.finish()].map(({ data }) => JSON.parse(data));
  const citation = {
    ...{ type: 'web_search_result_location', cited_text: '', url: 'https://a.example/', title: 'A' },
    encrypted_index: '',
  };
  assert.deepEqual(
    told.filter(({ index }) => index === 2).map(({ type, delta }) => [type, delta?.citation]),
    [
      ['content_block_start', undefined],
      ['content_block_delta', citation],
      ['content_block_stop', undefined],
    ],
  );
  const own = { type: 'char_location', cited_text: 'x', document_index: 0, start_char_index: 0, end_char_index: 1 };
  const request = {
    model: 'm',
    max_tokens: 1,
    messages: [
      {
        role: 'assistant',
        content: [
          { type: 'text', text: 'I look.', citations: [citation, own] },
          { type: 'text', text: '', citations: [citation] },
        ],
      },
    ],
  } as unknown as MessagesRequest;
  assert.deepEqual(withOwnProofs(request)?.messages, [
    { role: 'assistant', content: [{ type: 'text', text: 'I look.', citations: [own] }] },
  ]);
});
