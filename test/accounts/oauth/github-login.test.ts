import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { loggedInAs } from '../../kit/accounts/people.ts';
import { accountsSettingsOf, type RunningAccounts, startAccounts } from '../../kit/accounts/start-accounts.ts';
import { createBrowser } from '../../kit/browser.ts';
import { type ScriptedHttp, startScriptedHttp } from '../../kit/scripted-http.ts';

const FRONTEND = 'http://console.test';

interface GithubScript {
  /** Answers by path; a function decides by itself. */
  answers: Record<string, unknown>;
}

const GOOD: GithubScript['answers'] = {
  '/login/oauth/access_token': { access_token: 'gho_token', token_type: 'bearer', scope: 'read:user,user:email' },
  '/api/v3/user': { id: 583231, login: 'ann', name: 'Ann', email: 'public@example.org' },
  '/api/v3/user/emails': [
    { email: 'old@example.org', primary: false, verified: true, visibility: null },
    { email: 'Ann@Example.org', primary: true, verified: true, visibility: 'private' },
  ],
};

interface Scope {
  after(run: () => unknown): void;
}

async function startWithGithub(scope: Scope, more = 'registration: open') {
  const script: GithubScript = { answers: GOOD };
  const github = await startScriptedHttp(scope, ({ path, response }) => {
    const answer = script.answers[path];
    if (typeof answer === 'number') response.writeHead(answer).end();
    else response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
  });
  const accounts = await startAccounts(scope);
  accounts.reload(
    accountsSettingsOf(
      `{ public_url: "${accounts.url}", frontend_url: "${FRONTEND}", ${more}, oauth: { github: { client_id: iv1, client_secret: shh-nobody-knows, url: "${github.url}", api_url: "${github.url}/api/v3/" } } }`,
    ),
  );
  return { script, github, accounts };
}

async function logIn(accounts: RunningAccounts, github: ScriptedHttp) {
  const browser = createBrowser();
  const authorize = new URL(
    await browser.open(`${accounts.url}/api/auth/oauth/login/github`, (url) => url.startsWith(github.url)),
  );
  const callback = new URL(authorize.searchParams.get('redirect_uri') ?? '');
  callback.searchParams.set('code', 'the-code');
  callback.searchParams.set('state', authorize.searchParams.get('state') ?? '');
  const end = new URL(await browser.open(callback.href, (url) => url.startsWith(FRONTEND)));
  const cookie = `xc_oauth=${browser.cookie(accounts.url, 'xc_oauth')}`;
  return { authorize, result: end.searchParams, cookie };
}

const exchange = (accounts: RunningAccounts, { result, cookie }: { result: URLSearchParams; cookie: string }) =>
  accounts.post('token/exchange', { exchange_code: result.get('exchange_code') }, { cookie });

test('GitHub is asked in its own shape, with PKCE, and says who someone is through its API', async (t) => {
  const { accounts, github } = await startWithGithub(t);
  const { authorize, result, cookie } = await logIn(accounts, github);
  assert.equal(authorize.pathname, '/login/oauth/authorize');
  assert.deepEqual(
    ['client_id', 'scope', 'code_challenge_method'].map((name) => authorize.searchParams.get(name)),
    ['iv1', 'read:user user:email', 'S256'],
  );
  const [token, ...calls] = github.requests;
  const sent = new URLSearchParams(token?.body);
  assert.equal(token?.headers.accept, 'application/json');
  assert.deepEqual(
    ['code', 'client_secret'].map((name) => sent.get(name)),
    ['the-code', 'shh-nobody-knows'],
  );
  const challenge = createHash('sha256')
    .update(sent.get('code_verifier') ?? '')
    .digest('base64url');
  assert.equal(challenge, authorize.searchParams.get('code_challenge'));
  assert.deepEqual(calls.map(({ path }) => path).sort(), ['/api/v3/user', '/api/v3/user/emails']);
  for (const { headers } of calls)
    assert.deepEqual([headers.authorization, headers['user-agent']], ['Bearer gho_token', 'trestle']);
  const login = await accounts.post('token/exchange', { exchange_code: result.get('exchange_code') }, { cookie });
  assert.deepEqual([login.body.user.email, login.body.user.name], ['ann@example.org', 'Ann']);
});

