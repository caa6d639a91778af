import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { listFiles, projectRoot } from '../architecture/source-file.ts';

const page = readFileSync(`${projectRoot}docs/internals.md`, 'utf8');
const rows = [...page.matchAll(/^\| ([^|]+) \| `([^`]+)` \|.*\| `([^`]+)` \|$/gm)];

test('every row of docs/internals.md names a source and a test that exist', () => {
  assert.ok(rows.length > 10);
  for (const [, piece, source = '', guard = ''] of rows) {
    assert.ok(existsSync(`${projectRoot}${source}`), `${piece}: ${source}`);
    assert.ok(existsSync(`${projectRoot}${guard}`), `${piece}: ${guard}`);
  }
});

/** Words that only code with knowledge of Node's or Linux's inside uses. */
const INSIDE =
  /Atomics\.wait\(|getBuiltinModule|registerHooks|module'\)\.enableCompileCache|UV_THREADPOOL_SIZE|\/proc\/|NetServer\.prototype/;

test('every file that depends on the inside of Node or Linux has a row in docs/internals.md', () => {
  const listed = new Set(rows.map(([, , source]) => source));
  const found = listFiles(['src', 'scripts'])
    .filter((path) => /\.(?:ts|cjs)$/.test(path))
    .filter((path) =>
      INSIDE.test(readFileSync(`${projectRoot}${path}`, 'utf8').replaceAll(/^\s*(?:\/\/|\*|\/\*).*$/gm, '')),
    );
  assert.deepEqual(
    found.filter((path) => !listed.has(path)),
    [],
  );
});
