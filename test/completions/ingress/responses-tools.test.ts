import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCustomToolInput } from '../../../src/completions/ingress/responses/responses-tools.ts';
import fc from '../../kit/properties.ts';

function readPieces(pieces: readonly string[]): { deltas: string; whole: string } {
  const input = createCustomToolInput();
  const deltas = pieces.map((piece) => input.read(piece)).join('');
  return { deltas, whole: input.whole() };
}

test('the text comes out piece by piece while its JSON is still streamed', () => {
  const input = createCustomToolInput();
  assert.equal(input.read('{"inp'), '');
  assert.equal(input.read('ut": "*** Begin\\'), '*** Begin');
  assert.equal(input.read('nLine \\ud83d'), '\nLine ');
  assert.equal(input.read('\\ude00 end"'), '😀 end');
  assert.equal(input.read('}'), '');
  assert.equal(input.whole(), '*** Begin\nLine 😀 end');
});

test('any text survives any cutting of its JSON, and no piece ends in half a character', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), fc.boolean(), fc.array(fc.nat(40)), (text, escaped, cuts) => {
      const json = JSON.stringify({ input: text });
      const source = escaped
        ? json.replaceAll(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
        : json;
      const pieces: string[] = [];
      let rest = source;
      for (const cut of cuts) {
        pieces.push(rest.slice(0, cut));
        rest = rest.slice(cut);
      }
      const { deltas, whole } = readPieces([...pieces, rest]);
      assert.equal(whole, text);
      assert.equal(deltas, text);
      if (escaped) {
        const input = createCustomToolInput();
        for (const piece of [...source]) assert.ok(input.read(piece).isWellFormed());
      }
    }),
  );
});

test('arguments of another form are taken as the text themselves', () => {
  for (const source of ['*** Begin Patch', '{"patch":"x"}', '["x"]', '', '{"input": 3}']) {
    assert.deepEqual(readPieces([source]), { deltas: '', whole: source });
  }
});

test('line breaks that a model left unescaped are kept', () => {
  assert.equal(readPieces(['{"input":"a\nb']).whole, 'a\nb');
});

test('nothing makes it fail', () => {
  fc.assert(
    fc.property(fc.array(fc.string({ unit: 'binary' })), (pieces) => {
      const { whole } = readPieces(['{"input":"', ...pieces]);
      assert.equal(typeof whole, 'string');
    }),
  );
});
