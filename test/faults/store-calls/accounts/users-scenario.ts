import { GOOD_PASSWORD } from '../../../kit/accounts/accounts-client.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { rowsIn, sessionsOf, userOf } from './stored-rows.ts';

const BEN = 'ben@example.org';
const BLOCKED = 'spam@example.org';

/** What an administrator does with users, addresses and permissions. */
export const usersScenario: Scenario = {
  name: 'users',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const ask = createAskAccounts(accounts, [GOOD_PASSWORD]);
    const { token } = await loggedInAs(accounts, 'admin');
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const { query } = accounts.database;
    stage.watch(accounts.database);

    const look = (path: string) =>
      stage.step({ name: `a look at ${path}`, ask: () => ask('GET', `admin/${path}`, { token }) });
    const annNow = () => userOf(accounts, ann.email);
    const act = (name: string, body: object | undefined, stored: () => Promise<boolean | readonly boolean[]>) =>
      stage.step({
        name: `Ann: ${name}`,
        ask: () => ask('POST', `admin/users/${ann.id}/${name}`, { token, ...(body !== undefined && { body }) }),
        stored: async () => storedOf(...[await stored()].flat()),
      });
    const logIn = (name: string, refusal?: string) =>
      stage.step({
        name,
        ask: () => ask('POST', 'login', { body: { identifier: ann.email, password: GOOD_PASSWORD } }),
        ...(refusal !== undefined && { refusal }),
      });

    for (const path of [
      'users',
      'users?search=ann',
      'users?role=user',
      'users/metrics',
      'audit',
      'blacklist',
      'settings',
    ]) {
      await look(path);
    }
    await stage.step({
      name: 'a new user',
      ask: () => ask('POST', 'admin/users', { token, body: { email: BEN, name: 'Ben', role: 'user' } }),
      async stored() {
        const user = await userOf(accounts, BEN);
        const flows = await query
          .selectFrom('flows')
          .select('key')
          .where('user_id', '=', user?.id ?? '')
          .execute();
        return storedOf(user !== undefined, flows.length === 1);
      },
      whenDone: ['email_already_exists', 'name_already_exists'],
    });
    await act('role', { role: 'operator' }, async () => (await annNow())?.role === 'operator');
    const uuid = (await annNow())?.proxy_uuid;
    await act('renew-uuid', {}, async () => (await annNow())?.proxy_uuid !== uuid);
    await act('pause', undefined, async () => [
      (await annNow())?.active === 0,
      (await sessionsOf(accounts, ann.id)).length === 0,
    ]);
    await stage.step({
      name: 'a session of someone who was paused',
      ask: () => ask('GET', 'session', { token: ann.token }),
      refusal: 'invalid_session',
    });
    await logIn('a login of someone who was paused', 'account_suspended');
    await act('resume', undefined, async () => (await annNow())?.active === 1);
    await logIn('a login after it');
    await act('end-sessions', undefined, async () => (await sessionsOf(accounts, ann.id)).length === 0);

    const listed = async (email: string) =>
      (await query.selectFrom('blacklist').select('email').where('email', '=', email).execute()).length === 1;
    for (const email of [BLOCKED, ann.email]) {
      await stage.step({
        name: `${email} on the list`,
        ask: () => ask('POST', 'admin/blacklist', { token, body: { email } }),
        stored: async () => storedOf(await listed(email)),
      });
    }
    await logIn('a login from a listed address', 'account_suspended');
    await stage.step({
      name: 'an address off the list',
      ask: () => ask('DELETE', `admin/blacklist/${ann.email}`, { token }),
      stored: async () => storedOf(!(await listed(ann.email))),
      whenDone: ['address_not_listed'],
    });
    await logIn('a login from an address that was listed');
    const matrix = { reports: { user: true } };
    await stage.step({
      name: 'other permissions',
      ask: () => ask('POST', 'admin/settings', { token, body: { version: 0, matrix } }),
      stored: async () => storedOf((await rowsIn(accounts, 'permission_matrix')) === 1),
      whenDone: ['version_conflict'],
    });
    await stage.step({
      name: 'permissions that were changed meanwhile',
      ask: () => ask('POST', 'admin/settings', { token, body: { version: 0, matrix: {} } }),
      refusal: 'version_conflict',
    });
    await stage.step({
      name: 'the end of Ann',
      ask: () => ask('DELETE', `admin/users/${ann.id}`, { token }),
      stored: async () => storedOf((await annNow()) === undefined, (await sessionsOf(accounts, ann.id)).length === 0),
      whenDone: ['user_not_found'],
    });
    await logIn('a login of someone who is gone', 'invalid_credentials');
    stage.mend();
    await noteStore(stage, accounts);
  },
};
