import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { createLimiter, type Limited, type Limiter, POLICIES } from '../../src/accounts/limiter/limiter.ts';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../../src/accounts/storage/accounts-schema.ts';
import { errorCode } from '../../src/platform/errors/app-error.ts';
import { projectRoot } from '../architecture/source-file.ts';
import type { Answer } from '../kit/accounts/accounts-client.ts';
import { type RunningAccounts, startAccounts } from '../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';
import { createFakeClock } from '../kit/fake-clock.ts';

const MINUTE_MS = 60_000;
const NEW_PASSWORD = 'nine green bottles 12 on a wall';
const WRONG = 'not the password';

const cookieOf = (answer: Answer, name: string): string =>
  answer.headers
    .getSetCookie()
    .find((cookie) => cookie.startsWith(`${name}=`))
    ?.split(';')[0] ?? '';

/** Fifty wrong passwords from fifty addresses: only known devices are let in now. */
async function besiege(accounts: RunningAccounts, person: { email: string }): Promise<void> {
  const wrong = { identifier: person.email, password: WRONG };
  const crowd = Array.from({ length: 50 }, (_, index) => `10.7.${index}.1`);
  await Promise.all(crowd.map((from) => accounts.post('login', wrong, { from })));
}

test('the limits are those of the table in docs/accounts.md, row by row', () => {
  const window = (ms: number) => (ms < 60 * MINUTE_MS ? `${ms / MINUTE_MS} min` : `${ms / (60 * MINUTE_MS)} h`);
  const rows = Object.entries(POLICIES).map(
    ([name, { what, key, rule, exempt }]) =>
      `| \`${name}\` | ${what} | ${key} | ${rule.limit} in ${window(rule.windowMs)} | ${exempt} |`,
  );
  const page = readFileSync(`${projectRoot}docs/accounts.md`, 'utf8');
  const [, table = ''] = page.split(
    '| limit | what is counted | by | how many | exempt |\n| --- | --- | --- | --- | --- |\n',
  );
  assert.deepEqual(table.split('\n\n')[0]?.split('\n'), rows);
});

test('locks of passwords double from 30 s to 15 min, and those of codes from 5 min to an hour', () => {
  const seconds = (locks: readonly number[]) => locks.map((ms) => ms / 1000);
  for (const { rule } of [POLICIES.password_pair, POLICIES.password_known]) {
    assert.deepEqual(seconds(rule.lockMs), [30, 60, 120, 240, 480, 900]);
  }
  assert.deepEqual(seconds(POLICIES.password_account.rule.lockMs), [900]);
  for (const { rule } of [POLICIES.second_factor, POLICIES.second_factor_known]) {
    assert.deepEqual(seconds(rule.lockMs), [300, 600, 1200, 2400, 3600]);
    assert.deepEqual([rule.every, rule.sliding], [5, true]);
  }
});

