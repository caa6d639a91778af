import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startProgram } from './running-program.ts';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../', import.meta.url));
const page = readFileSync(`${root}docs/accounts-admin.md`, 'utf8');
const blocks = [...page.matchAll(/^```sh\n(.*?)^```/gms)].map((match) => match[1] ?? '');
const secret = { TRESTLE_ACCOUNTS_BILLING_WEBHOOK_SECRET: 'f3a9c17e5b20d84466fe1902' };
const program = await startProgram({ after }, { args: ['accounts'], environment: secret });

test('the page about administration runs as printed, from the first administrator to the agents', async () => {
  assert.ok(blocks.length >= 8);
  const script = blocks
    .join('\necho\n')
    .replace('http://127.0.0.1:8787', program.url)
    // Whatever answers with an error ends the script.
    .replaceAll('curl -s', 'curl -s --fail-with-body');
  const SETUP = new URL(String(program.summary.firstAdmin)).hash.slice(1);
  const env = { PATH: process.env.PATH ?? '', ...secret, SETUP };
  const { stdout } = await run('/bin/sh', ['-ec', script], { cwd: root, env });
  for (const expected of [
    'setup_completed',
    '"total":1',
    '"role":"operator"',
    '"newUsersLast24h":2',
    '"version":1',
    '"matrix.changed"',
    '"status":"active"',
    '"applied":true',
    '"email":"ann@example.org","flow":"xtls-rprx-vision"',
    '"healthy":true',
    'vless://',
  ]) {
    assert.ok(stdout.includes(expected), `${expected} in: ${stdout}`);
  }
  assert.doesNotMatch(stdout, /"error"/);
});
