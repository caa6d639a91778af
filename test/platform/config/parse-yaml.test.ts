import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseYaml } from '../../../src/platform/config/parse-yaml.ts';
import fc from '../../kit/properties.ts';

test('values, keys and their places are read', () => {
  const { value, values, keys, faults, readable } = parseYaml('a: 1\nb:\n  - x\n  - { c: true, d: }\n');
  assert.deepEqual({ faults, readable }, { faults: [], readable: true });
  assert.deepEqual(value, { a: 1, b: ['x', { c: true, d: null }] });
  assert.deepEqual(keys.get('b'), { line: 2, column: 1 });
  assert.deepEqual(values.get('b[1]'), { line: 4, column: 5 });
  assert.deepEqual(keys.get('b[1].d'), { line: 4, column: 16 });
});

test('an empty text and one of comments alone hold nothing', () => {
  assert.equal(parseYaml('').value, undefined);
  assert.equal(parseYaml('# nothing\n').value, undefined);
});

test('words that older YAML took for booleans and times are strings', () => {
  const { value } = parseYaml('%YAML 1.1\n---\n{ a: yes, b: off, c: 2001-01-01, d: 12:30:00 }');
  assert.deepEqual(value, { a: 'yes', b: 'off', c: '2001-01-01', d: '12:30:00' });
});

test('an alias stands for the value it names', () => {
  assert.deepEqual(parseYaml('a: &x { k: 1 }\nb: [*x, *x]').value, { a: { k: 1 }, b: [{ k: 1 }, { k: 1 }] });
});

const FAULTS: readonly (readonly [what: string, text: string, place: string, wrong: RegExp])[] = [
  ['a key that is there twice', 'a: 1\nb: 2\na: 3', '3:1', /twice, first on line 1/],
  ['an alias to nothing', 'a: *secret', '1:4', /alias/],
  ['an alias inside what it names', 'a: &x [*x]', '1:8', /alias/],
  ['a tag', 'a: !password hunter2', '1:14', /tag/],
  ['a binary value', 'a: !!binary aGk=', '1:13', /tag/],
];

for (const [what, text, place, wrong] of FAULTS) {
  test(`${what} is a fault with its place`, () => {
    const { faults, readable } = parseYaml(text);
    assert.equal(readable, true);
    assert.equal(faults.length, 1);
    assert.equal(`${faults[0]?.at.line}:${faults[0]?.at.column}`, place);
    assert.match(faults[0]?.wrong ?? '', wrong);
  });
}

const BROKEN: readonly (readonly [what: string, text: string, wrong: RegExp])[] = [
  ['an open quote', 'a: "x\nb: 1', /quote/],
  ['an open bracket', 'a: [1, 2', /bracket/],
  ['a tab', 'a:\n\tb: 1', /tab/],
  ['wrong indentation', 'a:\n  b: 1\n c: 2', /indentation/],
  ['a reserved character', 'a: @x', /reserves/],
  ['a wrong escape', 'a: "\\q"', /escape/],
  ['two colons', 'a: b: c', /": "/],
  ['a second document', 'a: 1\n---\nb: 2', /document/],
  ['a list for a key', '? [a]\n: 1', /key/],
];

for (const [what, text, wrong] of BROKEN) {
  test(`${what} makes the text unreadable, in our own words`, () => {
    const { value, faults, readable } = parseYaml(text);
    assert.deepEqual({ value, readable }, { value: undefined, readable: false });
    assert.match(faults[0]?.wrong ?? '', wrong);
  });
}

test('a value that starts like an alias, a tag or an anchor is never quoted in a fault', () => {
  for (const sign of ['*', '!', '&', '@', '%', '`', '|', '"\\']) {
    const { faults } = parseYaml(`password: ${sign}hunter2\nother: *hunter2`);
    assert.doesNotMatch(JSON.stringify(faults), /hunter2/, sign);
  }
});

test('aliases that multiply end in one fault', () => {
  const lines = ['a0: &a0 [x, x, x, x, x, x, x, x, x]'];
  for (let level = 1; level < 12; level += 1) {
    lines.push(`a${level}: &a${level} [${Array.from({ length: 9 }, () => `*a${level - 1}`).join(', ')}]`);
  }
  const { faults } = parseYaml(lines.join('\n'));
  assert.equal(faults.length, 1);
  assert.match(faults[0]?.wrong ?? '', /too many values/);
});

test('one long list behind many aliases is one fault, too', () => {
  const long = Array.from({ length: 1000 }, () => 'x').join(', ');
  const { faults } = parseYaml(`a: &a [${long}]\nb: [${Array.from({ length: 1000 }, () => '*a').join(', ')}]`);
  assert.equal(faults.length, 1);
  assert.match(faults[0]?.wrong ?? '', /too many values/);
});

test('brackets nested by the thousand are a fault, not a crash', () => {
  const nested = ['['.repeat(50_000), '{a: '.repeat(20_000), '- '.repeat(50_000), `${'['.repeat(40)}${']'.repeat(40)}`];
  for (const text of nested) assert.ok(parseYaml(text).faults.length > 0);
});

test('no text makes the reader throw', () => {
  const signs = 'a|: |\n|  |- |[|]|{|}|,|"|\'|&x |*x|!t |>|#|? |\t|---\n|%YAML 1.1\n|<<|~'.split('|');
  const text = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    fc.array(fc.constantFrom(...signs, '|'), { maxLength: 60 }).map((pieces) => pieces.join('')),
  );
  fc.assert(
    fc.property(text, (given) => {
      const { faults, readable, value } = parseYaml(given);
      assert.ok(readable || (faults.length > 0 && value === undefined));
    }),
    { numRuns: 1500 },
  );
});
