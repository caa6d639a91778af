import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Line, linesOf, pairsOf, sidesOf } from '../../src/console/parts/diff-lines.ts';
import fc from '../kit/properties.ts';

const texts = (lines: readonly (Line | undefined)[]) => lines.map((line) => line?.text);

test('removed lines stand beside the added ones that follow them, and the rest has nothing beside it', () => {
  const oldText = 'same\none\ntwo\nend\n';
  const newText = 'same\nuno\nend\nmore\n';
  const pairs = pairsOf(linesOf({ path: 'a', oldText, newText }));
  assert.deepEqual(
    pairs.map(({ before, after }) => [before?.text, after?.text]),
    [
      ['same', 'same'],
      ['one', 'uno'],
      ['two', undefined],
      ['end', 'end'],
      [undefined, 'more'],
    ],
  );
});

test('each side has all lines of its text, in order, whatever was changed', () => {
  const text = fc.array(fc.constantFrom('a', 'b', 'c', 'd'), { maxLength: 12 }).map((lines) => `${lines.join('\n')}\n`);
  fc.assert(
    fc.property(text, text, (oldText, newText) => {
      const lines = linesOf({ path: 'a', oldText, newText });
      const pairs = pairsOf(lines);
      const left = pairs.flatMap(({ before }) => (before === undefined ? [] : [before]));
      const right = pairs.flatMap(({ after }) => (after === undefined ? [] : [after]));
      assert.deepEqual(texts(left), texts(lines.filter(({ sign }) => sign !== '+')));
      assert.deepEqual(texts(right), texts(lines.filter(({ sign }) => sign !== '-')));
      for (const { before, after } of pairs) {
        assert.equal(before?.sign === ' ', after?.sign === ' ', 'an unchanged line is beside itself');
      }
    }),
  );
});

test('each part of a diff has its old and its new text, also where a part begins with an added line', () => {
  const numbered = Array.from({ length: 20 }, (_, index) => `line ${index + 1}\n`);
  const changed = ['first\n', ...numbered.slice(0, 14), 'other\n', ...numbered.slice(15)];
  const sides = sidesOf(linesOf({ path: 'a', oldText: numbered.join(''), newText: changed.join('') }));
  assert.deepEqual(sides.map(texts), [
    ['line 1', 'line 2', 'line 3'],
    ['first', 'line 1', 'line 2', 'line 3'],
    ['line 12', 'line 13', 'line 14', 'line 15', 'line 16', 'line 17', 'line 18'],
    ['line 12', 'line 13', 'line 14', 'other', 'line 16', 'line 17', 'line 18'],
  ]);
});
