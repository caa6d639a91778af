import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { ChatChunk } from '../../../src/completions/contract/chat.ts';
import { createChunkEncoder } from '../../../src/completions/operations/chat-handler.ts';
import fc from '../../kit/properties.ts';

const chunks = fc.record(
  {
    id: fc.constantFrom('one', 'two "quoted"'),
    object: fc.constant('chat.completion.chunk' as const),
    created: fc.constantFrom(1, 2),
    model: fc.constantFrom('small', 'a\\b'),
    choices: fc.array(
      fc.record({
        index: fc.constantFrom(0, 1),
        delta: fc.record(
          { content: fc.string({ unit: 'binary' }), role: fc.constant('assistant' as const), refusal: fc.string() },
          { requiredKeys: [] },
        ),
        finish_reason: fc.constantFrom(null, null, 'stop'),
      }),
      { minLength: 0, maxLength: 2 },
    ),
    usage: fc.constant(null),
  },
  { requiredKeys: ['id', 'object', 'created', 'model', 'choices'] },
);

test('each chunk of a stream is written as its JSON, whatever came before it', () => {
  fc.assert(
    fc.property(fc.array(chunks), (stream) => {
      const encode = createChunkEncoder(true, false);
      const written = stream.map((chunk) => encode([chunk])).join('');
      assert.equal(written, stream.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join(''));
    }),
    { numRuns: 500 },
  );
});

test('a chunk with a member of its own keeps it', () => {
  const plain = { id: 'a', object: 'chat.completion.chunk' as const, created: 1, model: 'small' };
  const choice = { index: 0, delta: { content: 'x' }, finish_reason: null };
  for (const chunk of [
    { ...plain, choices: [choice], service_tier: 'flex' },
    { ...plain, choices: [{ ...choice, logprobs: { content: [] } }] },
    { ...plain, choices: [{ ...choice, delta: { content: 'x', tool_calls: [] } }] },
  ]) {
    assert.equal(createChunkEncoder(true, false)([chunk]), `data: ${JSON.stringify(chunk)}\n\n`);
  }
});

test('a chunk of usage alone is written for those who asked for it', () => {
  const chunk: ChatChunk = { id: 'a', object: 'chat.completion.chunk', created: 1, model: 'small', choices: [] };
  assert.equal(createChunkEncoder(false, false)([chunk]), '');
  assert.notEqual(createChunkEncoder(true, false)([chunk]), '');
});
