import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { matchesAny, matchesPattern } from '../../../src/completions/keys/issued-key.ts';

test('a pattern matches whole names, and a star any run of characters', () => {
  for (const [pattern, text, expected] of [
    ['fast', 'fast', true],
    ['fast', 'faster', false],
    ['*', '', true],
    ['*', 'openai/gpt', true],
    ['openai/*', 'openai/gpt-4o', true],
    ['openai/*', 'azure/gpt-4o', false],
    ['openai/*', 'openai/', true],
    ['*/gpt-4o', 'openai/gpt-4o', true],
    ['*/gpt-4o', 'openai/gpt-4o-mini', false],
    ['a*b*c', 'a-b-c', true],
    ['a*b*c', 'acb', false],
    ['ab*bc', 'abc', false],
    ['a**c', 'abc', true],
    ['openai/gpt.4o', 'openai/gpt-4o', false],
    ['*aa*aa*', 'aaa', false],
    ['*aa*aa*', 'aaaa', true],
  ] as const) {
    assert.equal(matchesPattern(pattern, text), expected, `${pattern} and ${text}`);
  }
});

test('a pattern with stars matches what a regular expression says it should', () => {
  const word = fc.string({ unit: fc.constantFrom('a', 'b', '*'), maxLength: 8 });
  const text = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 10 });
  fc.assert(
    fc.property(word, text, (pattern, name) => {
      const expected = new RegExp(`^${pattern.replaceAll('*', '.*')}$`).test(name);
      assert.equal(matchesPattern(pattern, name), expected);
    }),
    { numRuns: 500 },
  );
});

test('no patterns stand for every model', () => {
  assert.equal(matchesAny([], 'anything'), true);
  assert.equal(matchesAny(['x', 'y*'], 'yes'), true);
  assert.equal(matchesAny(['x', 'y*'], 'no'), false);
});
