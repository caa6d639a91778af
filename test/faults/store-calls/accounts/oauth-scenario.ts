import { loggedInAs } from '../../../kit/accounts/people.ts';
import { accountsSettingsOf, startAccounts } from '../../../kit/accounts/start-accounts.ts';
import { startScriptedHttp } from '../../../kit/scripted-http.ts';
import type { Asked, Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { openedSince, sessionsOf, userOf } from './stored-rows.ts';

const FRONTEND = 'http://console.test';
const EMAIL = 'ann@example.org';

/** Logins with accounts from elsewhere, and links to them. */
export const oauthScenario: Scenario = {
  name: 'logins from elsewhere',
  service: 'accounts',
  async play(stage) {
    let githubId = 583_231;
    const github = await startScriptedHttp(stage.scope, ({ path, response }) => {
      const answers: Readonly<Record<string, unknown>> = {
        '/login/oauth/access_token': { access_token: 'gho_token', token_type: 'bearer', scope: 'user:email' },
        '/api/v3/user': { id: githubId, login: 'ann', name: 'Ann' },
        '/api/v3/user/emails': [{ email: EMAIL, primary: true, verified: true }],
      };
      response.setHeader('content-type', 'application/json').end(JSON.stringify(answers[path]));
    });
    const accounts = await startAccounts(stage.scope);
    const client = `{ client_id: iv1, client_secret: shh-nobody-knows, url: "${github.url}", api_url: "${github.url}/api/v3/" }`;
    const oauth = `oauth: { github: ${client} }`;
    accounts.reload(accountsSettingsOf(`{ public_url: "${accounts.url}", frontend_url: "${FRONTEND}", ${oauth} }`));
    const ask = createAskAccounts(accounts, ['shh-nobody-knows', 'gho_token']);
    const ben = await loggedInAs(accounts, 'user', 'Ben');
    stage.watch(accounts.database);

    let lastCookie = '';
    /** The whole way: there and back. Whoever is turned away begins anew. */
    const goThere = async (query: string, token: string | undefined, back: object): Promise<Asked<URLSearchParams>> => {
      const begun = await ask('GET', `oauth/login/github${query}`, token === undefined ? {} : { token });
      if (begun.told === undefined) return { code: begun.code, problems: begun.problems };
      const state = new URL(begun.told.headers.get('location') ?? '').searchParams.get('state') ?? '';
      const [cookie = ''] = begun.told.headers.getSetCookie().map((line) => line.split(';')[0]);
      const callback = new URLSearchParams({ state, ...back });
      const ended = await ask('GET', `oauth/callback/github?${callback}`, { cookie });
      if (ended.told === undefined) return { code: ended.code, problems: ended.problems };
      const told = new URL(ended.told.headers.get('location') ?? '').searchParams;
      lastCookie = cookie;
      return { told, code: told.get('error') ?? '', problems: [] };
    };
    const links = (userId: string) =>
      accounts.database.query
        .selectFrom('credentials')
        .select('id')
        .where('user_id', '=', userId)
        .where('kind', '=', 'oauth')
        .execute();

    const enter = (name: string) =>
      stage.step({
        name,
        ask: () => goThere('', undefined, { code: 'the-code' }),
        async stored() {
          const user = await userOf(accounts, EMAIL);
          return storedOf(user !== undefined, (await links(user?.id ?? '')).length === 1);
        },
      });
    await enter('a first login from elsewhere');
    const second = await enter('a second one');
    const userId = (await userOf(accounts, EMAIL))?.id ?? '';
    const before = await sessionsOf(accounts, userId);
    const body = { exchange_code: second?.get('exchange_code') };
    const cookie = lastCookie;
    const exchange = () => ask('POST', 'token/exchange', { body, cookie });
    const used = 'invalid_exchange_code';
    const opened = () => openedSince(accounts, userId, before);
    await stage.step({ name: 'the exchange', ask: exchange, stored: opened, whenDone: [used] });
    await stage.step({ name: 'the same exchange', ask: exchange, refusal: used });
    await stage.step({
      name: 'a login that someone has turned down',
      ask: () => goThere('', undefined, { error: 'access_denied' }),
      refusal: 'access_denied',
    });
    await stage.step({
      name: 'a link to an account of someone else',
      ask: () => goThere('?link=1', ben.token, { code: 'the-code' }),
      refusal: 'already_linked',
    });
    githubId = 4711;
    for (const name of ['a link', 'the same link']) {
      await stage.step({
        name,
        ask: () => goThere('?link=1', ben.token, { code: 'the-code' }),
        stored: async () => storedOf((await links(ben.id)).length === 1),
      });
    }
    stage.mend();
    await noteStore(stage, accounts);
  },
};
