import { accountsErrors } from '../../../../src/accounts/errors.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import { headWith } from '../../../kit/completions/start-keys.ts';
import { askInside } from '../ask-inside.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { rowsIn } from './stored-rows.ts';

const MINUTE_MS = 60_000;

/** Access tokens of people, of service accounts and of devices, and signed ones. */
export const tokensScenario: Scenario = {
  name: 'tokens',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const secrets: string[] = [];
    const ask = createAskAccounts(accounts, secrets);
    const admin = await loggedInAs(accounts, 'admin');
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const { query } = accounts.database;
    stage.watch(accounts.database);

    const tokensOf = async (owner: string) =>
      (await query.selectFrom('access_tokens').select('id').where('owner', '=', owner).execute()).map(({ id }) => id);
    /** Who asks for a token again after a lost answer has two. */
    const issue = async (name: string, path: string, token: string, owner: string, scope: string) => {
      const known = (await tokensOf(owner)).length;
      const issued = await stage.step({
        name,
        ask: () => ask('POST', path, { token, body: { name, scopes: [scope] } }),
        stored: async () => storedOf((await tokensOf(owner)).length > known),
      });
      secrets.push(issued?.body.token);
      return issued?.body ?? { id: '', token: '' };
    };
    const look = (name: string, path: string, token: string) =>
      stage.step({ name, ask: () => ask('GET', path, { token }) });
    const remove = (name: string, path: string, id: string, token: string, owner: string) =>
      stage.step({
        name,
        ask: () => ask('DELETE', `${path}/${id}`, { token }),
        stored: async () => storedOf(!(await tokensOf(owner)).includes(id)),
        whenDone: ['token_not_found'],
      });

    const owner = `user:${ann.id}`;
    const own = await issue('an access token', 'tokens', ann.token, owner, 'account');
    await look('the own tokens', 'tokens', ann.token);
    await look('a call with the token', 'session', own.token);
    const used = () => query.selectFrom('access_tokens').select('last_used_at').where('id', '=', own.id).execute();
    await passUntil(
      accounts.clock,
      MINUTE_MS,
      'the use to be noted',
      async () => (await used())[0]?.last_used_at !== null,
    );
    for (const [name, token] of [
      ['a login', ann.token],
      ['a token', own.token],
    ] as const) {
      const signed = await stage.step({
        name: `a signed token for ${name}`,
        ask: () => ask('POST', 'token/jwt', { token, body: {} }),
      });
      await stage.step({
        name: `who brings the signed token for ${name}`,
        ask: () =>
          askInside(accountsErrors, async () =>
            accounts.identify(headWith(String(signed?.body.access_token)), 'token'),
          ),
      });
    }
    await stage.step({ name: 'the public keys', ask: () => ask('GET', '/.well-known/jwks.json') });
    await remove('the end of a token', 'tokens', own.id, ann.token, owner);

    const made = await stage.step({
      name: 'a service account',
      ask: () => ask('POST', 'admin/services', { token: admin.token, body: { name: 'nightly' } }),
      stored: async () => storedOf((await rowsIn(accounts, 'service_accounts')) > 0),
    });
    const id: string = made?.body.service.id;
    const path = `admin/services/${id}/tokens`;
    await look('the service accounts', 'admin/services', admin.token);
    const ofService = await issue('a token of a service', path, admin.token, `service:${id}`, 'completions');
    await look('the tokens of a service', path, admin.token);
    await remove('the end of a token of a service', path, ofService.id, admin.token, `service:${id}`);
    const isThere = async () =>
      (await query.selectFrom('service_accounts').select('id').where('id', '=', id).execute()).length === 1;
    await stage.step({
      name: 'the end of a service account',
      ask: () => ask('DELETE', `admin/services/${id}`, { token: admin.token }),
      stored: async () => storedOf(!(await isThere())),
      whenDone: ['service_account_not_found'],
    });
    stage.mend();
    await noteStore(stage, accounts);
  },
};

/** A login of a device, which a person approves. */
export const deviceScenario: Scenario = {
  name: 'devices',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const ask = createAskAccounts(accounts, []);
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const { token } = ann;
    const { query } = accounts.database;
    stage.watch(accounts.database);

    const begun = await stage.step({
      name: 'a code for a device',
      ask: () => ask('POST', 'device/code', { body: { client_id: 'trestle', scope: 'account' } }),
      stored: async () => storedOf((await rowsIn(accounts, 'device_logins')) > 0),
    });
    const { device_code, user_code } = begun?.body ?? {};
    const poll = () => ask('POST', 'device/token', { body: { device_code } });
    await stage.step({
      name: 'a device that is not approved',
      ask: poll,
      refusal: 'authorization_pending',
      // The attempt before was counted, and this one is too early.
      whenDone: ['slow_down'],
    });
    const path = `device/approval/${user_code}`;
    await stage.step({ name: 'what asks for approval', ask: () => ask('GET', path, { token }) });
    const states = async () =>
      (await query.selectFrom('device_logins').select('state').execute()).map(({ state }) => state);
    await stage.step({
      name: 'the approval',
      ask: () => ask('POST', path, { token, body: { approve: true } }),
      stored: async () => storedOf((await states()).includes('approved')),
      whenDone: ['device_code_not_found'],
    });
    const tokens = () => query.selectFrom('access_tokens').select('id').where('owner', '=', `user:${ann.id}`).execute();
    await stage.step({
      name: 'the token of the device',
      ask: poll,
      stored: async () => storedOf((await tokens()).length === 1, !(await states()).includes('approved')),
      whenDone: ['expired_token'],
    });
    await stage.step({ name: 'the token of the device, again', ask: poll, refusal: 'expired_token' });
    stage.mend();
    const count = (await tokens()).length;
    stage.note({ kind: 'fact', name: 'tokens of the device', wanted: 1, found: count });
    await noteStore(stage, accounts);
  },
};
