import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';

const DAY_MS = 86_400_000;

test('A-28: a refresh gives a new pair, keeps the session, and ends the old token after ten seconds', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const before = (await accounts.get('session', { token: ann.token })).body.session;
  const { status, body } = await accounts.post('token/refresh', { refresh_token: ann.refreshToken });
  assert.equal(status, 200);
  assert.deepEqual(Object.keys(body).sort(), [
    'access_token',
    'expiresAt',
    'expires_in',
    'refresh_token',
    'token_type',
  ]);
  assert.notEqual(body.access_token, ann.token);
  assert.notEqual(body.refresh_token, ann.refreshToken);
  const after = (await accounts.get('session', { token: body.access_token })).body.session;
  assert.equal(after.id, before.id);
  assert.equal((await accounts.get('session', { token: ann.token })).status, 200, 'within the ten seconds');
  await accounts.clock.advance(10_000);
  assert.equal((await accounts.get('session', { token: ann.token })).status, 401);
  assert.equal((await accounts.get('session', { token: body.access_token })).status, 200);
});

test('A-28: a lost answer may be asked for again for ten seconds and is the same pair', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const first = (await accounts.post('token/refresh', { refresh_token: ann.refreshToken })).body;
  await accounts.clock.advance(9_000);
  const again = (await accounts.post('refresh', { refresh_token: ann.refreshToken })).body;
  assert.deepEqual(
    [again.access_token, again.refresh_token, again.expiresAt],
    [first.access_token, first.refresh_token, first.expiresAt],
  );
  const rows = await accounts.database.query.selectFrom('refresh_tokens').selectAll().execute();
  assert.ok(!JSON.stringify(rows).includes(first.access_token), 'it is kept sealed');
});

test('A-28: many refreshes at the same time with one token all get one pair', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const answers = await Promise.all(
    Array.from({ length: 10 }, () => accounts.post('token/refresh', { refresh_token: ann.refreshToken })),
  );
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  assert.equal(new Set(answers.map(({ body }) => body.refresh_token)).size, 1);
});

test('A-28: the token of before, after ten seconds, ends the whole family and its access, and is recorded', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const second = (await accounts.post('token/refresh', { refresh_token: ann.refreshToken })).body;
  await accounts.clock.advance(10_001);
  const reused = await accounts.post('token/refresh', { refresh_token: ann.refreshToken });
  assert.deepEqual([reused.status, reused.body.error], [401, 'invalid_refresh_token']);
  assert.equal((await accounts.get('session', { token: second.access_token })).status, 401);
  assert.equal((await accounts.post('token/refresh', { refresh_token: second.refresh_token })).status, 401);
  const events = await accounts.database.query
    .selectFrom('audit')
    .selectAll()
    .where('event', '=', 'refresh.reused')
    .execute();
  assert.equal(events.length, 1);
  assert.equal(events[0]?.subject, ann.id);
});

test('A-28: a clock that was set back does not make the ten seconds longer', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  await accounts.post('token/refresh', { refresh_token: ann.refreshToken });
  accounts.clock.stepWall(-3_600_000);
  await accounts.clock.advance(11_000);
  assert.equal((await accounts.post('token/refresh', { refresh_token: ann.refreshToken })).status, 401);
});

test('A-28: a grandparent ends the family immediately, within the ten seconds as well', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const other = await accounts.login(ann);
  const second = (await accounts.post('token/refresh', { refresh_token: ann.refreshToken })).body;
  const third = (await accounts.post('token/refresh', { refresh_token: second.refresh_token })).body;
  assert.equal((await accounts.post('token/refresh', { refresh_token: ann.refreshToken })).status, 401);
  for (const token of [ann.token, second.access_token, third.access_token]) {
    assert.equal((await accounts.get('session', { token })).status, 401);
  }
  assert.equal((await accounts.post('token/refresh', { refresh_token: third.refresh_token })).status, 401);
  assert.equal(
    (await accounts.get('session', { token: other.body.token })).status,
    200,
    'other logins are other families',
  );
});

