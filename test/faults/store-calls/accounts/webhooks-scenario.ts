import { DISABLED_AFTER_MS, RETRY_MS } from '../../../../src/accounts/webhooks/webhook-post.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import { temporaryFolder } from '../../../kit/running-program.ts';
import { startScriptedHttp } from '../../../kit/scripted-http.ts';
import { until } from '../../../kit/until.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';

const MINUTE_MS = 60_000;
const ATTEMPT_MS = 2_000;
const SETTINGS = '{ webhook_allow: [127.0.0.0/8] }';

/** Webhooks of administrators: added, delivered, tried again, switched off and on, removed; and a stop during an attempt. */
export const webhooksScenario: Scenario = {
  name: 'webhooks',
  service: 'accounts',
  async play(stage) {
    let status: number | 'silent' = 204;
    const receiver = await startScriptedHttp(stage.scope, ({ response }) => {
      if (status !== 'silent') response.writeHead(status).end();
    });
    const folder = await temporaryFolder(stage.scope);
    const accounts = await startAccounts(stage.scope, { settings: SETTINGS, folder });
    const ask = createAskAccounts(accounts, []);
    const admin = await loggedInAs(accounts, 'admin');
    let { token } = admin;
    const { query } = accounts.database;
    stage.watch(accounts.database);

    const hooks = () => query.selectFrom('webhooks').selectAll().execute();
    const deliveries = () => query.selectFrom('webhook_deliveries').selectAll().execute();
    const pass = (what: string, isDone: () => Promise<boolean>, ms = MINUTE_MS) =>
      passUntil(accounts.clock, ms, what, isDone);
    const add = async (name: string): Promise<string> => {
      const known = (await hooks()).length;
      const body = { url: `${receiver.url}/hook`, events: ['user.created'] };
      const added = await stage.step({
        name,
        ask: () => ask('POST', 'admin/webhooks', { token, body }),
        stored: async () => storedOf((await hooks()).length > known),
      });
      return added?.body.webhook.id;
    };
    const look = (name: string, path: string) => stage.step({ name, ask: () => ask('GET', path, { token }) });
    /** Events of this service are stored with what they tell of: none is lost. */
    const makeUser = (name: string) =>
      stage.step({
        name: `a user: ${name}`,
        ask: () => ask('POST', 'admin/users', { token, body: { email: `${name}@example.org`, name, role: 'user' } }),
        whenDone: ['email_already_exists', 'name_already_exists'],
      });

    const id = await add('a webhook');
    const other = await add('another webhook');
    await look('the webhooks', 'admin/webhooks');
    await stage.step({
      name: 'the end of a webhook',
      ask: () => ask('DELETE', `admin/webhooks/${other}`, { token }),
      stored: async () => storedOf(!(await hooks()).some((one) => one.id === other)),
      whenDone: ['webhook_not_found'],
    });
    await makeUser('ben');
    // An attempt takes real time: passing more than its limit would end it.
    const areSent = async () => (await deliveries()).every(({ state }) => state === 'sent');
    await until('the delivery', areSent, ATTEMPT_MS).catch(() => undefined);
    await pass('the delivery', areSent);
    await look('the deliveries', `admin/webhooks/${id}/deliveries`);
    // An event of another service.
    accounts.announce({ event: 'user.created', data: {} });

    status = 503;
    await makeUser('dan');
    await pass('the failed attempt', async () =>
      (await deliveries()).some(({ attempts, detail }) => attempts > 0 && detail === 'HTTP 503'),
    );
    const failing_since = accounts.clock.now() - DISABLED_AFTER_MS;
    await query.updateTable('webhooks').set({ failing_since }).execute();
    await pass(
      'the webhook to be switched off',
      async () => (await hooks()).every((one) => one.disabled_at !== null),
      RETRY_MS[2],
    );
    // Stored by another instance at the moment of the switch.
    const due_at = accounts.clock.now();
    const [last] = await deliveries();
    await query
      .updateTable('webhook_deliveries')
      .set({ state: 'waiting', due_at })
      .where('id', '=', last?.id ?? '')
      .execute();
    await pass('the late delivery to end', async () => (await deliveries()).every((one) => one.due_at === null));
    // So much time may have passed that a login is too old for this.
    token = (await stage.aside(() => accounts.login(admin))).body.token;
    for (const hook of await hooks()) {
      await stage.step({
        name: 'the webhook on again',
        ask: () => ask('POST', `admin/webhooks/${hook.id}/enable`, { token }),
        stored: async () => storedOf((await hooks()).find((one) => one.id === hook.id)?.disabled_at === null),
      });
    }

    status = 'silent';
    const before = receiver.requests.length;
    await makeUser('eve');
    await pass('an attempt to be under way', async () => receiver.requests.length > before);
    // The attempt is cut off: a stop waits two seconds for it.
    let isStopped = false;
    const stop = accounts.close().then(() => {
      isStopped = true;
    });
    await until('the stop', async () => {
      await accounts.clock.advance(1000);
      return isStopped;
    });
    await stop;
    const again = await startAccounts(stage.scope, { settings: SETTINGS, folder });
    stage.mend();
    const kept = (await again.database.query.selectFrom('webhook_deliveries').selectAll().execute()).filter(
      ({ due_at: at }) => at !== null,
    );
    stage.note({ kind: 'fact', name: 'the delivery that was cut off waits', wanted: true, found: kept.length > 0 });
    await noteStore(stage, again);
  },
};
