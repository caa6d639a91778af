import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { projectRoot } from '../architecture/source-file.ts';
import { runCommand } from './run-command.ts';

/** A checkout on a machine whose own Node is too old, with npm told to run no install scripts. */
const folder = mkdtempSync(join(tmpdir(), 'trestle-runtime-'));
const ADVICE = /^Trestle needs Node 24\.\d+ or newer; this is v\S+\. Run: npm rebuild node --ignore-scripts=false \(/m;
let outerVersion = '';
let installed = '';

before(async () => {
  outerVersion = (await runCommand(['node', '--version'], folder)).stdout.trim();
  for (const name of ['package.json', 'package-lock.json', '.npmrc', 'scripts']) {
    cpSync(join(projectRoot, name), join(folder, name), { recursive: true });
  }
  mkdirSync(join(folder, 'src'));
  const { code, stdout, stderr } = await runCommand(['npm', 'ci', '--ignore-scripts'], folder);
  assert.equal(code, 0, stderr);
  installed = `${stdout}${stderr}`;
});

after(() => rmSync(folder, { recursive: true, force: true }));

test('DP-9: npm install prints no warnings, whichever Node runs it', () => {
  const lines = linesOf(installed).filter((line) => !line.includes('Unknown user config'));
  assert.ok(lines.length <= 3, installed);
  assert.doesNotMatch(installed, /EBADENGINE|npm warn deprecated/);
});

function isOld(): boolean {
  return Number(/^v(\d+)/.exec(outerVersion)?.[1]) < 24;
}

for (const script of ['start', 'test', 'check', 'build']) {
  test(`npm run ${script} without the pinned runtime says in one line what to do`, async (t) => {
    if (!isOld()) return t.skip(`the machine's own Node is ${outerVersion}`);
    const { code, stderr, stdout } = await runCommand(['npm', 'run', '--silent', script], folder);
    assert.match(stderr, ADVICE);
    assert.equal(linesOf(stderr).length + linesOf(stdout).length, 1, stderr + stdout);
    assert.equal(code, 78);
  });
}

test('doing what the line says brings the pinned runtime', async () => {
  await runCommand(['npm', 'rebuild', 'node', '--ignore-scripts=false'], folder);
  const { stdout } = await runCommand(['npm', 'exec', '--offline', '--', 'node', '--version'], folder);
  assert.match(stdout, /^v24\./);
});

/** What the program said: npm's own remarks about the machine's settings do not count. */
function linesOf(text: string): string[] {
  return text.split('\n').filter((line) => line !== '' && !line.startsWith('npm warn'));
}
