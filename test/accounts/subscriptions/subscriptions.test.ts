import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';

const DAY_MS = 24 * 3_600_000;

for (const engine of engines) {
  describe(`subscriptions on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('A-52: someone else’s subscription is not found, whatever is tried with it, and that is recorded', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: '{ trial_days: 0 }' });
      const admin = await loggedInAs(accounts, 'admin');
      const [ann, ben] = [await loggedInAs(accounts, 'user', 'Ann'), await loggedInAs(accounts, 'user', 'Ben')];
      await accounts.post('subscriptions', { externalId: 'order-1', planId: 'PRO' }, { token: ann.token });
      const cancel = await accounts.post('subscriptions/cancel', { externalId: 'order-1' }, { token: ben.token });
      assert.deepEqual([cancel.status, cancel.body.error], [404, 'subscription_not_found']);
      // The same id is another subscription when Ben uses it.
      const own = await accounts.post(
        'subscriptions',
        { externalId: 'order-1', planId: 'BASIC' },
        { token: ben.token },
      );
      assert.equal(own.body.subscription.planId, 'BASIC');
      const list = await accounts.get('subscriptions', { token: ann.token });
      assert.deepEqual(
        list.body.subscriptions.map((row: { planId: string; status: string }) => [row.planId, row.status]),
        [['PRO', 'pending']],
      );
      const entries = await auditOf(accounts, admin, 'event=subscription.not_found');
      assert.deepEqual([entries[0]?.actor, entries[0]?.details], [ben.id, { externalId: 'order-1' }]);
    });

    test('A-53: fifty upserts at the same time of one external id make one row', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: '{ trial_days: 0 }' });
      const ann = await loggedInAs(accounts, 'user', 'Ann');
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, index) =>
          accounts.post('subscriptions', { externalId: 'order-1', planId: `P${index}` }, { token: ann.token }),
        ),
      );
      assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
      assert.equal(new Set(answers.map(({ body }) => body.subscription.id)).size, 1);
      const list = await accounts.get('subscriptions', { token: ann.token });
      assert.equal(list.body.subscriptions.length, 1);
    });

    test('A-54: cancelling twice is the same, and no late upsert revives what was cancelled', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: '{ trial_days: 0 }' });
      const ann = await loggedInAs(accounts, 'user', 'Ann');
      const claim = { externalId: 'order-1', planId: 'PRO' };
      await accounts.post('subscriptions', claim, { token: ann.token });
      const first = await accounts.post('subscriptions/cancel', { externalId: 'order-1' }, { token: ann.token });
      await accounts.clock.advance(60_000);
      const second = await accounts.post('subscriptions/cancel', { externalId: 'order-1' }, { token: ann.token });
      assert.equal(first.body.subscription.status, 'cancelled');
      assert.ok(first.body.subscription.cancelledAt);
      assert.deepEqual(second.body, first.body);
      const late = await accounts.post('subscriptions', { ...claim, planId: 'MAX' }, { token: ann.token });
      assert.deepEqual(late.body, first.body);
    });

    test('A-55: what decides about money cannot be claimed: status, price, plan of a paid one, end', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: '{ trial_days: 0 }' });
      const admin = await loggedInAs(accounts, 'admin');
      const ann = await loggedInAs(accounts, 'user', 'Ann');
      const claim = {
        externalId: 'order-1',
        planId: 'PRO',
        meta: { note: 'gift' },
        status: 'active',
        price: 0,
        id: 'sub_mine',
        userId: admin.id,
        user_id: admin.id,
        expiresAt: '2099-01-01T00:00:00Z',
        expires_at: 1,
        cancelledAt: null,
      };
      const claimed = await accounts.post('subscriptions', claim, { token: ann.token });
      const { subscription } = claimed.body;
      assert.deepEqual(
        [subscription.status, subscription.expiresAt, subscription.meta],
        ['pending', undefined, { note: 'gift' }],
      );
      assert.notEqual(subscription.id, 'sub_mine');
      const path = `admin/subscriptions/${subscription.id}/status`;
      const self = await accounts.post(path, { status: 'active' }, { token: ann.token });
      assert.equal(self.status, 403);
      const paid = await accounts.post(path, { status: 'active' }, { token: admin.token });
      assert.equal(paid.body.subscription.status, 'active');
      // Once it is paid for, its user cannot turn it into a better one, nor into one that is pending again.
      const upgrade = await accounts.post('subscriptions', { ...claim, planId: 'MAX' }, { token: ann.token });
      assert.deepEqual(upgrade.body, paid.body);
      const wrong = await accounts.post(path, { status: 'free' }, { token: admin.token });
      assert.deepEqual([wrong.status, wrong.body.error], [400, 'invalid_request']);
    });

    test('a registration starts a trial that ends by itself, and whose plan cannot be changed by its user', async (t) => {
      const accounts = await startAccounts(t, { location: places.location(), settings: '{ trial_days: 7 }' });
      const ann = await accounts.loggedIn('Ann');
      const trial = async () => (await accounts.get('subscriptions', { token: ann.token })).body.subscriptions[0];
      const { externalId, ...begun } = await trial();
      assert.deepEqual([begun.planId, begun.status], ['TRIAL-7D', 'trialing']);
      await accounts.post('subscriptions', { externalId, planId: 'LIFETIME' }, { token: ann.token });
      assert.equal((await trial()).planId, 'TRIAL-7D');
      accounts.clock.stepWall(7 * DAY_MS);
      const again = await accounts.login(ann);
      const list = await accounts.get('subscriptions', { token: again.body.token });
      assert.equal(list.body.subscriptions[0].status, 'expired');
    });

    test('administrators list the subscriptions of everyone by status, plan and person, page by page', async (t) => {
      const accounts = await startAccounts(t, {
        location: places.location(),
        settings: '{ trial_days: 1 }',
        plans: '{ pro: { models: ["*"] } }',
      });
      const admin = await loggedInAs(accounts, 'admin');
      const [ann, ben] = [await loggedInAs(accounts, 'user', 'Ann'), await loggedInAs(accounts, 'user', 'Ben')];
      const claimed = await accounts.post('subscriptions', { externalId: 'order-1', planId: 'pro' }, ann);
      await accounts.post('subscriptions', { externalId: 'order-2' }, ben);
      const decided = { status: 'active', planId: 'pro' };
      await accounts.post(`admin/subscriptions/${claimed.body.subscription.id}/status`, decided, admin);

      const read = async (query: string) => {
        const { body } = await accounts.get(`admin/subscriptions?${query}`, admin);
        const rows: { externalId: string; status: string; plan: string; user: { name: string } }[] = body.subscriptions;
        return { next: body.nextCursor, rows: rows.map((row) => [row.user.name, row.status, row.plan]) };
      };
      for (const path of ['admin/subscriptions', 'admin/plans']) {
        assert.equal((await accounts.get(path, ben)).status, 403);
      }
      assert.deepEqual((await read('status=active')).rows, [['Ann', 'active', 'pro']]);
      assert.deepEqual((await read('plan=pro')).rows, [['Ann', 'active', 'pro']]);
      assert.deepEqual((await read(`userId=${ben.id}&status=pending`)).rows, [['Ben', 'pending', '']]);
      const all = (await read('limit=200')).rows;
      const pages = [];
      for (let next = ''; ; ) {
        const page = await read(`limit=2${next}`);
        pages.push(...page.rows);
        if (page.next === null) break;
        next = `&cursor=${page.next}`;
      }
      assert.deepEqual(pages, all);
      assert.ok(all.length >= 4, 'both purchases and both trials');

      // A trial that is over is expired, although its row has not changed.
      const trials = (await read('status=trialing')).rows;
      assert.ok(trials.length >= 2);
      assert.deepEqual((await read('status=expired')).rows, []);
      accounts.clock.stepWall(2 * DAY_MS);
      const token = (await accounts.login(admin)).body.token;
      const later = async (status: string) =>
        (await accounts.get(`admin/subscriptions?status=${status}`, { token })).body.subscriptions.length;
      assert.deepEqual([await later('trialing'), await later('expired')], [0, trials.length]);

      const plans = await accounts.get('admin/plans', { token });
      assert.deepEqual(
        plans.body.plans.map(({ name, isDefault }: { name: string; isDefault: boolean }) => [name, isDefault]),
        [
          ['free', true],
          ['pro', false],
        ],
      );
      assert.equal((await accounts.get('admin/subscriptions?status=paid', { token })).status, 400);
    });
  });
}

test('an external id is needed, and there is an end to how many claims one user may leave', async (t) => {
  const accounts = await startAccounts(t);
  const ann = await loggedInAs(accounts, 'user', 'Ann');
  for (const body of [{}, { externalId: '' }, { externalId: '  ' }]) {
    for (const path of ['subscriptions', 'subscriptions/cancel']) {
      const answer = await accounts.post(path, body, { token: ann.token });
      assert.deepEqual([answer.status, answer.body.error], [400, 'external_id_required']);
    }
  }
  const large = await accounts.post(
    'subscriptions',
    { externalId: 'x', meta: { text: 'y'.repeat(5000) } },
    { token: ann.token },
  );
  assert.deepEqual([large.status, large.body.error], [400, 'invalid_request']);
  for (let index = 0; index < 100; index += 1) {
    await accounts.post('subscriptions', { externalId: `order-${index}` }, { token: ann.token });
  }
  const one = await accounts.post('subscriptions', { externalId: 'one-more' }, { token: ann.token });
  assert.deepEqual([one.status, one.body.error], [409, 'too_many_subscriptions']);
  assert.equal((await accounts.post('subscriptions', { externalId: 'order-5' }, { token: ann.token })).status, 200);
});
