import { createHmac } from 'node:crypto';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { userOf } from './stored-rows.ts';

const SECRET = 'a secret between the payments and us 42';
const ORDER = 'order-1';

/** What users, payments and administrators say of subscriptions. */
export const subscriptionsScenario: Scenario = {
  name: 'subscriptions',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope, { settings: `{ billing_webhook_secret: "${SECRET}" }` });
    const ask = createAskAccounts(accounts, [SECRET]);
    const admin = await loggedInAs(accounts, 'admin');
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    stage.watch(accounts.database);

    const orderNow = () =>
      accounts.database.query
        .selectFrom('subscriptions')
        .selectAll()
        .where('external_id', '=', ORDER)
        .executeTakeFirst();
    /** The status of the order, and what is counted by it. */
    const stands = async (status: string, subscribed: number) =>
      storedOf((await orderNow())?.status === status, (await userOf(accounts, ann.email))?.subscribed === subscribed);
    const claim = (name: string, status: string) =>
      stage.step({
        name,
        ask: () => ask('POST', 'subscriptions', { token: ann.token, body: { externalId: ORDER, planId: 'PRO' } }),
        stored: async () => storedOf((await orderNow())?.status === status),
      });
    const pay = (name: string, delivery: string, status: string, stored: () => ReturnType<typeof stands>) =>
      stage.step({
        name,
        ask() {
          const time = Math.floor(accounts.clock.now() / 1000);
          const text = JSON.stringify({ userId: ann.id, externalId: ORDER, status });
          const hex = createHmac('sha256', SECRET).update(`${time}.${text}`).digest('hex');
          const headers = { 'x-app-signature': `t=${time},v1=${hex}`, 'x-app-delivery': delivery };
          return ask('POST', '/api/billing/webhook', { text, headers });
        },
        stored,
      });

    await claim('a claim', 'pending');
    await pay('a payment', 'one', 'active', () => stands('active', 1));
    await claim('a claim of what is decided', 'active');
    await stage.step({ name: 'the own subscriptions', ask: () => ask('GET', 'subscriptions', { token: ann.token }) });
    const cancel = (externalId: string) =>
      ask('POST', 'subscriptions/cancel', { token: ann.token, body: { externalId } });
    await stage.step({
      name: 'a cancellation',
      ask: () => cancel(ORDER),
      // Nobody is subscribed before the payment either.
      stored: async () => ((await orderNow())?.status === 'cancelled' ? stands('cancelled', 0) : 'none'),
    });
    await stage.step({
      name: 'a cancellation of what is not there',
      ask: () => cancel('order-2'),
      refusal: 'subscription_not_found',
    });
    accounts.clock.stepWall(1000);
    await pay('the same payment again', 'one', 'active', () => stands('cancelled', 0));
    const id = (await orderNow())?.id;
    await stage.step({
      name: 'a status from an administrator',
      ask: () => ask('POST', `admin/subscriptions/${id}/status`, { token: admin.token, body: { status: 'active' } }),
      stored: () => stands('active', 1),
    });
    stage.mend();
    await noteStore(stage, accounts);
  },
};
