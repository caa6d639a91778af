import { GOOD_PASSWORD } from '../../../kit/accounts/accounts-client.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { userOf } from './stored-rows.ts';

const NAME = 'Research';
const BEN = 'ben@example.org';

/** Teams with their members, and invitations. */
export const teamsScenario: Scenario = {
  name: 'teams and invitations',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const ask = createAskAccounts(accounts, [GOOD_PASSWORD]);
    const { token } = await loggedInAs(accounts, 'admin');
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    const { query } = accounts.database;
    stage.watch(accounts.database);

    const teams = () => query.selectFrom('teams').selectAll().execute();
    const look = (name: string, path: string, as = token) =>
      stage.step({ name, ask: () => ask('GET', path, { token: as }) });
    await stage.step({
      name: 'a team',
      ask: () => ask('POST', 'teams', { token, body: { name: NAME } }),
      stored: async () => storedOf((await teams()).length === 1),
      whenDone: ['name_already_exists'],
    });
    const id = (await teams())[0]?.id ?? '';
    const members = async () =>
      (await query.selectFrom('team_members').select('user_id').where('team_id', '=', id).execute()).length;
    const countedTeams = async () => (await userOf(accounts, ann.email))?.teams;
    await stage.step({
      name: 'a member',
      ask: () => ask('POST', `teams/${id}/members`, { token, body: { userId: ann.id, role: 'owner' } }),
      stored: async () => storedOf((await members()) === 1, (await countedTeams()) === 1),
    });
    await look('all teams', 'teams?all=1');
    await look('the own teams', 'teams', ann.token);
    await look('the members', `teams/${id}/members`, ann.token);
    await look('the user with the names of teams', 'session', ann.token);
    await look('the users with the names of teams', 'admin/users');
    await stage.step({
      name: 'another name',
      ask: () => ask('PATCH', `teams/${id}`, { token, body: { name: 'Labs' } }),
      stored: async () => storedOf((await teams())[0]?.name === 'Labs'),
    });
    await stage.step({
      name: 'the end of a membership',
      ask: () => ask('DELETE', `teams/${id}/members/${ann.id}`, { token }),
      stored: async () => storedOf((await members()) === 0, (await countedTeams()) === 0),
      whenDone: ['member_not_found'],
    });

    const invitations = () => query.selectFrom('invitations').selectAll().orderBy('id').execute();
    const invite = async (name: string): Promise<{ readonly id: string; readonly token: string }> => {
      const known = (await invitations()).length;
      const given = await stage.step({
        name,
        ask: () => ask('POST', 'admin/invitations', { token, body: { role: 'user', team: id } }),
        stored: async () => storedOf((await invitations()).length > known),
      });
      return { id: given?.body.invitation.id, token: given?.body.token };
    };
    const first = await invite('an invitation');
    const second = await invite('another invitation');
    await look('the invitations', 'admin/invitations');
    const accept = (name: string, email: string) =>
      ask('POST', 'invitations/accept', { body: { token: first.token, name, email, password: GOOD_PASSWORD } });
    await stage.step({
      name: 'a user by an invitation',
      ask: () => accept('Ben', BEN),
      async stored() {
        const isUsed = !(await invitations()).some((row) => row.id === first.id);
        return storedOf((await userOf(accounts, BEN)) !== undefined, isUsed, (await members()) === 1);
      },
      whenDone: ['invalid_token'],
    });
    await stage.step({
      name: 'the same invitation',
      ask: () => accept('Eve', 'eve@example.org'),
      stored: async () => storedOf((await userOf(accounts, 'eve@example.org')) !== undefined),
      refusal: 'invalid_token',
    });
    await stage.step({
      name: 'an invitation that is taken back',
      ask: () => ask('DELETE', `admin/invitations/${second.id}`, { token }),
      stored: async () => storedOf(!(await invitations()).some((row) => row.id === second.id)),
      whenDone: ['invitation_not_found'],
    });
    await stage.step({
      name: 'the end of a team',
      ask: () => ask('DELETE', `teams/${id}`, { token }),
      stored: async () => storedOf((await teams()).length === 0, (await members()) === 0),
      whenDone: ['team_not_found'],
    });
    stage.mend();
    await noteStore(stage, accounts);
  },
};
