import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, test } from 'node:test';
import { auditOf, loggedInAs } from '../../kit/accounts/people.ts';
import {
  accountsSettingsOf,
  type RunningAccounts,
  type StartOptions,
  startAccounts,
} from '../../kit/accounts/start-accounts.ts';
import { type Browser, createBrowser } from '../../kit/browser.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { type RealOidcIssuer, startOidcIssuer } from '../../kit/real-oidc-issuer.ts';

const FRONTEND = 'http://console.test';
const ANN = { sub: 'sub-ann', email: 'ann@example.org', email_verified: true, name: 'Ann' };

interface Scope {
  after(run: () => unknown): void;
}

async function startWithIssuer(scope: Scope, options: StartOptions = {}) {
  const accounts = await startAccounts(scope, options);
  const issuer = await startOidcIssuer(scope, `${accounts.url}/api/auth/oauth/callback/acme`);
  accounts.reload(settingsFor(issuer, accounts.url));
  return { accounts, issuer };
}

function settingsFor({ url, clientId, clientSecret }: RealOidcIssuer, publicUrl: string) {
  const client = `issuer: "${url}", client_id: ${clientId}, client_secret: ${clientSecret}`;
  return accountsSettingsOf(
    `{ public_url: "${publicUrl}", frontend_url: "${FRONTEND}", oauth: { oidc: [ { id: acme, ${client} }, { id: other, ${client} } ] } }`,
  );
}

const loginUrl = (accounts: RunningAccounts) => `${accounts.url}/api/auth/oauth/login/acme`;
const isAtFrontend = (url: string) => url.startsWith(FRONTEND);
const isAtCallback = (url: string) => url.includes('/oauth/callback/');

/** Logs in elsewhere; answers with the parameters that the browser comes back to the console with. */
async function logIn(accounts: RunningAccounts, browser: Browser = createBrowser()): Promise<URLSearchParams> {
  const end = new URL(await browser.open(loginUrl(accounts), isAtFrontend));
  assert.equal(end.origin + end.pathname, `${FRONTEND}/login`);
  cookies.set(end.searchParams, `xc_oauth=${browser.cookie(accounts.url, 'xc_oauth')}`);
  return end.searchParams;
}

/** By what a login ended with: the cookie of the browser that began it. */
const cookies = new WeakMap<URLSearchParams, string>();

const exchange = (accounts: RunningAccounts, result: URLSearchParams, cookie = cookies.get(result) ?? '') =>
  accounts.post('token/exchange', { exchange_code: result.get('exchange_code') }, { cookie });

