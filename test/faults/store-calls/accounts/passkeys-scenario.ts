import { randomBytes } from 'node:crypto';
import { base64url, createAuthenticator, originOf } from '../../../kit/accounts/authenticator.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { openedSince, sessionsOf } from './stored-rows.ts';

const REFUSED = 'invalid_passkey';

/** Passkeys: added, used, removed, and refused. */
export const passkeysScenario: Scenario = {
  name: 'passkeys',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const ask = createAskAccounts(accounts, []);
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const authenticator = createAuthenticator(originOf(accounts));
    const { token } = ann;
    stage.watch(accounts.database);

    const passkeys = async () =>
      (await accounts.database.query.selectFrom('credentials').select('id').where('kind', '=', 'passkey').execute())
        .length;
    const optionsTo = async (name: string, query: string, given: object) =>
      (await stage.step({ name, ask: () => ask('POST', `passkeys/options${query}`, { body: {}, ...given }) }))?.body
        .publicKey;
    const foreign = { challenge: base64url(randomBytes(32)) };

    const toAdd = await optionsTo('options for a passkey', '?add=1', { token });
    const add = (credential: object) => ask('POST', 'passkeys/verify?add=1', { token, body: { credential } });
    const wrong = authenticator.create({ ...toAdd, ...foreign });
    await stage.step({ name: 'a passkey for no challenge of ours', ask: () => add(wrong), refusal: REFUSED });
    const made = authenticator.create(toAdd);
    await stage.step({
      name: 'a passkey',
      ask: () => add(made),
      stored: async () => storedOf((await passkeys()) === 1),
      whenDone: [REFUSED],
    });
    const listed = await stage.step({ name: 'the credentials', ask: () => ask('GET', 'credentials', { token }) });

    const toEnter = await optionsTo('options for a login', '', {});
    const before = await sessionsOf(accounts, ann.id);
    const enter = (credential: object) => ask('POST', 'passkeys/verify', { body: { credential } });
    const signed = authenticator.get(toEnter);
    await stage.step({
      name: 'a login by passkey',
      ask: () => enter(signed),
      stored: () => openedSince(accounts, ann.id, before),
      whenDone: [REFUSED],
    });
    await stage.step({ name: 'the same login again', ask: () => enter(signed), refusal: REFUSED });
    const kept: readonly { readonly id: string; readonly kind: string }[] = listed?.body.credentials ?? [];
    const id = kept.find(({ kind }) => kind === 'passkey')?.id;
    await stage.step({
      name: 'the end of a passkey',
      ask: () => ask('DELETE', `credentials/${id}`, { token }),
      stored: async () => storedOf((await passkeys()) === 0),
      whenDone: ['credential_not_found'],
    });
    stage.mend();
    await noteStore(stage, accounts);
  },
};
