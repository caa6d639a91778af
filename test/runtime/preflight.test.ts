import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';

const { findProblem } = createRequire(import.meta.url)('../../scripts/preflight.cjs');

function projectIn(t: TestContext, folders: readonly string[]): string {
  const root = mkdtempSync(join(tmpdir(), 'trestle-preflight-'));
  t.after(() => rmSync(root, { recursive: true }));
  const manifest = { engines: { node: '>=24.11' }, dependencies: { 'a-library': '1.0.0' } };
  writeFileSync(join(root, 'package.json'), JSON.stringify(manifest));
  for (const folder of folders) mkdirSync(join(root, folder), { recursive: true });
  if (folders.includes('node_modules/a-library'))
    writeFileSync(join(root, 'node_modules/a-library/package.json'), '{}');
  return root;
}

test('an old Node in a checkout is named in one line that says what to do', (t) => {
  const root = projectIn(t, ['src', 'node_modules/a-library']);
  assert.equal(
    findProblem(root, 'v20.20.2'),
    'Trestle needs Node 24.11 or newer; this is v20.20.2. Run: npm rebuild node --ignore-scripts=false (install scripts were switched off), or use your own Node 24.11.',
  );
});

test('a Node that is new enough is let through, to the minor version', (t) => {
  const root = projectIn(t, ['src', 'node_modules/a-library']);
  for (const version of ['v24.11.0', 'v24.21.0', 'v25.0.0', 'v100.1.0']) {
    assert.equal(findProblem(root, version), undefined);
  }
  for (const version of ['v24.10.9', 'v23.99.0', 'v14.18.0', 'v9.0.0']) {
    assert.match(findProblem(root, version), /needs Node/);
  }
});

test('missing dependencies come first, for npm install brings the runtime too', (t) => {
  const root = projectIn(t, ['src']);
  assert.match(findProblem(root, 'v20.20.2'), /Run: npm install$/);
  assert.match(findProblem(root, 'v24.21.0'), /Run: npm install$/);
});

test('in an installed package the advice is not about a checkout', (t) => {
  const root = projectIn(t, ['dist']);
  assert.equal(findProblem(root, 'v24.21.0'), undefined);
  assert.match(findProblem(root, 'v20.20.2'), /^Trestle needs Node 24\.11 or newer; this is v20\.20\.2\. Install it/);
});
