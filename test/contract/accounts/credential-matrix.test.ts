import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import type { Answer } from '../../kit/accounts/accounts-client.ts';
import { loggedInAs } from '../../kit/accounts/people.ts';
import { startAccounts } from '../../kit/accounts/start-accounts.ts';

/** Who may call what. `public` asks for nothing, `any` takes every login and token, `own` lets readonly users write too, `admin` leaves operators out. */
type Expectation = 'public' | 'user' | 'own' | 'operator' | 'admin' | 'agent' | 'any';

/** By hand, on purpose: a new route without a line here fails. */
const EXPECTED: Readonly<Record<string, Expectation>> = {
  'POST /api/auth/register': 'public',
  'POST /api/auth/register/send': 'public',
  'POST /api/auth/register/verify': 'public',
  'POST /api/auth/login': 'public',
  'GET /api/auth/methods': 'public',
  'POST /api/auth/mfa/verify': 'public',
  'POST /api/auth/passkeys/options': 'public',
  'POST /api/auth/passkeys/verify': 'public',
  'POST /api/auth/token/exchange': 'public',
  'POST /api/auth/token/refresh': 'public',
  'POST /api/auth/refresh': 'public',
  'POST /api/auth/password/forgot': 'public',
  'POST /api/auth/password/forgot/confirm': 'public',
  'GET /api/auth/oauth/login/:provider': 'public',
  'GET /api/auth/oauth/callback/:provider': 'public',
  'POST /api/auth/setup': 'public',
  'POST /api/auth/setup/options': 'public',
  'POST /api/billing/webhook': 'public',
  'GET /api/auth/session': 'user',
  'DELETE /api/auth/session': 'own',
  'GET /api/auth/sessions': 'user',
  'DELETE /api/auth/sessions': 'own',
  'DELETE /api/auth/sessions/:id': 'own',
  'POST /api/auth/mfa/totp/provision': 'own',
  'POST /api/auth/mfa/totp/verify': 'own',
  'POST /api/auth/mfa/disable': 'own',
  'POST /api/auth/mfa/recovery-codes': 'own',
  'GET /api/auth/mfa/status': 'user',
  'POST /api/auth/password/reset': 'own',
  'POST /api/auth/password/reset/confirm': 'own',
  'POST /api/auth/password/change': 'own',
  'GET /api/auth/credentials': 'own',
  'DELETE /api/auth/credentials/:id': 'own',
  'PATCH /api/auth/profile': 'user',
  'GET /api/auth/export': 'user',
  'POST /api/auth/delete': 'own',
  'DELETE /api/auth/delete': 'own',
  'GET /api/auth/teams': 'user',
  'POST /api/auth/teams': 'admin',
  'PATCH /api/auth/teams/:id': 'admin',
  'DELETE /api/auth/teams/:id': 'admin',
  'GET /api/auth/teams/:id/members': 'user',
  'POST /api/auth/teams/:id/members': 'user',
  'DELETE /api/auth/teams/:id/members/:user': 'user',
  'GET /api/auth/subscriptions': 'user',
  'POST /api/auth/subscriptions': 'user',
  'POST /api/auth/subscriptions/cancel': 'user',
  'POST /api/auth/config/sync': 'user',
  'POST /api/auth/keys': 'user',
  'GET /api/auth/keys': 'user',
  'POST /api/auth/keys/:id/rotate': 'user',
  'DELETE /api/auth/keys/:id': 'user',
  'POST /api/auth/tokens': 'user',
  'GET /api/auth/tokens': 'user',
  'DELETE /api/auth/tokens/:id': 'user',
  'POST /api/auth/token/jwt': 'any',
  'GET /.well-known/jwks.json': 'public',
  'POST /api/auth/device/code': 'public',
  'POST /api/auth/device/token': 'public',
  'GET /api/auth/device/approval/:code': 'user',
  'POST /api/auth/device/approval/:code': 'user',
  'POST /api/auth/admin/services': 'admin',
  'GET /api/auth/admin/services': 'admin',
  'DELETE /api/auth/admin/services/:id': 'admin',
  'POST /api/auth/admin/services/:id/tokens': 'admin',
  'GET /api/auth/admin/services/:id/tokens': 'admin',
  'DELETE /api/auth/admin/services/:id/tokens/:token': 'admin',
  'GET /api/agent-server/v1/nodes': 'user',
  'GET /api/auth/admin/settings': 'operator',
  'POST /api/auth/admin/settings': 'operator',
  'GET /api/auth/admin/users/metrics': 'operator',
  'GET /api/auth/admin/agents/status': 'operator',
  'GET /api/admin/agents/status': 'operator',
  'GET /api/auth/admin/agents': 'operator',
  'POST /api/auth/admin/agents': 'admin',
  'DELETE /api/auth/admin/agents/:id': 'admin',
  'GET /api/auth/admin/users': 'operator',
  'POST /api/auth/admin/users': 'admin',
  'POST /api/auth/admin/users/:id/role': 'admin',
  'POST /api/auth/admin/users/:id/plan': 'admin',
  'POST /api/auth/admin/invitations': 'admin',
  'GET /api/auth/admin/invitations': 'operator',
  'DELETE /api/auth/admin/invitations/:id': 'admin',
  'POST /api/auth/invitations/accept': 'public',
  'POST /api/auth/admin/users/:id/pause': 'operator',
  'POST /api/auth/admin/users/:id/resume': 'operator',
  'POST /api/auth/admin/users/:id/renew-uuid': 'operator',
  'POST /api/auth/admin/users/:id/end-sessions': 'operator',
  'POST /api/auth/admin/users/:id/reset-mfa': 'admin',
  'DELETE /api/auth/admin/users/:id': 'admin',
  'GET /api/auth/admin/webhooks': 'admin',
  'POST /api/auth/admin/webhooks': 'admin',
  'DELETE /api/auth/admin/webhooks/:id': 'admin',
  'POST /api/auth/admin/webhooks/:id/enable': 'admin',
  'GET /api/auth/admin/webhooks/:id/deliveries': 'admin',
  'GET /api/auth/admin/blacklist': 'operator',
  'POST /api/auth/admin/blacklist': 'operator',
  'DELETE /api/auth/admin/blacklist/:email': 'operator',
  'GET /api/auth/admin/audit': 'operator',
  'GET /api/auth/admin/subscriptions': 'operator',
  'GET /api/auth/admin/plans': 'operator',
  'POST /api/auth/admin/subscriptions/:id/status': 'admin',
  'GET /api/agent-server/v1/users': 'agent',
  'POST /api/agent-server/v1/status': 'agent',
};

