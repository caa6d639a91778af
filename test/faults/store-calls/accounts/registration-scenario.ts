import { GOOD_PASSWORD } from '../../../kit/accounts/accounts-client.ts';
import { type RunningAccounts, startAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Stored } from '../check-steps.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';

const ANN = 'ann@example.org';
const BEN = 'ben@example.org';
const DAN = 'dan@example.org';

/** Codes by mail, their tokens, and registrations. */
export const registrationScenario: Scenario = {
  name: 'registration',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const ask = createAskAccounts(accounts, [GOOD_PASSWORD]);
    for (let count = 0; count < 3; count += 1) await accounts.post('register/send', { email: DAN });
    stage.watch(accounts.database);

    const send = (email: string) =>
      stage.step({
        name: `a code for ${email}`,
        ask: () => ask('POST', 'register/send', { body: { email } }),
        stored: async () => storedOf((await mailedCode(accounts, email)) !== ''),
      });
    const register = (name: string, email: string, proof: object, refusal?: string) =>
      stage.step({
        name: `${name} registers as ${email}`,
        ask: () => ask('POST', 'register', { body: { name, email, password: GOOD_PASSWORD, ...proof } }),
        stored: () => registered(accounts, name, email),
        // The code is used up by then.
        whenDone: ['invalid_code'],
        ...(refusal !== undefined && { refusal }),
      });

    await send(ANN);
    const code = await mailedCode(accounts, ANN);
    await stage.step({
      name: 'a wrong code',
      ask: () =>
        ask('POST', 'register/verify', { body: { email: ANN, code: code === '000000' ? '000001' : '000000' } }),
      refusal: 'invalid_code',
    });
    const verified = await stage.step({
      name: 'the right code',
      ask: () => ask('POST', 'register/verify', { body: { email: ANN, code } }),
      stored: async () => storedOf((await flowsOf(accounts, 'verification', ANN)) > 0),
    });
    const verificationToken = verified?.body.verificationToken;
    await register('Ann', ANN, { verificationToken });
    await register('Anne', ANN, { verificationToken }, 'invalid_code');
    await register('Anna', ANN, { code }, 'invalid_code');
    await stage.step({
      name: 'Ann logs in',
      ask: () => ask('POST', 'login', { body: { identifier: ANN, password: GOOD_PASSWORD } }),
    });

    await send(BEN);
    const proof = { code: await mailedCode(accounts, BEN) };
    await register('Ann', BEN, proof, 'name_already_exists');
    await register('Ben', BEN, proof);
    await stage.step({
      name: 'one code too many',
      ask: () => ask('POST', 'register/send', { body: { email: DAN } }),
      refusal: 'rate_limited',
    });
    stage.mend();
    await noteStore(stage, accounts);
  },
};

async function registered({ database }: RunningAccounts, name: string, email: string): Promise<Stored> {
  const { query } = database;
  const users = await query
    .selectFrom('users')
    .select('id')
    .where('name', '=', name)
    .where('email', '=', email)
    .execute();
  const ids = users.map(({ id }) => id);
  const trials = await query.selectFrom('subscriptions').select('id').where('user_id', 'in', ids).execute();
  return storedOf(users.length === 1, trials.length === 1);
}

async function flowsOf({ database }: RunningAccounts, kind: string, email: string): Promise<number> {
  const rows = await database.query
    .selectFrom('flows')
    .select('key')
    .where('kind', '=', kind)
    .where('email', '=', email)
    .execute();
  return rows.length;
}

/** Sent before the answer; empty when none was. */
async function mailedCode(accounts: RunningAccounts, email: string): Promise<string> {
  return /code is (\d{6})/.exec((await accounts.mails(email)).at(-1) ?? '')?.[1] ?? '';
}
