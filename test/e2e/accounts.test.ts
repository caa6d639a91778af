import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { Secret, TOTP } from 'otpauth';
import { type AccountsClient, createAccountsClient, GOOD_PASSWORD } from '../kit/accounts/accounts-client.ts';
import { createFakeClock } from '../kit/fake-clock.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';

const KEY = Buffer.alloc(32, 9).toString('base64');

async function start(t: TestContext, dataDirectory: string): Promise<RunningProgram & AccountsClient> {
  const environment = { TRESTLE_SECRET_KEY: KEY };
  const program = await startProgram(t, { args: ['accounts', '--log-level', 'debug'], dataDirectory, environment });
  const mails = async (to?: string): Promise<string[]> => {
    const outbox = join(dataDirectory, 'outbox');
    const names = (await readdir(outbox)).filter((name) => name.endsWith('.eml')).sort();
    const texts = await Promise.all(names.map((name) => readFile(join(outbox, name), 'utf8')));
    return texts.filter((text) => to === undefined || text.includes(`To: ${to}\n`));
  };
  return { ...program, ...createAccountsClient({ url: program.url, clock: createFakeClock(), mails }) };
}

test('what was acknowledged survives kill -9: users, sessions, half-finished flows, and what was ended stays ended', async (t) => {
  const folder = await temporaryFolder(t);
  const first = await start(t, folder);
  const ann = await first.loggedIn('Ann');
  const bob = await first.loggedIn('Bob');
  await first.call('DELETE', 'session', { token: bob.token });
  await first.post('register/send', { email: 'cleo@example.org' });
  const code = await first.mailedCode('cleo@example.org');
  const { verificationToken } = (await first.post('register/verify', { email: 'cleo@example.org', code })).body;
  await first.stop('SIGKILL');

  const second = await start(t, folder);
  assert.equal((await second.get('session', { token: ann.token })).body.user.name, 'Ann');
  assert.equal((await second.get('session', { token: bob.token })).status, 401);
  assert.equal((await second.post('token/refresh', { refresh_token: ann.refreshToken })).status, 200);
  const cleo = { name: 'Cleo', email: 'cleo@example.org', password: GOOD_PASSWORD, verificationToken };
  assert.equal((await second.post('register', cleo)).status, 201);
});

test('A-46: no secret stands in clear in the database files or the log, after every flow', async (t) => {
  const folder = await temporaryFolder(t);
  const program = await start(t, folder);
  const secrets: string[] = [GOOD_PASSWORD];
  const keep = (...values: readonly unknown[]) => secrets.push(...values.filter((value) => typeof value === 'string'));
  const ann = await program.loggedIn('Ann');
  keep(ann.token, ann.refreshToken, await program.mailedCode(ann.email));
  const refreshed = (await program.post('token/refresh', { refresh_token: ann.refreshToken })).body;
  keep(refreshed.access_token, refreshed.refresh_token);
  const provision = (await program.post('mfa/totp/provision', {}, { token: refreshed.access_token })).body;
  keep(provision.secret, provision.mfaToken);
  const totp = new TOTP({ secret: Secret.fromBase32(provision.secret) });
  const verified = await program.post('mfa/totp/verify', { code: totp.generate() }, { token: refreshed.access_token });
  assert.equal(verified.status, 200, verified.text);
  keep(verified.body.token, ...verified.body.recoveryCodes);
  const half = (await program.login(ann)).body;
  keep(half.mfa_ticket);
  const full = await program.post('mfa/verify', {
    mfa_ticket: half.mfa_ticket,
    recoveryCode: verified.body.recoveryCodes[0],
  });
  assert.equal(full.status, 200, full.text);
  await program.post('password/reset', {}, { token: full.body.token });
  keep(full.body.token, await program.mailedToken(ann.email));
  await program.post('password/forgot', { email: ann.email });
  await program.post('login', { identifier: ann.email, password: 'a wrong but secret guess' });
  keep('a wrong but secret guess');
  await program.post('token/refresh', { refresh_token: 'garbage-that-might-be-a-token' });
  keep('garbage-that-might-be-a-token');

  const looked = (await readdir(folder)).filter((name) => name.startsWith('accounts.db'));
  assert.ok(looked.length > 0);
  const contents = await Promise.all(looked.map((name) => readFile(join(folder, name), 'latin1')));
  const haystack = contents.join('\n') + program.stderr();
  assert.ok(haystack.includes('ann@example.org'), 'the search finds what is there');
  const raw = Buffer.from(Secret.fromBase32(provision.secret).buffer).toString('latin1');
  for (const secret of [...secrets.filter((value) => value.length > 6), raw]) {
    assert.ok(!haystack.includes(secret), `${secret.slice(0, 4)}... stands in clear`);
  }
  assert.ok(!program.stderr().includes(ann.email), 'no address in the log');
});

test('serve with all services has accounts as well, in the API description and behind the same address', async (t) => {
  const program = await startProgram(t);
  const description = (await (await fetch(`${program.url}/openapi.json`)).json()) as { paths: Record<string, unknown> };
  for (const path of [
    '/api/auth/login',
    '/api/auth/register',
    '/api/auth/mfa/totp/verify',
    '/api/auth/sessions/{id}',
  ]) {
    assert.ok(path in description.paths, path);
  }
  const answer = await fetch(`${program.url}/api/auth/session`);
  assert.equal(answer.status, 401);
  assert.equal(((await answer.json()) as { error: string }).error, 'session_token_required');
});
