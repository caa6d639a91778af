import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const PASSWORD = 'copper kettle 47 over the pass';

/** As `echo ... | trestle ...`. */
async function runWithInput(args: readonly string[], input: string) {
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(process.execPath, [MAIN, ...args], { cwd: tmpdir(), env: { PATH, HOME } });
  child.stdin.end(input);
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { stdout, stderr, code: code as number | null };
}

async function post(url: string, path: string, body: unknown, token?: string) {
  const headers = { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) };
  const response = await fetch(`${url}/api/auth/${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
  // biome-ignore lint/suspicious/noExplicitAny: tests look at answers of every shape.
  return { status: response.status, body: (await response.json()) as any };
}

test('A-17: the first administrator is made on the command line, with no server, by a password or a token', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const trestle = (...args: string[]) => ['user', ...args, '--data-dir', dataDirectory];
  const create = (name: string, role: string) =>
    trestle('create', '--email', `${name}@example.org`, '--name', name, '--role', role);
  const before = await runProgram(trestle('list'));
  assert.equal(before.code, 78);
  assert.match(before.stderr, /^trestle: There is no Trestle data in /);
  const first = await runWithInput([...create('ann', 'admin'), '--password-stdin', '--json'], `${PASSWORD}\n`);
  assert.equal(first.code, 0, first.stderr);
  const made = JSON.parse(first.stdout);
  assert.deepEqual([made.user.role, made.user.emailVerified, made.token], ['root', true, undefined]);
  const second = await runProgram(create('ben', 'admin'));
  const [, token = ''] = /^ {2}http:\/\/127\.0\.0\.1:\d+\/set-password#token=([\w-]{43})$/m.exec(second.stdout) ?? [];
  assert.match(second.stdout, /ben@example\.org {2}ben {2}admin {2}\(email not verified\)/);

  const program = await startProgram(t, { args: ['accounts'], dataDirectory });
  assert.equal(program.summary.firstAdmin, undefined, 'there is an administrator: no link is printed');
  const login = await post(program.url, 'login', { identifier: 'ann', password: PASSWORD });
  assert.equal(login.body.user.role, 'root');
  const set = await post(program.url, 'password/forgot/confirm', { token, password: PASSWORD });
  assert.equal(set.status, 200);
  assert.equal((await post(program.url, 'login', { identifier: 'ben', password: PASSWORD })).status, 200);

  // The same commands while the server runs: what they change counts at once.
  assert.equal((await runProgram(trestle('role', 'ben@example.org', 'operator'))).code, 0);
  const list = JSON.parse((await runProgram(trestle('list', '--json'))).stdout);
  assert.deepEqual(
    list.users.map((user: { name: string; role: string }) => [user.name, user.role]),
    [
      ['ben', 'operator'],
      ['ann', 'root'],
    ],
  );
  const last = await runProgram(trestle('role', 'ann@example.org', 'user'));
  assert.deepEqual(
    [last.code, last.stderr],
    [1, 'trestle: This is the last administrator who can log in; make another user an administrator first.\n'],
  );
  const reset = JSON.parse((await runProgram(trestle('reset-password', 'ann@example.org', '--json'))).stdout);
  const changed = await post(program.url, 'password/forgot/confirm', {
    token: reset.token,
    password: 'violet harbour 12 north',
  });
  assert.equal(changed.status, 200);
  assert.equal((await post(program.url, 'login', { identifier: 'ann', password: PASSWORD })).status, 401);
  await program.stop();
  assert.ok(!program.stderr().includes(reset.token));
});

test('proxy nodes are registered, listed and revoked on the command line, whether a server runs or not', async (t) => {
  const dataDirectory = await temporaryFolder(t);
  const trestle = (...args: string[]) => runProgram(['proxy-node', ...args, '--data-dir', dataDirectory]);
  const made = await trestle('create', 'node-1', '--name', 'Node 1', '--groups', 'eu, us', '--port', '8443');
  assert.equal(made.code, 0, made.stderr);
  const [token = ''] = made.stdout.split('\n');
  assert.match(token, /^agt_[\w-]{43}$/);
  const twice = await trestle('create', 'node-1');
  assert.equal(twice.stderr, 'trestle: The proxy node "node-1" already exists; revoke it first.\n');
  const program = await startProgram(t, { args: ['accounts'], dataDirectory });
  const users = () =>
    fetch(`${program.url}/api/agent-server/v1/users`, { headers: { authorization: `Bearer ${token}` } });
  assert.equal((await users()).status, 200);
  assert.equal((await trestle('list')).stdout, '  node-1  Node 1  (groups eu, us)\n');
  const oldName = await runProgram(['agent', 'list', '--data-dir', dataDirectory]);
  assert.equal(oldName.stdout, (await trestle('list')).stdout, 'the name of 0.1.0 still works');
  assert.equal((await trestle('revoke', 'node-1')).stdout, 'Revoked node-1.\n');
  assert.equal((await users()).status, 401);
  assert.match((await trestle('list')).stdout, /No proxy nodes/);
});
