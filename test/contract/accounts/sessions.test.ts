import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { createToken } from '../../../src/platform/secrets/tokens.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';

const HOUR_MS = 3_600_000;

test('A-20: session tokens have 256 random bits, never repeat, and are stored as digests', async (t) => {
  const seen = new Set<string>();
  const counts = new Array<number>(256).fill(0);
  const SAMPLES = 100_000;
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    const token = createToken(systemRandomness);
    seen.add(token);
    for (const byte of Buffer.from(token, 'base64url')) counts[byte] = (counts[byte] ?? 0) + 1;
  }
  assert.equal(seen.size, SAMPLES);
  const expected = (SAMPLES * 32) / 256;
  const chiSquare = counts.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0);
  assert.ok(chiSquare < 400, `chi square ${chiSquare} with 255 degrees of freedom`);

  const accounts = await startAccounts(t);
  const { token, refreshToken } = await accounts.loggedIn('Ann');
  assert.match(token, /^[\w-]{43}$/);
  const { query } = accounts.database;
  for (const table of ['sessions', 'session_tokens', 'refresh_tokens'] as const) {
    const rows = JSON.stringify(await query.selectFrom(table).selectAll().execute());
    assert.ok(!rows.includes(token) && !rows.includes(refreshToken), table);
  }
});

test('A-21: the session cookie is HttpOnly, SameSite=Lax, for the whole site, without Domain; Secure on https', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const plain = (await accounts.login(ann)).headers.getSetCookie().find((cookie) => cookie.startsWith('xc_session='));
  assert.match(plain ?? '', /^xc_session=[\w-]{43}; Max-Age=2592000; Path=\/; HttpOnly; SameSite=Lax$/);
  const secure = await accounts.login(ann, {}, { headers: { 'x-forwarded-proto': 'https' } });
  for (const cookie of secure.headers.getSetCookie()) assert.match(cookie, /; Secure/);
  for (const cookie of secure.headers.getSetCookie()) assert.doesNotMatch(cookie, /domain/i);
});

test('A-21: the proxy’s word for https counts only when the proxy is trusted; a public https address counts always', async (t) => {
  const plain = await startAccounts(t, { trustedProxies: [] });
  const ann = await plain.register('Ann');
  const answer = await plain.login(ann, {}, { headers: { 'x-forwarded-proto': 'https' } });
  for (const cookie of answer.headers.getSetCookie()) assert.doesNotMatch(cookie, /Secure/);
  const secure = await startAccounts(t, { settings: '{ public_url: "https://accounts.example", registration: open }' });
  const bob = await secure.register('Bob');
  for (const cookie of (await secure.login(bob)).headers.getSetCookie()) assert.match(cookie, /; Secure/);
});

test('A-22: what a client brings along never becomes a session, and every step gives a new token', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const planted = createToken(systemRandomness);
  const first = await accounts.login(ann, {}, { cookie: `xc_session=${planted}` });
  assert.notEqual(first.body.token, planted);
  assert.equal((await accounts.get('session', { token: planted })).status, 401);
  const second = await accounts.login(ann, {}, { cookie: `xc_session=${first.body.token}` });
  assert.notEqual(second.body.token, first.body.token);
  const enrolled = await accounts.enrol({ ...ann, token: second.body.token, refreshToken: '', answer: second });
  assert.notEqual(enrolled.token, second.body.token);
  for (const old of [first.body.token, second.body.token]) {
    assert.equal((await accounts.get('session', { token: old })).body.error, 'invalid_session');
  }
  await accounts.clock.advance(31_000);
  const half = await accounts.login(ann);
  const full = await accounts.post('mfa/verify', { mfa_ticket: half.body.mfa_ticket, code: enrolled.code() });
  assert.notEqual(full.body.token, half.body.mfa_ticket);
  const change = { currentPassword: ann.password, newPassword: 'another good one' };
  const changed = await accounts.post('password/change', change, { token: full.body.token });
  assert.equal((await accounts.get('session', { token: full.body.token })).status, 401);
  assert.equal((await accounts.get('session', { token: changed.body.token })).status, 200);
});

test('A-23: after a logout the token, its cookie and its refresh token are dead everywhere', async (t) => {
  const accounts = await startAccounts(t);
  const { token, refreshToken } = await accounts.loggedIn('Ann');
  const out = await accounts.call('DELETE', 'session', { token });
  assert.equal(out.status, 204);
  assert.match(out.headers.get('set-cookie') ?? '', /^xc_session=; Max-Age=0;/);
  for (const [method, path] of [
    ['GET', 'session'],
    ['DELETE', 'session'],
    ['GET', 'sessions'],
    ['POST', 'mfa/totp/provision'],
    ['POST', 'password/change'],
    ['POST', 'config/sync'],
  ] as const) {
    const body = method === 'POST' ? { body: {} } : {};
    const answer = await accounts.call(method, path, { token, ...body });
    assert.deepEqual([answer.status, answer.body.error], [401, 'invalid_session'], path);
  }
  assert.equal((await accounts.get('session', { cookie: `xc_session=${token}` })).status, 401);
  const refreshed = await accounts.post('token/refresh', { refresh_token: refreshToken });
  assert.deepEqual([refreshed.status, refreshed.body.error], [401, 'invalid_refresh_token']);
});

