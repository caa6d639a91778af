import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AccountsAccessOptions, actorOf, createAccountsAccess } from '../../src/accounts/access.ts';
import type { PermissionMatrix } from '../../src/accounts/permissions.ts';
import type { FoundSession } from '../../src/accounts/storage/session-store.ts';
import type { RequestHead } from '../../src/platform/http/surface.ts';
import type { Principal, Scope } from '../../src/platform/identity/principal.ts';

const NOW = 1_000_000_000;
const FRESH_MS = 300_000;

/** Sessions by their token: the role, and how long ago its login was. */
const session = (role: string, agoMs = 0) =>
  ({ id: `usr_${role}`, role, access_epoch: 4, session_created_at: NOW - agoMs }) as FoundSession;
const SESSIONS: Readonly<Record<string, FoundSession>> = {
  root: session('root'),
  admin: session('admin'),
  operator: session('operator'),
  user: session('user'),
  readonly: session('readonly'),
  just: session('admin', FRESH_MS),
  old: session('admin', FRESH_MS + 1),
  'old-user': session('user', FRESH_MS + 1),
};
const token = (scopes: readonly Scope[], owner = 'user:usr_admin') => ({
  row: { id: 'tok_1', owner, created_at: 5, expires_at: 9 },
  principal: { id: owner, scopes: new Set(scopes) },
});
const TOKENS: Readonly<Record<string, ReturnType<typeof token>>> = {
  tpt_account: token(['account']),
  tpt_admin: token(['admin']),
  tpt_bridge: token(['bridge']),
  tpt_readonly: token(['account'], 'user:usr_readonly'),
  tpt_gone: token(['account', 'admin'], 'user:usr_gone'),
};

function start(isLater = false, matrix: PermissionMatrix = {}, changes: Partial<AccountsAccessOptions> = {}) {
  const asked: string[] = [];
  const access = createAccountsAccess({
    checkSession: ((given: string, by: string) => {
      asked.push(`${given} by ${by}`);
      return isLater ? Promise.resolve(SESSIONS[given]) : SESSIONS[given];
    }) as never,
    identities: {
      byToken: async (given: string) => TOKENS[given] as never,
      identify: async (head: RequestHead, accepts: string) => {
        asked.push(accepts);
        return head.headers.authorization === 'Bearer known' ? ({ id: 'user:known' } as Principal) : undefined;
      },
    },
    users: { byId: async (id) => Object.values(SESSIONS).find((one) => one.id === id) as never },
    agents: { byToken: async (given) => (given === 'agent-token' ? { id: 'node-1' } : undefined) },
    matrix: async () => matrix,
    publicUrl: () => 'https://accounts.example',
    clock: { now: () => NOW },
    ...changes,
  });
  return { access, asked };
}

const head = (bearer: string, changes: Partial<RequestHead> & { readonly more?: object } = {}): RequestHead => {
  const { more, ...rest } = changes;
  const headers = { ...(bearer !== '' && { authorization: `Bearer ${bearer}` }), ...more };
  return {
    method: 'GET',
    path: '/api/auth/x',
    query: new URLSearchParams(),
    headers,
    secure: true,
    ...rest,
  } as RequestHead;
};
const cookie = (value: string, changes: Parameters<typeof head>[1] = {}) =>
  head('', { ...changes, more: { cookie: `xc_session=${value}`, ...changes.more } });

/** What a guard makes of a request: who comes in, or the code of the refusal. */
async function outcome(work: () => unknown): Promise<unknown> {
  try {
    return ((await work()) as { user: FoundSession }).user.id;
  } catch (error) {
    return (error as { code: unknown }).code;
  }
}

