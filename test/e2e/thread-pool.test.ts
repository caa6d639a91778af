import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { test } from 'node:test';
import { startProgram } from '../kit/running-program.ts';

test('there is a thread for a password on every core, and some for the rest', async (context) => {
  const { url, pid } = await startProgram(context, { args: ['accounts'] });
  const body = JSON.stringify({ identifier: 'nobody@example.org', password: 'not the password of anybody' });
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${url}/api/auth/login`, { method: 'POST', headers, body });
  assert.equal(answer.status, 401);
  const tasks = await readdir(`/proc/${pid}/task`);
  const names = await Promise.all(tasks.map((task) => readFile(`/proc/${pid}/task/${task}/comm`, 'utf8')));
  assert.ok(names.filter((name) => name.startsWith('libuv-worker')).length > availableParallelism() + 2, names.join());
});
