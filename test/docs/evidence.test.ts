import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { faultSections, MISSED, PROMISES, promiseLine, rowNameOf } from '../../scripts/docs/evidence-reference.ts';

const page = readFileSync(new URL('../../docs/measurements.md', import.meta.url), 'utf8');

test('each section of faults belongs to a promise, and each promise to a section', () => {
  const promised = PROMISES.map(({ section }) => section);
  assert.deepEqual([...new Set(promised)].toSorted(), [...faultSections(page).keys()].toSorted());
});

test('no promise leaves out a goal of its run that was missed', () => {
  for (const [name, { rows }] of faultSections(page)) {
    const shown = PROMISES.filter(({ section }) => section === name).flatMap(({ result }) => result.map(rowNameOf));
    const missed = rows.filter(({ verdict }) => verdict === MISSED).map((row) => row.name);
    assert.deepEqual(
      missed.filter((row) => !shown.includes(row)),
      [],
      name,
    );
  }
});

const JOBS = `## Faults

### jobs

Written by \`x\` on 2026-11-18.

| what | measured | goal | |
| --- | --- | --- | --- |
| kills | 5 |  |  |
| calls: login | 145: 123 ok, 22 unknown |  |  |
| jobs lost | 0 | 0 | met |
| of them late | 3 | ≤ 2 | **missed** |
`;

test('a line names a goal only where it was missed', () => {
  const promise = {
    promise: 'Jobs are kept.',
    section: 'jobs',
    tried: ['kills', ['calls: login', 'logins']],
    result: ['jobs lost', ['of them late', 'late jobs']],
  } as const;
  assert.equal(
    promiseLine(promise, faultSections(JOBS)),
    '| Jobs are kept. | kills: 5; logins: 145 (123 ok, 22 unknown) | jobs lost: 0; late jobs: 3 (**missed**, goal: ≤ 2) | [jobs](measurements.md#jobs), 2026-11-18 |',
  );
});

test('a section or row that is not in the measurements is an error', () => {
  const line = (section: string, row: string) => () =>
    promiseLine({ promise: '', section, tried: [], result: [row] }, faultSections(JOBS));
  assert.throws(line('disk', 'jobs lost'), /no section "disk"/);
  assert.throws(line('jobs', 'jobs'), /no row "jobs" in its section "jobs"/);
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
