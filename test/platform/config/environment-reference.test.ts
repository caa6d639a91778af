// biome-ignore-all lint/suspicious/noTemplateCurlyInString: these are references of the configuration, not templates
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { expandReferences } from '../../../src/platform/config/read-setting.ts';
import fc from '../../kit/properties.ts';

const environment = { HOST: 'db', PORT: '5432', EMPTY: '', NESTED: '${env:HOST}' };

const CASES: readonly (readonly [text: string, expanded: string])[] = [
  ['plain', 'plain'],
  ['${env:HOST}', 'db'],
  ['x-${env:HOST}:${env:PORT}-y', 'x-db:5432-y'],
  ['${env:EMPTY}', ''],
  ['$${env:HOST}', '${env:HOST}'],
  ['$$${env:HOST}', '$${env:HOST}'],
  ['${env:NESTED}', '${env:HOST}'],
  ['$HOST ${HOST} $$', '$HOST ${HOST} $$'],
];

for (const [text, expanded] of CASES) {
  test(`"${text}" expands to "${expanded}"`, () => {
    const expansion = expandReferences(text, environment);
    assert.equal(expansion.text, expanded);
    assert.equal(expansion.malformed, false);
    assert.deepEqual(expansion.missing, []);
  });
}

for (const text of ['${env:HOST', '${env:}', '${env:NO SPACE}', '${env:1A}', 'a ${env:x-y} b']) {
  test(`"${text}" is not a complete reference`, () => {
    assert.equal(expandReferences(text, environment).malformed, true);
  });
}

test('a variable that is not set is named, and members of every object are no variables', () => {
  assert.deepEqual(expandReferences('${env:A}${env:constructor}', environment).missing, ['A', 'constructor']);
});

test('only a reference with nothing around it is the whole value', () => {
  assert.equal(expandReferences('${env:HOST}', environment).whole, true);
  assert.equal(expandReferences(' ${env:HOST}', environment).whole, false);
  assert.equal(expandReferences('${env:HOST}${env:PORT}', environment).whole, false);
});

test('what a variable holds comes out unchanged, whatever it is', () => {
  fc.assert(
    fc.property(fc.string(), (value) => {
      assert.equal(expandReferences('[${env:ANY}]', { ANY: value }).text, `[${value}]`);
    }),
  );
});
