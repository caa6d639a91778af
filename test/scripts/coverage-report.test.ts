import assert from 'node:assert/strict';
import { test } from 'node:test';
import { areaOf } from '../../scripts/coverage-report/areas.ts';
import { codeLines } from '../../scripts/coverage-report/code-lines.ts';
import { coverageReport, coverageText } from '../../scripts/coverage-report/coverage-report.ts';
import type { FileReach } from '../../scripts/coverage-report/measure-files.ts';
import { readLcov } from '../../scripts/coverage-report/read-lcov.ts';

test('lines of code are those that are not blank, a comment or a type alone', () => {
  const source = `/** What it is for. */
import type { A } from './a.ts';

interface Pair {
  readonly left: A;
}

// Why.
export function sum(a: number, b: number): number {
  return a + b;
}
`;
  assert.deepEqual(codeLines(source), [9, 10, 11]);
});

test('lines and branches are read for each file', () => {
  const text = `TN:
SF:src/a.ts
FN:1,sum
FNDA:3,sum
BRDA:1,0,0,3
BRDA:2,1,0,0
DA:1,3
DA:2,0
end_of_record
TN:
SF:src/b.ts
DA:1,1
end_of_record
`;
  const [first, second] = readLcov(text);
  assert.deepEqual([first?.path, first?.branches, first?.branchesReached], ['src/a.ts', 2, 1]);
  assert.deepEqual(
    [...(first?.lines ?? [])],
    [
      [1, 3],
      [2, 0],
    ],
  );
  assert.deepEqual([second?.path, second?.branches], ['src/b.ts', 0]);
});

test('the core is the services and the platform, without what runs in a browser', () => {
  const isCore = (path: string) => areaOf(path)?.isCore;
  assert.equal(isCore('src/bridge/jobs/submit-job.ts'), true);
  assert.equal(isCore('src/platform/http/listener.ts'), true);
  assert.equal(isCore('src/platform/http/api-page/browser/api-page.js'), false);
  assert.equal(isCore('src/system/start-system.ts'), false);
  assert.equal(isCore('src/main.ts'), false);
});

const reach = (path: string, linesReached: number, branchesReached: number): FileReach => ({
  path,
  lines: 1000,
  linesReached,
  branches: 100,
  branchesReached,
  missedLines: linesReached === 1000 ? [] : [3, 4, 5, 9],
  loaded: true,
});

test('a goal that is just missed is missed, and only the core counts', () => {
  const files = [reach('src/bridge/a.ts', 949, 90), reach('src/commands/b.ts', 0, 0)];
  const report = coverageReport(files);
  assert.match(report, /\| lines of the core \| 94\.9 % \| ≥ 95 % \| \*\*missed\*\* \|/);
  assert.match(report, /\| branches of the core \| 90\.0 % \| ≥ 90 % \| met \|/);
  assert.match(
    report,
    /1 files of the core lie below a goal:\n\n 94\.9 % {2}src\/bridge\/a\.ts: 90 of 100 branches; not lines 3-5, 9\n/,
  );
});

test('a file that no test loads counts with all of its lines, and says so', () => {
  const unloaded = { ...reach('src/platform/b.ts', 0, 0), branches: 0, loaded: false };
  const report = coverageReport([reach('src/platform/a.ts', 1000, 100), unloaded]);
  assert.match(report, /\| lines of the core \| 50\.0 % /);
  assert.match(report, /0\.0 % {2}src\/platform\/b\.ts: loaded by no test/);
});

test('the page gets the core against its goals, how it was measured, and whether tests failed', () => {
  const run = { command: 'npm run coverage -- --write', date: '2026-01-02', commit: 'abc' };
  const files = [reach('src/bridge/a.ts', 949, 90)];
  const text = coverageText(files, { ...run, hasFailed: false });
  assert.match(text, /^Written by `npm run coverage -- --write` on 2026-01-02, of commit abc\.\n\n\| what /);
  assert.match(text, /\| lines of the core \| 94\.9 % \| ≥ 95 % \| \*\*missed\*\* \|/);
  assert.match(coverageText(files, { ...run, hasFailed: true }), /of commit abc\. Some tests failed: /);
});
