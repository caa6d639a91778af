import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Person } from '../kit/accounts/accounts-client.ts';
import { type RunningAccounts, startAccounts } from '../kit/accounts/start-accounts.ts';
import fc from '../kit/properties.ts';

/**
 * One caller must not be able to harm others. A hostile caller who knows nothing but the owner's e-mail address does
 * its worst from many addresses, one of them the owner's own; the well-behaved owner still logs in on a known device,
 * recovers the password by mail, and uses the account. What the caller leaves behind is bounded.
 */

const WORST: readonly ((accounts: RunningAccounts, victim: Person, from: string) => Promise<unknown>)[] = [
  (accounts, victim, from) => accounts.post('login', { identifier: victim.email, password: 'a guess' }, { from }),
  (accounts, victim, from) =>
    accounts.post('login', { identifier: victim.email, password: 'a guess', totpCode: '123456' }, { from }),
  (accounts, victim, from) => accounts.post('password/forgot', { email: victim.email }, { from }),
  (accounts, _victim, from) =>
    accounts.post('password/forgot/confirm', { token: 'made up', password: 'nine green bottles' }, { from }),
  (accounts, victim, from) => accounts.post('register/send', { email: victim.email }, { from }),
  (accounts, victim, from) => accounts.post('register/verify', { email: victim.email, code: '123456' }, { from }),
  (accounts, _victim, from) => accounts.post('mfa/verify', { mfa_ticket: 'made up', code: '123456' }, { from }),
  (accounts, _victim, from) => accounts.post('token/exchange', { exchange_code: 'made up' }, { from }),
  (accounts, _victim, from) => accounts.post('token/refresh', { refresh_token: 'made up' }, { from }),
  (accounts, _victim, from) => accounts.get('oauth/callback/github?code=x&state=made-up', { from }),
  (accounts, _victim, from) => accounts.get('oauth/login/github', { from }),
  (accounts, _victim, from) => accounts.get('session', { from, token: 'made up' }),
];

const SETTINGS = '{ oauth: { github: { client_id: iv1, client_secret: shh-nobody-knows } } }';
const OWN_ADDRESS = '10.0.0.1';
const MINUTE_MS = 60_000;
const STEPS = 120;

test('DA-5, DA-6, DA-11: whatever a hostile caller does, the owner logs in, recovers the password and uses the account', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const rows = async (table: 'audit' | 'flows' | 'limits' | 'outgoing_mails') =>
    (
      await accounts.database.query
        .selectFrom(table)
        .select(({ fn }) => fn.countAll<number>().as('count'))
        .execute()
    )[0]?.count ?? 0;
  let round = 0;
  const step = fc.record({ what: fc.nat(WORST.length - 1), address: fc.nat(60), minutes: fc.nat(2) });
  const steps = fc.array(step, { minLength: STEPS, maxLength: STEPS });
  await fc.assert(
    fc.asyncProperty(steps, async (attack) => {
      round += 1;
      const owner = await accounts.register(`Owner ${round}`);
      const first = await accounts.login(owner, {}, { from: OWN_ADDRESS });
      assert.equal(first.status, 200, first.text);
      const cookie = cookieOf(first.headers, 'xc_device');
      const before = Number(await rows('audit'));
      let passed = 0;
      for (const { what, address, minutes } of attack) {
        const from = address === 0 ? OWN_ADDRESS : `10.9.${address}.1`;
        await WORST[what]?.(accounts, owner, from);
        // Mostly at the same moment, and now and then later.
        if (minutes === 2 && address % 20 === 0) {
          await accounts.clock.advance(MINUTE_MS);
          passed += 1;
        }
      }
      const left = Number(await rows('audit')) - before;
      assert.ok(left <= 3 * STEPS, `${left} audit records`);

      assert.equal((await accounts.get('session', { token: first.body.token })).status, 200, 'the session goes on');
      const known = await accounts.login(owner, {}, { from: OWN_ADDRESS, cookie });
      assert.equal(known.status, 200, `a known device, after ${passed} minutes: ${known.text}`);
      // A token is mailed within ten minutes at most, whoever asked for it.
      await accounts.clock.advance(10 * MINUTE_MS);
      await accounts.eventually(async () => Number(await rows('outgoing_mails')) === 0);
      const mailed = (await accounts.mails(owner.email)).length;
      await accounts.post('password/forgot', { email: owner.email }, { from: OWN_ADDRESS });
      // Mail leaves after the response; the newest token is the one that works.
      await accounts.eventually(async () => (await accounts.mails(owner.email)).length > mailed);
      const token = await accounts.mailedToken(owner.email);
      const password = 'nine green bottles 12 on a wall';
      const reset = await accounts.post('password/forgot/confirm', { token, password }, { from: OWN_ADDRESS });
      assert.equal(reset.status, 200, reset.text);
      const browser = cookieOf(reset.headers, 'xc_device');
      const again = await accounts.login({ ...owner, password }, {}, { from: OWN_ADDRESS, cookie: browser });
      assert.equal(again.status, 200, again.text);
      await accounts.clock.advance(60 * MINUTE_MS);
    }),
    // Shrinking would repeat 120 calls some hundred times, which hides the cause behind the test's time limit.
    { numRuns: 3, endOnFailure: true },
  );
});

function cookieOf(headers: Headers, name: string): string {
  const found = headers.getSetCookie().find((cookie) => cookie.startsWith(`${name}=`));
  return found?.split(';')[0] ?? '';
}
