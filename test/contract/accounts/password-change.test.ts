import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';

const NEW_PASSWORD = 'quiet harbour 19 lanterns';

test('A-48: a reset starts from a session, for the own address, and its token works once within 15 minutes', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const bob = await accounts.loggedIn('Bob');
  const other = (await accounts.login(ann)).body.token;
  assert.equal((await accounts.post('password/reset')).body.error, 'session_token_required');
  const foreign = await accounts.post('password/reset', { email: bob.email }, { token: ann.token });
  assert.deepEqual([foreign.status, foreign.body.error], [403, 'forbidden']);
  const asked = await accounts.post('password/reset', { email: 'ANN@example.org' }, { token: ann.token });
  assert.equal(asked.status, 202);
  const token = await accounts.mailedToken(ann.email);
  const confirm = (session: string, given: object) =>
    accounts.post('password/reset/confirm', { password: NEW_PASSWORD, ...given }, { token: session });
  assert.equal((await confirm(bob.token, { token })).body.error, 'invalid_token', 'bound to its user');
  assert.equal((await confirm(ann.token, { token: `${token}x` })).body.error, 'invalid_token');
  assert.equal((await confirm(ann.token, { token, password: 'short' })).body.error, 'password_too_short');
  assert.equal((await confirm(ann.token, { token, password: 'password123' })).body.error, 'password_too_common');
  const done = await confirm(ann.token, { token });
  assert.equal(done.status, 200);
  for (const ended of [ann.token, other]) assert.equal((await accounts.get('session', { token: ended })).status, 401);
  assert.equal((await accounts.get('session', { token: done.body.token })).status, 200);
  const rows = await accounts.database.query.selectFrom('sessions').selectAll().where('user_id', '=', ann.id).execute();
  assert.equal(rows.length, 1, 'nothing is left of the others');
  assert.equal((await confirm(done.body.token, { token })).body.error, 'invalid_token', 'once');
  assert.equal((await accounts.login(ann)).status, 401);
  assert.equal((await accounts.login({ ...ann, password: NEW_PASSWORD })).status, 200);
});

test('A-48: a reset token ends after 15 minutes, and a newer one ends it', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const ask = async () => {
    await accounts.post('password/reset', {}, { token: ann.token });
    return accounts.mailedToken(ann.email);
  };
  const first = await ask();
  const second = await ask();
  const confirm = (token: string) =>
    accounts.post('password/reset/confirm', { token, password: NEW_PASSWORD }, { token: ann.token });
  assert.equal((await confirm(first)).body.error, 'invalid_token');
  await accounts.clock.advance(15 * 60_000);
  assert.equal((await confirm(second)).body.error, 'invalid_token');
});

test('A-48: a forgotten password does not get anybody past the second factor', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  assert.equal((await accounts.post('password/forgot', { email: ann.email })).status, 202);
  await accounts.eventually(async () => (await accounts.mails(ann.email)).some((mail) => mail.includes('token: ')));
  const token = await accounts.mailedToken(ann.email);
  const done = await accounts.post('password/forgot/confirm', { token, password: NEW_PASSWORD });
  assert.equal(done.status, 200);
  assert.deepEqual(Object.keys(done.body), ['message', 'linkedLogins']);
  const cookies = done.headers.getSetCookie().map((cookie) => cookie.split('=')[0]);
  assert.deepEqual(cookies, ['xc_device'], 'no session');
  assert.equal((await accounts.get('session', { token: enrolled.token })).status, 401, 'all sessions ended');
  const half = await accounts.login({ ...ann, password: NEW_PASSWORD });
  assert.equal(half.body.mfaRequired, true);
  const again = await accounts.post('password/forgot/confirm', { token, password: NEW_PASSWORD });
  assert.equal(again.body.error, 'invalid_token');
});

