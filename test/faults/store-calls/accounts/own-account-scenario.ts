import { loggedInAs } from '../../../kit/accounts/people.ts';
import { accountsSettingsOf, startAccounts } from '../../../kit/accounts/start-accounts.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { rowsIn, userOf } from './stored-rows.ts';

const NEXT = 'anna@example.org';
const MINUTE_MS = 60_000;
/** Nobody listens there, so that each mail fails at once. */
const NO_MAIL_SERVER = '{ smtp: { host: localhost, port: 1, from: no-reply@example.org } }';

/** What people do with their own accounts: another name, another address, an export, the end; and mails that cannot be sent. */
export const ownAccountScenario: Scenario = {
  name: 'the own account',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const ask = createAskAccounts(accounts, []);
    const admin = await loggedInAs(accounts, 'admin');
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const ben = await loggedInAs(accounts, 'user', 'Ben');
    const { query } = accounts.database;
    const { token } = ann;
    stage.watch(accounts.database);

    const annNow = () => query.selectFrom('users').selectAll().where('id', '=', ann.id).executeTakeFirst();
    const change = (body: object) => ask('PATCH', 'profile', { token, body });
    await stage.step({
      name: 'another name',
      ask: () => change({ name: 'Anna' }),
      stored: async () => storedOf((await annNow())?.name === 'Anna'),
    });
    await stage.step({ name: 'another address', ask: () => change({ email: NEXT }) });
    let code = '';
    // A mail that could not be claimed is looked for after a minute.
    await passUntil(accounts.clock, MINUTE_MS, 'the code', async () => {
      code = /code is (\d{6})/.exec((await accounts.mails(NEXT)).at(-1) ?? '')?.[1] ?? '';
      return code !== '';
    });
    await stage.step({
      name: 'a wrong code',
      ask: () => change({ email: NEXT, code: code === '000000' ? '000001' : '000000' }),
      refusal: 'invalid_code',
    });
    await stage.step({
      name: 'the right code',
      ask: () => change({ email: NEXT, code }),
      stored: async () => storedOf((await annNow())?.email === NEXT),
    });
    await stage.step({ name: 'an export', ask: () => ask('GET', 'export', { token }) });
    await stage.step({
      name: 'all subscriptions',
      ask: () => ask('GET', 'admin/subscriptions', { token: admin.token }),
    });
    for (const [name, method, isClosing] of [
      ['the end of the account', 'POST', true],
      ['a change of mind', 'DELETE', false],
    ] as const) {
      await stage.step({
        name,
        ask: () => ask(method, 'delete', { token, ...(isClosing && { body: { password: ann.password } }) }),
        stored: async () => storedOf(((await annNow())?.closing_at !== null) === isClosing),
      });
    }

    const waiting = () => rowsIn(accounts, 'outgoing_mails');
    await passUntil(accounts.clock, MINUTE_MS, 'the mails to be sent', async () => (await waiting()) === 0);
    accounts.reload(accountsSettingsOf(NO_MAIL_SERVER));
    const forget = (email: string) =>
      stage.step({
        name: `a mail to ${email} that cannot be sent`,
        ask: () => ask('POST', 'password/forgot', { body: { email } }),
      });
    await forget(NEXT);
    await passUntil(accounts.clock, MINUTE_MS, 'the mail to be tried', async () => {
      const rows = await query.selectFrom('outgoing_mails').select(['attempts', 'due_at']).execute();
      return rows.every(({ attempts }) => attempts > 0);
    });
    // Tried eight times at most, and worth nothing after a quarter of an hour.
    await passUntil(accounts.clock, 16 * MINUTE_MS, 'the mail to be given up', async () => (await waiting()) === 0);
    await forget(ben.email);
    await stage.step({
      name: 'the end of someone to whom a mail waits',
      ask: () => ask('DELETE', `admin/users/${ben.id}`, { token: admin.token }),
      stored: async () => storedOf((await userOf(accounts, ben.email)) === undefined),
      whenDone: ['user_not_found'],
    });
    stage.mend();
    stage.note({ kind: 'fact', name: 'mails that wait for nobody', wanted: 0, found: await waiting() });
    await noteStore(stage, accounts);
  },
};