for (const engine of engines) {
  describe(`login with an OpenID provider on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('someone new gets an account, and the same one ever after, whatever address they have by then', async (t) => {
      const { accounts, issuer } = await startWithIssuer(t, { location: places.location() });
      issuer.person(ANN);
      const browser = createBrowser();
      const first = await exchange(accounts, await logIn(accounts, browser));
      assert.equal(first.status, 200, first.text);
      const { user } = first.body;
      assert.deepEqual(
        [user.email, user.name, user.emailVerified, user.role],
        ['ann@example.org', 'Ann', true, 'user'],
      );
      issuer.person({ ...ANN, email: 'renamed@example.org', name: 'Renamed' });
      const second = await exchange(accounts, await logIn(accounts));
      assert.equal(second.body.user.id, user.id);
      assert.equal(second.body.user.email, 'ann@example.org');
      const password = await accounts.login({ ...ANN, id: user.id, password: 'anything at all' });
      assert.equal(password.body.error, 'invalid_credentials');
    });

    test('an account with the same address is not taken over: its owner links while logged in', async (t) => {
      const { accounts, issuer } = await startWithIssuer(t, { location: places.location() });
      const admin = await loggedInAs(accounts, 'admin');
      const ann = await loggedInAs(accounts, 'user', 'Ann');
      issuer.person(ANN);
      assert.deepEqual([...(await logIn(accounts))], [['error', 'account_exists']]);
      const [failure] = await auditOf(accounts, admin, 'event=oauth.failed');
      assert.deepEqual(failure?.details, { provider: 'acme', problem: 'account_exists' });

      const browser = createBrowser();
      browser.setCookie(accounts.url, 'xc_session', ann.token);
      const end = await browser.open(`${loginUrl(accounts)}?link=1`, isAtFrontend, { 'sec-fetch-site': 'same-origin' });
      assert.equal(end, `${FRONTEND}/login?linked=acme`);
      const login = await exchange(accounts, await logIn(accounts));
      assert.equal(login.body.user.id, ann.id);
      const notices = (await accounts.mails('ann@example.org')).filter((mail) => mail.includes('from elsewhere'));
      assert.equal(notices.length, 1);

      // What belongs to Ann cannot be linked to Ben as well.
      const ben = await loggedInAs(accounts, 'user', 'Ben');
      const other = createBrowser();
      other.setCookie(accounts.url, 'xc_session', ben.token);
      const taken = await other.open(`${loginUrl(accounts)}?link=1`, isAtFrontend, { referer: `${FRONTEND}/settings` });
      assert.equal(taken, `${FRONTEND}/login?error=already_linked`);
    });

    test('A-31: two who exchange one code at the same moment get one session between them', async (t) => {
      const location = places.location();
      const clock = createFakeClock();
      const { accounts, issuer } = await startWithIssuer(t, { location, clock });
      const second = engine === 'postgres' ? await startAccounts(t, { location, clock }) : accounts;
      issuer.person(ANN);
      const result = await logIn(accounts);
      const answers = await Promise.all([
        exchange(accounts, result),
        exchange(second, result),
        exchange(accounts, result),
      ]);
      assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 401, 401]);
      const late = await logIn(accounts);
      await clock.advance(60_000);
      assert.equal((await exchange(accounts, late)).body.error, 'invalid_exchange_code');
      const code = String(result.get('exchange_code'));
      const rows = await accounts.database.read(accounts.database.query.selectFrom('flows').selectAll().compile());
      assert.ok(!JSON.stringify(rows).includes(code) && !accounts.log().includes(code));
    });

    test('two callbacks of one new person at the same moment make one account', async (t) => {
      const { accounts, issuer } = await startWithIssuer(t, { location: places.location() });
      issuer.person(ANN);
      const results = await Promise.all([logIn(accounts), logIn(accounts), logIn(accounts)]);
      const users = await accounts.database.read(accounts.database.query.selectFrom('users').select('id').compile());
      assert.equal(users.length, 1);
      for (const result of results) assert.ok(result.has('exchange_code'), String(result));
    });
  });
}

test('the second factor is asked for after a login elsewhere too', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  issuer.person(ANN);
  const first = await exchange(accounts, await logIn(accounts));
  const enrolled = await accounts.enrol({
    ...ANN,
    id: '',
    password: '',
    token: first.body.token,
    refreshToken: '',
    answer: first,
  });
  const half = await exchange(accounts, await logIn(accounts));
  assert.deepEqual([half.body.mfaRequired, half.body.token, half.headers.get('set-cookie')], [true, undefined, null]);
  await accounts.clock.advance(30_000);
  const full = await accounts.post('mfa/verify', { mfa_ticket: half.body.mfa_ticket, code: enrolled.code() });
  assert.equal(full.status, 200, full.text);
});

test('a state from another browser, for another provider, used before, or made up opens nothing', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  issuer.person(ANN);
  const begin = async () => {
    const browser = createBrowser();
    return { browser, callback: await browser.open(loginUrl(accounts), isAtCallback) };
  };
  const finish = async (browser: Browser, callback: string) =>
    new URL(await browser.open(callback, isAtFrontend)).searchParams.get('error');

  const victim = await begin();
  const attacker = await begin();
  // Login CSRF: the attacker's own callback in the victim's browser.
  assert.equal(await finish(victim.browser, attacker.callback), 'invalid_state');
  const swapped = new URL(victim.callback);
  swapped.searchParams.set('state', new URL(attacker.callback).searchParams.get('state') ?? '');
  assert.equal(await finish(createBrowser(), swapped.href), 'invalid_state');
  const doubled = `${attacker.callback}&state=x`;
  assert.equal(await finish(attacker.browser, doubled), 'invalid_state');
  for (const query of ['', '?code=x', '?code=x&state=', `?code=x&state=${'y'.repeat(43)}`]) {
    const url = `${accounts.url}/api/auth/oauth/callback/acme${query}`;
    assert.equal(await finish(createBrowser(), url), 'invalid_state', query);
  }
  const elsewhere = await begin();
  assert.equal(await finish(elsewhere.browser, elsewhere.callback.replace('/acme?', '/other?')), 'invalid_state');
  const { browser, callback } = await begin();
  const cookie = browser.cookie(accounts.url, 'xc_oauth') ?? '';
  assert.equal(await finish(browser, callback), null);
  // The same address once more, with the same cookie.
  browser.setCookie(accounts.url, 'xc_oauth', cookie);
  assert.equal(await finish(browser, callback), 'invalid_state');
  const slow = await begin();
  await accounts.clock.advance(10 * 60_000);
  assert.equal(await finish(slow.browser, slow.callback), 'invalid_state');
});

test('a code that was used before, and one that another login got, are refused by the provider itself', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  issuer.person(ANN);
  const [first, second, third] = [createBrowser(), createBrowser(), createBrowser()];
  const callbacks = [];
  for (const browser of [first, second, third])
    callbacks.push(new URL(await browser.open(loginUrl(accounts), isAtCallback)));
  const [one, two, three] = callbacks as [URL, URL, URL];
  const codeOf = (url: URL) => url.searchParams.get('code') ?? '';
  // Injected: the code of another login does not fit this one's verifier.
  two.searchParams.set('code', codeOf(one));
  assert.match(await second.open(two.href, isAtFrontend), /error=provider_failed$/);
  assert.match(await first.open(one.href, isAtFrontend), /(exchange_code=|error=provider_failed$)/);
  three.searchParams.set('code', codeOf(one));
  assert.match(await third.open(three.href, isAtFrontend), /error=provider_failed$/);
});

test('an address that the provider has not verified makes no account', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  issuer.person({ ...ANN, email_verified: false });
  assert.equal((await logIn(accounts)).get('error'), 'email_not_verified');
});

test('a name that is taken becomes another one, and a blocked address stays outside', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  const admin = await loggedInAs(accounts, 'admin', 'Ann');
  issuer.person({ ...ANN, email: 'second@example.org' });
  const { user } = (await exchange(accounts, await logIn(accounts))).body;
  assert.match(user.name, /^Ann \d{4}$/);
  await accounts.post('admin/blacklist', { email: 'third@example.org' }, { token: admin.token });
  issuer.person({ ...ANN, sub: 'sub-third', email: 'third@example.org' });
  assert.equal((await logIn(accounts)).get('error'), 'access_denied');
});

test('another site cannot make someone link an account, nor can who only reads, nor who was logged out since', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  issuer.person(ANN);
  const ben = await loggedInAs(accounts, 'user', 'Ben');
  const link = (headers: Record<string, string>) =>
    accounts.get('/api/auth/oauth/login/acme?link=1', { cookie: `xc_session=${ben.token}`, headers });
  for (const headers of [
    {},
    { 'sec-fetch-site': 'cross-site' },
    { referer: 'http://evil.test/' },
    { referer: 'x' },
  ] as const) {
    assert.equal((await link(headers)).body?.error, 'cross_site_request', JSON.stringify(headers));
  }
  assert.equal((await link({ 'sec-fetch-site': 'none' })).status, 302);
  const old = await loggedInAs(accounts, 'user', 'Old');
  await accounts.clock.advance(5 * 60_000 + 1);
  const stale = await accounts.get('/api/auth/oauth/login/acme?link=1', { token: old.token });
  assert.deepEqual([stale.status, stale.body.error], [401, 'reauthentication_required']);
  const stranger = await accounts.get('/api/auth/oauth/login/acme?link=1');
  assert.deepEqual([stranger.status, stranger.body.error], [401, 'session_token_required']);
  const reader = await loggedInAs(accounts, 'readonly', 'Rita');
  const refused = await accounts.get('/api/auth/oauth/login/acme?link=1', { token: reader.token });
  assert.deepEqual([refused.status, refused.body.error], [403, 'read_only_account']);

  const browser = createBrowser();
  const token = (await accounts.login(ben)).body.token;
  browser.setCookie(accounts.url, 'xc_session', token);
  const callback = await browser.open(`${loginUrl(accounts)}?link=1`, isAtCallback, {
    'sec-fetch-site': 'same-origin',
  });
  await accounts.post(
    'password/change',
    { currentPassword: ben.password, newPassword: 'another good one 99' },
    { token: ben.token },
  );
  assert.match(await browser.open(callback, isAtFrontend), /error=invalid_state$/);
});

test('refusals at the provider come back as such, unknown providers are 404, and starts are limited', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  issuer.person(ANN);
  for (const [given, shown] of [
    ['access_denied', 'access_denied'],
    ['server_error', 'provider_failed'],
  ] as const) {
    const browser = createBrowser();
    const callback = new URL(await browser.open(loginUrl(accounts), isAtCallback));
    callback.searchParams.delete('code');
    callback.searchParams.set('error', given);
    assert.equal(await browser.open(callback.href, isAtFrontend), `${FRONTEND}/login?error=${shown}`);
  }
  for (const path of ['login/nobody', 'callback/nobody?code=x&state=y', 'login/github', 'login/google']) {
    const answer = await accounts.get(`oauth/${path}`);
    assert.deepEqual([answer.status, answer.body.error], [404, 'provider_not_found'], path);
  }
  const starts = await Promise.all(
    Array.from({ length: 31 }, () => accounts.get('oauth/login/acme', { from: '10.9.9.9' })),
  );
  const late = starts.filter(({ status }) => status === 429);
  assert.equal(late.length, 1);
  assert.equal(late[0]?.headers.get('retry-after'), '60');
});

test('a provider that cannot be reached sends the browser back to the console', async (t) => {
  const accounts = await startAccounts(t, {
    settings: `{ frontend_url: "${FRONTEND}", oauth: { oidc: [ { id: acme, issuer: "http://127.0.0.1:9", client_id: x } ] } }`,
  });
  const answer = await accounts.get('oauth/login/acme');
  assert.deepEqual([answer.status, answer.headers.get('location')], [302, `${FRONTEND}/login?error=provider_failed`]);
});

test('DA-13: an exchange code is good only for the browser that began the login', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  issuer.person(ANN);
  const victim = createBrowser();
  await victim.open(loginUrl(accounts), isAtCallback);
  const attackers = await logIn(accounts);
  for (const cookie of ['', `xc_oauth=${victim.cookie(accounts.url, 'xc_oauth')}`]) {
    const refused = await exchange(accounts, attackers, cookie);
    assert.deepEqual([refused.status, refused.body.error], [401, 'invalid_exchange_code']);
  }
  assert.equal((await exchange(accounts, attackers)).status, 200, 'the right browser, afterwards');
});

test('DA-13: a console at another address exchanges the code with the verifier of its challenge', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  issuer.person(ANN);
  const verifier = 'what only the console knows';
  const challenge = createHash('sha256').update(verifier).digest('base64url');
  const browser = createBrowser();
  const end = new URL(await browser.open(`${loginUrl(accounts)}?challenge=${challenge}`, isAtFrontend));
  const exchange_code = end.searchParams.get('exchange_code');
  const cookie = `xc_oauth=${browser.cookie(accounts.url, 'xc_oauth')}`;
  for (const body of [{ exchange_code }, { exchange_code, verifier: 'a guess' }]) {
    assert.equal((await accounts.post('token/exchange', body, { cookie })).body.error, 'invalid_exchange_code');
  }
  assert.equal((await accounts.post('token/exchange', { exchange_code, verifier })).status, 200);
  const bad = await accounts.get('oauth/login/acme?challenge=short');
  assert.deepEqual([bad.status, bad.body.error], [400, 'invalid_request']);
});

test('DA-14: an address counts as verified when the provider says so as a string, or when its word is trusted', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  const registers = async (sub: string, email_verified: unknown) => {
    issuer.person({ ...ANN, sub, email: `${sub}@example.org`, email_verified } as typeof ANN);
    return (await logIn(accounts)).get('error');
  };
  assert.equal(await registers('as-a-string', 'true'), null);
  for (const claim of ['false', '', 1, null, undefined]) {
    assert.equal(await registers('nobody', claim), 'email_not_verified', String(claim));
  }
  const trusting = settingsFor(issuer, accounts.url);
  const oidc = trusting.oauth.oidc.map((one) => ({ ...one, trust_email: true }));
  accounts.reload({ ...trusting, oauth: { ...trusting.oauth, oidc } });
  assert.equal(await registers('trusted', undefined), null);
});

test('DA-15: an account is not linked once the session that asked for it has ended', async (t) => {
  const { accounts, issuer } = await startWithIssuer(t);
  issuer.person(ANN);
  const ben = await loggedInAs(accounts, 'user', 'Ben');
  const begin = async (token: string) => {
    const browser = createBrowser();
    browser.setCookie(accounts.url, 'xc_session', token);
    const headers = { 'sec-fetch-site': 'same-origin' };
    return { browser, callback: await browser.open(`${loginUrl(accounts)}?link=1`, isAtCallback, headers) };
  };
  const { browser, callback } = await begin(ben.token);
  const other = (await accounts.login(ben)).body.token;
  await accounts.call('DELETE', 'session', { token: ben.token });
  assert.match(await browser.open(callback, isAtFrontend), /error=invalid_state$/);
  assert.equal((await logIn(accounts)).has('exchange_code'), true, 'it belongs to nobody');
  issuer.person({ ...ANN, sub: 'sub-ben' });
  const again = await begin(other);
  assert.match(await again.browser.open(again.callback, isAtFrontend), /linked=acme$/);
});
