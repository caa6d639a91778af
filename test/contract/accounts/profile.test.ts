import assert from 'node:assert/strict';
import { test } from 'node:test';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { accountsSettingsOf, startAccounts } from '../../kit/accounts/start-accounts.ts';

const MINUTE_MS = 60_000;

test('owners change their name and, by a code to the new one, their address; nothing sent to the old one counts then', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await accounts.loggedIn('Ann');
  const ben = await accounts.loggedIn('Ben');
  const change = (body: object, token = ann.token) => accounts.call('PATCH', 'profile', { body, token });
  const verdict = async (body: object, token?: string) => {
    const answer = await change(body, token);
    return `${answer.status} ${answer.body.error ?? answer.body.message}`;
  };

  const renamed = await change({ name: 'Anna' });
  assert.deepEqual([renamed.status, renamed.body.user.name], [200, 'Anna']);
  assert.equal((await accounts.login({ ...ann, email: 'anna' })).status, 200, 'the new name logs in');
  assert.equal(await verdict({ name: 'bEN' }), '409 name_already_exists');
  assert.equal(await verdict({ name: 'a@b' }), '400 name_required');
  assert.equal(await verdict({}), '400 missing_credentials');
  assert.equal(await verdict({ role: 'root', name: 'x' }), '400 invalid_request');

  const other = (await accounts.login(ann)).body.token;
  await accounts.post('password/forgot', { email: ann.email });
  const oldToken = await accounts.mailedToken(ann.email);
  assert.equal(await verdict({ email: 'new@example.org' }), '200 verification_sent');
  const code = await accounts.mailedCode('new@example.org');
  const wrong = code === '000000' ? '000001' : '000000';
  assert.equal(await verdict({ email: 'new@example.org', code: wrong }), '400 invalid_code');
  assert.equal(await verdict({ email: 'other@example.org', code }), '400 invalid_code', 'for another address');
  assert.equal(
    await verdict({ email: 'new@example.org', code }, ben.token),
    '400 invalid_code',
    'asked for by another',
  );
  const race = await Promise.all([
    change({ email: 'new@example.org', code }),
    change({ email: 'new@example.org', code }),
  ]);
  assert.ok(race.some(({ status, body }) => status === 200 && body.user.email === 'new@example.org'));
  assert.equal((await accounts.get('session', { token: ann.token })).body.user.email, 'new@example.org');
  assert.equal((await accounts.get('session', { token: other })).status, 401, 'other sessions have ended');
  const late = await accounts.post('password/forgot/confirm', { token: oldToken, password: 'seven tall lanterns' });
  assert.equal(late.body.error, 'invalid_token');
  assert.equal((await accounts.login(ann)).status, 401, 'the old address logs nobody in');
  assert.equal((await accounts.login({ ...ann, email: 'new@example.org' })).status, 200);
  await accounts.eventually(async () => (await accounts.mails(ann.email)).some((mail) => mail.includes('was changed')));
  const entries = await auditOf(accounts, admin, `event=profile.changed&subject=${ann.id}`);
  assert.deepEqual(
    entries.map(({ details }) => details),
    [{ changed: 'email' }, { changed: 'name' }],
  );
  assert.doesNotMatch(JSON.stringify(entries), /example\.org/);
});

