import { accountsErrors } from '../../../../src/accounts/errors.ts';
import { GOOD_PASSWORD } from '../../../kit/accounts/accounts-client.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import { askInside } from '../ask-inside.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { credentialOf, rowsIn, userOf } from './stored-rows.ts';

const FIRST = { name: 'Ann', email: 'ann@example.org', password: GOOD_PASSWORD };
const BEN = 'ben@example.org';
const DAN = 'dan@example.org';

/** The first administrator, by the link that a server prints; then what an operator's commands ask for. */
export const commandsScenario: Scenario = {
  name: 'set-up and commands',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const secrets = [GOOD_PASSWORD];
    const ask = createAskAccounts(accounts, secrets);
    const command = <Result>(method: string, params = {}) =>
      askInside(accountsErrors, () => accounts.control<Result>(method, params));
    stage.watch(accounts.database);

    const token = await stage.step({
      name: 'a link for the set-up',
      ask: () => askInside(accountsErrors, accounts.offerSetup),
      stored: async () => storedOf((await rowsIn(accounts, 'flows')) > 0),
    });
    secrets.push(token ?? '');
    const setUp = (given: object) => ask('POST', 'setup', { body: { ...FIRST, token, ...given } });
    await stage.step({
      name: 'the set-up',
      ask: () => setUp({}),
      stored: async () => storedOf((await userOf(accounts, FIRST.email))?.role === 'root'),
      whenDone: ['invalid_token', 'setup_done'],
    });
    await stage.step({
      name: 'the set-up by the same link',
      ask: () => setUp({ name: 'Eve', email: 'eve@example.org' }),
      stored: async () => storedOf((await userOf(accounts, 'eve@example.org')) !== undefined),
      refusal: 'invalid_token',
    });
    await stage.step({
      name: 'a login of the first administrator',
      ask: () => ask('POST', 'login', { body: { identifier: FIRST.email, password: GOOD_PASSWORD } }),
    });

    const passwordOf = async (email: string) =>
      credentialOf(accounts, (await userOf(accounts, email))?.id ?? '', 'password');
    const exists = (email: string) => async () => storedOf((await userOf(accounts, email)) !== undefined);
    const taken = ['email_already_exists', 'name_already_exists'];
    await stage.step({
      name: 'a user with a password',
      ask: () => command('users.create', { email: BEN, name: 'Ben', role: 'admin', password: GOOD_PASSWORD }),
      stored: exists(BEN),
      whenDone: taken,
    });
    await stage.step({
      name: 'a user without a password',
      ask: () => command('users.create', { email: DAN, name: 'Dan', role: 'user' }),
      stored: exists(DAN),
      whenDone: taken,
    });
    await stage.step({ name: 'the users', ask: () => command('users.list', { search: 'dan' }) });
    await stage.step({
      name: 'another role',
      ask: () => command('users.role', { user: BEN, role: 'user' }),
      stored: async () => storedOf((await userOf(accounts, BEN))?.role === 'user'),
    });
    const reset = await stage.step({
      name: 'a token for a new password',
      ask: () => command<{ readonly token: string }>('users.resetPassword', { user: DAN }),
    });
    await stage.step({
      name: 'a password by that token',
      ask: () => ask('POST', 'password/forgot/confirm', { body: { token: reset?.token, password: GOOD_PASSWORD } }),
      stored: async () => storedOf((await passwordOf(DAN)) !== undefined),
      whenDone: ['invalid_token'],
    });
    await stage.step({
      name: 'an agent',
      ask: () => command('agents.create', { id: 'node-1' }),
      stored: async () => storedOf((await rowsIn(accounts, 'proxy_agents')) === 1),
      whenDone: ['agent_exists'],
    });
    await stage.step({ name: 'the agents', ask: () => command('agents.list') });
    await stage.step({
      name: 'the end of an agent',
      ask: () => command('agents.revoke', { id: 'node-1' }),
      stored: async () => storedOf((await rowsIn(accounts, 'proxy_agents')) === 0),
      whenDone: ['agent_not_found'],
    });
    stage.mend();
    await noteStore(stage, accounts);
  },
};
