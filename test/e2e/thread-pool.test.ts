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
  const names = await threadsOf(pid);
  assert.ok(names.filter((name) => name.startsWith('libuv-worker')).length > availableParallelism() + 2, names.join());
});

test('the thread for longer reads starts with the first of them, not with the program', async (context) => {
  const threads = async (pid: number) => (await threadsOf(pid)).filter((name) => name.trim() === 'sqlite').length;
  const first = await startProgram(context);
  assert.equal(await threads(first.pid), 1, 'on a new machine');
  await first.stop();
  const second = await startProgram(context, { dataDirectory: first.dataDirectory });
  assert.equal(await threads(second.pid), 1, 'with the data of before');
  assert.equal((await fetch(`${second.url}/api/bridge/sessions`)).status, 200);
  assert.equal(await threads(second.pid), 2);
});

async function threadsOf(pid: number): Promise<readonly string[]> {
  const tasks = await readdir(`/proc/${pid}/task`);
  return Promise.all(tasks.map((task) => readFile(`/proc/${pid}/task/${task}/comm`, 'utf8')));
}