test('a token that is mailed to the old address while the address is being changed is worth nothing', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const change = (body: object) => accounts.call('PATCH', 'profile', { body, token: ann.token });
  await change({ email: 'new@example.org' });
  const code = await accounts.mailedCode('new@example.org');
  const { write } = accounts.database;
  const target = accounts.database as { write: typeof write };
  const asked = Promise.withResolvers<void>();
  const changed = Promise.withResolvers<void>();
  target.write = async (statements) => {
    const isForgot = JSON.stringify(statements).includes('"forgot"');
    if (isForgot) asked.resolve();
    if (isForgot) await changed.promise;
    return write(statements);
  };
  const forgot = accounts.post('password/forgot', { email: ann.email });
  await Promise.race([asked.promise, forgot]);
  assert.equal((await change({ email: 'new@example.org', code })).status, 200);
  changed.resolve();
  assert.equal((await forgot).status, 202);
  const tokenIn = async () =>
    /token: ([\w-]{43})/.exec((await accounts.mails(ann.email)).join('').replaceAll('=\n', ''))?.[1];
  await accounts.eventually(async () => (await tokenIn()) !== undefined);
  const token = await tokenIn();
  const set = await accounts.post('password/forgot/confirm', { token, password: 'quiet harbour 19' });
  assert.deepEqual([set.status, set.body.error], [400, 'invalid_token']);
  await accounts.post('password/forgot', { email: 'new@example.org' });
  const own = { token: await accounts.mailedToken('new@example.org'), password: 'quiet harbour 19' };
  assert.equal((await accounts.post('password/forgot/confirm', own)).status, 200);
});

test('a change of address says nothing of who has an account, needs more than a session, and obeys blacklist and domains', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await accounts.loggedIn('Ann');
  const ben = await accounts.loggedIn('Ben');
  const blocked = 'blocked@example.org';
  await accounts.post('admin/blacklist', { email: blocked }, { token: admin.token });
  const change = (body: object, token = ann.token) => accounts.call('PATCH', 'profile', { body, token });
  const answers = [];
  for (const email of [ben.email, 'free@example.org', blocked]) {
    const { status, body } = await change({ email });
    answers.push([status, body.message, body.user.email]);
  }
  assert.deepEqual(answers[0], answers[1]);
  assert.deepEqual(answers[0], answers[2]);
  await accounts.eventually(async () =>
    (await accounts.mails(ben.email)).some((mail) => mail.includes('already have')),
  );
  await accounts.mailedCode('free@example.org');
  assert.deepEqual(await accounts.mails(blocked), []);

  const issued = await accounts.post('tokens', { name: 'script', scopes: ['account'] }, { token: ann.token });
  const byToken = await change({ email: 'mine@example.org' }, issued.body.token);
  assert.deepEqual([byToken.status, byToken.body.error], [403, 'login_required'], 'never by an access token');
  await accounts.clock.advance(5 * MINUTE_MS + 1);
  for (const password of [undefined, 'not the password']) {
    const stale = await change({ email: 'stolen@example.org', password });
    assert.deepEqual([stale.status, stale.body.error], [401, 'reauthentication_required']);
  }
  assert.equal((await change({ email: 'kept@example.org', password: ann.password })).status, 200);
  const code = await accounts.mailedCode('kept@example.org');
  for (let tries = 0; tries < 5; tries += 1) {
    const guess = String((Number(code) + 1 + tries) % 1_000_000).padStart(6, '0');
    assert.equal((await change({ email: 'kept@example.org', code: guess })).body.error, 'invalid_code');
  }
  assert.equal((await change({ email: 'kept@example.org', code })).body.error, 'invalid_code', 'five tries');
  accounts.reload(accountsSettingsOf('{ allowed_domains: [example.org] }'));
  const outside = await change({ email: 'ann@elsewhere.example', password: ann.password });
  assert.deepEqual([outside.status, outside.body.error], [403, 'domain_not_allowed']);
});

test('the limits of mails to a stranger hold for a change of address by a user who is logged in', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const ask = async (email: string, from: string) =>
    (await accounts.call('PATCH', 'profile', { body: { email }, token: ann.token, from })).status;
  const toMany = [];
  for (let count = 0; count < 32; count += 1) toMany.push(await ask(`stranger${count}@example.org`, '10.9.0.1'));
  assert.deepEqual(toMany, [...Array(30).fill(200), 429, 429], '30 an hour by one client address');
  const toOne = [];
  for (let count = 0; count < 12; count += 1) toOne.push(await ask('victim@example.org', `10.9.1.${count}`));
  assert.deepEqual(toOne, [...Array(11).fill(200), 429], '10 an hour to one recipient, then one in ten minutes');
});
