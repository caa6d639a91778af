import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { GOOD_PASSWORD } from '../../kit/accounts/accounts-client.ts';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import { type RunningAccounts, startAccounts } from '../../kit/accounts/start-accounts.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';

interface Token {
  readonly token: string;
}

const write = (accounts: RunningAccounts, { token }: Token, version: number, matrix: unknown) =>
  accounts.post('admin/settings', { version, matrix }, { token });

for (const engine of engines) {
  describe(`the permission matrix on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('A-57: a matrix made from an old version is refused with the present one, also when two write at the same time', async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const admin = await loggedInAs(accounts, 'admin');
      const none = await accounts.get('admin/settings', { token: admin.token });
      assert.deepEqual([none.status, none.body], [200, { version: 0, matrix: {} }]);
      const first = await Promise.all(
        ['a', 'b', 'c', 'd'].map((module) => write(accounts, admin, 0, { [module]: { user: true } })),
      );
      assert.deepEqual(first.map(({ status }) => status).sort(), [200, 409, 409, 409]);
      const winner = first.find(({ status }) => status === 200)?.body;
      for (const { status, body } of first) {
        if (status === 200) continue;
        assert.deepEqual([body.error, body.version, body.matrix], ['version_conflict', 1, winner.matrix]);
      }
      const later = await Promise.all(['e', 'f'].map((module) => write(accounts, admin, 1, { [module]: {} })));
      assert.deepEqual(later.map(({ status }) => status).sort(), [200, 409]);
      assert.equal((await accounts.get('admin/settings', { token: admin.token })).body.version, 2);
    });

    test('A-57: the whole difference is in the audit log', async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const admin = await loggedInAs(accounts, 'admin');
      await write(accounts, admin, 0, { reports: { user: true }, 'admin.audit.read': { operator: false } });
      await write(accounts, admin, 1, { reports: { user: false, readonly: true } });
      const [second, first] = await auditOf(accounts, admin, 'event=matrix.changed');
      assert.deepEqual(first?.details, {
        version: 1,
        diff: { reports: { user: [null, true] }, 'admin.audit.read': { operator: [null, false] } },
      });
      assert.deepEqual(second?.details, {
        version: 2,
        diff: {
          reports: { user: [true, false], readonly: [null, true] },
          'admin.audit.read': { operator: [false, null] },
        },
      });
      assert.equal(second?.actor, admin.id);
    });
  });
}

test('A-57: unknown roles and permissions are refused, and so is what the rules have fixed', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const refused: readonly [string, unknown][] = [
    ['invalid_role', { reports: { boss: true } }],
    ['invalid_role', { reports: { '': true } }],
    ['invalid_role', { 'admin.audit.read': { user: true } }],
    ['invalid_role', { 'admin.audit.read': { readonly: true } }],
    ['invalid_role', { 'admin.audit.read': { admin: false } }],
    ['invalid_module', { 'admin.everything': { operator: true } }],
    ['invalid_module', { 'a b': { user: true } }],
    ['invalid_module', { '': { user: true } }],
    ['invalid_module', JSON.parse('{"__proto__":{"user":true}}')],
    ['invalid_request', { reports: { user: 'yes' } }],
    ['invalid_request', { reports: true }],
    ['invalid_request', [1]],
  ];
  for (const [error, matrix] of refused) {
    const answer = await write(accounts, admin, 0, matrix);
    assert.deepEqual([answer.status, answer.body.error], [400, error], JSON.stringify(matrix));
  }
  const fixed = { root: true, admin: true, operator: false, user: false, readonly: false };
  assert.equal((await write(accounts, admin, 0, { 'admin.audit.read': fixed })).status, 200);
});

test('a matrix of more than 500 modules is refused', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const modules = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`module-${index}`, {}]));
  const refused = await write(accounts, admin, 0, modules(501));
  assert.deepEqual([refused.status, refused.body.error], [400, 'invalid_request']);
  assert.equal((await write(accounts, admin, 0, modules(500))).status, 200);
});

test('A-56: users are kept out of admin with 403, strangers with 401, and operators get exactly their matrix', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const operator = await loggedInAs(accounts, 'operator');
  const user = await loggedInAs(accounts, 'user');
  const readonly = await loggedInAs(accounts, 'readonly');
  const audit = (caller?: Token) => accounts.get('admin/audit', caller && { token: caller.token });
  const statuses = async () =>
    Promise.all([audit(), audit(user), audit(readonly), audit(operator), audit(admin)]).then((answers) =>
      answers.map(({ status }) => status),
    );
  assert.deepEqual(await statuses(), [401, 403, 403, 200, 200]);
  await write(accounts, admin, 0, { 'admin.audit.read': { operator: false }, reports: { user: true } });
  assert.deepEqual(await statuses(), [401, 403, 403, 403, 200]);
  const { permissions } = (await accounts.get('session', { token: user.token })).body.user;
  assert.deepEqual(permissions, ['reports']);
  const removal = `admin/users/${user.id}`;
  assert.equal((await accounts.call('DELETE', removal, { token: operator.token })).status, 403);
  await write(accounts, admin, 1, { 'admin.users.delete.write': { operator: true } });
  assert.equal((await accounts.call('DELETE', removal, { token: operator.token })).status, 204);
});

test('A-56: another role counts from the very next request on', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ben = await loggedInAs(accounts, 'operator', 'Ben');
  const list = async () => (await accounts.get('admin/users', { token: ben.token })).status;
  const setRole = (role: string) => accounts.post(`admin/users/${ben.id}/role`, { role }, { token: admin.token });
  assert.equal(await list(), 200);
  assert.equal((await setRole('user')).body.user.role, 'user');
  assert.equal(await list(), 403);
  await setRole('admin');
  assert.equal(await list(), 200);
});

test('nobody grants what they do not hold, neither by a grant nor by leaving a refusal out', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const operator = await loggedInAs(accounts, 'operator');
  const kept = { 'admin.blacklist.read': { operator: false }, reports: { user: false } };
  await write(accounts, admin, 0, kept);
  const attempts = [
    { ...kept, 'admin.users.delete.write': { operator: true } },
    { ...kept, 'admin.users.role.write': { operator: true } },
    { reports: { user: false } },
    { ...kept, reports: { user: true } },
    { ...kept, other: { operator: true } },
  ];
  for (const matrix of attempts) {
    const answer = await write(accounts, operator, 1, matrix);
    assert.deepEqual([answer.status, answer.body.error], [403, 'permission_not_held'], JSON.stringify(matrix));
  }
  // To take something away from others, or from themselves, is no grant.
  const less = await write(accounts, operator, 1, { ...kept, 'admin.audit.read': { operator: false } });
  assert.equal(less.status, 200, less.text);
});

test('an invitation gives no more than its author could give now, and only administrators give a plan or a team', async (t) => {
  const accounts = await startAccounts(t, { plans: '{ pro: { models: ["*"] } }' });
  const root = await loggedInAs(accounts, 'admin', 'root');
  const admin = await loggedInAs(accounts, 'admin');
  const operator = await loggedInAs(accounts, 'operator');
  const { team } = (await accounts.post('teams', { name: 'Trusted' }, { token: root.token })).body;
  const invite = async ({ token }: Token, given: object) => {
    const { status, body } = await accounts.post('admin/invitations', given, { token });
    return status === 201 || status === 200 ? String(body.token) : `${status} ${body.error}`;
  };
  let guests = 0;
  const accept = async (token: string) => {
    guests += 1;
    const given = { token, name: `guest${guests}`, email: `guest${guests}@example.org`, password: GOOD_PASSWORD };
    const { status, body } = await accounts.post('invitations/accept', given);
    return `${status} ${body.error ?? ''}`;
  };
  const role = (id: string, to: string) => accounts.post(`admin/users/${id}/role`, { role: to }, { token: root.token });

  const mayInvite = { 'admin.users.role.write': { operator: true } };
  assert.equal((await write(accounts, root, 0, mayInvite)).status, 200);
  assert.equal(await invite(operator, { plan: 'pro' }), '403 forbidden', 'POST users/:id/plan is not for operators');
  assert.equal(await invite(operator, { team: team.id }), '403 forbidden', 'POST teams/:id/members is not either');
  const plain = [await invite(operator, {}), await invite(operator, { plan: '', role: 'user' })];
  assert.equal(await accept(plain[0] ?? ''), '201 ');
  assert.equal((await write(accounts, root, 1, {})).status, 200);
  assert.equal(await accept(plain[1] ?? ''), '400 invalid_token', 'operators may invite nobody now');

  const generous = await Promise.all([{}, { plan: 'pro' }, { team: team.id }, {}].map((given) => invite(admin, given)));
  assert.equal(await accept(generous[0] ?? ''), '201 ');
  assert.equal((await write(accounts, root, 2, mayInvite)).status, 200);
  await role(admin.id, 'operator');
  assert.equal(await accept(generous[1] ?? ''), '400 invalid_token', 'operators give no plan');
  assert.equal(await accept(generous[2] ?? ''), '400 invalid_token', 'operators put nobody into a team');
  await role(admin.id, 'user');
  assert.equal(await accept(generous[3] ?? ''), '400 invalid_token', 'users invite nobody');
  await role(admin.id, 'admin');
  const block = { email: admin.email };
  assert.equal((await accounts.post('admin/blacklist', block, { token: root.token })).status, 201);
  assert.equal(await accept(generous[3] ?? ''), '400 invalid_token', 'their author may not log in');
  await accounts.call('DELETE', `admin/blacklist/${admin.email}`, { token: root.token });
  assert.equal(await accept(generous[3] ?? ''), '201 ', 'their author may give it again');
});
