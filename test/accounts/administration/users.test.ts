import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { GOOD_PASSWORD, type LoggedIn } from '../../kit/accounts/accounts-client.ts';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

for (const engine of engines) {
  describe(`administration of users on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('the last administrator cannot be demoted, paused, deleted or blocked, not even when two go for each other at the same time', async (t) => {
      const location = places.location();
      const clock = createFakeClock();
      const first = await startAccounts(t, { location, clock });
      // Two instances on one PostgreSQL; on SQLite one process owns the file.
      const second = engine === 'postgres' ? await startAccounts(t, { location, clock }) : first;
      const ann = await loggedInAs(first, 'admin', 'Ann');
      for (const [path, body] of [
        ['role', { role: 'user' }],
        ['pause', {}],
      ] as const) {
        const answer = await first.post(`admin/users/${ann.id}/${path}`, body, { token: ann.token });
        assert.deepEqual([answer.status, answer.body.error], [409, 'last_admin'], path);
      }
      const removal = await first.call('DELETE', `admin/users/${ann.id}`, { token: ann.token });
      assert.deepEqual([removal.status, removal.body.error], [409, 'last_admin']);
      const block = await first.post('admin/blacklist', { email: ann.email }, { token: ann.token });
      assert.deepEqual([block.status, block.body.error], [409, 'last_admin']);

      for (let round = 0; round < 3; round += 1) {
        const [ben, cleo] = [
          await loggedInAs(first, 'admin', `Ben ${round}`),
          await loggedInAs(first, 'admin', `Cleo ${round}`),
        ];
        // Only these two are left, and each pauses the other.
        for (const { id } of (await first.get('admin/users?role=admin', { token: ann.token })).body.users) {
          if (id !== ben.id && id !== cleo.id) await first.call('DELETE', `admin/users/${id}`, { token: ann.token });
        }
        await first.database.write([
          first.database.query.updateTable('users').set({ active: 0 }).where('role', '=', 'root').compile(),
        ]);
        const answers = await Promise.all([
          first.post(`admin/users/${cleo.id}/pause`, {}, { token: ben.token }),
          second.post(`admin/users/${ben.id}/role`, { role: 'user' }, { token: cleo.token }),
          first.call('DELETE', `admin/users/${ben.id}`, { token: cleo.token }),
        ]);
        const left = await first.database.read(
          first.database.query
            .selectFrom('users')
            .select('id')
            .where('role', 'in', ['root', 'admin'])
            .where('active', '=', 1)
            .compile(),
        );
        assert.equal(left.length, 1, JSON.stringify(answers.map(({ status, body }) => [status, body?.error])));
        await first.database.write([
          first.database.query.updateTable('users').set({ active: 1 }).where('role', '=', 'root').compile(),
        ]);
      }
    });

    test('an administrator makes a user, who sets the password by the mailed token and proves the address with it', async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const admin = await loggedInAs(accounts, 'admin');
      const given = { email: 'Ben@Example.org', name: 'Ben', role: 'operator' };
      const made = await accounts.post('admin/users', given, { token: admin.token });
      assert.deepEqual(
        [made.status, made.body.user.email, made.body.user.emailVerified],
        [201, 'ben@example.org', false],
      );
      assert.deepEqual([made.body.user.role, made.body.user.active], ['operator', true]);
      const ben = { name: 'Ben', email: 'ben@example.org', password: GOOD_PASSWORD, id: made.body.user.id };
      assert.equal((await accounts.login(ben)).status, 401);
      const token = await accounts.mailedToken(ben.email);
      const set = await accounts.post('password/forgot/confirm', { token, password: GOOD_PASSWORD });
      assert.equal(set.status, 200, set.text);
      const login = await accounts.login(ben);
      assert.equal(login.body.user.emailVerified, true);
      const taken = await accounts.post('admin/users', { ...given, name: 'Other' }, { token: admin.token });
      assert.deepEqual([taken.status, taken.body.error], [409, 'email_already_exists']);
      const name = await accounts.post('admin/users', { ...given, email: 'b@example.org' }, { token: admin.token });
      assert.deepEqual([name.status, name.body.error], [409, 'name_already_exists']);
    });

    test('pausing ends every session immediately and resuming lets in again; deleting leaves nothing behind', async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const admin = await loggedInAs(accounts, 'admin');
      const ben = await loggedInAs(accounts, 'user', 'Ben');
      const act = (name: string, body = {}) =>
        accounts.post(`admin/users/${ben.id}/${name}`, body, { token: admin.token });
      const session = async (token: string) => (await accounts.get('session', { token })).body;
      assert.equal((await act('pause')).body.user.active, false);
      assert.equal((await session(ben.token)).error, 'invalid_session');
      assert.equal((await accounts.login(ben)).body.error, 'account_suspended');
      assert.equal((await act('resume')).body.user.active, true);
      assert.equal((await session(ben.token)).error, 'invalid_session');
      const again = await accounts.login(ben);
      assert.equal(again.status, 200);
      await act('end-sessions');
      assert.equal((await session(again.body.token)).error, 'invalid_session');
      const refresh = await accounts.post('token/refresh', { refresh_token: again.body.refresh_token });
      assert.equal(refresh.body.error, 'invalid_refresh_token');
      await accounts.post('subscriptions', { externalId: 'x' }, { token: (await accounts.login(ben)).body.token });
      assert.equal((await accounts.call('DELETE', `admin/users/${ben.id}`, { token: admin.token })).status, 204);
      assert.equal((await accounts.login(ben)).body.error, 'invalid_credentials');
      for (const table of ['sessions', 'subscriptions', 'devices', 'flows'] as const) {
        const left = accounts.database.query.selectFrom(table).select('user_id').where('user_id', '=', ben.id);
        assert.deepEqual(await accounts.database.read(left.compile()), [], table);
      }
      const gone = await act('pause');
      assert.deepEqual([gone.status, gone.body.error], [404, 'user_not_found']);
      const events = (await auditOf(accounts, admin, `actor=${admin.id}`)).map(({ event }) => event);
      assert.deepEqual(events.slice(0, 4), ['user.deleted', 'sessions.ended_by_admin', 'user.resumed', 'user.paused']);
    });

    test('users are listed newest first, page by page, by role, and by any part of name or address', async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const admin = await loggedInAs(accounts, 'admin', 'Zoe');
      for (let index = 0; index < 7; index += 1) {
        const given = {
          email: `p${index}@example.org`,
          name: `Per_son%${index}`,
          role: index < 3 ? 'user' : 'readonly',
        };
        await accounts.control('users.create', given);
        await accounts.clock.advance(2);
      }
      const list = async (query: string) => (await accounts.get(`admin/users?${query}`, { token: admin.token })).body;
      const names: string[] = [];
      let cursor = '';
      for (let pages = 0; pages < 10; pages += 1) {
        const page = await list(`limit=3${cursor && `&cursor=${cursor}`}`);
        assert.equal(page.total, 8);
        names.push(...page.users.map((user: { name: string }) => user.name));
        if (page.nextCursor === null) break;
        cursor = page.nextCursor;
      }
      assert.deepEqual(names, [...[6, 5, 4, 3, 2, 1, 0].map((index) => `Per_son%${index}`), 'Zoe']);
      const readers = await list('role=readonly&limit=2');
      assert.deepEqual([readers.total, readers.users.length], [4, 2]);
      const found = async (search: string) => (await list(`search=${encodeURIComponent(search)}`)).total;
      assert.deepEqual(
        await Promise.all(['PER_SON', 'son%4', 'p4@', '%', '_', 'zoe@example', 'nobody', '\\'].map(found)),
        [7, 1, 1, 7, 7, 1, 0, 0],
      );
      assert.equal((await list('role=boss')).error, 'invalid_role');
      assert.equal((await list('limit=0')).error, 'invalid_request');
      assert.equal((await list('limit=1000')).error, 'invalid_request');
    });

    test('a blocked address can neither register nor log in, and the user who has it is out immediately', async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const admin = await loggedInAs(accounts, 'admin');
      const ben = await loggedInAs(accounts, 'user', 'Ben');
      const options = { token: admin.token };
      const blocked = await accounts.post('admin/blacklist', { email: 'BEN@example.org' }, options);
      assert.deepEqual([blocked.status, blocked.body], [201, { email: 'ben@example.org' }]);
      assert.equal((await accounts.post('admin/blacklist', { email: 'x@example.org' }, options)).status, 201);
      assert.equal((await accounts.get('session', { token: ben.token })).status, 401);
      assert.equal((await accounts.login(ben)).body.error, 'account_suspended');
      const { body } = await accounts.get('admin/blacklist?limit=1', options);
      assert.deepEqual([body.blacklist[0].email, body.blacklist[0].createdBy], ['ben@example.org', admin.id]);
      const next = await accounts.get(`admin/blacklist?cursor=${body.nextCursor}`, options);
      assert.deepEqual([next.body.blacklist.length, next.body.nextCursor], [1, null]);
      const away = (email: string) => accounts.call('DELETE', `admin/blacklist/${encodeURIComponent(email)}`, options);
      assert.equal((await away('ben@example.org')).status, 204);
      assert.equal((await away('ben@example.org')).body.error, 'address_not_listed');
      assert.equal((await accounts.login(ben)).status, 200);
      assert.equal(
        (await accounts.post('admin/blacklist', { email: 'no address' }, options)).body.error,
        'invalid_email',
      );
    });
  });
}

test('nobody acts on someone above them, and nobody gives a role above their own', async (t) => {
  const accounts = await startAccounts(t);
  const root = await loggedInAs(accounts, 'admin', 'Root');
  assert.equal(root.answer.body.user.role, 'root');
  const admin = await loggedInAs(accounts, 'admin', 'Ada');
  const operator = await loggedInAs(accounts, 'operator', 'Otto');
  const grants = { 'admin.users.role.write': { operator: true }, 'admin.users.delete.write': { operator: true } };
  await accounts.post('admin/settings', { version: 0, matrix: grants }, { token: root.token });
  const tries: readonly [string, string, unknown, string][] = [
    [operator.token, `${admin.id}/pause`, {}, 'forbidden'],
    [operator.token, `${admin.id}/role`, { role: 'user' }, 'forbidden'],
    [operator.token, `${operator.id}/role`, { role: 'admin' }, 'forbidden'],
    [operator.token, `${root.id}/end-sessions`, {}, 'forbidden'],
    [admin.token, `${root.id}/pause`, {}, 'forbidden'],
    [admin.token, `${root.id}/role`, { role: 'user' }, 'forbidden'],
    [admin.token, `${admin.id}/role`, { role: 'root' }, 'invalid_role'],
    [root.token, `${admin.id}/role`, { role: 'root' }, 'invalid_role'],
    [root.token, `${admin.id}/role`, { role: 'boss' }, 'invalid_role'],
  ];
  for (const [token, path, body, error] of tries) {
    assert.equal((await accounts.post(`admin/users/${path}`, body, { token })).body.error, error, path);
  }
  assert.equal((await accounts.call('DELETE', `admin/users/${root.id}`, { token: admin.token })).status, 403);
  const colleague = await loggedInAs(accounts, 'admin', 'Carl');
  for (const email of [colleague.email, 'stranger@example.org']) {
    assert.equal((await accounts.post('admin/blacklist', { email }, { token: root.token })).status, 201);
  }
  const unblock = (email: string, { token }: LoggedIn) =>
    accounts.call('DELETE', `admin/blacklist/${email}`, { token });
  assert.equal((await unblock(colleague.email, operator)).body.error, 'forbidden');
  assert.equal((await accounts.login(colleague)).body.error, 'account_suspended');
  assert.equal((await unblock('stranger@example.org', operator)).status, 204);
  assert.equal((await unblock(colleague.email, admin)).status, 204);
  const { invitation } = (await accounts.post('admin/invitations', { role: 'admin' }, { token: admin.token })).body;
  const revoke = ({ token }: LoggedIn) => accounts.call('DELETE', `admin/invitations/${invitation.id}`, { token });
  assert.equal((await revoke(operator)).body.error, 'forbidden');
  assert.equal((await revoke(admin)).status, 204);
  assert.equal((await revoke(admin)).body.error, 'invitation_not_found');
  const made = { email: 'x@example.org', name: 'X' };
  const asAdmin = await accounts.post('admin/users', { ...made, role: 'admin' }, { token: operator.token });
  assert.equal(asAdmin.body.error, 'forbidden');
  const asRoot = await accounts.post('admin/users', { ...made, role: 'root' }, { token: root.token });
  assert.equal(asRoot.body.error, 'invalid_role');
  await assert.rejects(accounts.control('users.create', { ...made, role: 'root' }), { code: 'SETUP_DONE' });
});

test('a renewed proxy UUID is a new one, and ends when it was said to', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ben = await loggedInAs(accounts, 'user', 'Ben');
  const renew = (body?: unknown) =>
    accounts.call('POST', `admin/users/${ben.id}/renew-uuid`, {
      token: admin.token,
      ...(body === undefined ? {} : { body }),
    });
  const before = ben.answer.body.user.proxyUuid;
  const inDays = (await renew({ expires_in_days: 30 })).body.user;
  assert.notEqual(inDays.proxyUuid, before);
  assert.equal(Date.parse(inDays.proxyUuidExpiresAt), accounts.clock.now() + 30 * 24 * 3_600_000);
  const at = (await renew({ expires_at: '2030-06-01T00:00:00Z' })).body.user;
  assert.equal(at.proxyUuidExpiresAt, '2030-06-01T00:00:00.000Z');
  assert.equal((await renew()).body.user.proxyUuidExpiresAt, null);
  for (const body of [
    { expires_in_days: 0 },
    { expires_in_days: 1.5 },
    { expires_in_days: '30' },
    { expires_at: 'tomorrow' },
    { expires_at: '2020-01-01T00:00:00Z' },
    { expires_in_days: 1, expires_at: '2031-01-01T00:00:00Z' },
  ]) {
    assert.equal((await renew(body)).body.error, 'invalid_request', JSON.stringify(body));
  }
});
