import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lexer } from 'marked';
import { EMPTY, type Lexed, lexGrown } from '../../src/console/live/markdown-blocks.ts';
import fc from '../kit/properties.ts';

const shape = ({ blocks }: Pick<Lexed, 'blocks'>) => JSON.parse(JSON.stringify([...blocks]));

test('a text that comes in pieces becomes the same blocks as the whole text', () => {
  const piece = fc.constantFrom(
    ...['word ', '\n', '\n\n', '- item\n', '1. one\n', '> quote\n', '```\n', '# Title\n', '| a | b |\n', '| - | - |\n'],
    ...[
      '**bold** ',
      '    code\n',
      '---\n',
      '===\n',
      '<b>\n',
      '[a]: https://example.com\n',
      '[a] ',
      '\t',
      '\r\n',
      '* * *\n',
    ],
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 25 }), (pieces) => {
      let lexed = EMPTY;
      let text = '';
      for (const one of pieces) {
        text += one;
        lexed = lexGrown(lexed, text);
      }
      assert.deepEqual(shape(lexed), shape({ blocks: lexer(text, { gfm: true }) }));
    }),
    { numRuns: 300 },
  );
});

test('blocks before the last one stay the same objects, so that they are not drawn again', () => {
  const first = lexGrown(EMPTY, 'one\n\ntwo\n\nthr');
  const second = lexGrown(first, 'one\n\ntwo\n\nthree\n\nfour');
  assert.equal(second.blocks[0], first.blocks[0]);
  assert.equal(second.blocks[2], first.blocks[2]);
  assert.equal(lexGrown(second, second.text), second);
  assert.deepEqual(
    shape(lexGrown(second, 'another')),
    shape({ blocks: lexer('another') }),
    'a text that has not grown',
  );
});

test('a paragraph that cannot be read leaves the others as they are', () => {
  const { blocks } = lexGrown(EMPTY, `# Title\n\n${'> '.repeat(5000)}\n\n**end**`);
  assert.deepEqual(
    blocks.map(({ type }) => type).filter((type) => type !== 'space'),
    ['heading', 'text', 'paragraph'],
  );
});

test('a text that is made to stop the page is read quickly, and is shown whole', () => {
  const hostile = [
    '_a'.repeat(20_000),
    '> '.repeat(5000),
    '*a '.repeat(20_000),
    '[a]('.repeat(20_000),
    '<a '.repeat(20_000),
  ];
  for (const text of hostile) {
    // Of the processor, because other tests run at the same time.
    const started = process.cpuUsage();
    const { blocks } = lexGrown(EMPTY, text);
    const { user, system } = process.cpuUsage(started);
    const took = (user + system) / 1000;
    assert.ok(took < 2000, `${text.slice(0, 6)} took ${Math.round(took)} ms`);
    assert.ok(blocks.length > 0 && blocks.map(({ raw }) => raw).join('') === text, text.slice(0, 6));
  }
});