for (const engine of engines) {
  describe(`the limiter on ${engine}`, () => {
    const places = databasePlaces(engine);

    /** Two instances on one database. */
    async function twoLimiters() {
      const clock = createFakeClock();
      const location = places.location();
      const open = () =>
        places.open<AccountsSchema>({ name: 'accounts', migrations: accountsMigrations }, { location });
      const database = await open();
      // SQLite belongs to one process; its second limiter shares the connection, and nothing else.
      const second = engine === 'postgres' ? await open() : database;
      const limiters: readonly Limiter[] = [createLimiter(database, clock), createLimiter(second, clock)];
      const databases = [database, second];
      return { clock, limiters, databases };
    }

    test('DA-21: of guesses on two instances at the same time, only as many count as one after another', async () => {
      const { limiters, databases } = await twoLimiters();
      const pair: Limited = { policy: 'password_pair', key: 'usr_ann 10.0.0.1' };
      const guesses = Array.from({ length: 40 }, async (_, index) => {
        const [limiter, database] = [limiters[index % 2], databases[index % 2]];
        assert.ok(limiter !== undefined && database !== undefined);
        const [{ changes }] = await database.write([limiter.count(pair)]);
        return changes;
      });
      const counted = (await Promise.all(guesses)).reduce((sum, changes) => sum + changes, 0);
      assert.equal(counted, 5);
      // A guess that was right, and was still being compared when the fifth wrong one was stored elsewhere.
      for (const [index, limiter] of limiters.entries()) {
        assert.equal((await limiter.states([pair]))[0]?.left, 0);
        await assert.rejects(databases[index]?.write([limiter.expectFree([pair])]) ?? Promise.resolve(), {
          code: 'STORAGE_CONFLICT',
        });
      }
    });

    test('every policy of the table refuses after its limit, and opens by itself', async () => {
      const { clock, limiters, databases } = await twoLimiters();
      const [limiter] = limiters;
      const [database] = databases;
      assert.ok(limiter !== undefined && database !== undefined);
      for (const [policy, { rule }] of Object.entries(POLICIES)) {
        const limited = { policy, key: 'someone' } as Limited;
        for (let event = 1; event <= rule.limit; event += 1) {
          assert.equal((await limiter.states([limited]))[0]?.left, rule.limit - event + 1, policy);
          await database.write([limiter.take(limited)]);
        }
        assert.equal((await limiter.states([limited]))[0]?.left, 0, policy);
        const refused: unknown = await limiter.takeAll([limited]).catch(errorCode);
        assert.equal(refused, 'RATE_LIMITED', policy);
        const other = { policy, key: 'someone else' } as Limited;
        assert.equal((await limiter.states([other]))[0]?.left, rule.limit, 'somebody else is not affected');
        await clock.advance((await limiter.lockedUntil(limited)) - clock.now());
        assert.ok(((await limiter.states([limited]))[0]?.left ?? 0) > 0, policy);
      }
    });

    test('a refusal says after how many seconds to come again, and is none once that time is over', async () => {
      const { clock, limiters, databases } = await twoLimiters();
      const [limiter] = limiters;
      assert.ok(limiter !== undefined);
      const exports: Limited = { policy: 'export', key: 'usr_ann' };
      for (let event = 0; event < 10; event += 1) await limiter.takeAll([exports]);
      await clock.advance(MINUTE_MS + 1);
      const refused = { code: 'RATE_LIMITED', details: { retryAfterSeconds: 59 * 60 } };
      await assert.rejects(limiter.takeAll([{ ...exports, key: 'usr_bob' }, exports]), refused);
      await assert.rejects(limiter.refuseWhileLocked(exports), refused);
      assert.equal((await limiter.states([{ ...exports, key: 'usr_bob' }]))[0]?.left, 10, 'nothing was taken');
      await clock.advance(59 * MINUTE_MS);
      await limiter.refuseWhileLocked(exports);
      limiter.refuseUntil(0);
      await databases[0]?.write([limiter.take(exports)]);
    });

    test('only the failure that begins a lock has locked, and after the lock there are as many tries as the rule says', async () => {
      const { clock, limiters, databases } = await twoLimiters();
      const [limiter] = limiters;
      const [database] = databases;
      assert.ok(limiter !== undefined && database !== undefined);
      const codes: Limited = { policy: 'second_factor', key: 'usr_ann' };
      const fail = async () => {
        const [{ rows }] = await database.write([limiter.count(codes)]);
        return limiter.hasLocked(codes, rows[0]);
      };
      for (let failure = 1; failure < 5; failure += 1) assert.equal(await fail(), false, `${failure}`);
      assert.equal(await fail(), true);
      assert.equal(await fail(), false, 'nothing is counted while it is locked');
      await clock.advance(5 * MINUTE_MS);
      const left = async () => (await limiter.states([codes]))[0]?.left;
      assert.equal(await left(), 5);
      assert.equal(await fail(), false);
      assert.equal(await left(), 4);
    });

    test('locks grow with each further failure, and are forgotten after a quiet time', async () => {
      const { clock, limiters, databases } = await twoLimiters();
      const [limiter] = limiters;
      const pair: Limited = { policy: 'password_pair', key: 'usr_ann 10.0.0.1' };
      const locks: number[] = [];
      for (let failure = 1; failure <= 12; failure += 1) {
        await databases[0]?.write([(limiter as Limiter).count(pair)]);
        const until = (await limiter?.lockedUntil(pair)) ?? 0;
        if (until > 0) locks.push((until - clock.now()) / 1000);
        if (until > 0) await clock.advance(until - clock.now());
      }
      assert.deepEqual(locks, [30, 60, 120, 240, 480, 900, 900, 900]);
      await clock.advance(15 * MINUTE_MS);
      assert.equal((await limiter?.states([pair]))?.[0]?.left, 5);
    });
  });
}

