import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { MUTATION_AREAS } from '../../scripts/mutation/mutation-areas.ts';
import { filesTable, mutationTable, survivors } from '../../scripts/mutation/mutation-report.ts';
import type { Mutant } from '../../scripts/mutation/run-stryker.ts';

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
    mutationTable([{ area: 'jobs', mutants }]),
    /\| jobs \| 7 \| 3 \| 1 \| 1 \| 0 \| 2 \| 80\.0 % \| ≥ 80 % \| met \|$/,
  );
  const worse = [...mutants, ...many(1, 'NoCoverage')];
  assert.match(mutationTable([{ area: 'jobs', mutants: worse }]), /\| 66\.6 % \| ≥ 80 % \| \*\*missed\*\* \|$/);
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

test('every pattern of an area finds files, and no source belongs to two', () => {
  for (const [area, parts] of Object.entries(MUTATION_AREAS)) {
    const sources = parts.flatMap((part) => part.sources.flatMap((pattern) => globSync(pattern, { cwd: ROOT })));
    assert.equal(new Set(sources).size, sources.length, area);
    for (const pattern of parts.flatMap((part) => [...part.sources, ...part.judges])) {
      assert.ok(globSync(pattern, { cwd: ROOT }).length > 0, `${area}: ${pattern}`);
    }
  }
});
