import { GOOD_PASSWORD } from '../../../kit/accounts/accounts-client.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import { passUntil } from '../pass-until.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { rowsIn, sessionsOf } from './stored-rows.ts';

const MINUTE_MS = 60_000;
/** Longer than a used refresh token gives the same pair again. */
const REPLAY_MS = 11_000;

/** Sessions in use: looked at, refreshed, ended; and what is done without anybody asking for it. */
export const sessionsScenario: Scenario = {
  name: 'sessions',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const secrets = [GOOD_PASSWORD];
    const ask = createAskAccounts(accounts, secrets);
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const logIn = async () => (await accounts.login(ann)).body as { token: string; refresh_token: string };
    const [second, third, fourth] = [await logIn(), await logIn(), await logIn()];
    const [, secondId = ''] = await sessionsOf(accounts, ann.id);
    secrets.push(ann.token, ann.refreshToken, second.token, second.refresh_token, third.token, third.refresh_token);
    const { query } = accounts.database;
    await query.insertInto('billing_deliveries').values({ digest: 'old', received_at: 0 }).execute();
    stage.watch(accounts.database);

    const see = (name: string, token: string, refusal?: string) =>
      stage.step({ name, ask: () => ask('GET', 'session', { token }), ...(refusal !== undefined && { refusal }) });
    const isEnded = async (id: string) => !(await sessionsOf(accounts, ann.id)).includes(id);
    const refresh = (refresh_token: string) => ask('POST', 'token/refresh', { body: { refresh_token } });
    const generationOf = async (id: string) =>
      (await query.selectFrom('sessions').select('generation').where('id', '=', id).executeTakeFirst())?.generation ??
      -1;

    await see('a look at the session', second.token);
    await stage.step({ name: 'a list of sessions', ask: () => ask('GET', 'sessions', { token: ann.token }) });
    const refreshed = await stage.step({
      name: 'a refresh',
      ask: () => refresh(second.refresh_token),
      stored: async () => storedOf((await generationOf(secondId)) === 1),
    });
    const again = await stage.step({ name: 'the same refresh, at once', ask: () => refresh(second.refresh_token) });
    const given = (answer = refreshed) => [answer?.body.access_token, answer?.body.refresh_token];
    stage.note({
      kind: 'fact',
      name: 'a used refresh token gives its pair again',
      wanted: given(),
      found: given(again),
    });
    await see('a look with the new token', refreshed?.body.access_token);
    accounts.clock.stepWall(REPLAY_MS);
    await stage.step({
      name: 'a refresh token that was used',
      ask: () => refresh(second.refresh_token),
      refusal: 'invalid_refresh_token',
    });
    await see('the session whose refresh token was stolen', refreshed?.body.access_token, 'invalid_session');

    const [, thirdId = ''] = await stage.aside(() => sessionsOf(accounts, ann.id));
    await stage.step({
      name: 'the end of one session',
      ask: () => ask('DELETE', `sessions/${thirdId}`, { token: ann.token }),
      stored: async () => storedOf(await isEnded(thirdId)),
      whenDone: ['session_not_found'],
    });
    await see('a session that was ended', third.token, 'invalid_session');
    await stage.step({
      name: 'the end of all others',
      ask: () => ask('DELETE', 'sessions', { token: ann.token }),
      stored: async () => storedOf((await sessionsOf(accounts, ann.id)).length === 1),
    });
    await see('one of the others', fourth.token, 'invalid_session');

    accounts.clock.stepWall(MINUTE_MS);
    await see('a look a minute later', ann.token);
    await passUntil(accounts.clock, MINUTE_MS, 'the use to be noted', async () => {
      const session = await query
        .selectFrom('sessions')
        .select(['created_at', 'last_seen_at'])
        .executeTakeFirstOrThrow();
      return session.last_seen_at > session.created_at;
    });
    await passUntil(
      accounts.clock,
      MINUTE_MS,
      'the sweep',
      async () => (await rowsIn(accounts, 'billing_deliveries')) === 0,
    );

    const [ownId = ''] = await sessionsOf(accounts, ann.id);
    await stage.step({
      name: 'a logout',
      ask: () => ask('DELETE', 'session', { token: ann.token }),
      stored: async () => storedOf(await isEnded(ownId)),
      whenDone: ['invalid_session'],
    });
    await see('a session that was logged out', ann.token, 'invalid_session');
    await stage.step({
      name: 'a refresh after the logout',
      ask: () => refresh(ann.refreshToken),
      refusal: 'invalid_refresh_token',
    });
    stage.mend();
    await noteStore(stage, accounts);
  },
};
