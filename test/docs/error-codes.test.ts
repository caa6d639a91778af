import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { accountsErrors } from '../../src/accounts/errors.ts';
import { bridgeErrors } from '../../src/bridge/errors.ts';
import { completionsErrors } from '../../src/completions/errors.ts';
import { platformErrors } from '../../src/platform/errors/error-table.ts';
import { systemErrors } from '../../src/system/errors.ts';
import { projectRoot } from '../architecture/source-file.ts';

const sources = globSync('src/**/*.ts', { cwd: projectRoot }).map((path) =>
  readFileSync(`${projectRoot}${path}`, 'utf8'),
);
const withoutTables = sources.filter((text) => !text.includes('satisfies ErrorTable'));
const rows = new Set(
  [platformErrors, systemErrors, bridgeErrors, completionsErrors, accountsErrors].flatMap((table) =>
    Object.keys(table),
  ),
);

test('O-03: every error that is thrown has a row in a table', () => {
  const thrown = withoutTables.flatMap((text) =>
    [...text.matchAll(/new AppError\(\s*'(\w+)'/g)].map((match) => match[1] ?? ''),
  );
  assert.ok(thrown.length > 20);
  assert.deepEqual(
    thrown.filter((code) => !rows.has(code)),
    [],
  );
});

test('O-03: every row of a table is an error that something throws', () => {
  const unused = [...rows].filter((code) => !withoutTables.some((text) => text.includes(`'${code}'`)));
  assert.deepEqual(unused, []);
});
