import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { GOOD_PASSWORD, type LoggedIn } from '../kit/accounts/accounts-client.ts';
import { auditOf, loggedInAs } from '../kit/accounts/people.ts';
import { startAccounts } from '../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';
import { until } from '../kit/until.ts';

for (const engine of engines) {
  describe(`teams on ${engine}`, () => {
    const places = databasePlaces(engine);
    test('in one world', async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const admin = await loggedInAs(accounts, 'admin');
      const [ann, ben, cat, eve] = [
        await loggedInAs(accounts, 'user', 'Ann'),
        await loggedInAs(accounts, 'user', 'Ben'),
        await loggedInAs(accounts, 'user', 'Cat'),
        await loggedInAs(accounts, 'user', 'Eve'),
      ];
      const as = ({ token }: Pick<LoggedIn, 'token'>) => ({ token });
      const verdict = ({ status, body }: { status: number; body: { error?: string } }) =>
        `${status} ${body?.error ?? ''}`;
      const create = async (name: string, more: object = {}) =>
        (await accounts.post('teams', { name, ...more }, as(admin))).body.team;
      const put = (team: { id: string }, by: LoggedIn, member: object) =>
        accounts.post(`teams/${team.id}/members`, member, as(by));
      const drop = (team: { id: string }, by: LoggedIn, { id }: { id: string }) =>
        accounts.call('DELETE', `teams/${team.id}/members/${id}`, as(by));
      const teamIdsOf = async ({ id }: LoggedIn) =>
        (await accounts.owners.ownerOf(`user:${id}`))?.teams.map((team) => team.id);
      const groupsOf = async (who: LoggedIn) => (await accounts.get('session', as(who))).body.user.groups;

      await t.test('a team that is removed is gone for someone who joined or left at the same moment', async () => {
        const team = await create('Short-lived');
        assert.equal((await put(team, admin, { userId: eve.id })).status, 200);
        assert.deepEqual(await teamIdsOf(eve), [team.id]);
        // Nothing was said to this process about it, as by another call that is not done yet.
        await accounts.database.query.deleteFrom('team_members').where('user_id', '=', eve.id).execute();
        assert.equal((await accounts.call('DELETE', `teams/${team.id}`, as(admin))).status, 204);
        assert.deepEqual(await teamIdsOf(eve), []);
      });

      await t.test('an owner cannot mail a member again and again, and can always remove them', async () => {
        const team = await create('Busy');
        await put(team, admin, { userId: ann.id, role: 'owner' });
        const mailsBefore = (await accounts.mails(eve.email)).length;
        const seen: number[] = [];
        for (let round = 0; round < 8; round += 1) {
          seen.push((await put(team, ann, { userId: eve.id })).status);
          const { status } = await drop(team, ann, eve);
          assert.equal(status, seen.at(-1) === 200 ? 204 : 404);
        }
        assert.deepEqual(seen, [200, 200, 200, 200, 200, 429, 429, 429]);
        const mailed = async () => (await accounts.mails(eve.email)).length - mailsBefore;
        await until('all mails to be sent', async () => (await mailed()) >= 10);
        assert.equal(await mailed(), 10);
        // Another member of the same team is not concerned, and another role counts too.
        const roles: number[] = [];
        for (const role of ['member', 'owner', 'member', 'member', 'owner', 'member', 'owner', 'member']) {
          roles.push((await put(team, ann, { userId: cat.id, role })).status);
        }
        assert.deepEqual(roles, [200, 200, 200, 200, 200, 200, 429, 200], 'the same role again sends no mail');
        assert.equal((await accounts.call('DELETE', `teams/${team.id}`, as(admin))).status, 204);
      });

      await t.test(
        'DA-22: an administrator creates a team, its owner says who is in it, and groups hold its name',
        async () => {
          const budget = { usd: 25.5, period: 'month' };
          const team = await create('Research', { budget, plan: 'free' });
          assert.deepEqual([team.name, team.plan, team.budget, team.role], ['Research', 'free', budget, null]);
          assert.equal(
            verdict(await accounts.post('teams', { name: 'rESEARCH' }, as(admin))),
            '409 name_already_exists',
          );
          assert.equal((await put(team, admin, { email: ann.email, role: 'owner' })).status, 200);
          const added = await put(team, ann, { userId: ben.id });
          assert.deepEqual([added.body.member.name, added.body.member.role], ['Ben', 'member']);
          assert.deepEqual([await groupsOf(ben), await groupsOf(eve)], [['Research'], []]);
          assert.deepEqual(await teamIdsOf(ben), [team.id], 'as other services know it');
          const own = (await accounts.get('teams', as(ben))).body.teams;
          assert.deepEqual([own.length, own[0].role, own[0].budget], [1, 'member', budget]);
          const { members } = (await accounts.get(`teams/${team.id}/members`, as(ben))).body;
          assert.deepEqual(members.map(({ name }: { name: string }) => name).sort(), ['Ann', 'Ben']);
          const renamed = await accounts.call('PATCH', `teams/${team.id}`, {
            ...as(admin),
            body: { name: 'Labs', budget: null },
          });
          assert.deepEqual(
            [renamed.body.team.name, renamed.body.team.budget, renamed.body.team.plan],
            ['Labs', null, 'free'],
          );
          assert.deepEqual(await groupsOf(ben), ['Labs']);
          await accounts.eventually(async () =>
            (await accounts.mails(ben.email)).some((mail) => mail.includes('Research')),
          );
          const events = (await auditOf(accounts, admin, `subject=${team.id}`)).map(({ event, actor }) => [
            event,
            actor,
          ]);
          assert.deepEqual(events, [
            ['team.changed', admin.id],
            ['team.member_put', ann.id],
            ['team.member_put', admin.id],
            ['team.created', admin.id],
          ]);
          assert.equal((await accounts.call('DELETE', `teams/${team.id}`, as(admin))).status, 204);
          assert.deepEqual([await groupsOf(ben), await groupsOf(ann)], [[], []]);
          assert.deepEqual(await teamIdsOf(ben), []);
        },
      );

      await t.test('nobody takes a team over, and a team tells nothing to those who are not in it', async () => {
        const team = await create('Finance');
        const other = await create('Other');
        await put(team, admin, { userId: ann.id, role: 'owner' });
        await put(team, admin, { userId: ben.id });
        await put(other, admin, { userId: cat.id, role: 'owner' });
        for (const by of [ann, ben, eve]) {
          assert.equal(verdict(await accounts.post('teams', { name: 'mine' }, as(by))), '403 forbidden');
          const change = { ...as(by), body: { budget: { usd: 1e6, period: 'day' } } };
          assert.equal(verdict(await accounts.call('PATCH', `teams/${team.id}`, change)), '403 forbidden');
          assert.equal(verdict(await accounts.call('DELETE', `teams/${team.id}`, as(by))), '403 forbidden');
          assert.equal(verdict(await accounts.get('teams?all=1', as(by))), '403 forbidden');
        }
        for (const by of [eve, cat]) {
          for (const id of [team.id, 'team_nothing']) {
            assert.equal(verdict(await accounts.get(`teams/${id}/members`, as(by))), '404 team_not_found');
            assert.equal(verdict(await put({ id }, by, { userId: by.id, role: 'owner' })), '404 team_not_found');
            assert.equal(verdict(await drop({ id }, by, ann)), '404 team_not_found');
          }
        }
        assert.equal(verdict(await put(team, ben, { userId: ben.id, role: 'owner' })), '403 forbidden', 'a member');
        assert.equal(verdict(await put(team, ben, { userId: eve.id })), '403 forbidden');
        assert.equal(verdict(await drop(team, ben, ann)), '403 forbidden');
        for (const email of [eve.email, 'nobody@example.org']) {
          assert.equal(verdict(await put(team, ann, { email })), '403 forbidden', 'says nothing of who has an account');
        }
        assert.equal(verdict(await put(team, ann, { userId: 'usr_nobody' })), '404 user_not_found');
        assert.equal(verdict(await put(team, ann, {})), '400 missing_credentials');
        assert.equal(verdict(await put(team, ann, { userId: eve.id, role: 'root' })), '400 invalid_request');
        const issued = await accounts.post('tokens', { name: 'script', scopes: ['account'] }, as(admin));
        const script = { ...admin, token: issued.body.token as string };
        assert.equal(verdict(await accounts.get('teams?all=1', as(script))), '403 forbidden', 'a token without admin');
        assert.equal(verdict(await put(team, script, { userId: eve.id })), '404 team_not_found');
        const list = await accounts.get('teams?all=1', as(admin));
        assert.ok(list.body.teams.length >= 2);

        const race = await Promise.all([drop(team, admin, ann), put(team, ann, { userId: eve.id, role: 'owner' })]);
        assert.equal(race[0]?.status, 204);
        assert.ok(['200 ', '403 forbidden', '404 team_not_found'].includes(verdict(race[1])), verdict(race[1]));
        assert.equal(verdict(await put(team, ann, { userId: cat.id })), '404 team_not_found', 'no longer an owner');
        assert.equal((await drop(team, ben, ben)).status, 204, 'members leave by themselves');
        assert.equal(verdict(await drop(team, admin, ben)), '404 member_not_found');
      });

      await t.test(
        'an invitation brings someone into a team, once; a team that is gone takes its invitations along',
        async () => {
          const team = await create('Guests');
          const invite = async (more: object = {}) =>
            (await accounts.post('admin/invitations', { team: team.id, ...more }, as(admin))).body;
          const first = await invite();
          assert.equal(first.invitation.team, team.id);
          const accept = (token: string, name: string) =>
            accounts.post('invitations/accept', {
              token,
              name,
              email: `${name}@example.org`,
              password: GOOD_PASSWORD,
            });
          const both = await Promise.all([accept(first.token, 'guest1'), accept(first.token, 'guest2')]);
          assert.deepEqual(both.map(verdict).sort(), ['201 ', '400 invalid_token'], 'two at the same moment');
          const came = both.find(({ status }) => status === 201);
          assert.deepEqual([came?.body.user.groups, came?.body.user.emailVerified], [['Guests'], false]);
          const { members } = (await accounts.get(`teams/${team.id}/members`, as(admin))).body;
          assert.deepEqual(
            members.map(({ userId, role }: { userId: string; role: string }) => [userId, role]),
            [[came?.body.user.id, 'member']],
          );
          const late = await invite();
          assert.equal(
            verdict(await accounts.post('admin/invitations', { team: 'team_x' }, as(admin))),
            '404 team_not_found',
          );
          await accounts.call('DELETE', `teams/${team.id}`, as(admin));
          assert.equal(verdict(await accept(late.token, 'guest3')), '400 invalid_token');
          const operator = await loggedInAs(accounts, 'operator');
          assert.equal(
            verdict(await accounts.post('admin/invitations', { team: team.id }, as(operator))),
            '403 forbidden',
          );
        },
      );

      await t.test('the export names the own teams, and a deleted user is in none', async () => {
        const team = await create('Leavers');
        const dan = await loggedInAs(accounts, 'user', 'Dan');
        await put(team, admin, { userId: dan.id, role: 'owner' });
        const { teams } = (await accounts.get('export', as(dan))).body;
        assert.deepEqual([teams.length, teams[0].name, teams[0].role], [1, 'Leavers', 'owner']);
        await accounts.call('DELETE', `admin/users/${dan.id}`, as(admin));
        assert.deepEqual((await accounts.get(`teams/${team.id}/members`, as(admin))).body.members, []);
      });
    });
  });
}
