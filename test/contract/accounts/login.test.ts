import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Answer } from '../../kit/accounts/accounts-client.ts';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';

const cookieOf = (answer: Answer, name: string): string =>
  answer.headers
    .getSetCookie()
    .find((cookie) => cookie.startsWith(`${name}=`))
    ?.split(';')[0] ?? '';
const sum = ({ user, system }: NodeJS.CpuUsage): number => user + system;

test('a login gives tokens under all their names, by name or e-mail address', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  for (const names of [
    { identifier: 'ann@EXAMPLE.org' },
    { account: 'ANN' },
    { username: 'Ann' },
    { email: ann.email },
  ]) {
    const { status, body } = await accounts.post('login', { ...names, password: ann.password });
    assert.equal(status, 200);
    assert.equal(body.token, body.access_token);
    assert.deepEqual([body.token_type, body.expires_in], ['Bearer', 86_400]);
    assert.deepEqual([body.mfaRequired, body.mfa_required], [false, false]);
    assert.equal(body.user.id, ann.id);
  }
  for (const body of [{}, { identifier: 'ann' }, { password: 'x' }, { identifier: '', password: '' }]) {
    assert.equal((await accounts.post('login', body)).body.error, 'missing_credentials');
  }
});

test('A-11: a hash with old parameters is renewed by a login, and only then', async (t) => {
  const accounts = await startAccounts(t, { costlyPasswords: true });
  const ann = await accounts.register('Ann');
  const { hash } = await import('@node-rs/argon2');
  const weak = await hash(ann.password, { memoryCost: 8192, timeCost: 1, parallelism: 1 });
  const users = accounts.database.query;
  await users.updateTable('credentials').set({ value: weak }).execute();
  await accounts.post('login', { identifier: 'ann', password: 'not the password' });
  const stored = async () => (await users.selectFrom('credentials').select('value').executeTakeFirstOrThrow()).value;
  assert.equal(await stored(), weak);
  assert.equal((await accounts.login(ann)).status, 200);
  assert.match((await stored()) ?? '', /^\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
  const renewed = await stored();
  assert.equal((await accounts.login(ann)).status, 200);
  assert.equal(await stored(), renewed);
});

test('a login beside its hash is four reads and one batch', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const costs: { readonly reads: number; readonly batches: number }[] = [];
  for (let time = 0; time < 6; time += 1) {
    const before = accounts.database.statistics();
    assert.equal((await accounts.login(ann)).status, 200);
    const { reads, batches } = accounts.database.statistics();
    costs.push({ reads: reads - before.reads, batches: batches - before.batches });
  }
  // The least of them: the first login reads what is kept in memory, and the registration's webhooks are looked for once.
  assert.equal(Math.min(...costs.map(({ reads }) => reads)), 4, 'person, password, limits, blacklist');
  assert.equal(Math.min(...costs.map(({ batches }) => batches)), 1, 'the session and all that belongs to it');
});

test('A-11: 200 logins at the same time all succeed, and the event loop is not held up', async (t) => {
  const accounts = await startAccounts(t, { costlyPasswords: true });
  const ann = await accounts.register('Ann');
  const [whole, own] = [process.cpuUsage(), process.threadCpuUsage()];
  const answers = await Promise.all(Array.from({ length: 200 }, () => accounts.login(ann)));
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
  // Not in milliseconds, which say more about the machine: the work is done by other threads than that of the event loop.
  const share = sum(process.threadCpuUsage(own)) / sum(process.cpuUsage(whole));
  assert.ok(share < 0.5, `${share} of the work was done on the event loop`);
});

