import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { test } from 'node:test';
import { firstLoad } from '../../bench/console/suite.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const MAX_FIRST_LOAD = 150_000;
const MAX_SCREEN = 40_000;
/** A browser loads six files at a time from a server that speaks HTTP/1.1, and the style sheet is one more. */
const MAX_FILES = 7;

interface Manifest {
  readonly script: string;
  readonly style: string;
  readonly imports: readonly string[];
  readonly screens: Readonly<Record<string, readonly string[]>>;
  readonly files: readonly { readonly name: string }[];
}

test('the first page of the console needs at most 150 KB, and no part that is loaded later more than 40 KB (gzip)', async (t) => {
  const { buildConsole } = createRequire(import.meta.url)(join(ROOT, 'scripts', 'build-console.cjs')) as {
    buildConsole(root: string): string;
  };
  const folder = buildConsole(ROOT);
  const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')) as Manifest;
  const { script, style, imports, screens, files } = manifest;
  const size = (name: string) => statSync(join(folder, `${name}.gz`)).size;
  const needed = await firstLoad(folder, script);
  const first = [...needed, style].reduce((sum, name) => sum + size(name), 0);
  t.diagnostic(`first load: ${first} bytes in ${needed.size + 1} files`);
  assert.ok(needed.size > 1 && first > 50_000, 'the imports were found');
  assert.ok(first <= MAX_FIRST_LOAD, `${first} bytes`);
  for (const { name } of files) {
    if (!needed.has(name)) assert.ok(size(name) <= MAX_SCREEN, `${name}: ${size(name)} bytes`);
  }
  // What the page names, so that a browser loads it together: not a file less than is imported.
  assert.deepEqual(new Set([script, ...imports]), needed);
  for (const name of ['board', 'session', 'playground', 'login']) {
    const [own = ''] = screens[name] ?? [];
    const loaded = await firstLoad(folder, own);
    const whole = new Set([...needed, ...(screens[name] ?? [])]);
    assert.deepEqual(whole, new Set([...needed, ...loaded]), name);
    assert.ok(whole.size < MAX_FILES, `${name}: ${whole.size} scripts`);
  }
});