test('DA-5: strangers who guess from everywhere do not keep the owner out after a password reset', async (t) => {
  const accounts = await startAccounts(t, { trustedProxies: ['127.0.0.1/32'] });
  const ann = await accounts.register('Ann');
  await besiege(accounts, ann);
  assert.equal((await accounts.login(ann, {}, { from: '10.0.0.1' })).status, 401, 'an unknown device');
  await accounts.post('password/forgot', { email: ann.email }, { from: '10.0.0.1' });
  const token = await accounts.mailedToken(ann.email);
  const reset = await accounts.post('password/forgot/confirm', { token, password: NEW_PASSWORD }, { from: '10.0.0.1' });
  await besiege(accounts, ann);
  const renewed = { ...ann, password: NEW_PASSWORD };
  assert.equal((await accounts.login(renewed, {}, { from: '10.0.0.1' })).status, 200, 'a client without cookies');
  await accounts.clock.advance(16 * MINUTE_MS);
  await besiege(accounts, ann);
  const cookie = cookieOf(reset, 'xc_device');
  assert.equal((await accounts.login(renewed, {}, { from: '10.0.0.1' })).status, 401);
  assert.equal(
    (await accounts.login(renewed, {}, { from: '10.0.0.1', cookie })).status,
    200,
    'the browser of the reset',
  );
});

test('DA-5: failures of a neighbour at the same address lock neither a known device nor a session out', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const from = '10.0.0.1';
  const first = await accounts.login(ann, {}, { from });
  const cookie = cookieOf(first, 'xc_device');
  for (let guess = 0; guess < 40; guess += 1)
    await accounts.post('login', { identifier: ann.email, password: WRONG }, { from });
  assert.equal((await accounts.login(ann, {}, { from })).status, 429, 'everybody else at that address');
  assert.equal((await accounts.login(ann, {}, { from, cookie })).status, 200);
  const change = { currentPassword: ann.password, newPassword: NEW_PASSWORD };
  const changed = await accounts.post('password/change', change, { from, token: first.body.token });
  assert.equal(changed.status, 200, changed.text);
});

test('DA-5: a known device has its own limit, and a stolen cookie does not lift it', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const cookie = cookieOf(await accounts.login(ann), 'xc_device');
  const guess = (index: number) => accounts.login({ ...ann, password: WRONG }, {}, { from: `10.3.${index}.1`, cookie });
  for (let index = 0; index < 5; index += 1) assert.equal((await guess(index)).status, 401);
  assert.equal(
    (await accounts.login(ann, {}, { from: '10.4.0.1', cookie })).status,
    401,
    'locked wherever it comes from',
  );
  assert.equal((await accounts.login(ann, {}, { from: '10.4.0.1' })).status, 200, 'and nobody else');
});

