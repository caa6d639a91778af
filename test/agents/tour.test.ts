import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { TOUR } from '../kit/tour-page.ts';
import { realFolder } from './real-agent.ts';

const PROJECT = join(import.meta.dirname, '..', '..');
const LIMIT_MS = 400_000;
/** What must be told; the story itself checks what it tells. */
const TOLD: readonly RegExp[] = [
  /^ {3}ok {2}codex is installed$/m,
  /^4\. Ann lets claude work, and is asked in the console$/m,
  /^ {3}ok {2}the audit log has the answer of Ann$/m,
  /^5\. Ben lets codex work, and is asked in the terminal$/m,
  /^ {3}ok {2}the audit log has the answer of Ben$/m,
  /^ {3}ok {2}codex has won$/m,
  /^11\. What everything has cost, to the cent$/m,
  /^ {3}ok {2}together \d+ cents, and the model API says the same$/m,
  /^ {3}ok {2}the other two instances end in good order$/m,
];

test('the whole story holds with Claude, Codex, a browser and a terminal, and makes the tour of docs/', {
  timeout: LIMIT_MS + 20_000,
}, async (t) => {
  const folder = await realFolder(t, 'trestle-tour-');
  // It installs what test/pages needs, and finds the browser.
  const args = ['scripts/run.cjs', 'scripts/test-folder.ts', 'pages', 'record-tour.ts', folder];
  const child = spawn(process.execPath, args, { cwd: PROJECT, stdio: ['ignore', 'pipe', 'pipe'], timeout: LIMIT_MS });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  }
  const [code] = (await once(child, 'close')) as [number | null];
  assert.equal(code, 0, output);
  for (const line of TOLD) assert.match(output, line);
  const [made, kept] = await Promise.all(
    [join(folder, 'tour.md'), join(PROJECT, 'docs', 'tour.md')].map((file) => readFile(file, 'utf8')),
  );
  assert.equal(made, kept, 'npm run test:console -- record-tour.ts docs writes the page');
  for (const { moment } of TOUR)
    assert.ok((await stat(join(folder, 'images', `tour-${moment}.png`))).size > 5000, moment);
});