/** Rows that ask for a login from the last five minutes; an access token is never one. All `own` rows ask for a login, too. */
const FRESH: ReadonlySet<string> = new Set([
  'PATCH /api/auth/profile',
  'POST /api/auth/keys',
  'POST /api/auth/keys/:id/rotate',
  'POST /api/auth/tokens',
  'GET /api/auth/device/approval/:code',
  'POST /api/auth/device/approval/:code',
  'POST /api/auth/admin/users/:id/reset-mfa',
  'POST /api/auth/admin/services',
  'POST /api/auth/admin/services/:id/tokens',
  'POST /api/auth/admin/webhooks',
  'POST /api/auth/admin/webhooks/:id/enable',
]);

const accounts = await startAccounts({ after });
const people = {
  admin: await loggedInAs(accounts, 'admin'),
  operator: await loggedInAs(accounts, 'operator'),
  user: await loggedInAs(accounts, 'user'),
  readonly: await loggedInAs(accounts, 'readonly'),
};
const careful = await loggedInAs(accounts, 'user', 'Careful');
await accounts.enrol(careful);
const { token: agentToken } = await accounts.control<{ token: string }>('agents.create', { id: 'node-1' });

/** Access tokens by the scopes that they have. */
const tokens = {
  'token of a user': await tokenOf(people.user, ['account']),
  'token of a user for models': await tokenOf(people.user, ['completions', 'bridge']),
  'token of an administrator': await tokenOf(people.admin, ['account', 'admin']),
  'token of an administrator, without the scope': await tokenOf(people.admin, ['account', 'completions', 'bridge']),
  'revoked token': `tpt_${'a'.repeat(43)}`,
} as const;

async function tokenOf({ token }: { readonly token: string }, scopes: readonly string[]): Promise<string> {
  return (await accounts.post('tokens', { name: 't', scopes }, { token })).body.token;
}