for (const isLater of [false, true]) {
  const when = isLater ? 'after a look at the store' : 'from memory';

  test(`a login opens what is for users, ${when}, and readers only read`, async () => {
    const { access } = start(isLater);
    for (const guard of [access.user, access.loggedIn, access.freshUser]) {
      assert.equal(await outcome(() => guard(head('user', { method: 'POST' }))), 'usr_user');
      for (const method of ['GET', 'HEAD']) {
        assert.equal(await outcome(() => guard(head('readonly', { method }))), 'usr_readonly');
      }
      for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
        assert.equal(await outcome(() => guard(head('readonly', { method }))), 'READ_ONLY_ACCOUNT');
      }
    }
    for (const guard of [access.userEvenReadonly, access.freshLogin]) {
      assert.equal(await outcome(() => guard(head('readonly', { method: 'POST' }))), 'usr_readonly');
    }
  });

  test(`no token and a wrong one are refused with their own codes, ${when}`, async () => {
    const { access, asked } = start(isLater);
    assert.equal(await outcome(() => access.user(head(''))), 'SESSION_TOKEN_REQUIRED');
    assert.equal(
      await outcome(() => access.user(head('', { more: { authorization: 'Basic x' } }))),
      'SESSION_TOKEN_REQUIRED',
    );
    assert.equal(await outcome(() => access.user(head('wrong'))), 'INVALID_SESSION');
    assert.equal(await outcome(() => access.user(cookie('user'))), 'usr_user');
    // The bearer token wins, even a wrong one.
    assert.equal(
      await outcome(() => access.user(cookie('user', { more: { authorization: 'Bearer wrong' } }))),
      'INVALID_SESSION',
    );
    assert.equal(
      await outcome(() => access.user(cookie('user', { more: { authorization: 'x' } }))),
      'SESSION_TOKEN_REQUIRED',
    );
    assert.deepEqual(asked, ['wrong by bearer', 'user by cookie', 'wrong by bearer']);
  });

  test(`a cookie changes something only from a page of ours, ${when}; a bearer token from anywhere`, async () => {
    const { access } = start(isLater);
    const from = (origin: string) => ({ method: 'POST', more: { origin, host: 'other.example' } });
    assert.equal(await outcome(() => access.user(cookie('user', from('https://evil.example')))), 'CROSS_SITE_REQUEST');
    assert.equal(await outcome(() => access.user(cookie('user', from('https://accounts.example')))), 'usr_user');
    assert.equal(await outcome(() => access.user(head('user', from('https://evil.example')))), 'usr_user');
  });

  test(`what proves who someone is changes with a login of the last five minutes alone, ${when}`, async () => {
    const { access } = start(isLater);
    for (const guard of [access.freshLogin, access.freshUser]) {
      assert.equal(await outcome(() => guard(head('just'))), 'usr_admin');
      assert.equal(await outcome(() => guard(head('old-user'))), 'REAUTHENTICATION_REQUIRED');
    }
    assert.equal(await outcome(() => access.freshAdmin(head('just'))), 'usr_admin');
    assert.equal(await outcome(() => access.freshAdmin(head('old'))), 'REAUTHENTICATION_REQUIRED');
    for (const role of ['operator', 'user', 'readonly']) {
      assert.equal(await outcome(() => access.freshAdmin(head(role))), 'FORBIDDEN', role);
    }
    assert.equal(await outcome(() => access.loggedIn(head('old'))), 'usr_admin');
  });

  test(`administration is for the roles that hold the permission, ${when}`, async () => {
    const { access } = start(isLater, { 'admin.audit.read': { operator: false, user: true } });
    const audit = access.adminWith('admin.audit.read');
    const users = access.adminWith('admin.users.list.read');
    for (const role of ['root', 'admin']) {
      for (const guard of [audit, users, access.adminOnly])
        assert.equal(await outcome(() => guard(head(role))), `usr_${role}`);
    }
    assert.equal(await outcome(() => users(head('operator'))), 'usr_operator');
    for (const guard of [audit, access.adminOnly])
      assert.equal(await outcome(() => guard(head('operator'))), 'FORBIDDEN');
    for (const role of ['user', 'readonly']) {
      for (const guard of [audit, users, access.adminOnly])
        assert.equal(await outcome(() => guard(head(role))), 'FORBIDDEN');
    }
  });
}