test('A-13: unknown user, wrong password and locked are one answer, and the same work', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const attempt = async (identifier: string, password: string) => {
    const before = accounts.database.statistics();
    const { status, body, headers } = await accounts.post('login', { identifier, password }, { from: '10.0.0.1' });
    const after = accounts.database.statistics();
    const work = { reads: after.reads - before.reads, writes: after.batches - before.batches };
    return { status, body: { ...body, requestId: '' }, headers: [...headers.keys()].sort(), work };
  };
  const wrong = await attempt(ann.email, 'not the password');
  assert.deepEqual([wrong.status, wrong.body.error], [401, 'invalid_credentials']);
  assert.deepEqual(await attempt('nobody@example.org', 'not the password'), wrong);
  assert.deepEqual(await attempt('no such name', 'not the password'), wrong);
  assert.deepEqual(await attempt('not@an@address', 'not the password'), wrong);
  for (let failure = 2; failure <= 5; failure += 1) await attempt(ann.email, 'not the password');
  const { work: _, ...locked } = await attempt(ann.email, ann.password);
  const { work: __, ...plain } = wrong;
  assert.deepEqual(locked, plain);
});

test('A-14: five failures lock the pair of account and address, doubling, and it opens by itself', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const wrong = { ...ann, password: 'not the password' };
  const fail = async () => (await accounts.login(wrong, {}, { from: '10.0.0.1' })).status;
  const right = async (from: string) => (await accounts.login(ann, {}, { from })).status;
  for (let failure = 1; failure <= 5; failure += 1) assert.equal(await fail(), 401);
  assert.equal(await right('10.0.0.1'), 401, 'the right password gets the same answer');
  assert.equal(await right('10.0.0.2'), 200, 'strangers cannot lock the owner out');
  await accounts.clock.advance(29_000);
  assert.equal(await right('10.0.0.1'), 401);
  await accounts.clock.advance(1_500);
  assert.equal(await fail(), 401, 'one try, and the next lock');
  await accounts.clock.advance(31_000);
  assert.equal(await right('10.0.0.1'), 401, 'twice as long');
  await accounts.clock.advance(30_000);
  assert.equal(await right('10.0.0.1'), 200);
  for (let failure = 1; failure <= 4; failure += 1) assert.equal(await fail(), 401);
  assert.equal(await right('10.0.0.1'), 200, 'a success forgets the failures before it');
  const events = await accounts.database.query.selectFrom('audit').select('event').execute();
  assert.equal(events.filter(({ event }) => event === 'login.locked').length, 2);
});

test('A-14: the lock grows to 15 minutes and no further', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const wrong = { ...ann, password: 'not the password' };
  const locks = [];
  for (let failure = 1; failure <= 12; failure += 1) {
    await accounts.login(wrong, {}, { from: '10.0.0.1' });
    const rows = await accounts.database.query
      .selectFrom('limits')
      .selectAll()
      .where('policy', '=', 'password_pair')
      .execute();
    const until = rows[0]?.locked_until ?? 0;
    const lock = Math.max(0, until - accounts.clock.now());
    if (lock > 0) locks.push(lock / 1000);
    await accounts.clock.advance(lock);
  }
  assert.deepEqual(locks, [30, 60, 120, 240, 480, 900, 900, 900]);
});

test('A-14: a burst of parallel guesses gets no more tries than guesses one after another', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const guesses = Array.from({ length: 20 }, (_, index) => (index === 15 ? ann.password : `guess number ${index}`));
  const answers = await Promise.all(
    guesses.map((password) => accounts.login({ ...ann, password }, {}, { from: '10.0.0.1' })),
  );
  // Which five are looked at is a matter of order; the right one is among the first five only by chance.
  const [row] = await accounts.database.query
    .selectFrom('limits')
    .selectAll()
    .where('policy', '=', 'password_pair')
    .execute();
  const passed = answers.some(({ status }) => status === 200);
  assert.ok(passed || row?.count === 5, `${row?.count} were looked at`);
  const failed = await accounts.database.query
    .selectFrom('audit')
    .select('event')
    .where('event', '=', 'login.failed')
    .execute();
  assert.ok(failed.length <= (passed ? 9 : 5), `${failed.length} were looked at`);
});

