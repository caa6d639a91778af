import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { faultSections, PROMISES } from '../../scripts/docs/evidence-reference.ts';

const page = readFileSync(new URL('../../docs/measurements.md', import.meta.url), 'utf8');

test('each section of faults belongs to a promise, and each promise to a section', () => {
  const promised = PROMISES.map(({ section }) => section);
  assert.deepEqual([...new Set(promised)].toSorted(), [...faultSections(page).keys()].toSorted());
});

test('no promise leaves out a goal of its run that was missed', () => {
  for (const [name, { rows }] of faultSections(page)) {
    const shown = PROMISES.filter(({ section }) => section === name).flatMap(({ result }) => result);
    const missed = rows.filter(({ verdict }) => verdict === '**missed**');
    for (const row of missed)
      assert.ok(
        shown.some((start) => row.name.startsWith(start)),
        `${name}: ${row.name}`,
      );
  }
});

test('rows are read with their goals, and tables of other parts are not', () => {
  const sections = faultSections(
    '## Other\n\n### one\n\n| a | 1 |\n\n## Faults\n\n### jobs\n\nWritten by `x` on 2026-11-18.\n\n| what | measured | goal | |\n| --- | --- | --- | --- |\n| kills | 5 |  |  |\n| lost | 1 | 0 | **missed** |\n\n## Coverage\n\n### two\n',
  );
  assert.deepEqual(
    [...sections],
    [
      [
        'jobs',
        {
          run: 'Written by `x` on 2026-11-18.',
          rows: [
            { name: 'kills', measured: '5', goal: '', verdict: '' },
            { name: 'lost', measured: '1', goal: '0', verdict: '**missed**' },
          ],
        },
      ],
    ],
  );
});
