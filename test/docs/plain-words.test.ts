import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { listFiles, projectRoot } from '../architecture/source-file.ts';

/** Words that a reader has to translate, and what to write instead. */
const AVOIDED: readonly (readonly [word: RegExp, instead: string])[] = [
  [/\banew\b/gi, 'again'],
  [/\bmend(?:s|ed|ing)?\b/gi, 'fix'],
  [/\bwhoever\b/gi, 'anyone who, or the noun'],
  [/\bmeanwhile\b/gi, 'until then, or at the same time'],
  [/\b(?:is|are) told\b(?! apart)/gi, 'gets, or sees'],
  [/\bat once\b/gi, 'immediately, or at the same time'],
  [/\bgoodbye\b/gi, 'close'],
  [/\bsigns? of life\b/gi, 'heartbeat'],
  [/\bfor good\b/gi, 'permanently'],
  [/(?<!\bare )\ball the same\b/gi, 'anyway'],
  [/\blong in coming\b/gi, 'take long'],
  [/\bgetting on\b/gi, 'progress'],
  [/\bat its side\b/gi, 'the noun and a verb'],
  [/\bwhat (?:came|comes) of\b/gi, 'the outcome of'],
  [/\b(?:for|after) so long\b/gi, 'for this long'],
  [/\bcounts? for nothing\b/gi, 'is ignored'],
];

/** Pages with headings of tables that the benchmarks write, and pages that quote other documents. */
const QUOTING: ReadonlySet<string> = new Set(['docs/measurements.md', 'docs/models.md', 'docs/security.md']);
/** Words that people take for passwords. */
const WORD_LIST = 'src/accounts/passwords/common-password-words.ts';

const sources = listFiles(['src']).filter((path) => path !== WORD_LIST);
/** Only the names of tests are checked, not their code. */
const names = listFiles(['test'])
  .filter((path) => path.endsWith('.test.ts'))
  .filter((path) => path !== 'test/docs/plain-words.test.ts');
const pages = ['docs/', 'docs/decisions/']
  .flatMap((folder) => readdirSync(`${projectRoot}${folder}`).map((name) => `${folder}${name}`))
  .filter((path) => path.endsWith('.md'))
  .filter((path) => !QUOTING.has(path));

function avoidedIn(path: string, isChecked: (line: string) => boolean): readonly string[] {
  const lines = readFileSync(`${projectRoot}${path}`, 'utf8').split('\n');
  return lines.flatMap((line, index) =>
    AVOIDED.flatMap(([word, instead]) =>
      [...(isChecked(line) ? line : '').matchAll(word)].map(
        ([text]) => `${path}:${index + 1}: "${text}": write ${instead}`,
      ),
    ),
  );
}

test('sources and pages say it in plain words', () => {
  const files = [...sources, ...pages, 'README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md'];
  assert.deepEqual(
    files.flatMap((path) => avoidedIn(path, () => true)),
    [],
  );
});

test('names of tests say it in plain words', () => {
  assert.deepEqual(
    names.flatMap((path) => avoidedIn(path, (line) => /^\s*(?:test|describe)\(/.test(line))),
    [],
  );
});
