import assert from 'node:assert/strict';
import { createHmac, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { after, beforeEach, test } from 'node:test';
import { accountsSettingsOf, startAccounts } from '../../kit/accounts/start-accounts.ts';
import { createBrowser } from '../../kit/browser.ts';
import { startScriptedHttp } from '../../kit/scripted-http.ts';

/** An issuer that signs whatever the test wants it to: what no decent one does. */

type Claims = Record<string, unknown>;
type Make = (claims: Claims) => string;

const FRONTEND = 'http://console.test';
const keys = generateKeyPairSync('rsa', { modulusLength: 2048 });
const strangers = generateKeyPairSync('rsa', { modulusLength: 2048 });
const publicJwk = { ...keys.publicKey.export({ format: 'jwk' }), kid: 'one', alg: 'RS256', use: 'sig' };

const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
const signed = (claims: Claims, header: Claims = {}, key: KeyObject = keys.privateKey): string => {
  const text = `${encode({ alg: 'RS256', kid: 'one', typ: 'JWT', ...header })}.${encode(claims)}`;
  return `${text}.${sign('sha256', Buffer.from(text), key).toString('base64url')}`;
};

let make: Make = signed;
let jwks: unknown[] = [publicJwk];
let nonce = '';

const issuer = await startScriptedHttp({ after }, ({ path, response }) => {
  const send = (value: unknown) => response.setHeader('content-type', 'application/json').end(JSON.stringify(value));
  if (path === '/.well-known/openid-configuration') {
    send({
      issuer: issuer.url,
      authorization_endpoint: `${issuer.url}/authorize`,
      token_endpoint: `${issuer.url}/token`,
      jwks_uri: `${issuer.url}/jwks`,
      response_types_supported: ['code'],
      subject_types_supported: ['public'],
      // Even from an issuer that offers them, we take none of the first two.
      id_token_signing_alg_values_supported: ['none', 'HS256', 'RS256'],
    });
  } else if (path === '/jwks') send({ keys: jwks });
  else send({ access_token: 'at', token_type: 'Bearer', expires_in: 60, id_token: make(goodClaims()) });
});
/** An issuer whose metadata are those of the other one. */
const mallory = await startScriptedHttp({ after }, ({ response }) => {
  response.setHeader('content-type', 'application/json');
  response.end(
    JSON.stringify({
      issuer: issuer.url,
      authorization_endpoint: `${mallory.url}/authorize`,
      token_endpoint: `${mallory.url}/token`,
      jwks_uri: `${mallory.url}/jwks`,
      response_types_supported: ['code'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['RS256'],
    }),
  );
});
const accounts = await startAccounts({ after });
accounts.reload(
  accountsSettingsOf(
    `{ public_url: "${accounts.url}", frontend_url: "${FRONTEND}", oauth: { oidc: [ { id: acme, issuer: "${issuer.url}", client_id: trestle, client_secret: s3cr3t-of-the-client }, { id: mallory, issuer: "${mallory.url}", client_id: trestle } ] } }`,
  ),
);

function goodClaims(): Claims {
  const now = Math.floor(Date.now() / 1000);
  const person = { sub: 'ann', email: 'ann@example.org', email_verified: true, name: 'Ann' };
  return { iss: issuer.url, aud: 'trestle', iat: now, exp: now + 300, nonce, ...person };
}

beforeEach(() => {
  make = signed;
  // Logins from one address are limited.
  accounts.clock.stepWall(61_000);
});

/** The way of one login, up to what the console is told. */
async function logIn(): Promise<URLSearchParams> {
  const browser = createBrowser();
  const authorize = new URL(
    await browser.open(`${accounts.url}/api/auth/oauth/login/acme`, (url) => url.startsWith(issuer.url)),
  );
  nonce = authorize.searchParams.get('nonce') ?? '';
  const callback = new URL(authorize.searchParams.get('redirect_uri') ?? '');
  callback.searchParams.set('code', 'the-code');
  callback.searchParams.set('state', authorize.searchParams.get('state') ?? '');
  return new URL(await browser.open(callback.href, (url) => url.startsWith(FRONTEND))).searchParams;
}

test('A-32: a token that is as it should be lets in, with claims in the ID token', async () => {
  const result = await logIn();
  assert.ok(result.has('exchange_code'), String(result));
});

test('metadata that names another issuer is refused, and nobody is sent anywhere', async () => {
  const response = await fetch(`${accounts.url}/api/auth/oauth/login/mallory`, { redirect: 'manual' });
  assert.deepEqual(
    mallory.requests.map(({ path }) => path),
    ['/.well-known/openid-configuration'],
  );
  const location = response.headers.get('location') ?? '';
  assert.ok(location === '' || location.startsWith(FRONTEND), location);
  assert.ok(response.status >= 500 || new URL(location).searchParams.has('error'), `${response.status} ${location}`);
});

const withClaims =
  (change: Claims): Make =>
  (claims) =>
    signed({ ...claims, ...change });
const without =
  (name: string): Make =>
  ({ [name]: _, ...claims }) =>
    signed(claims);
const HOUR = 3600;
const seconds = () => Math.floor(Date.now() / 1000);

const FORGERIES: Readonly<Record<string, Make>> = {
  'no signature (alg none)': (claims) => `${encode({ alg: 'none' })}.${encode(claims)}.`,
  'alg none with a signature left in place': (claims) =>
    `${encode({ alg: 'none' })}.${signed(claims).split('.').slice(1).join('.')}`,
  'the public key as an HMAC secret (RS to HS)': (claims) => {
    const text = `${encode({ alg: 'HS256', kid: 'one' })}.${encode(claims)}`;
    const secret = keys.publicKey.export({ type: 'spki', format: 'pem' });
    return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`;
  },
  'the client secret as an HMAC secret': (claims) => {
    const text = `${encode({ alg: 'HS256' })}.${encode(claims)}`;
    return `${text}.${createHmac('sha256', 's3cr3t-of-the-client').update(text).digest('base64url')}`;
  },
  'a stranger’s key under our key’s id': (claims) => signed(claims, {}, strangers.privateKey),
  'a stranger’s key in the header (jwk)': (claims) =>
    signed(claims, { jwk: strangers.publicKey.export({ format: 'jwk' }) }, strangers.privateKey),
  'a stranger’s key by address (jku)': (claims) =>
    signed(claims, { jku: 'http://127.0.0.1:9/jwks', x5u: 'http://127.0.0.1:9/x' }, strangers.privateKey),
  'a key id that is a path': (claims) => signed(claims, { kid: '../../../../dev/null' }, strangers.privateKey),
  'claims changed after signing': (claims) => {
    const [head, , signature] = signed(claims).split('.');
    return `${head}.${encode({ ...claims, sub: 'admin' })}.${signature}`;
  },
  'another audience': withClaims({ aud: 'someone-else' }),
  'several audiences without saying for whom': withClaims({ aud: ['trestle', 'someone-else'] }),
  'several audiences, for someone else': withClaims({ aud: ['trestle', 'someone-else'], azp: 'someone-else' }),
  'another issuer': withClaims({ iss: 'https://evil.example' }),
  'no issuer': without('iss'),
  'no audience': without('aud'),
  'no subject': without('sub'),
  'a subject that is no text': withClaims({ sub: 7 }),
  'no end': without('exp'),
  'an end that has passed': withClaims({ exp: seconds() - HOUR }),
  'a beginning that is to come': withClaims({ nbf: seconds() + HOUR }),
  'no nonce': without('nonce'),
  'another nonce': withClaims({ nonce: 'another' }),
  'not a token at all': () => 'x.y',
  'two megabytes': (claims) => signed({ ...claims, filling: 'x'.repeat(2 * 1024 * 1024) }),
};

for (const [name, forge] of Object.entries(FORGERIES)) {
  test(`A-32: an ID token with ${name} lets nobody in`, async () => {
    make = forge;
    assert.deepEqual([...(await logIn())], [['error', 'provider_failed']]);
    const users = await accounts.database.read(accounts.database.query.selectFrom('users').select('email').compile());
    assert.ok(users.length <= 1);
  });
}

test('A-33: the issuer’s next key is found, and tokens of a key that it has withdrawn are refused', async (t) => {
  const next = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const nextJwk = { ...next.publicKey.export({ format: 'jwk' }), kid: 'two', alg: 'RS256', use: 'sig' };
  t.after(() => {
    jwks = [publicJwk];
  });
  // A new provider object, as after a restart: keys are asked for anew.
  const restart = () => accounts.reload(settingsAgain());
  jwks = [publicJwk, nextJwk];
  restart();
  make = (claims) => signed(claims, { kid: 'two' }, next.privateKey);
  assert.ok((await logIn()).has('exchange_code'));
  make = signed;
  assert.ok((await logIn()).has('exchange_code'));
  jwks = [nextJwk];
  restart();
  assert.equal((await logIn()).get('error'), 'provider_failed');
});

function settingsAgain() {
  return accountsSettingsOf(
    `{ public_url: "${accounts.url}", frontend_url: "${FRONTEND}", oauth: { oidc: [ { id: acme, issuer: "${issuer.url}", client_id: trestle, client_secret: s3cr3t-of-the-client } ] } }`,
  );
}

test('nothing of what an issuer sent stands in the log', () => {
  assert.match(accounts.log(), /a login elsewhere was not accepted/);
  assert.doesNotMatch(accounts.log(), /eyJ|s3cr3t|the-code/);
});