test('A-25: a write with the cookie must come from this very site; a bearer token need not', async (t) => {
  const accounts = await startAccounts(t, {
    settings: '{ public_url: "https://accounts.example", registration: open }',
  });
  const ann = await accounts.loggedIn('Ann');
  const cookie = `xc_session=${ann.token}`;
  const own = new URL(accounts.url).origin;
  const refused: readonly Record<string, string>[] = [
    {},
    { origin: 'https://evil.example' },
    { origin: 'null' },
    { origin: `${own}.evil.example` },
    { origin: 'https://accounts.example.evil' },
    { origin: 'http://accounts.example' },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'none' },
    { origin: own, 'sec-fetch-site': 'cross-site' },
    { origin: 'https://evil.example', 'sec-fetch-site': 'same-origin' },
  ];
  for (const headers of refused) {
    for (const method of ['POST', 'DELETE']) {
      const path = method === 'POST' ? 'mfa/totp/provision' : 'sessions';
      const body = method === 'POST' ? { body: {} } : {};
      const answer = await accounts.call(method, path, { cookie, headers, ...body });
      assert.deepEqual([answer.status, answer.body.error], [403, 'cross_site_request'], JSON.stringify(headers));
    }
  }
  for (const headers of [
    { origin: own },
    { origin: 'https://accounts.example' },
    { 'sec-fetch-site': 'same-origin' },
  ]) {
    assert.equal((await accounts.call('DELETE', 'sessions', { cookie, headers })).status, 204, JSON.stringify(headers));
  }
  assert.equal((await accounts.get('session', { cookie })).status, 200, 'reading needs no origin');
  const bearer = { token: ann.token, headers: { origin: 'https://evil.example' } };
  assert.equal((await accounts.call('DELETE', 'sessions', bearer)).status, 204);
  const form = { cookie, text: 'a=b', headers: { origin: own, 'content-type': 'text/plain' } };
  assert.equal((await accounts.call('POST', 'mfa/totp/provision', form)).status, 415);
});

test('the bearer token wins over the cookie, even when it is wrong; two different cookies are none', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const bob = await accounts.loggedIn('Bob');
  const cookie = `xc_session=${bob.token}`;
  assert.equal((await accounts.get('session', { token: ann.token, cookie })).body.user.name, 'Ann');
  assert.equal((await accounts.get('session', { token: 'wrong', cookie })).body.error, 'invalid_session');
  const basic = await accounts.get('session', { cookie, headers: { authorization: 'Basic eDp5' } });
  assert.equal(basic.body.error, 'session_token_required');
  const two = await accounts.get('session', { cookie: `xc_session=${ann.token}; xc_session=${bob.token}` });
  assert.equal(two.body.error, 'session_token_required');
  assert.equal((await accounts.get('session', { cookie: `a=b; ${cookie}` })).body.user.name, 'Bob');
});

test('a session ends 24 hours after it began, and after 12 hours without use', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  for (let used = 0; used < 2; used += 1) {
    await accounts.clock.sleep(11 * HOUR_MS);
    assert.equal((await accounts.get('session', { token: ann.token })).status, 200);
    await seenIsStored(accounts);
  }
  await accounts.clock.sleep(2 * HOUR_MS);
  assert.equal((await accounts.get('session', { token: ann.token })).status, 401, '24 hours');
  const idle = (await accounts.login(ann)).body.token;
  await accounts.clock.sleep(12 * HOUR_MS);
  assert.equal((await accounts.get('session', { token: idle })).status, 401, '12 hours unused');
});

test('A-35: sessions are listed and ended one by one, or all others together; nobody sees those of others', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const tokens = [];
  for (const agent of ['first', 'second', 'third']) {
    tokens.push((await accounts.login(ann, {}, { from: '10.0.0.7', headers: { 'user-agent': agent } })).body.token);
  }
  const [first, second, third] = tokens;
  const { sessions } = (await accounts.get('sessions', { token: first })).body;
  assert.deepEqual(
    sessions.map(({ userAgent }: { userAgent: string }) => userAgent),
    ['third', 'second', 'first'],
  );
  assert.deepEqual(
    sessions.map(({ current }: { current: boolean }) => current),
    [false, false, true],
  );
  assert.equal(sessions[0].address, '10.0.0.7');
  const bob = await accounts.loggedIn('Bob');
  const foreign = await accounts.call('DELETE', `sessions/${sessions[1].id}`, { token: bob.token });
  assert.deepEqual([foreign.status, foreign.body.error], [404, 'session_not_found']);
  assert.equal((await accounts.call('DELETE', `sessions/${sessions[1].id}`, { token: first })).status, 204);
  assert.equal((await accounts.get('session', { token: second })).status, 401);
  assert.equal((await accounts.call('DELETE', 'sessions', { token: first })).status, 204);
  assert.equal((await accounts.get('session', { token: third })).status, 401);
  assert.equal((await accounts.get('session', { token: first })).status, 200);
  assert.equal((await accounts.get('session', { token: bob.token })).status, 200);
});

