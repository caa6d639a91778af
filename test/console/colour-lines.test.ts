import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Coloured, colourLines, type Language } from '../../src/console/parts/colour-lines.ts';
import fc from '../kit/properties.ts';

const { signal } = new AbortController();

async function colour(language: Language, lines: readonly string[], earlier?: Coloured): Promise<Coloured> {
  const coloured = await colourLines(language, lines, signal, earlier);
  assert.ok(coloured);
  return coloured;
}

/** `keyword:const`: only what has a colour. */
const kindsOf = ({ pieces }: Coloured) =>
  pieces.flat().flatMap(({ kind, text }) => (kind === '' ? [] : [`${kind}:${text}`]));

const textsOf = ({ pieces }: Coloured) => pieces.map((line) => line.map(({ text }) => text).join(''));

test('words of a language get the kinds of it', async () => {
  const lines = ['// six digits', "const code = '123'; return read(code, 6);"];
  assert.deepEqual(kindsOf(await colour('typescript', lines)), [
    'comment:// six digits',
    'keyword:const',
    "string:'123'",
    'keyword:return',
    'function:read',
    'number:6',
  ]);
  assert.deepEqual(kindsOf(await colour('diff', ['-old', '+new', ' same'])), ['removed:-old', 'string:+new']);
});

test('a string over several lines keeps its colour, and a longer line has none', async () => {
  const long = `const data = '${'x'.repeat(1000)}';`;
  assert.deepEqual(kindsOf(await colour('python', ['a = """one', 'two"""', long])), ['string:"""one', 'string:two"""']);
});

test('a text that grows has the colours that it would have as a whole, and keeps those of earlier lines', async () => {
  const lines = ['/* one', 'two */ const a = `x', 'y`;', '', 'return a;'];
  let grown = await colour('typescript', lines.slice(0, 1));
  for (let count = 2; count <= lines.length; count += 1) {
    const before = grown;
    grown = await colour('typescript', lines.slice(0, count), before);
    for (const [index, line] of before.pieces.slice(0, -1).entries()) assert.equal(grown.pieces[index], line);
  }
  assert.deepEqual(grown.pieces, (await colour('typescript', lines)).pieces);
});

test('the pieces of any lines are the lines', async () => {
  const line = fc.string({ unit: 'binary', maxLength: 60 }).map((text) => text.replaceAll(/[\r\n]/g, ''));
  const language = fc.constantFrom<Language>('typescript', 'python', 'shellscript', 'json', 'markdown', 'xml', 'diff');
  await fc.assert(
    fc.asyncProperty(language, fc.array(line, { maxLength: 6 }), async (name, lines) => {
      assert.deepEqual(textsOf(await colour(name, lines)), lines);
    }),
    { numRuns: 50 },
  );
});

test('a text that nobody waits for any more is not coloured further', async () => {
  const ended = AbortSignal.abort();
  assert.equal(await colourLines('json', ['{}'], ended), undefined);
});
