import { GOOD_PASSWORD } from '../../../kit/accounts/accounts-client.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { type RunningAccounts, startAccounts } from '../../../kit/accounts/start-accounts.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { credentialOf, sessionsOf } from './stored-rows.ts';

const MINUTE_MS = 60_000;
const SECOND = 'violet ladder 12 behind the mill';
const THIRD = 'narrow harbour 88 under the moon';
const FOURTH = 'silver anvil 31 beside the road';

/** New passwords by the old one, by a mail to someone who is logged in, and by a mail to someone who is not. */
export const passwordsScenario: Scenario = {
  name: 'passwords',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const secrets = [GOOD_PASSWORD, SECOND, THIRD, FOURTH];
    const ask = createAskAccounts(accounts, secrets);
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const other: string = (await accounts.login(ann)).body.token;
    stage.watch(accounts.database);

    const tokenFor = async (password: string): Promise<string> =>
      (await stage.aside(() => accounts.login({ ...ann, password }))).body.token;
    const flowsOf = (kind: string) =>
      accounts.database.query.selectFrom('flows').select('key').where('kind', '=', kind).execute();
    /** The password counts, and every session from before has ended. */
    const replaced = async (name: string, how: Pick<Parameters<typeof stage.step>[0], 'ask' | 'whenDone'>) => {
      const before = (await credentialOf(accounts, ann.id, 'password'))?.value;
      const known = await sessionsOf(accounts, ann.id);
      return stage.step({
        name,
        ...how,
        async stored() {
          const isEnded = (await sessionsOf(accounts, ann.id)).every((id) => !known.includes(id));
          return storedOf((await credentialOf(accounts, ann.id, 'password'))?.value !== before, isEnded);
        },
      });
    };
    const onlyNow = async (now: string, before: string) => {
      const logIn = (password: string) => ask('POST', 'login', { body: { identifier: ann.email, password } });
      await stage.step({ name: 'the password of before', ask: () => logIn(before), refusal: 'invalid_credentials' });
      await stage.step({ name: 'the new password', ask: () => logIn(now) });
    };

    const change = (currentPassword: string, newPassword: string) =>
      ask('POST', 'password/change', { token: ann.token, body: { currentPassword, newPassword } });
    await stage.step({
      name: 'a change by a wrong password',
      ask: () => change(SECOND, THIRD),
      refusal: 'reauthentication_required',
    });
    await replaced('a change', { ask: () => change(GOOD_PASSWORD, SECOND), whenDone: ['invalid_session'] });
    await stage.step({
      name: 'another session',
      ask: () => ask('GET', 'session', { token: other }),
      refusal: 'invalid_session',
    });
    await onlyNow(SECOND, GOOD_PASSWORD);

    const token = await tokenFor(SECOND);
    await stage.step({
      name: 'a mail for a reset',
      ask: () => ask('POST', 'password/reset', { token, body: {} }),
      stored: async () => storedOf((await flowsOf('reset')).length === 1),
    });
    const mailed = await mailedToken(accounts, ann.email);
    secrets.push(mailed);
    const reset = (session: string, password: string) =>
      ask('POST', 'password/reset/confirm', { token: session, body: { token: mailed, password } });
    await replaced('a reset', { ask: () => reset(token, THIRD), whenDone: ['invalid_session'] });
    const late = await tokenFor(THIRD);
    await stage.step({ name: 'a reset by the same token', ask: () => reset(late, FOURTH), refusal: 'invalid_token' });
    await onlyNow(THIRD, SECOND);

    accounts.clock.stepWall(61_000);
    await stage.step({
      name: 'a mail for a password that was forgotten',
      ask: () => ask('POST', 'password/forgot', { body: { email: ann.email } }),
      stored: async () => storedOf((await flowsOf('forgot')).length > 0),
    });
    const forgotten = await mailedToken(accounts, ann.email, mailed);
    secrets.push(forgotten);
    const confirm = (password: string) =>
      ask('POST', 'password/forgot/confirm', { body: { token: forgotten, password } });
    await replaced('a password by that mail', { ask: () => confirm(FOURTH), whenDone: ['invalid_token'] });
    await stage.step({ name: 'a password by the same mail', ask: () => confirm(SECOND), refusal: 'invalid_token' });
    await onlyNow(FOURTH, THIRD);
    stage.mend();
    await noteStore(stage, accounts);
  },
};

/** Sent before the answer or soon after it. One that could not be claimed is looked for after a minute. */
async function mailedToken(accounts: RunningAccounts, email: string, before = ''): Promise<string> {
  let found = before;
  await passUntil(accounts.clock, MINUTE_MS, 'a mail with a token', async () => {
    const mails = (await accounts.mails(email)).map((mail) => mail.replaceAll(/=\r?\n/g, ''));
    const tokens = mails.flatMap((mail) => /token: ([\w-]{43})/.exec(mail)?.[1] ?? []);
    found = tokens.at(-1) ?? before;
    return found !== before;
  });
  return found;
}