test('A-30: expired, made up and foreign refresh tokens are one 401', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const bob = await accounts.loggedIn('Bob');
  const bodies = [];
  for (const refresh_token of ['garbage', '', 'x'.repeat(5000), ann.token, `${ann.refreshToken}x`]) {
    const { status, body } = await accounts.post('token/refresh', { refresh_token });
    assert.equal(status, 401);
    bodies.push({ ...body, requestId: '' });
  }
  // Whoever brings a session of their own along gets nothing for the token of another.
  const foreign = await accounts.post('token/refresh', { refresh_token: ann.refreshToken }, { token: bob.token });
  bodies.push({ ...foreign.body, requestId: '' });
  const cookie = `xc_session=${bob.token}`;
  const byCookie = await accounts.post('token/refresh', { refresh_token: ann.refreshToken }, { cookie });
  bodies.push({ ...byCookie.body, requestId: '' });
  const own = await accounts.post('token/refresh', { refresh_token: ann.refreshToken }, { token: ann.token });
  assert.equal(own.status, 200);
  await accounts.clock.sleep(7 * DAY_MS);
  const late = await accounts.post('token/refresh', { refresh_token: own.body.refresh_token });
  bodies.push({ ...late.body, requestId: '' });
  for (const body of bodies) assert.deepEqual(body, bodies[0]);
});

test('a refresh works after the session token has ended, and a family ends after 30 days however often it is used', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  let refreshToken = ann.refreshToken;
  for (let day = 6; day <= 24; day += 6) {
    await accounts.clock.sleep(6 * DAY_MS);
    const { status, body } = await accounts.post('token/refresh', { refresh_token: refreshToken });
    assert.equal(status, 200, `day ${day}`);
    refreshToken = body.refresh_token;
  }
  await accounts.clock.sleep(5.5 * DAY_MS);
  const last = await accounts.post('token/refresh', { refresh_token: refreshToken });
  assert.equal(last.body.expires_in, 43_200, 'half a day is left of the family');
  await accounts.clock.sleep(0.5 * DAY_MS);
  assert.equal((await accounts.get('session', { token: last.body.access_token })).status, 401);
  assert.equal((await accounts.post('token/refresh', { refresh_token: last.body.refresh_token })).status, 401);
});

test('a refresh token is dead once its user is paused or has a new password', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  await accounts.database.query.updateTable('users').set({ active: 0 }).execute();
  assert.equal((await accounts.post('token/refresh', { refresh_token: ann.refreshToken })).status, 401);
  await accounts.database.query.updateTable('users').set({ active: 1 }).execute();
  const change = { currentPassword: ann.password, newPassword: 'another good one' };
  assert.equal((await accounts.post('password/change', change, { token: ann.token })).status, 200);
  assert.equal((await accounts.post('token/refresh', { refresh_token: ann.refreshToken })).status, 401);
});

test('A-31: an exchange code works once, for 60 seconds, for one of two at the same moment', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const code = () => accounts.issueExchangeCode(ann.id);
  const race = await code();
  const answers = await Promise.all([1, 2, 3].map(() => accounts.post('token/exchange', race)));
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 401, 401]);
  const won = answers.find(({ status }) => status === 200);
  assert.equal((await accounts.get('session', { token: won?.body.token })).body.user.id, ann.id);
  assert.equal(won?.headers.get('referrer-policy'), 'no-referrer');
  assert.equal((await accounts.post('token/exchange', race)).body.error, 'invalid_exchange_code');
  const late = await code();
  await accounts.clock.advance(60_000);
  assert.equal((await accounts.post('token/exchange', late)).body.error, 'invalid_exchange_code');
  assert.ok(!accounts.log().includes(race.exchange_code) && !accounts.log().includes(late.exchange_code));
  const inAddress = await accounts.call('POST', `token/exchange?exchange_code=${(await code()).exchange_code}`, {
    body: {},
  });
  assert.equal(inAddress.body.error, 'credentials_in_query');
});

test('A-31: with the second factor on, an exchange code leads to the ticket, and is used up by it', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  const code = await accounts.issueExchangeCode(ann.id);
  const half = await accounts.post('token/exchange', code);
  assert.deepEqual([half.status, half.body.mfaRequired, half.body.token], [200, true, undefined]);
  assert.equal((await accounts.post('token/exchange', code)).status, 401);
  await accounts.clock.advance(31_000);
  const full = await accounts.post('mfa/verify', { mfa_ticket: half.body.mfa_ticket, code: enrolled.code() });
  assert.equal(full.status, 200);
  const race = await accounts.issueExchangeCode(ann.id);
  const answers = await Promise.all([1, 2, 3].map(() => accounts.post('token/exchange', race)));
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 401, 401], 'one ticket, whoever comes first');
});
