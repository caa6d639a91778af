import { join } from 'node:path';
import type { CompletionKeys } from '../../../../src/accounts/owners.ts';
import { completionsErrors } from '../../../../src/completions/errors.ts';
import type { CompletionsSchema } from '../../../../src/completions/storage/completions-schema.ts';
import { systemClock } from '../../../../src/platform/clock/clock.ts';
import { openDatabase } from '../../../../src/platform/database/open-database.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import { completionsDatabase, headWith, startKeys } from '../../../kit/completions/start-keys.ts';
import { temporaryFolder } from '../../../kit/running-program.ts';
import { askInside } from '../ask-inside.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { userOf } from './stored-rows.ts';

/** Users with keys of the completions service, whose store may fail as well. */
export const keysOfUsersScenario: Scenario = {
  name: 'keys of users',
  service: 'accounts',
  async play(stage) {
    const file = join(await temporaryFolder(stage.scope), 'completions.db');
    const location = { engine: 'sqlite', file } as const;
    const completions = await openDatabase<CompletionsSchema>({ ...completionsDatabase, location, clock: systemClock });
    stage.scope.after(() => completions.close());
    // Each of the two services needs the other: accounts asks for its part when it is used.
    const parts: { completionKeys?: CompletionKeys } = {};
    const accounts = await startAccounts(stage.scope, parts);
    const keys = startKeys(completions, { owners: accounts.owners });
    stage.scope.after(() => keys.stop());
    parts.completionKeys = keys.ownKeys;
    const secrets: string[] = [];
    const ask = createAskAccounts(accounts, secrets);
    const admin = await loggedInAs(accounts, 'admin');
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    stage.watch(accounts.database, completions);

    const { token } = ann;
    const keysOfAnn = () =>
      completions.query.selectFrom('keys').select('id').where('owner', '=', `user:${ann.id}`).execute();
    const use = (name: string, key: string, refusal?: string) =>
      stage.step({
        name,
        ask: () => askInside(completionsErrors, async () => (await keys.access.withKey(headWith(key))).id),
        ...(refusal !== undefined && { refusal }),
      });
    const issue = async (name: string): Promise<{ readonly id: string; readonly key: string }> => {
      const known = (await keysOfAnn()).length;
      const issued = await stage.step({
        name,
        ask: () => ask('POST', 'keys', { token, body: { name } }),
        stored: async () => storedOf((await keysOfAnn()).length > known),
      });
      return issued?.body ?? { id: '', key: '' };
    };

    const first = await issue('a key');
    const second = await issue('another key');
    secrets.push(first.key, second.key);
    const entries = await accounts.database.query.selectFrom('audit').select('details').execute();
    const told = entries.map(({ details }) => (JSON.parse(details) as { readonly key?: string }).key);
    const untold = [first.id, second.id].filter((id) => !told.includes(id));
    stage.note({ kind: 'fact', name: 'keys that the audit log does not tell of', wanted: [], found: untold });
    await stage.step({ name: 'the own keys', ask: () => ask('GET', 'keys', { token }) });
    await use('a call with a key', first.key);
    await use('a call with another key', second.key);
    await stage.step({
      name: 'the end of a key',
      ask: () => ask('DELETE', `keys/${first.id}`, { token }),
      stored: async () => storedOf(!(await keysOfAnn()).some(({ id }) => id === first.id)),
      whenDone: ['key_not_found'],
    });
    await use('a call with a key that was removed', first.key, 'invalid_api_key');
    await stage.step({
      name: 'the end of Ann',
      ask: () => ask('DELETE', `admin/users/${ann.id}`, { token: admin.token }),
      async stored() {
        // The keys go first: it is those of someone who is gone that nobody would ever find.
        const isGone = (await userOf(accounts, ann.email)) === undefined;
        return isGone ? storedOf(true, (await keysOfAnn()).length === 0) : 'none';
      },
      whenDone: ['user_not_found'],
    });
    await use('a call with a key of someone who is gone', second.key, 'invalid_api_key');
    stage.mend();
    await noteStore(stage, accounts);
  },
};
