import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type BlockStep, createAnswerReader, readWhole } from '../../../src/completions/ingress/answer-blocks.ts';
import fc from '../../kit/properties.ts';
import { anyChunk, chunk, toolPiece, USAGE, usageChunk } from './chunks.ts';

const brief = (steps: readonly BlockStep[]) =>
  steps.map((each) =>
    each.step === 'grow' ? `${each.block.index}+${each.text}` : `${each.step} ${each.block.kind} ${each.block.index}`,
  );

test('reasoning, text and a tool call are three blocks, each closed when the next begins', () => {
  const reader = createAnswerReader('call_');
  const steps = [
    chunk({ role: 'assistant', content: '' }),
    chunk({ reasoning_content: 'Hm' }),
    chunk({ reasoning_content: 'm.' }),
    chunk({ reasoning_signature: 'proof' }),
    chunk({ content: 'I look.' }),
    toolPiece(0, { id: 'c1', name: 'read', text: '{"a"' }),
    toolPiece(0, { text: ':1}' }),
    chunk({}, 'tool_calls'),
    usageChunk(),
  ].flatMap((each) => reader.read(each));
  assert.deepEqual(brief([...steps, ...reader.finish()]), [
    'open reasoning 0',
    '0+Hm',
    '0+m.',
    'close reasoning 0',
    'open text 1',
    '1+I look.',
    'close text 1',
    'open tool 2',
    '2+{"a"',
    '2+:1}',
    'close tool 2',
  ]);
  assert.equal(reader.blocks[0]?.signature, 'proof');
  assert.deepEqual([reader.blocks[2]?.id, reader.blocks[2]?.name, reader.blocks[2]?.text], ['c1', 'read', '{"a":1}']);
  assert.equal(reader.finishReason, 'tool_calls');
  assert.deepEqual(reader.usage, USAGE);
});

test('pieces of several tool calls may be mixed: each call comes out whole, one after the other', () => {
  const reader = createAnswerReader('call_');
  const steps = [
    toolPiece(0, { id: 'a', name: 'one', text: '1' }),
    toolPiece(1, { id: 'b', name: 'two', text: 'x' }),
    toolPiece(0, { text: '2' }),
    chunk({ content: 'late' }),
    toolPiece(1, { text: 'y' }),
  ].flatMap((each) => reader.read(each));
  assert.deepEqual(brief([...steps, ...reader.finish()]), [
    'open tool 0',
    '0+1',
    '0+2',
    'close tool 0',
    'open tool 1',
    '1+xy',
    'close tool 1',
    'open text 2',
    '2+late',
    'close text 2',
  ]);
});

test('a tool call waits for its name, and gets an id when it has none', () => {
  const reader = createAnswerReader('call_x_');
  assert.deepEqual(brief(reader.read(toolPiece(0, { text: '{' }))), []);
  assert.deepEqual(brief(reader.read(toolPiece(0, { name: 'go', text: '}' }))), ['open tool 0', '0+{}']);
  assert.equal(reader.blocks[0]?.id, 'call_x_0');
});

test('only the first choice counts', () => {
  const reader = createAnswerReader('call_');
  const other = { ...chunk({}), choices: [{ index: 1, delta: { content: 'other' }, finish_reason: 'stop' }] };
  assert.deepEqual(reader.read(other), []);
  assert.equal(reader.finishReason, undefined);
});

test('a whole answer is read as a stream of one chunk', () => {
  const reader = readWhole(
    {
      id: 'x',
      object: 'chat.completion',
      created: 1,
      model: 'm',
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: 'Text',
            reasoning_content: 'Why',
            tool_calls: [
              { id: 'a', type: 'function', function: { name: 'one', arguments: '{}' } },
              { id: 'b', type: 'function', function: { name: 'two', arguments: '{}' } },
            ],
          },
          finish_reason: 'tool_calls',
        },
      ],
      usage: USAGE,
    },
    'call_',
  );
  assert.deepEqual(
    reader.blocks.map(({ kind, text, id }) => [kind, text, id]),
    [
      ['reasoning', 'Why', ''],
      ['text', 'Text', ''],
      ['tool', '{}', 'a'],
      ['tool', '{}', 'b'],
    ],
  );
  assert.deepEqual(reader.usage, USAGE);
});

test('whatever an upstream sends, blocks open one after the other and their pieces make up their text', () => {
  fc.assert(
    fc.property(fc.array(anyChunk, { maxLength: 20 }), (chunks) => {
      const reader = createAnswerReader('call_');
      const steps = [...chunks.flatMap((each) => reader.read(each)), ...reader.finish()];
      const texts: string[] = [];
      let open = -1;
      for (const each of steps) {
        if (each.step === 'open') {
          assert.equal(open, -1, 'one at a time');
          assert.equal(each.block.index, texts.length, 'in order');
          open = each.block.index;
          texts.push('');
        } else {
          assert.equal(each.block.index, open);
          if (each.step === 'grow') texts[open] += each.text;
          else open = -1;
        }
      }
      assert.equal(open, -1);
      assert.deepEqual(
        texts,
        reader.blocks.map(({ text }) => text),
      );
    }),
    { numRuns: 500 },
  );
});