test('an access token opens what its scope names, and nothing that needs a login', async () => {
  const { access } = start();
  assert.equal(await outcome(() => access.user(head('tpt_account', { method: 'POST' }))), 'usr_admin');
  for (const bearer of ['tpt_admin', 'tpt_bridge', 'tpt_gone']) {
    assert.equal(await outcome(() => access.user(head(bearer))), 'FORBIDDEN', bearer);
  }
  assert.equal(await outcome(() => access.user(head('tpt_unknown'))), 'INVALID_SESSION');
  assert.equal(await outcome(() => access.user(head('tpt_readonly', { method: 'POST' }))), 'READ_ONLY_ACCOUNT');
  assert.equal(await outcome(() => access.adminOnly(head('tpt_admin'))), 'usr_admin');
  assert.equal(await outcome(() => access.adminWith('admin.audit.read')(head('tpt_admin'))), 'usr_admin');
  assert.equal(await outcome(() => access.adminOnly(head('tpt_account'))), 'FORBIDDEN');
  for (const guard of [
    access.loggedIn,
    access.userEvenReadonly,
    access.freshLogin,
    access.freshUser,
    access.freshAdmin,
  ]) {
    assert.equal(await outcome(() => guard(head('tpt_account'))), 'LOGIN_REQUIRED');
  }
});

test('a call with an access token is that of its person, with the times of the token', async () => {
  const { user, token: found } = await start().access.user(head('tpt_account'));
  assert.deepEqual(
    [user.role, user.session_id, user.session_epoch, user.session_created_at, user.session_last_seen_at],
    ['admin', 'tok_1', 4, 5, NOW],
  );
  assert.deepEqual([user.access_expires_at, user.token_expires_at, user.bearer_until], [9, 9, 9]);
  assert.equal(found?.row.id, 'tok_1');
  const plain = await start().access.user(head('user'));
  assert.equal(plain.token, undefined);
  const given = head('user');
  assert.deepEqual(actorOf({ caller: plain, head: given }), { id: 'usr_user', role: 'user', head: given });
});

test('a credential in the address is refused before anything else, by every guard', async () => {
  const { access, asked } = start();
  const query = new URLSearchParams({ token: 'user' });
  const guards = [access.user, access.loggedIn, access.freshAdmin, access.adminOnly, access.agent, access.principal];
  for (const guard of [...guards, access.anyone()]) {
    for (const bearer of ['user', 'tpt_account', 'agent-token', 'known']) {
      assert.equal(await outcome(() => guard(head(bearer, { query }))), 'CREDENTIALS_IN_QUERY');
    }
  }
  assert.deepEqual(asked, []);
  const long = new URLSearchParams({ [`token${'_token'.repeat(20)}`]: 'x' });
  assert.throws(
    () => access.anyone()(head('', { query: long })),
    ({ details }: { details: { name: string } }) => details.name.length === 64,
  );
  assert.equal(access.anyone('token')(head('', { query })), undefined, 'a name that is no credential there');
  assert.equal(access.anyone()(head('', { query: new URLSearchParams({ page: '2' }) })), undefined);
  await access.user(head('user', { query: new URLSearchParams({ page: '2' }) }));
});

test('a proxy node comes in by its own token', async () => {
  const { access } = start();
  assert.deepEqual(await access.agent(head('agent-token')), { agent: { id: 'node-1' } });
  assert.equal(await outcome(() => access.agent(head(''))), 'MISSING_TOKEN');
  assert.equal(await outcome(() => access.agent(head('user'))), 'INVALID_AGENT_TOKEN');
});

test('anyone with a login or a token is somebody, but not by a token for five minutes', async () => {
  const { access, asked } = start();
  assert.deepEqual(await access.principal(head('known')), { id: 'user:known' });
  assert.deepEqual(asked, ['token or cookie']);
  assert.equal(await outcome(() => access.principal(head('eyJh.e30.c2ln'))), 'INVALID_SESSION');
  assert.equal(asked.length, 1, 'it is not looked up');
  assert.equal(await outcome(() => access.principal(head(''))), 'SESSION_TOKEN_REQUIRED');
  assert.equal(await outcome(() => access.principal(head('dead'))), 'INVALID_SESSION');
  assert.equal(await outcome(() => access.principal(cookie('dead'))), 'INVALID_SESSION');
});