test('A-14: 50 failures from anywhere leave only known devices in, and that ends by itself', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const first = await accounts.login(ann, {}, { from: '10.0.0.1' });
  const device = cookieOf(first, 'xc_device');
  assert.notEqual(device, '');
  const kept = first.headers.getSetCookie().find((cookie) => cookie.startsWith('xc_device=')) ?? '';
  assert.match(kept, /; Max-Age=15552000; Path=\/; HttpOnly; SameSite=Lax$/, 'for 180 days');
  const wrong = { ...ann, password: 'not the password' };
  const crowd = Array.from({ length: 50 }, (_, index) => `10.7.${index}.1`);
  await Promise.all(crowd.map((from) => accounts.login(wrong, {}, { from })));
  assert.equal((await accounts.login(ann, {}, { from: '10.0.0.3' })).status, 401, 'a stranger’s device');
  const known = await accounts.login(ann, {}, { from: '10.0.0.4', cookie: device });
  assert.equal(known.status, 200, 'a known one, from an address never seen');
  const forged = `xc_device=${device.slice('xc_device='.length, -4)}AAAA`;
  assert.equal((await accounts.login(ann, {}, { from: '10.0.0.5', cookie: forged })).status, 401);
  const bob = await accounts.register('Bob');
  const bobDevice = cookieOf(await accounts.login(bob, {}, { from: '10.0.0.6' }), 'xc_device');
  assert.equal((await accounts.login(ann, {}, { from: '10.0.0.7', cookie: bobDevice })).status, 401);
  await accounts.clock.advance(15 * 60_000 + 1000);
  assert.equal((await accounts.login(ann, {}, { from: '10.0.0.8' })).status, 200);
});

test('A-15: one try on each of many accounts fills the bucket of the address', async (t) => {
  const accounts = await startAccounts(t);
  const statuses: number[] = [];
  for (let account = 0; account < 35; account += 1) {
    const answer = await accounts.post(
      'login',
      { identifier: `u${account}@example.org`, password: 'Summer2024!' },
      { from: '10.0.0.1' },
    );
    statuses.push(answer.status);
  }
  assert.deepEqual(statuses, [...Array(30).fill(401), ...Array(5).fill(429)]);
  const { query } = accounts.database;
  const limited = await query.selectFrom('audit').selectAll().where('event', '=', 'address.limited').execute();
  assert.deepEqual(
    limited.map(({ address }) => address),
    ['10.0.0.1'],
  );
  const ann = await accounts.register('Ann');
  assert.equal((await accounts.login(ann, {}, { from: '10.0.0.2' })).status, 200, 'others go on');
  const full = await accounts.login(ann, {}, { from: '10.0.0.1' });
  assert.deepEqual([full.status, full.body.error], [429, 'rate_limited']);
  await accounts.clock.advance(61_000);
  assert.equal((await accounts.login(ann, {}, { from: '10.0.0.1' })).status, 200);
  // Neighbours within one IPv6 network are one address.
  for (let host = 1; host <= 30; host += 1) {
    await accounts.post('login', { identifier: 'x', password: 'y' }, { from: `2001:db8::${host.toString(16)}` });
  }
  assert.equal((await accounts.login(ann, {}, { from: '2001:db8::ffff' })).status, 429);
});