test('DA-5: the correct second factor lets its owner in while strangers guess; a wrong one tells nothing', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const enrolled = await accounts.enrol(ann);
  await accounts.clock.advance(MINUTE_MS);
  await besiege(accounts, ann);
  const from = '10.0.0.1';
  const answers = [
    await accounts.login(ann, {}, { from }),
    await accounts.login({ ...ann, password: WRONG }, { totpCode: enrolled.code() }, { from }),
    await accounts.login(ann, { totpCode: '000000' }, { from }),
    await accounts.login(ann, { totpCode: 'x' }, { from }),
  ];
  for (const { status, body } of answers) assert.deepEqual([status, body.error], [401, 'invalid_credentials']);
  assert.equal((await accounts.login(ann, { totpCode: enrolled.code() }, { from: '10.0.0.2' })).status, 200);
});

test('DA-5: someone who knows the password cannot keep the owner from a recovery code or a known device', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  const cookie = cookieOf(ann.answer, 'xc_device');
  const enrolled = await accounts.enrol(ann);
  await accounts.clock.advance(MINUTE_MS);
  for (let guess = 0; guess < 5; guess += 1)
    await accounts.login(ann, { totpCode: '000000' }, { from: `10.5.${guess}.1` });
  const locked = await accounts.login(ann, { totpCode: enrolled.code() }, { from: '10.0.0.1' });
  assert.equal(locked.body.error, 'mfa_challenge_locked');
  assert.equal((await accounts.login(ann, { totpCode: enrolled.code() }, { from: '10.0.0.1', cookie })).status, 200);
  const { mfa_ticket } = (await accounts.login(ann, {}, { from: '10.0.0.1' })).body;
  const recovered = await accounts.post('mfa/verify', { mfa_ticket, recoveryCode: enrolled.recoveryCodes[0] });
  assert.equal(recovered.status, 200);
});

test('DA-6: strangers who ask for resets do not keep the owner from getting one', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.register('Ann');
  const ask = (from: string) => accounts.post('password/forgot', { email: ann.email }, { from });
  const resets = async () =>
    (await accounts.mails(ann.email)).filter((mail) => mail.includes('Set a new password')).length;
  for (let index = 0; index < 40; index += 1) await ask(`10.8.${index}.1`);
  await accounts.eventually(async () => (await resets()) >= 10);
  const before = await resets();
  assert.ok(before <= 11, `${before} mails`);
  await accounts.clock.advance(11 * MINUTE_MS);
  await ask('10.0.0.1');
  await accounts.eventually(async () => (await resets()) > before);
  const token = await accounts.mailedToken(ann.email);
  const done = await accounts.post('password/forgot/confirm', { token, password: NEW_PASSWORD });
  assert.equal(done.status, 200);
});

test('DA-6: strangers do not use up the resets of someone who is logged in', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await accounts.loggedIn('Ann');
  for (let index = 0; index < 40; index += 1) {
    await accounts.post('password/forgot', { email: ann.email }, { from: `10.8.${index}.1` });
  }
  assert.equal((await accounts.post('password/reset', {}, { token: ann.token })).status, 202);
});

test('DA-11: failed returns from a provider are limited by address, and so are their audit records', async (t) => {
  const settings = '{ oauth: { github: { client_id: iv1, client_secret: shh-nobody-knows } } }';
  const accounts = await startAccounts(t, { settings });
  const path = 'oauth/callback/github?code=x&state=made-up';
  const statuses: number[] = [];
  for (let index = 0; index < 20; index += 1) statuses.push((await accounts.get(path, { from: '10.0.0.1' })).status);
  const burst = await Promise.all(Array.from({ length: 40 }, () => accounts.get(path, { from: '10.0.0.1' })));
  statuses.push(...burst.map(({ status }) => status));
  assert.equal(statuses.filter((status) => status === 302).length, 30);
  assert.equal(statuses.filter((status) => status === 429).length, 30);
  const rows = await accounts.database.query
    .selectFrom('audit')
    .select('id')
    .where('event', '=', 'oauth.failed')
    .execute();
  assert.equal(rows.length, 30);
  assert.equal((await accounts.get(path, { from: '10.0.0.2' })).status, 302, 'others are not affected');
});
