import { createPasswordHasher } from '../../../../src/accounts/passwords/passwords.ts';
import { type Answer, GOOD_PASSWORD } from '../../../kit/accounts/accounts-client.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Asked, Scenario } from '../scenario.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { openedSince, sessionsOf } from './stored-rows.ts';

const WRONG = 'not the password of anyone';
const olderHashes = createPasswordHasher({
  parameters: { memoryCost: 128, timeCost: 1, parallelism: 1 },
  concurrency: 1,
});

/** Right and wrong passwords, locks, known devices, exchange codes. */
export const loginScenario: Scenario = {
  name: 'login',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const ask = createAskAccounts(accounts, [GOOD_PASSWORD, WRONG]);
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const ben = await loggedInAs(accounts, 'user', 'Ben');
    const dan = await loggedInAs(accounts, 'user', 'Dan');
    const value = await olderHashes.hash(GOOD_PASSWORD);
    await accounts.database.query.updateTable('credentials').set({ value }).where('user_id', '=', dan.id).execute();
    for (let count = 0; count < 4; count += 1) await accounts.login({ ...ben, password: WRONG });
    const exchangeCode = await accounts.issueExchangeCode(ann.id);
    const device = ann.answer.headers.getSetCookie().find((cookie) => cookie.startsWith('xc_device='));
    stage.watch(accounts.database);

    const logIn = async (name: string, userId: string, asked: () => Promise<Asked<Answer>>, rest: object = {}) => {
      const before = await sessionsOf(accounts, userId);
      return stage.step({ name, ask: asked, stored: () => openedSince(accounts, userId, before), ...rest });
    };
    const login = (identifier: string, password: string, cookie = '') =>
      ask('POST', 'login', { body: { identifier, password }, ...(cookie !== '' && { cookie }) });
    const failuresOf = async (userId: string): Promise<number> => {
      const { query } = accounts.database;
      const rows = await query.selectFrom('limits').select('count').where('key', 'like', `${userId}%`).execute();
      return Math.max(0, ...rows.map(({ count }) => count));
    };
    const refusal = 'invalid_credentials';

    await logIn('a login by name', ann.id, () => login('Ann', GOOD_PASSWORD));
    await logIn('a login from a known device', ann.id, () => login(ann.email, GOOD_PASSWORD, device?.split(';')[0]));
    await logIn('a login of nobody', ann.id, () => login('nobody@example.org', GOOD_PASSWORD), { refusal });
    await logIn('a wrong password', ann.id, () => login(ann.email, WRONG), { refusal });
    stage.note({ kind: 'fact', name: 'a wrong password counts', wanted: true, found: (await failuresOf(ann.id)) > 0 });
    await logIn('a right password after it', ann.id, () => login(ann.email, GOOD_PASSWORD));
    await logIn('the fifth wrong password', ben.id, () => login(ben.email, WRONG), { refusal });
    await logIn('the right password while it is locked', ben.id, () => login(ben.email, GOOD_PASSWORD), { refusal });
    accounts.clock.stepWall(31_000);
    await logIn('the right password after the lock', ben.id, () => login(ben.email, GOOD_PASSWORD), {
      // Asked for once too often while it was locked.
      ...((await failuresOf(ben.id)) > 5 && { refusal }),
    });
    await logIn('a password that is hashed anew', dan.id, () => login(dan.email, GOOD_PASSWORD));
    await logIn('a password that was hashed anew', dan.id, () => login(dan.email, GOOD_PASSWORD));
    const exchange = () => ask('POST', 'token/exchange', { body: exchangeCode });
    const used = 'invalid_exchange_code';
    await logIn('an exchange code', ann.id, exchange, { whenDone: [used] });
    await logIn('an exchange code that was used', ann.id, exchange, { refusal: used });
    stage.mend();
    await noteStore(stage, accounts);
  },
};