test('someone is known by GitHub’s id alone: neither a name that moved on nor an address makes anyone someone else', async (t) => {
  const { accounts, github, script } = await startWithGithub(t);
  const first = await logIn(accounts, github);
  const { user } = (await exchange(accounts, first)).body;
  // Another person has taken the login name, and has Ann's address as a verified one.
  script.answers = { ...GOOD, '/api/v3/user': { id: 999, login: 'ann', name: 'Ann' } };
  assert.equal((await logIn(accounts, github)).result.get('error'), 'account_exists');
  script.answers = { ...GOOD, '/api/v3/user': { id: 583231, login: 'ann-renamed', name: null } };
  const second = await logIn(accounts, github);
  const again = await exchange(accounts, second);
  assert.equal(again.body.user.id, user.id);
});

test('only the primary address counts, and only when it is verified', async (t) => {
  const { accounts, github, script } = await startWithGithub(t);
  const admin = await loggedInAs(accounts, 'admin');
  const emails = (list: unknown) => {
    script.answers = { ...GOOD, '/api/v3/user/emails': list };
  };
  for (const list of [
    [],
    [{ email: 'ann@example.org', primary: true, verified: false }],
    [{ email: admin.email, primary: false, verified: true }],
  ]) {
    emails(list);
    assert.equal((await logIn(accounts, github)).result.get('error'), 'email_not_verified', JSON.stringify(list));
  }
});

test('whatever GitHub gets wrong ends at the console, and nothing of it is logged', async (t) => {
  const { accounts, github, script } = await startWithGithub(t);
  const wrong: readonly [string, unknown][] = [
    ['/login/oauth/access_token', { error: 'bad_verification_code', error_description: 'gho_leak' }],
    ['/login/oauth/access_token', { access_token: '' }],
    ['/login/oauth/access_token', 500],
    ['/login/oauth/access_token', 302],
    ['/api/v3/user', { login: 'ann' }],
    ['/api/v3/user', { id: '583231', login: 'ann' }],
    ['/api/v3/user', 401],
    ['/api/v3/user/emails', { email: 'ann@example.org' }],
    ['/api/v3/user/emails', 'x'.repeat(2 * 1024 * 1024)],
  ];
  for (const [path, answer] of wrong) {
    script.answers = { ...GOOD, [path]: answer };
    const { result } = await logIn(accounts, github);
    assert.equal(result.get('error'), 'provider_failed', `${path} ${JSON.stringify(answer).slice(0, 60)}`);
  }
  assert.doesNotMatch(accounts.log(), /gho_|shh-nobody|the-code/);
});

test('GitHub is not asked unencrypted, except on this machine', () => {
  for (const name of ['url', 'api_url']) {
    const settings = (address: string) =>
      accountsSettingsOf(`{ oauth: { github: { client_id: a, client_secret: b, ${name}: "${address}" } } }`);
    assert.throws(() => settings('http://git.example'), /logins would be sent unencrypted/);
    assert.ok(settings('https://git.example'));
    assert.ok(settings('http://127.0.0.1:3000'));
  }
});

test('a login whose invitation is revoked at the same moment ends at the console', async (t) => {
  const { accounts, github } = await startWithGithub(t, 'registration: invite');
  const admin = await loggedInAs(accounts, 'admin');
  const invited = await accounts.post('admin/invitations', { email: 'ann@example.org' }, { token: admin.token });
  assert.equal(invited.status, 201);
  const { database } = accounts;
  const write = database.write as (...given: readonly unknown[]) => Promise<unknown>;
  const revokingFirst = async (statements: readonly { readonly sql: string }[], ...more: readonly unknown[]) => {
    if (statements.some(({ sql }) => sql.startsWith('insert into "users"'))) {
      await write([database.query.deleteFrom('invitations').compile()]);
    }
    return write(statements, ...more);
  };
  Object.assign(database, { write: revokingFirst });
  assert.equal((await logIn(accounts, github)).result.get('error'), 'invitation_required');
});