type Kind = 'none' | 'ticket' | 'agent' | keyof typeof people | keyof typeof tokens;
const KINDS = [
  'none',
  'ticket',
  'agent',
  'user',
  'readonly',
  'operator',
  'admin',
  ...(Object.keys(tokens) as (keyof typeof tokens)[]),
] as const;
const isToken = (kind: Kind): kind is keyof typeof tokens => kind in tokens;

/** A fresh credential each time: some routes end the session that they are called with. */
async function credentialOf(kind: Kind): Promise<string | undefined> {
  if (kind === 'none') return undefined;
  if (kind === 'agent') return agentToken;
  if (isToken(kind)) return tokens[kind];
  const person = kind === 'ticket' ? careful : people[kind];
  const code = await accounts.issueExchangeCode(person.id);
  const { body } = await accounts.post('token/exchange', code);
  return kind === 'ticket' ? body.mfa_ticket : body.token;
}

/** What the guard says to this caller; undefined when it lets them in. */
function refusalFor(name: string, expected: Expectation, kind: Kind, method: string): string | undefined {
  if (expected === 'public') return undefined;
  if (expected === 'agent') {
    if (kind === 'none') return '401 missing_token';
    return kind === 'agent' ? undefined : '401 invalid_token';
  }
  if (kind === 'none') return '401 session_token_required';
  if (kind === 'agent' || kind === 'ticket') return '401 invalid_session';
  if (isToken(kind)) {
    if (expected === 'own' || FRESH.has(name)) return '403 login_required';
    if (kind === 'revoked token') return '401 invalid_session';
    if (expected === 'any') return undefined;
    if (kind === 'token of an administrator') return undefined;
    return expected === 'user' && kind !== 'token of a user for models' ? undefined : '403 forbidden';
  }
  if (expected === 'own' || expected === 'any') return undefined;
  if (expected === 'user') return kind === 'readonly' && method !== 'GET' ? '403 read_only_account' : undefined;
  const isAllowed = kind === 'admin' || (expected === 'operator' && kind === 'operator');
  return isAllowed ? undefined : '403 forbidden';
}

const GUARD_REFUSALS = new Set([
  '401 missing_token',
  '401 invalid_token',
  '401 session_token_required',
  '401 invalid_session',
  '403 read_only_account',
  '403 forbidden',
  '403 login_required',
]);

const verdict = ({ status, body }: Answer): string => `${status} ${body?.error ?? ''}`;

test('A-34: every route of accounts has its expectation, and every expectation its route', () => {
  const routes = accounts.routes.map(({ method, path }) => `${method} ${path}`);
  assert.deepEqual(routes.sort(), Object.keys(EXPECTED).sort());
});

for (const { method, path, body } of accounts.routes) {
  test(`A-34: ${method} ${path} opens to whom it should, of all kinds of callers`, async () => {
    const expected = EXPECTED[`${method} ${path}`];
    assert.ok(expected);
    for (const kind of KINDS) {
      const token = await credentialOf(kind);
      const answer = await accounts.call(method, path.replaceAll(/:\w+/g, 'nobody'), {
        ...(token !== undefined && { token }),
        ...(body !== undefined && { body: {} }),
      });
      const refusal = refusalFor(`${method} ${path}`, expected, kind, method);
      if (refusal !== undefined) assert.equal(verdict(answer), refusal, kind);
      else assert.ok(!GUARD_REFUSALS.has(verdict(answer)), `${kind}: ${verdict(answer)}`);
      assert.ok(answer.status < 500 || answer.status === 501 || answer.status === 503, `${kind}: ${answer.text}`);
    }
  });
}

test('A-34: the cookie of a session opens what its token opens, and no agent’s token works as a cookie', async () => {
  for (const [kind, status] of [
    ['user', 200],
    ['agent', 401],
    ['ticket', 401],
  ] as const) {
    const cookie = `xc_session=${await credentialOf(kind)}`;
    assert.equal((await accounts.get('session', { cookie })).status, status, kind);
  }
});

test('A-63: liveness answers ok and nothing else while the store is gone, and readiness fails', async (t) => {
  const other = await startAccounts(t);
  const health = await other.get('/healthz');
  assert.deepEqual([health.status, health.text], [200, '{"status":"ok"}']);
  assert.equal((await other.get('/readyz')).status, 200);
  await other.database.close();
  assert.deepEqual((await other.get('/healthz')).body, { status: 'ok' });
  assert.equal((await other.get('/readyz')).status, 503);
});
