import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { describe, test } from 'node:test';
import { loggedInAs } from '../../kit/accounts/people.ts';
import { accountsSettingsOf, type RunningAccounts, startAccounts } from '../../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';

const SECRET = 'a secret between the payments and us 42';
const SETTINGS = `{ trial_days: 0, billing_webhook_secret: "${SECRET}" }`;

interface Sent {
  readonly event: unknown;
  readonly at?: number;
  readonly secret?: string;
  readonly signature?: string;
  readonly delivery?: string;
}

/** As a payment system sends it; `at` in seconds, by default now. */
function send(accounts: RunningAccounts, { event, at, secret = SECRET, signature, delivery }: Sent) {
  const time = at ?? Math.floor(accounts.clock.now() / 1000);
  const text = JSON.stringify(event);
  const hex = createHmac('sha256', secret).update(`${time}.${text}`).digest('hex');
  const headers = {
    'x-app-signature': signature ?? `t=${time},v1=${hex}`,
    ...(delivery !== undefined && { 'x-app-delivery': delivery }),
  };
  return accounts.call('POST', '/api/billing/webhook', { text, headers });
}

for (const engine of engines) {
  describe(`the billing webhook on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('a signed webhook activates what a user claimed, and a replay changes nothing', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: SETTINGS });
      const ann = await loggedInAs(accounts, 'user', 'Ann');
      const mine = async () => (await accounts.get('subscriptions', { token: ann.token })).body.subscriptions;
      await accounts.post('subscriptions', { externalId: 'order-1', planId: 'PRO' }, { token: ann.token });
      const event = {
        userId: ann.id,
        externalId: 'order-1',
        status: 'active',
        planId: 'PRO-YEAR',
        meta: { invoice: 7 },
      };
      const at = Math.floor(accounts.clock.now() / 1000);
      const first = await send(accounts, { event, at });
      assert.deepEqual([first.status, first.body], [200, { received: true, applied: true }]);
      const [active] = await mine();
      assert.deepEqual([active.status, active.planId, active.meta], ['active', 'PRO-YEAR', { invoice: 7 }]);
      await accounts.post('subscriptions/cancel', { externalId: 'order-1' }, { token: ann.token });
      const answers = await Promise.all([send(accounts, { event, at }), send(accounts, { event, at, delivery: 'x' })]);
      for (const answer of answers) assert.deepEqual(answer.body, { received: true, applied: false });
      assert.equal((await mine())[0].status, 'cancelled');
    });

    test('A-54: an event that was overtaken, by a newer one or by a cancellation, revives nothing', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: SETTINGS });
      const ann = await loggedInAs(accounts, 'user', 'Ann');
      const status = async () =>
        (await accounts.get('subscriptions', { token: ann.token })).body.subscriptions[0].status;
      const event = { userId: ann.id, externalId: 'order-1', status: 'active' };
      const start = Math.floor(accounts.clock.now() / 1000);
      await accounts.clock.advance(100_000);
      assert.equal(
        (await send(accounts, { event: { ...event, status: 'past_due' }, at: start + 50 })).body.applied,
        true,
      );
      assert.equal((await send(accounts, { event, at: start + 10 })).body.applied, false);
      assert.equal(await status(), 'past_due');
      assert.equal((await send(accounts, { event, at: start + 60 })).body.applied, true);
      await accounts.post('subscriptions/cancel', { externalId: 'order-1' }, { token: ann.token });
      assert.equal((await send(accounts, { event, at: start + 90 })).body.applied, false);
      assert.equal(await status(), 'cancelled');
      // What was sent after the cancellation is news.
      await accounts.clock.advance(60_000);
      assert.equal((await send(accounts, { event })).body.applied, true);
      assert.equal(await status(), 'active');
    });

    test('the attempts of one delivery count once, though each is signed again', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: SETTINGS });
      const ann = await loggedInAs(accounts, 'user', 'Ann');
      const event = { userId: ann.id, externalId: 'order-1', status: 'active' };
      const answers = await Promise.all(
        Array.from({ length: 8 }, (_, index) =>
          send(accounts, { event, at: Math.floor(accounts.clock.now() / 1000) - index, delivery: 'dlv-1' }),
        ),
      );
      assert.equal(answers.filter(({ body }) => body.applied).length, 1);
    });
  });
}

test('A-55: nobody pays with a webhook that is unsigned, signed by others, altered, or old', async (t) => {
  const accounts = await startAccounts(t, { settings: SETTINGS });
  const ann = await loggedInAs(accounts, 'user', 'Ann');
  const event = { userId: ann.id, externalId: 'order-1', status: 'active' };
  const now = Math.floor(accounts.clock.now() / 1000);
  const good = createHmac('sha256', SECRET)
    .update(`${now}.${JSON.stringify(event)}`)
    .digest('hex');
  const attempts: readonly Sent[] = [
    { event, secret: 'another secret' },
    { event, at: now - 301 },
    { event, at: now + 301 },
    { event, signature: '' },
    { event, signature: `v1=${good}` },
    { event, signature: `t=${now}` },
    { event, signature: `t=${now},v1=` },
    { event, signature: `t=${now},v0=${good}` },
    { event, signature: `t=${now - 1},v1=${good}` },
    { event, signature: `t=${now},t=${now},v1=${good}` },
    { event: { ...event, status: 'trialing' }, signature: `t=${now},v1=${good}` },
    { event, signature: `t=${now},v1=${good}`.repeat(50) },
  ];
  for (const attempt of attempts) {
    const answer = await send(accounts, attempt);
    assert.deepEqual([answer.status, answer.body.error], [401, 'invalid_signature'], JSON.stringify(attempt));
  }
  assert.deepEqual((await accounts.get('subscriptions', { token: ann.token })).body.subscriptions, []);
  const rotated = `t=${now},v1=${'0'.repeat(64)},v1=${good.toUpperCase()}`;
  assert.equal((await send(accounts, { event, signature: rotated })).body.applied, true);
});

test('without a billing secret every webhook is refused, and one for nobody can be sent again', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await loggedInAs(accounts, 'user', 'Ann');
  const event = { userId: ann.id, externalId: 'order-1', status: 'active' };
  assert.equal((await send(accounts, { event, secret: '' })).status, 401);
  accounts.reload(accountsSettingsOf(SETTINGS));
  const nobody = { ...event, userId: 'usr_nobody' };
  for (let attempt = 0; attempt < 2; attempt += 1) {
    const answer = await send(accounts, { event: nobody });
    assert.deepEqual([answer.status, answer.body.error], [404, 'user_not_found']);
  }
  for (const wrong of [{ ...event, status: 'free' }, { ...event, externalId: '' }, [], 'text', null]) {
    const answer = await send(accounts, { event: wrong });
    assert.deepEqual([answer.status, answer.body.error], [400, 'invalid_request'], JSON.stringify(wrong));
  }
});
