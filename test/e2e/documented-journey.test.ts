import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { startProgram } from './running-program.ts';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../../', import.meta.url));
const page = readFileSync(`${root}docs/accounts.md`, 'utf8');
const blocks = [...page.matchAll(/^```sh\n(.*?)^```/gms)].map((match) => match[1] ?? '');
const program = await startProgram({ after });

test('the page about accounts runs as printed, from registration to a new password', async () => {
  assert.ok(blocks.length >= 8);
  const script = blocks
    .join('\necho\n')
    .replace('http://127.0.0.1:8787', program.url)
    .replace('DATA=./data', `DATA='${program.dataDirectory}'`)
    // Whatever answers with an error ends the script.
    .replaceAll('curl -s', 'curl -s --fail-with-body');
  const { stdout } = await run('/bin/sh', ['-ec', script], { cwd: root, env: { PATH: process.env.PATH ?? '' } });
  for (const expected of [
    'verification_sent',
    '"name":"Ann"',
    'mfa_verified',
    '"recoveryCodesLeft":9',
    'password_reset',
  ]) {
    assert.ok(stdout.includes(expected), `${expected} in: ${stdout}`);
  }
  assert.doesNotMatch(stdout, /"error"/);
  const login = await fetch(`${program.url}/api/auth/login`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ identifier: 'Ann', password: 'seven tall lanterns' }),
  });
  assert.equal(login.status, 200);
});
