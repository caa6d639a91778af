import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';

const manifest = JSON.parse(readFileSync(`${projectRoot}package.json`, 'utf8'));
const page = readFileSync(`${projectRoot}docs/dependencies.md`, 'utf8');

/** Rows `| name | reason |` of the table under a heading. */
function rowsUnder(heading: string): Map<string, string> {
  const section = page.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? '';
  const rows = [...section.matchAll(/^\| `([^`]+)` \| ([^|]+) \|/gm)];
  return new Map(rows.map(([, name = '', reason = '']) => [name, reason.trim()]));
}

const ofOneScript = ['clients', 'pages', 'patterns'].map((folder) =>
  JSON.parse(readFileSync(`${projectRoot}test/${folder}/package.json`, 'utf8')),
);

for (const [heading, packages] of [
  ['At run time', Object.keys(manifest.dependencies)],
  ['Only where they are used', Object.keys(manifest.optionalDependencies)],
  ['For development', Object.keys(manifest.devDependencies)],
  ['For one script', ofOneScript.flatMap(({ devDependencies }) => Object.keys(devDependencies))],
] as const) {
  test(`docs/dependencies.md gives a reason for each package under "${heading}", and for nothing else`, () => {
    const rows = rowsUnder(heading);
    assert.deepEqual([...rows.keys()].sort(), packages.toSorted());
    for (const [name, reason] of rows) assert.ok(reason.length > 20, `${name} has a reason`);
  });
}

test('there are fewer than 40 direct runtime dependencies, each pinned to one version', () => {
  const versions = Object.values<string>({ ...manifest.dependencies, ...manifest.optionalDependencies });
  assert.ok(versions.length < 40);
  for (const version of versions) assert.match(version, /^\d+\.\d+\.\d+$/);
});
