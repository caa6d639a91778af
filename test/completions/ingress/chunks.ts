import type { ChatChunk, ChunkDelta, Usage } from '../../../src/completions/contract/chat.ts';
import fc from '../../kit/properties.ts';

const HEAD = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'lab-model' } as const;

export const USAGE: Usage = {
  prompt_tokens: 11,
  completion_tokens: 7,
  total_tokens: 18,
  prompt_tokens_details: { cached_tokens: 4 },
  completion_tokens_details: { reasoning_tokens: 2 },
};

export function chunk(delta: ChunkDelta, finishReason: string | null = null): ChatChunk {
  return { ...HEAD, choices: [{ index: 0, delta, finish_reason: finishReason }] };
}

export function usageChunk(usage: Usage = USAGE): ChatChunk {
  return { ...HEAD, choices: [], usage };
}

export function toolPiece(index: number, piece: { id?: string; name?: string; text?: string }): ChatChunk {
  const { id, name, text } = piece;
  return chunk({
    tool_calls: [
      {
        index,
        ...(id !== undefined && { id, type: 'function' as const }),
        function: { ...(name !== undefined && { name }), ...(text !== undefined && { arguments: text }) },
      },
    ],
  });
}

const text = fc.oneof(fc.string(), fc.constantFrom('', '\u0000', '😀', '\n\n', '"'));
const junk = fc.jsonValue({ maxDepth: 2 });
const delta = fc.record(
  {
    role: fc.oneof(text, junk),
    content: fc.oneof(text, junk),
    reasoning_content: fc.oneof(text, junk),
    reasoning_signature: fc.oneof(text, junk),
    refusal: fc.oneof(text, junk),
    tool_calls: fc.oneof(
      fc.array(
        fc.oneof(
          junk,
          fc.record(
            {
              index: fc.oneof(fc.integer({ min: -1, max: 3 }), junk),
              id: fc.oneof(text, junk),
              function: fc.oneof(
                junk,
                fc.record({ name: fc.oneof(text, junk), arguments: fc.oneof(text, junk) }, { requiredKeys: [] }),
              ),
            },
            { requiredKeys: [] },
          ),
        ),
        { maxLength: 3 },
      ),
      junk,
    ),
  },
  { requiredKeys: [] },
);

/** What an upstream of any quality may send as a chunk, once it was parsed. */
export const anyChunk = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ choices: fc.constant([]), usage: fc.oneof(fc.constant(USAGE), fc.constant(null)) }),
  },
  {
    weight: 30,
    arbitrary: fc.record({
      choices: fc.array(
        fc.record({
          index: fc.constantFrom(0, 0, 0, 1),
          delta: fc.oneof({ weight: 9, arbitrary: delta }, { weight: 1, arbitrary: junk }),
          finish_reason: fc.constantFrom(null, null, null, 'stop', 'length', 'tool_calls', 'content_filter', 'odd', ''),
        }),
        { maxLength: 2 },
      ),
    }),
  },
  { weight: 1, arbitrary: fc.record({ choices: junk }) },
) as unknown as fc.Arbitrary<ChatChunk>;
