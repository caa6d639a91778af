import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { accountsMigrations } from '../../src/accounts/storage/accounts-migrations.ts';
import { GOOD_PASSWORD } from '../kit/accounts/accounts-client.ts';
import { type RunningAccounts, startAccounts } from '../kit/accounts/start-accounts.ts';
import { databasePlaces } from '../kit/database-engines.ts';
import { createFakeClock } from '../kit/fake-clock.ts';
import type { Scope } from '../kit/running-program.ts';

const STEP_MS = 30_000;

describe('two instances on one PostgreSQL', () => {
  const places = databasePlaces('postgres');

  /** One database, one mail folder, one clock, one key; two programs. */
  async function startTwo(t: Scope): Promise<[RunningAccounts, RunningAccounts]> {
    const location = places.location();
    const clock = createFakeClock();
    const first = await startAccounts(t, { location, clock });
    const second = await startAccounts(t, { location, clock, folder: first.folder });
    return [first, second];
  }

  test('a registration goes on at the other instance: code, verification token, login, session, refresh, logout', async (t) => {
    const [a, b] = await startTwo(t);
    const email = 'ann@example.org';
    await a.post('register/send', { email });
    const code = await b.mailedCode(email);
    await b.post('register/send', { email });
    assert.equal(await a.mailedCode(email), code, 'the same code from both');
    const { verificationToken } = (await b.post('register/verify', { email, code })).body;
    const registered = await a.post('register', { name: 'Ann', email, password: GOOD_PASSWORD, verificationToken });
    assert.equal(registered.status, 201, registered.text);
    const login = (await b.post('login', { email, password: GOOD_PASSWORD })).body;
    assert.equal((await a.get('session', { token: login.token })).status, 200);
    const refreshed = (await a.post('token/refresh', { refresh_token: login.refresh_token })).body;
    const replayed = (await b.post('token/refresh', { refresh_token: login.refresh_token })).body;
    assert.equal(replayed.access_token, refreshed.access_token, 'the same pair from both');
    assert.equal((await b.call('DELETE', 'session', { token: refreshed.access_token })).status, 204);
    assert.equal((await a.get('session', { token: refreshed.access_token })).status, 401, 'seen at once');
  });

  test('A-39: one code at both instances at the same moment opens one session', async (t) => {
    const [a, b] = await startTwo(t);
    const ann = await a.loggedIn('Ann');
    const enrolled = await b.enrol(ann);
    for (let round = 0; round < 3; round += 1) {
      await a.clock.advance(2 * STEP_MS);
      const both = [a, b, a, b];
      const tickets = await Promise.all(both.map(async (instance) => (await instance.login(ann)).body.mfa_ticket));
      const code = enrolled.code();
      const answers = await Promise.all(
        both.map((instance, index) => instance.post('mfa/verify', { mfa_ticket: tickets[index], code })),
      );
      const statuses = answers.map(({ status }) => status);
      assert.equal(statuses.filter((status) => status === 200).length, 1, String(statuses));
      assert.ok(
        statuses.every((status) => [200, 401, 429].includes(status)),
        String(statuses),
      );
      const { sessions } = (
        await a.get('sessions', { token: answers.find(({ status }) => status === 200)?.body.token })
      ).body;
      assert.equal(sessions.length, round + 2, 'one more than before');
    }
  });

  test('A-39: one ticket at both instances opens one session', async (t) => {
    const [a, b] = await startTwo(t);
    const ann = await a.loggedIn('Ann');
    const { recoveryCodes } = await a.enrol(ann);
    const { mfa_ticket } = (await a.login(ann)).body;
    const answers = await Promise.all([
      a.post('mfa/verify', { mfa_ticket, recoveryCode: recoveryCodes[0] }),
      b.post('mfa/verify', { mfa_ticket, recoveryCode: recoveryCodes[1] }),
    ]);
    assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 401]);
    const [winner] = answers.filter(({ status }) => status === 200);
    const { recoveryCodesLeft } = (await b.get('mfa/status', { token: winner?.body.token })).body;
    assert.equal(recoveryCodesLeft, 9, 'the code of the one that lost is not used up');
  });

  test('A-28: refreshes at both instances at the same moment get one pair; a grandparent ends the family for both', async (t) => {
    const [a, b] = await startTwo(t);
    const ann = await a.loggedIn('Ann');
    const refresh = (instance: RunningAccounts, refresh_token: string) =>
      instance.post('token/refresh', { refresh_token });
    const answers = await Promise.all([a, b, a, b].map((instance) => refresh(instance, ann.refreshToken)));
    assert.equal(new Set(answers.map(({ body }) => body.refresh_token)).size, 1, JSON.stringify(answers));
    const second = answers[0]?.body;
    const third = (await refresh(b, second.refresh_token)).body;
    assert.equal((await refresh(a, ann.refreshToken)).status, 401);
    for (const instance of [a, b]) {
      assert.equal((await instance.get('session', { token: third.access_token })).status, 401);
    }
  });

  test('A-31: an exchange code is won at one instance', async (t) => {
    const [a, b] = await startTwo(t);
    const ann = await a.loggedIn('Ann');
    const exchangeCode = await a.issueExchangeCode(ann.id);
    const answers = await Promise.all([a, b, a, b].map((instance) => instance.post('token/exchange', exchangeCode)));
    assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 401, 401, 401]);
  });

  test('A-14: failures count for both, and so do mail limits', async (t) => {
    const [a, b] = await startTwo(t);
    const ann = await a.register('Ann');
    const wrong = { ...ann, password: 'not the password' };
    const from = '10.0.0.1';
    for (const instance of [a, b, a, b, a]) assert.equal((await instance.login(wrong, {}, { from })).status, 401);
    assert.equal((await b.login(ann, {}, { from })).status, 401, 'locked at the other one');
    assert.equal((await b.login(ann, {}, { from: '10.0.0.2' })).status, 200);
    await a.clock.advance(61_000);
    const sent = [];
    for (const instance of [a, b, a, b]) {
      sent.push((await instance.post('register/send', { email: 'bob@example.org' })).status);
    }
    assert.deepEqual(sent, [200, 200, 200, 429]);
  });

  test('A-49: a reset confirmed at both instances at the same moment sets one password', async (t) => {
    const [a, b] = await startTwo(t);
    const ann = await a.loggedIn('Ann');
    await a.post('password/reset', {}, { token: ann.token });
    const token = await b.mailedToken(ann.email);
    const confirm = (instance: RunningAccounts, password: string) =>
      instance.post('password/reset/confirm', { token, password }, { token: ann.token });
    const answers = await Promise.all([confirm(a, 'first harbour 19'), confirm(b, 'second harbour 19')]);
    assert.equal(answers.filter(({ status }) => status === 200).length, 1, JSON.stringify(answers));
  });

  test('a key that one instance has created for signed tokens is published by the other within a second', async (t) => {
    const [a, b] = await startTwo(t);
    const ann = await a.loggedIn('Ann');
    const keysAt = async ({ url }: RunningAccounts) =>
      ((await (await fetch(`${url}/.well-known/jwks.json`)).json()) as { keys: unknown[] }).keys.length;
    assert.equal(await keysAt(b), 0);
    assert.equal((await a.post('token/jwt', {}, { token: ann.token })).status, 200);
    await a.clock.advance(1000);
    assert.deepEqual([await keysAt(a), await keysAt(b)], [1, 1]);
  });

  test('both start at the same time on an empty database', async () => {
    const location = places.location();
    const definition = { name: 'accounts', migrations: accountsMigrations };
    const [first, second] = await Promise.all([
      places.open(definition, { location }),
      places.open(definition, { location }),
    ]);
    await Promise.all([first?.check(), second?.check()]);
  });
});
