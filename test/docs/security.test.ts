import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';

const page = readFileSync(`${projectRoot}docs/security.md`, 'utf8');

/** OWASP ASVS 5.0, chapters V6 to V10, levels 1 and 2: how many requirements each section has, up to its last of level 2. */
const REQUIREMENTS: Readonly<Record<string, number>> = {
  '6.1': 3,
  '6.2': 12,
  '6.3': 4,
  '6.4': 4,
  '6.5': 5,
  '6.6': 3,
  '6.8': 4,
  '7.1': 3,
  '7.2': 4,
  '7.3': 2,
  '7.4': 5,
  '7.5': 2,
  '7.6': 2,
  '8.1': 2,
  '8.2': 3,
  '8.3': 1,
  '8.4': 1,
  '9.1': 3,
  '9.2': 4,
  '10.1': 2,
  '10.2': 2,
  '10.3': 4,
  '10.4': 11,
  '10.5': 5,
  '10.6': 2,
  '10.7': 3,
};

const rows = [...page.matchAll(/^\| (\d+\.\d+\.\d+) \| ([12]) \| ([^|]+) \| ([^|]+) \|$/gm)].map(
  ([, number = '', , asks = '', shown = '']) => ({ number, asks, shown }),
);

/** Tests as the page names them: the file in backquotes, then names between stars. */
function namedTests(shown: string): { file: string; names: string[] }[] {
  return shown.split(/(?=`test\/)/).flatMap((part) => {
    const [, file] = /^`(test\/[\w./-]+)`: /.exec(part) ?? [];
    const names = [...part.matchAll(/\*([^*]+)\*\./g)].map((match) => match[1] ?? '');
    return file === undefined ? [] : [{ file, names }];
  });
}

test('every requirement of the five chapters up to level 2 has its row, once and in order', () => {
  const expected = Object.entries(REQUIREMENTS).flatMap(([section, count]) =>
    Array.from({ length: count }, (_, index) => `${section}.${index + 1}`),
  );
  assert.deepEqual(
    rows.map(({ number }) => number),
    expected,
  );
});

test('every row names a test, or says why there is none', () => {
  const reasons = /^(?:By document: \[|Does not apply: |Passwords do not expire)/;
  for (const { number, shown } of rows) {
    assert.ok(namedTests(shown).length > 0 || reasons.test(shown), `${number}: ${shown}`);
  }
});

test('every test that the page names exists', () => {
  let count = 0;
  for (const { number, shown } of rows) {
    for (const { file, names } of namedTests(shown)) {
      assert.ok(existsSync(`${projectRoot}${file}`), `${number}: ${file}`);
      const source = readFileSync(`${projectRoot}${file}`, 'utf8');
      assert.ok(names.length > 0, `${number}: ${file}`);
      for (const name of names) assert.ok(source.includes(name), `${number}: "${name}" in ${file}`);
      count += names.length;
    }
  }
  assert.ok(count > 60, `${count} tests are named`);
});

test('a test that is gone would be seen', () => {
  const [found] = namedTests('Reason. `test/x.test.ts`: *one*. *two: three*. See more.');
  assert.deepEqual(found, { file: 'test/x.test.ts', names: ['one', 'two: three'] });
});
