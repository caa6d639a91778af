import assert from 'node:assert/strict';
import { test } from 'node:test';
import { auditOf, loggedInAs } from '../kit/accounts/people.ts';
import { startAccounts } from '../kit/accounts/start-accounts.ts';

test('DA-10: what did not happen is not recorded', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await loggedInAs(accounts, 'user', 'Ann');
  const remove = (path: string, { token } = admin) => accounts.call('DELETE', path, { token });
  const events = async () => (await auditOf(accounts, admin)).map(({ event }) => event);
  const before = await events();
  assert.equal((await remove('sessions/ses_unknown')).status, 404);
  assert.equal((await remove('admin/agents/nobody')).status, 404);
  assert.equal((await remove('admin/blacklist/nobody@example.org')).status, 404);
  assert.equal((await remove('sessions')).status, 204, 'there are no other sessions');
  assert.equal((await remove('admin/invitations/inv_unknown')).status, 404);
  const act = (what: string, body?: unknown) =>
    accounts.post(`admin/users/${ann.id}/${what}`, body, { token: admin.token });
  assert.equal((await act('resume')).status, 200);
  assert.equal((await act('role', { role: 'user' })).status, 200);
  assert.deepEqual(await events(), before);
  await act('pause');
  await act('pause');
  assert.deepEqual(
    (await events()).filter((event) => event === 'user.paused'),
    ['user.paused'],
  );
  for (let times = 0; times < 2; times += 1) {
    await accounts.post('admin/blacklist', { email: 'spam@example.org' }, { token: admin.token });
  }
  assert.deepEqual(
    (await events()).filter((event) => event === 'blacklist.added'),
    ['blacklist.added'],
  );
});

test('DA-10: of two logouts with one token one is recorded', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await loggedInAs(accounts, 'user', 'Ann');
  const logout = () => accounts.call('DELETE', 'session', { token: ann.token });
  await Promise.all([logout(), logout()]);
  assert.equal((await auditOf(accounts, admin, 'event=logout')).length, 1);
});

test('DA-12: the audit log is searched by subject, actor, event, time, address and request', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const ann = await loggedInAs(accounts, 'user', 'Ann');
  const from = new Date(accounts.clock.now() + 60_000).toISOString();
  await accounts.clock.advance(120_000);
  const paused = await accounts.post(`admin/users/${ann.id}/pause`, undefined, {
    token: admin.token,
    from: '192.0.2.7',
  });
  const request = paused.headers.get('x-request-id') ?? '';
  const found = async (query: string) =>
    (await auditOf(accounts, admin, query)).map(({ event, subject }) => [event, subject]);
  const pause = [['user.paused', ann.id]];
  for (const query of [
    `from=${from}`,
    'address=192.0.2.7',
    `request=${request}`,
    `subject=${ann.id}&event=user.paused`,
    `actor=${admin.id}&subject=${ann.id}`,
  ]) {
    assert.deepEqual(await found(query), pause, query);
  }
  assert.ok((await found(`to=${from}`)).every(([event]) => event !== 'user.paused'));
  const wrong = await accounts.get('admin/audit?from=soon', { token: admin.token });
  assert.deepEqual([wrong.status, wrong.body.error], [400, 'invalid_request']);
});

test('DA-12: a list refuses a filter that it does not know', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const lists = accounts.routes.filter(
    ({ method, path }) =>
      method === 'GET' && path.startsWith('/api/') && !path.includes(':') && !path.includes('/oauth/'),
  );
  assert.ok(lists.length > 8);
  for (const { path } of lists) {
    const { status } = await accounts.get(`${path}?usr=someone`, { token: admin.token });
    const expected = path === '/api/agent-server/v1/users' ? 401 : 400;
    assert.equal(status, expected, path);
  }
});

test('DA-9: bodies that give money or rights refuse members that they do not know', async (t) => {
  const accounts = await startAccounts(t);
  const bodies = accounts.routes.flatMap(({ method, path, schema }) =>
    schema?.body === undefined
      ? []
      : [{ name: `${method} ${path}`, body: schema.body as { additionalProperties?: unknown } }],
  );
  const strict = bodies.filter(({ body }) => body.additionalProperties === false).map(({ name }) => name);
  const lenient = bodies.filter(({ body }) => body.additionalProperties !== false).map(({ name }) => name);
  for (const name of strict) assert.ok(!LENIENT.has(name), `${name} is strict: take it off the list`);
  assert.deepEqual(
    lenient.filter((name) => !LENIENT.has(name)),
    [],
    'name why a new body may be lenient, or make it strict',
  );
});

/** The known web console and node agent may send more than we read: nothing here gives money or rights by being left out. */
const LENIENT: ReadonlySet<string> = new Set([
  'POST /api/auth/register/send',
  'POST /api/auth/register/verify',
  'POST /api/auth/register',
  'POST /api/auth/login',
  'POST /api/auth/mfa/verify',
  'POST /api/auth/token/exchange',
  'POST /api/auth/token/refresh',
  'POST /api/auth/refresh',
  'POST /api/auth/mfa/totp/verify',
  'POST /api/auth/mfa/disable',
  'POST /api/auth/mfa/recovery-codes',
  'POST /api/auth/password/change',
  'POST /api/auth/password/reset/confirm',
  'POST /api/auth/password/forgot',
  'POST /api/auth/password/forgot/confirm',
  'POST /api/auth/subscriptions',
  'POST /api/auth/subscriptions/cancel',
  'POST /api/auth/setup',
  'POST /api/auth/admin/settings',
  'POST /api/auth/admin/blacklist',
  'POST /api/auth/admin/agents',
  'POST /api/agent-server/v1/status',
  'POST /api/auth/mfa/totp/provision',
  // Programs that follow RFC 8628 send a client id.
  'POST /api/auth/device/token',
  'POST /api/auth/password/reset',
]);

test('DA-16: operators do not see the proxy UUIDs of others', async (t) => {
  const accounts = await startAccounts(t);
  const admin = await loggedInAs(accounts, 'admin');
  const operator = await loggedInAs(accounts, 'operator');
  const seen = async ({ token }: { token: string }) =>
    Object.fromEntries(
      (await accounts.get('admin/users', { token })).body.users.map(
        (user: { id: string; proxyUuid: string | null }) => [user.id, user.proxyUuid],
      ),
    );
  const [byAdmin, byOperator] = [await seen(admin), await seen(operator)];
  assert.deepEqual([byOperator[admin.id], byOperator[operator.id]], [null, byAdmin[operator.id]]);
  assert.match(byAdmin[admin.id], /^[0-9a-f-]{36}$/);
  const paused = await accounts.post(`admin/users/${(await loggedInAs(accounts, 'user', 'Ann')).id}/pause`, undefined, {
    token: operator.token,
  });
  assert.equal(paused.body.user.proxyUuid, null);
});

test('DA-7: an address that nobody verified is not reported as verified', async (t) => {
  const accounts = await startAccounts(t, { settings: '{ require_verification: false }' });
  const person = { name: 'Ben', email: 'ben@example.org', password: 'copper kettle 47 over the pass' };
  const registered = await accounts.post('register', person);
  assert.deepEqual([registered.status, registered.body.user.emailVerified], [201, false]);
  const login = await accounts.post('login', { identifier: 'Ben', password: person.password });
  assert.deepEqual([login.status, login.body.user.emailVerified], [200, false], 'and they log in all the same');
});
