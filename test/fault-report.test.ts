import assert from 'node:assert/strict';
import { test } from 'node:test';
import { figuresTable, withSuiteRun } from './faults/fault-report.ts';
import {
  countFigure,
  longestFigure,
  missedGoals,
  neverFigure,
  untried,
  withViolations,
  workFigure,
} from './faults/fault-suite.ts';

const BENCH = '# Measurements\n\nWhat comes first.\n\n## platform\n\n| a |\n';
const run = (suite: string, count: number) => ({
  suite,
  cycles: 5,
  seed: 7,
  figures: [countFigure('kills', count)],
  date: '2026-11-18',
  commit: '0123abcd',
});

test('a goal that was missed is printed as missed, and a count without a goal as neither', () => {
  const table = figuresTable([
    countFigure('kills', 1234),
    neverFigure('|lost|', 1),
    longestFigure('ready', [3, 9.6], 10),
  ]);
  assert.deepEqual(table.split('\n').slice(2), [
    '| kills | 1,234 |  |  |',
    String.raw`| \|lost\| | 1 | 0 | **missed** |`,
    '| ready | 10 ms | ≤ 10 ms | met |',
    '',
  ]);
});

test('a run in which nothing was done fails, also if nothing broke', () => {
  assert.deepEqual(untried([workFigure('calls answered', 1), countFigure('refused', 0), neverFigure('lost', 0)]), []);
  assert.deepEqual(untried([workFigure('calls answered', 0), neverFigure('lost', 0)]), [
    'calls answered: 0, so nothing was tried',
  ]);
  assert.equal(workFigure('calls answered', 0).met, false);
});

test('the table of a run says what was violated, although none of its figures counts it', () => {
  const figures = [neverFigure('lost', 0)];
  assert.deepEqual(withViolations(figures, []), figures);
  const violated = withViolations(figures, ['a job is still pending', 'another one']);
  assert.match(figuresTable(violated), /\| violations \| 2 \| 0 \| \*\*missed\*\* \|/);
  assert.deepEqual(missedGoals(violated), [neverFigure('violations', 2)]);
});

test('the first run of a suite stands below everything else, with its command, day and commit', () => {
  const document = withSuiteRun(BENCH, run('jobs', 1));
  assert.ok(document.startsWith(BENCH), document);
  assert.match(document, /\n## Faults\n/);
  assert.match(
    document,
    /### jobs\n\nWritten by `npm run faults -- jobs --cycles 5 --seed 7 --write` on 2026-11-18, of commit 0123abcd\.\n/,
  );
});

test('a later run replaces the section of its suite, and leaves the others as they are', () => {
  const first = withSuiteRun(withSuiteRun(withSuiteRun(BENCH, run('jobs', 1)), run('shared-jobs', 2)), run('slow', 3));
  const second = withSuiteRun(first, run('shared-jobs', 4));
  assert.equal(second, first.replace('| kills | 2 |', '| kills | 4 |'));
  assert.equal(withSuiteRun(second, run('shared-jobs', 4)), second);
});

test('what stands after the faults stays there', () => {
  const after = '## Coverage\n\n### mutation\n\n| b |\n';
  const first = `${withSuiteRun(BENCH, run('jobs', 1))}\n${after}`;
  assert.equal(withSuiteRun(first, run('jobs', 2)), first.replace('| kills | 1 |', '| kills | 2 |'));
  const second = withSuiteRun(first, run('slow', 3));
  assert.ok(second.endsWith(`| kills | 3 |  |  |\n\n${after}`), second);
});
