import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { test } from 'node:test';
import { limitFigure } from '../../bench/report/figure.ts';
import { chartName, type SuiteReport, updatePage } from '../../bench/report/measurements-page.ts';
import { projectRoot } from '../architecture/source-file.ts';

const ORDER = ['platform', 'bridge', 'jobs'];
const FAULTS = '## Faults\n\nWritten by others.\n\n### jobs\n\n| a | b |\n\n## More of it\n';

function report(suite: string, value: number, isQuick = false): SuiteReport {
  const figures = [limitFigure({ name: 'time', unit: 'ms', value, goal: 5 })];
  const tables = [{ title: `${suite}: times`, figures }];
  return { suite, command: `bench ${suite}`, isQuick, date: '2026-01-02', machine: 'm', versions: 'v', tables };
}

test('a suite that is run again replaces its section, and the others stay as they were', () => {
  const before = updatePage('', [report('platform', 1), report('bridge', 2)], ORDER);
  const after = updatePage(before, [report('bridge', 9, true)], ORDER);
  assert.equal(after.slice(0, after.indexOf('## Bridge')), before.slice(0, before.indexOf('## Bridge')));
  assert.match(after, /\| time \| 9\.00 ms \|.*\| \*\*missed\*\* \|/);
  assert.ok(!after.includes('2.00 ms'));
});

test('each section says by which command and when it was written, and whether the run was a short one', () => {
  const page = updatePage('', [report('platform', 1), report('bridge', 2, true)], ORDER);
  assert.match(page, /Written by `bench platform` on 2026-01-02\.\n/);
  assert.match(page, /Written by `bench bridge` on 2026-01-02\. A short run: a sign, not a result\.\n/);
});

test('sections stand in the order of the suites, however they were run', () => {
  const page = updatePage(
    updatePage('', [report('jobs', 1)], ORDER),
    [report('bridge', 1), report('platform', 1)],
    ORDER,
  );
  assert.deepEqual(page.match(/^## .*$/gm), ['## Platform', '## Bridge', '## Jobs']);
});

test('what is written about faults stays to the letter', () => {
  const before = `${updatePage('', [report('platform', 1)], ORDER)}\n${FAULTS}`;
  const after = updatePage(before, [report('platform', 3), report('jobs', 1)], ORDER);
  assert.ok(after.endsWith(`\n${FAULTS}`));
  assert.equal(after.split('## Faults').length, 2);
});

test('a section that no suite writes stays as it is, before all others', () => {
  const page = updatePage('', [report('platform', 1)], ORDER).replace(
    '## Platform',
    '## Missed\n\nBy hand.\n\n## Platform',
  );
  const after = updatePage(page, [report('bridge', 1)], ORDER);
  assert.deepEqual(after.match(/^## .*$/gm), ['## Missed', '## Platform', '## Bridge']);
  assert.ok(after.includes('## Missed\n\nBy hand.\n\n## Platform'));
});

test('a figure that is not a number ends the run instead of standing on the page', () => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(() => updatePage('', [report('platform', value)], ORDER), /time was not measured/);
  }
});

test('the page shows no figure that was not measured', () => {
  const page = readFileSync(`${projectRoot}/docs/measurements.md`, 'utf8');
  assert.doesNotMatch(page, /\| (?:∞|NaN)/);
});

test('writing the same again changes nothing', () => {
  const page = `${updatePage('', [report('platform', 1)], ORDER)}\n${FAULTS}`;
  assert.equal(updatePage(page, [report('platform', 1)], ORDER), page);
});

test('each table is followed by its picture', () => {
  const page = updatePage('', [report('bridge', 1)], ORDER);
  assert.match(page, /\| met \|\n\n!\[bridge: times\]\(measurements\/bridge-times\.svg\)\n$/);
  assert.equal(chartName('Completions: streams of 200 chunks'), 'completions-streams-of-200-chunks.svg');
});

test('the page of the project shows a picture for each of its tables, and there is no other', () => {
  const page = readFileSync(`${projectRoot}docs/measurements.md`, 'utf8').split('## Faults')[0] ?? '';
  const shown = [...page.matchAll(/^### (.+)$/gm)].map(([, title]) => chartName(title ?? ''));
  assert.ok(shown.length > 0 && shown.every((name) => existsSync(`${projectRoot}docs/measurements/${name}`)));
  const files = globSync('docs/measurements/*', { cwd: projectRoot }).map((path) => basename(path));
  assert.deepEqual(files.toSorted(), shown.toSorted());
});

test('every goal that the page of the project shows as missed is explained at its beginning, and no other', () => {
  const page = readFileSync(`${projectRoot}docs/measurements.md`, 'utf8');
  const [before = '', missed = '', ...rest] = page.split(/^(?=## )/m);
  assert.ok(!before.includes('missed**') && missed.startsWith('## Missed goals\n'), 'it comes first');
  const firstCells = (text: string, pattern: RegExp) => [...text.matchAll(pattern)].map(([, cell]) => cell);
  const shown = firstCells(rest.join(''), /^\| (.+?) \|.*\| \*\*missed\*\* \|$/gm);
  const explained = firstCells(missed, /^\| (.+?) \|.*\|$/gm).slice(2);
  assert.deepEqual(explained.toSorted(), shown.toSorted());
});
