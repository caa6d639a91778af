import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { MUTATION_AREAS } from '../../scripts/mutation/mutation-areas.ts';
import { filesTable, mutationTable, survivors, timeouts, withAreaRun } from '../../scripts/mutation/mutation-report.ts';
import { isChosen, type Mutant } from '../../scripts/mutation/run-stryker.ts';

const ROOT = join(import.meta.dirname, '..', '..');

const mutant = (file: string, line: number, status: string): Mutant => ({
  fileName: join(ROOT, file),
  status,
  mutatorName: 'ConditionalExpression',
  replacement: 'a &&\n  false',
  location: { start: { line } },
});
const many = (count: number, status: string) => Array.from({ length: count }, () => mutant('src/a.ts', 1, status));

test('the score is the share of mutants that were noticed, of those that could run', () => {
  const mutants = [...many(3, 'Killed'), ...many(1, 'Timeout'), ...many(1, 'Survived'), ...many(2, 'RuntimeError')];
  assert.match(
    mutationTable([{ area: 'jobs', mutants, found: 50 }]),
    /\| jobs \| 50 \| 7 \| 3 \| 1 \| 1 \| 0 \| 2 \| 80\.0 % \(37 to 97 %\) \| ≥ 80 % \| met \|$/,
  );
  const worse = [...mutants, ...many(1, 'NoCoverage')];
  assert.match(
    mutationTable([{ area: 'jobs', mutants: worse, found: 8 }]),
    /\| 66\.6 % \| ≥ 80 % \| \*\*missed\*\* \|$/,
  );
});

test('the score of a sample says between which scores that of all of them lies', () => {
  const row = (tried: number, killed: number, found: number) => {
    const mutants = [...many(killed, 'Killed'), ...many(tried - killed, 'Survived')];
    return mutationTable([{ area: 'a', mutants, found }])
      .split(' | ')
      .at(-3);
  };
  assert.equal(row(40, 36, 252), '90.0 % (76 to 97 %)');
  assert.equal(row(400, 360, 2520), '90.0 % (86 to 93 %)');
  assert.equal(row(40, 40, 252), '100.0 % (91 to 100 %)');
  assert.equal(row(40, 36, 40), '90.0 %');
});

test('what nobody noticed is named by its place, in order, and the lowest file comes first', () => {
  const mutants = [
    mutant('src/b.ts', 7, 'Survived'),
    mutant('src/a.ts', 9, 'NoCoverage'),
    mutant('src/a.ts', 8, 'Survived'),
    mutant('src/b.ts', 1, 'Killed'),
  ];
  assert.deepEqual(survivors(mutants, ROOT).split('\n'), [
    'src/a.ts:8: ConditionalExpression: a && false',
    'src/a.ts:9: ConditionalExpression: a && false (reached by no test)',
    'src/b.ts:7: ConditionalExpression: a && false',
  ]);
  const rows = filesTable(mutants, ROOT).split('\n').slice(2);
  assert.deepEqual(
    rows.map((row) => row.split(' | ').at(0)),
    ['| src/a.ts', '| src/b.ts'],
  );
});

test('a share of the mutants is the same for the same seed, about as large as it says, and another for another', () => {
  const chosen = (percent: number, seed: number, root = '/a') =>
    Array.from({ length: 2000 }, (_, line) => line).filter((line) =>
      isChosen(
        {
          fileName: `${root}/src/a.ts`,
          mutatorName: 'Block',
          replacement: '{}',
          location: { start: { line, column: 2 } },
        },
        { percent, seed },
      ),
    );
  assert.equal(chosen(100, 1).length, 2000);
  assert.deepEqual(chosen(20, 1, '/tmp/copy'), chosen(20, 1));
  assert.notDeepEqual(chosen(20, 2), chosen(20, 1));
  assert.ok(Math.abs(chosen(20, 1).length - 400) < 100, `${chosen(20, 1).length}`);
});

test('the row of an area replaces that of its earlier run, says how it was made, and leaves all else', () => {
  const page = '# Measurements\n\n## Faults\n\n### fuzz\n\n| a |\n';
  const run = (area: string, count: number) => ({
    result: { area, mutants: many(count, 'Killed'), found: 40 },
    share: { percent: 25, seed: 3 },
    date: '2026-01-02',
    commit: 'abc',
  });
  const first = withAreaRun(withAreaRun(page, run('jobs', 5)), run('login', 6));
  assert.ok(first.startsWith(`${page}\n## Coverage and mutation\n`), first);
  assert.match(
    first,
    /### mutation: jobs\n\nWritten by `npm run mutation -- jobs --share 25 --seed 3 --write` on 2026-01-02, of commit abc\.\n/,
  );
  const second = withAreaRun(first, run('jobs', 7));
  const row = (count: number) => mutationTable([run('jobs', count).result]);
  assert.equal(second, first.replace(row(5), row(7)));
  assert.notEqual(second, first);
  assert.equal(withAreaRun(second, run('jobs', 7)), second);
});

test('every pattern of an area finds files, each name in it too, and no source belongs to two', () => {
  for (const [area, parts] of Object.entries(MUTATION_AREAS)) {
    const sources = parts.flatMap((part) => part.sources.flatMap((pattern) => globSync(pattern, { cwd: ROOT })));
    assert.equal(new Set(sources).size, sources.length, area);
    for (const pattern of parts.flatMap((part) => [...part.sources, ...part.judges])) {
      for (const name of spelledOut(pattern)) {
        assert.ok(globSync(name, { cwd: ROOT }).length > 0, `${area}: ${name}`);
      }
    }
  }
});

test('what counts as noticed because it did not come to an end is named, too', () => {
  const mutants = [
    mutant('src/b.ts', 7, 'Timeout'),
    mutant('src/a.ts', 9, 'Killed'),
    mutant('src/a.ts', 8, 'Survived'),
  ];
  assert.equal(timeouts(mutants, ROOT), 'src/b.ts:7: ConditionalExpression: a && false (timed out)');
});

test('tests that are left out are among the judges', () => {
  for (const { judges, without } of Object.values(MUTATION_AREAS).flat()) {
    if (without === undefined) continue;
    const texts = judges
      .flatMap((pattern) => globSync(pattern, { cwd: ROOT }))
      .map((file) => readFileSync(join(ROOT, file), 'utf8'));
    for (const name of without.split('|')) {
      assert.ok(
        texts.some((text) => text.includes(name)),
        name,
      );
    }
  }
});

test('all sources of a folder that is judged are in its area, but for data', () => {
  const judged = Object.values(MUTATION_AREAS).flatMap((parts) => parts.flatMap(({ sources }) => [...sources]));
  const files = new Set(judged.flatMap((pattern) => globSync(pattern, { cwd: ROOT })));
  const folders = [
    'accounts/login',
    'accounts/mfa',
    'accounts/passwords',
    'bridge/jobs',
    'bridge/forwarding',
    'platform/limits',
  ];
  const all = folders.flatMap((folder) => globSync(`src/${folder}/*.ts`, { cwd: ROOT }));
  assert.deepEqual(
    all.filter((file) => !files.has(file)),
    ['src/accounts/passwords/common-password-words.ts'],
  );
});

/** `a/{b,c}` as `a/b` and `a/c`: with braces a pattern finds something even where one of its names is out of date. */
function spelledOut(pattern: string): readonly string[] {
  const [all, names] = /\{([^}]+)\}/.exec(pattern) ?? [];
  if (all === undefined || names === undefined) return [pattern];
  return names.split(',').flatMap((name) => spelledOut(pattern.replace(all, name)));
}