test('A-35: a change of password or of the second factor ends all other sessions', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  await accounts.clock.advance(31_000);
  const other = (await accounts.login(ann, { totpCode: enrolled.code() })).body.token;
  await accounts.clock.advance(31_000);
  const disable = { password: ann.password, code: enrolled.code() };
  assert.equal((await accounts.post('mfa/disable', disable, { token: enrolled.token })).status, 200);
  assert.equal((await accounts.get('session', { token: other })).status, 401);
  assert.equal((await accounts.get('session', { token: enrolled.token })).status, 200, 'the own one goes on');
  const change = { currentPassword: ann.password, newPassword: 'another good one' };
  const third = (await accounts.login(ann)).body.token;
  assert.equal((await accounts.post('password/change', change, { token: enrolled.token })).status, 200);
  for (const token of [third, enrolled.token]) assert.equal((await accounts.get('session', { token })).status, 401);
});

test('a pause, a role and the loss of an account count on the next request', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const set = (change: { active?: number; role?: string }) =>
    accounts.database.query.updateTable('users').set(change).execute();
  await set({ role: 'readonly' });
  assert.equal((await accounts.get('session', { token: ann.token })).body.user.role, 'readonly');
  const write = await accounts.post('config/sync', {}, { token: ann.token });
  assert.deepEqual([write.status, write.body.error], [403, 'read_only_account']);
  assert.equal(
    (await accounts.post('mfa/totp/provision', {}, { token: ann.token })).status,
    200,
    'the own second factor',
  );
  await set({ active: 0 });
  assert.equal((await accounts.get('session', { token: ann.token })).body.error, 'invalid_session');
  await set({ active: 1, role: 'user' });
  await accounts.database.query.deleteFrom('users').execute();
  assert.equal((await accounts.get('session', { token: ann.token })).body.error, 'invalid_session');
});

test('A-62: configuration sync is 501 with a stable body, after the session check', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  assert.equal((await accounts.post('config/sync')).status, 401);
  const { status, body } = await accounts.post('config/sync', {}, { token: ann.token });
  assert.equal(status, 501);
  assert.deepEqual(Object.keys(body), ['error', 'message', 'requestId']);
  assert.equal(body.error, 'not_implemented');
});

/** Uses are stored a second later, by a task of their own. */
async function seenIsStored({ clock, database }: Awaited<ReturnType<typeof startAccounts>>): Promise<void> {
  await clock.advance(1000);
  for (let look = 0; look < 200; look += 1) {
    const rows = await database.query.selectFrom('sessions').select('last_seen_at').execute();
    if (rows.every(({ last_seen_at: seen }) => seen >= clock.now() - 1000)) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error('the use of a session was not stored');
}

test('DA-18: a browser stays logged in for 30 days while it is used, and 12 hours while it is not; a bearer token a day', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const cookie = `xc_session=${ann.token}`;
  assert.match(ann.answer.headers.getSetCookie().join(), /xc_session=[^;]+; Max-Age=2592000;/);
  for (let used = 1; used * 10 < 30 * 24; used += 1) {
    await accounts.clock.sleep(10 * HOUR_MS);
    const { status, body } = await accounts.get('session', { cookie });
    assert.equal(status, 200, `after ${used * 10} hours`);
    assert.ok(Date.parse(body.session.expiresAt) > accounts.clock.now());
    if (used === 3) assert.equal((await accounts.get('session', { token: ann.token })).status, 401, 'a day as bearer');
    await seenIsStored(accounts);
  }
  await accounts.clock.sleep(10 * HOUR_MS);
  assert.equal((await accounts.get('session', { cookie })).status, 401, '30 days');
  const idle = `xc_session=${(await accounts.login(ann)).body.token}`;
  await accounts.clock.sleep(12 * HOUR_MS);
  assert.equal((await accounts.get('session', { cookie: idle })).status, 401, '12 hours unused');
});

test('DA-18: the limits of sessions are settings', async (t) => {
  const settings = '{ sessions: { idle: 10m, cookie_lifetime: 15m, token_lifetime: 5m } }';
  const accounts = await startAccounts(t, { settings });
  const ann = await accounts.loggedIn('Ann');
  assert.equal(ann.answer.body.expires_in, 300);
  const cookie = `xc_session=${ann.token}`;
  await accounts.clock.advance(8 * 60_000);
  assert.equal((await accounts.get('session', { token: ann.token })).status, 401);
  assert.equal((await accounts.get('session', { cookie })).status, 200);
  await seenIsStored(accounts);
  await accounts.clock.advance(7 * 60_000);
  assert.equal((await accounts.get('session', { cookie })).status, 401);
});