test('A-16: with the second factor on there is no session before the code, and the ticket opens nothing else', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  await accounts.clock.advance(31_000);
  const half = await accounts.login(ann);
  assert.equal(half.status, 200);
  const ticket = half.body.mfaTicket;
  assert.deepEqual([half.body.mfa_ticket, half.body.mfaToken, half.body.mfaMethod], [ticket, ticket, 'totp']);
  assert.equal(half.body.token, undefined);
  assert.deepEqual(half.headers.getSetCookie(), []);
  for (const [method, path] of [
    ['GET', 'session'],
    ['POST', 'mfa/disable'],
    ['GET', 'sessions'],
    ['POST', 'config/sync'],
  ] as const) {
    const body = method === 'POST' ? { body: {} } : {};
    assert.equal((await accounts.call(method, path, { token: ticket, ...body })).body.error, 'invalid_session', path);
  }
  for (const path of ['token/exchange', 'token/refresh', 'password/forgot/confirm']) {
    const body = { exchange_code: ticket, refresh_token: ticket, token: ticket, password: 'another good one' };
    assert.ok((await accounts.post(path, body)).status >= 400, path);
  }
  const wrong = String((Number(enrolled.code()) + 1) % 1_000_000).padStart(6, '0');
  const refused = await accounts.post('mfa/verify', { mfa_ticket: ticket, code: wrong });
  assert.deepEqual([refused.status, refused.body.error], [401, 'invalid_mfa_code']);
  const full = await accounts.post('mfa/verify', { mfaToken: ticket, totpCode: enrolled.code() });
  assert.equal(full.status, 200);
  assert.equal(full.body.mfaRequired, false);
  assert.equal((await accounts.get('session', { token: full.body.token })).status, 200);
  const again = await accounts.post('mfa/verify', { mfa_ticket: ticket, code: enrolled.code(1) });
  assert.equal(again.body.error, 'invalid_mfa_ticket', 'a ticket works once');
});

test('A-16: a ticket lives five minutes and takes five tries; a new password ends it', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  const ticket = async () => (await accounts.login(ann)).body.mfa_ticket as string;
  const late = await ticket();
  await accounts.clock.advance(5 * 60_000);
  assert.equal(
    (await accounts.post('mfa/verify', { mfa_ticket: late, code: enrolled.code() })).body.error,
    'invalid_mfa_ticket',
  );
  const guessed = await ticket();
  for (let guess = 0; guess < 5; guess += 1) {
    await accounts.post('mfa/verify', { mfa_ticket: guessed, recoveryCode: `wrong-${guess}` });
  }
  assert.equal(
    (await accounts.post('mfa/verify', { mfa_ticket: guessed, code: enrolled.code() })).body.error,
    'invalid_mfa_ticket',
  );
  await accounts.clock.advance(6 * 60_000);
  const before = await ticket();
  const change = { currentPassword: ann.password, newPassword: 'another good one' };
  assert.equal((await accounts.post('password/change', change, { token: enrolled.token })).status, 200);
  await accounts.clock.advance(31_000);
  assert.equal(
    (await accounts.post('mfa/verify', { mfa_ticket: before, code: enrolled.code() })).body.error,
    'invalid_mfa_ticket',
  );
});

test('password and code may come together; a wrong code then says so', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  await accounts.clock.advance(31_000);
  const right = enrolled.code();
  const wrong = String((Number(right) + 1) % 1_000_000).padStart(6, '0');
  assert.equal((await accounts.login(ann, { totpCode: wrong })).body.error, 'invalid_mfa_code');
  assert.equal((await accounts.login(ann, { totpCode: right })).status, 200);
});

test('suspended and unverified are shown only to those who know the password', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const set = (change: { active?: number; confirmed?: number }) =>
    accounts.database.query.updateTable('users').set(change).execute();
  const outcome = async (password: string) => {
    const { status, body } = await accounts.login({ ...ann, password });
    return `${status} ${body.error}`;
  };
  await set({ active: 0 });
  assert.equal(await outcome('not the password'), '401 invalid_credentials');
  assert.equal(await outcome(ann.password), '403 account_suspended');
  await set({ active: 1, confirmed: 0 });
  assert.equal(await outcome('not the password'), '401 invalid_credentials');
  assert.equal(await outcome(ann.password), '401 email_not_verified');

  await set({ confirmed: 1 });
  const root = await loggedInAs(accounts, 'admin');
  assert.deepEqual(
    (await auditOf(accounts, root, `subject=${ann.id}`)).slice(0, 4).map(({ event, details }) => [event, details]),
    [
      ['login.refused', { reason: 'email_not_verified' }],
      ['login.failed', {}],
      ['login.refused', { reason: 'account_suspended' }],
      ['login.failed', {}],
    ],
    'a correct password that was refused is recorded, too',
  );
});