test('a token that was mailed proves the address as well', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  await accounts.database.query.updateTable('users').set({ email_verified: 0 }).execute();
  await accounts.database.query.deleteFrom('credentials').execute();
  assert.equal((await accounts.login(ann)).status, 401, 'nobody logs in without a password');
  await accounts.post('password/forgot', { email: ann.email });
  await accounts.eventually(async () => (await accounts.mails(ann.email)).length === 2);
  const token = await accounts.mailedToken(ann.email);
  assert.equal((await accounts.post('password/forgot/confirm', { token, password: NEW_PASSWORD })).status, 200);
  const login = await accounts.login({ ...ann, password: NEW_PASSWORD });
  assert.deepEqual([login.status, login.body.user.emailVerified], [200, true]);
});

test('a forgotten password: the answer and the work are the same for everyone', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const answers = [];
  for (const email of [ann.email, 'nobody@example.org']) {
    const before = accounts.database.statistics();
    const { status, body } = await accounts.post('password/forgot', { email }, { from: '10.0.0.1' });
    await accounts.eventually(async () => {
      const { query } = accounts.database;
      return (await query.selectFrom('outgoing_mails').select('id').execute()).length === 0;
    });
    const after = accounts.database.statistics();
    answers.push({ status, body, writes: after.batches - before.batches });
  }
  assert.deepEqual(answers[0], answers[1]);
  assert.equal((await accounts.post('password/forgot', { email: 'no address' })).status, 202);
  for (let mail = 0; mail < 6; mail += 1) {
    assert.equal((await accounts.post('password/forgot', { email: ann.email }, { from: '10.0.0.2' })).status, 202);
  }
  await accounts.eventually(async () => (await accounts.mails(ann.email)).length >= 5);
  const resets = (await accounts.mails(ann.email)).filter((mail) => mail.includes('Set a new password'));
  assert.equal(resets.length, 4, 'three mails a minute that one requester asks for');
});

test('A-49: ten confirmations of one token at the same moment: one succeeds', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  await accounts.post('password/reset', {}, { token: ann.token });
  const token = await accounts.mailedToken(ann.email);
  const passwords = Array.from({ length: 10 }, (_, index) => `${NEW_PASSWORD} ${index}`);
  const answers = await Promise.all(
    passwords.map((password) => accounts.post('password/reset/confirm', { token, password }, { token: ann.token })),
  );
  const winners = answers.flatMap(({ status }, index) => (status === 200 ? [index] : []));
  assert.equal(winners.length, 1);
  for (const { status, body } of answers) {
    assert.ok(status === 200 || ['invalid_token', 'invalid_session'].includes(body.error), body.error);
  }
  assert.equal((await accounts.login({ ...ann, password: passwords[winners[0] ?? 0] ?? '' })).status, 200);
});

test('A-50: a change needs the current password, and wrong ones are counted like those of a login', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const change = (given: object) =>
    accounts.post('password/change', { newPassword: NEW_PASSWORD, ...given }, { token: ann.token });
  assert.equal((await change({})).body.error, 'reauthentication_required');
  for (let guess = 0; guess < 5; guess += 1) {
    const answer = await change({ currentPassword: `guess number ${guess}` });
    assert.deepEqual([answer.status, answer.body.error], [401, 'reauthentication_required']);
  }
  assert.equal((await change({ currentPassword: ann.password })).status, 401, 'locked');
  await accounts.clock.advance(31_000);
  const done = await change({ currentPassword: ann.password });
  assert.equal(done.status, 200);
  assert.equal((await accounts.login({ ...ann, password: NEW_PASSWORD })).status, 200);
  await accounts.eventually(async () => (await accounts.mails(ann.email)).some((mail) => mail.includes('was changed')));
});

test('a password that was set while a login with the old one was under way wins', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const change = { currentPassword: ann.password, newPassword: NEW_PASSWORD };
  const [changed, ...logins] = await Promise.all([
    accounts.post('password/change', change, { token: ann.token }),
    ...Array.from({ length: 6 }, (_, index) => accounts.login(ann, {}, { from: `10.0.5.${index}` })),
  ]);
  assert.equal(changed.status, 200);
  for (const { status, body } of logins) {
    if (status === 200) assert.equal((await accounts.get('session', { token: body.token })).status, 401);
  }
  const { sessions } = (await accounts.get('sessions', { token: changed.body.token })).body;
  assert.equal(sessions.length, 1);
});
