import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { createCommandContext, readPassword } from '../../../src/commands/command-context.ts';
import { runProgram } from '../../../src/commands/program.ts';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';

test('what a command asks of users is refused in the same words as over HTTP', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin', 'Ann');
  const create = (given: object) =>
    accounts.control('users.create', { email: 'ben@example.org', name: 'Ben', role: 'user', ...given });
  const refused: readonly [object, string][] = [
    [{ role: 'boss' }, 'INVALID_ROLE'],
    [{ role: 'root' }, 'SETUP_DONE'],
    [{ email: 'no address' }, 'INVALID_EMAIL'],
    [{ email: admin.email }, 'EMAIL_ALREADY_EXISTS'],
    [{ name: ' ANN ' }, 'NAME_ALREADY_EXISTS'],
    [{ name: '' }, 'NAME_REQUIRED'],
    [{ password: 'short' }, 'PASSWORD_TOO_SHORT'],
    [{ password: 'password1' }, 'PASSWORD_TOO_COMMON'],
  ];
  for (const [given, code] of refused) await assert.rejects(create(given), { code }, JSON.stringify(given));
  for (const method of ['users.role', 'users.resetPassword']) {
    await assert.rejects(accounts.control(method, { user: 'nobody@example.org', role: 'user' }), {
      code: 'USER_NOT_FOUND',
    });
  }
  await assert.rejects(accounts.control('users.role', { user: admin.email, role: 'user' }), { code: 'LAST_ADMIN' });
  await accounts.control('agents.create', { id: 'node-1' });
  await assert.rejects(accounts.control('agents.create', { id: 'node-1' }), { code: 'AGENT_EXISTS' });
  await assert.rejects(accounts.control('agents.create', { id: 'no spaces' }), { code: 'INVALID_PARAMS' });
  await assert.rejects(accounts.control('agents.revoke', { id: 'node-2' }), { code: 'AGENT_NOT_FOUND' });
  const made = await auditOf(accounts, admin, 'actor=command&event=user.created');
  assert.deepEqual([made.length, made[0]?.subject], [1, admin.id]);
});

test('a password is the first line of standard input, as it stands', async () => {
  const said: string[] = [];
  const context = { ...createCommandContext({}), stderr: (line: string) => void said.push(line) };
  const read = (text: string) => {
    const input = new PassThrough();
    input.end(text);
    return readPassword(context, input);
  };
  assert.equal(await read('  with spaces \r\nmore\n'), '  with spaces ');
  assert.equal(await read('no line end'), 'no line end');
  await assert.rejects(read('\n'), { name: 'CommandExit', code: 2 });
  assert.match(said.join(''), /on standard input/);
});

test('a wrong port or a missing address is wrong usage', async () => {
  const context = { ...createCommandContext({}), stdout: () => undefined, stderr: () => undefined };
  assert.equal(await runProgram(['agent', 'create', 'node-1', '--port', '70000'], context), 2);
  assert.equal(await runProgram(['user', 'create', '--name', 'Ann'], context), 2);
});
