import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createLocalJWKSet, importJWK, type JWK, jwtVerify, SignJWT, UnsecuredJWT } from 'jose';
import { AUDIENCE, createSignedTokens } from '../../src/accounts/tokens/signed-tokens.ts';
import { systemRandomness } from '../../src/platform/clock/randomness.ts';
import type { Principal } from '../../src/platform/identity/principal.ts';
import { createSortableIds } from '../../src/platform/ids/sortable-id.ts';
import { createSecretBox } from '../../src/platform/secrets/secret-keys.ts';
import { startAccounts } from '../kit/accounts/start-accounts.ts';
import { createFakeClock } from '../kit/fake-clock.ts';
import { BRIDGE_TOKEN, bearer, CHAT, MASTER_KEY, startPeople } from '../kit/start-people.ts';

const people = await startPeople({ after }, { bridge: BRIDGE_TOKEN, completions: MASTER_KEY });
const { url, send, chat, rpc, newPerson, newToken, pause } = people;

const exchange = (headers: Readonly<Record<string, string>>, body: object = {}) =>
  send('POST', '/api/auth/token/jwt', headers, body);
const bridgeStatus = async (token: string) => (await rpc('acp.capabilities', bearer(token))).status;

test('a cookie is exchanged for a token that opens bridge and completions for five minutes, and never accounts', async () => {
  const operator = await newPerson('operator');
  const own = { cookie: operator.cookie, 'sec-fetch-site': 'same-origin' };
  const { status, body, response } = await exchange(own);
  assert.equal(status, 200, JSON.stringify(body));
  assert.deepEqual([body.token_type, body.expires_in], ['Bearer', 300]);
  assert.equal(await bridgeStatus(body.access_token), 200);
  assert.equal(await chat(bearer(body.access_token)), 200);
  assert.equal((await send('GET', '/api/auth/session', bearer(body.access_token))).status, 401);
  assert.equal((await exchange(bearer(body.access_token))).status, 401, 'it does not renew itself');
  assert.equal(response.headers.get('cache-control'), 'no-store');
  const crossSite = await exchange({ cookie: operator.cookie, origin: 'http://localhost:3000' });
  assert.deepEqual([crossSite.status, crossSite.body.error], [403, 'cross_site_request']);
  assert.equal((await exchange({})).status, 401);

  const keys = createLocalJWKSet((await send('GET', '/.well-known/jwks.json')).body);
  const { payload, protectedHeader } = await jwtVerify(body.access_token, keys, { audience: AUDIENCE });
  assert.equal(protectedHeader.alg, 'ES256');
  const { sub, role, teams, plan, scope } = payload;
  assert.deepEqual({ sub, role, teams, plan }, { sub: `user:${operator.id}`, role: 'operator', teams: [], plan: '' });
  assert.equal(scope, body.scope);
});

test('a signed token has at most the scopes of its credential, and ends with it', async () => {
  const operator = await newPerson('operator');
  const narrow = (await exchange(bearer(operator.token), { scopes: ['completions'] })).body.access_token;
  assert.deepEqual([await chat(bearer(narrow)), await bridgeStatus(narrow)], [200, 403]);
  const personal = await newToken(operator, ['completions']);
  assert.equal((await exchange(bearer(personal.token), { scopes: ['bridge'] })).status, 403);
  const ofToken = (await exchange(bearer(personal.token))).body.access_token;
  assert.equal(await chat(bearer(ofToken)), 200);
  await send('DELETE', `/api/auth/tokens/${personal.id}`, bearer(operator.token));
  assert.equal(await chat(bearer(ofToken)), 401, 'the access token is revoked');
  await send('DELETE', '/api/auth/session', bearer(operator.token));
  assert.equal(await chat(bearer(narrow)), 401, 'the login has ended');
  const paused = await newPerson('operator');
  const token = (await exchange(bearer(paused.token))).body.access_token;
  assert.equal(await bridgeStatus(token), 200);
  await pause(paused.id);
  assert.deepEqual([await chat(bearer(token)), await bridgeStatus(token)], [401, 401], 'paused: immediately here');
});

test('forged tokens open nothing: no algorithm, the public key as a secret, another signature', async () => {
  const operator = await newPerson('operator');
  const token: string = (await exchange(bearer(operator.token))).body.access_token;
  const [header = '', payload = '', signature = ''] = token.split('.');
  const { keys } = (await send('GET', '/.well-known/jwks.json')).body as { readonly keys: readonly JWK[] };
  const [key] = keys;
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString());
  const secret = new TextEncoder().encode(JSON.stringify(key));
  const evil = Buffer.from(JSON.stringify({ ...claims, sub: 'user:usr_other' })).toString('base64url');
  const forged = {
    none: new UnsecuredJWT(claims).encode(),
    'no signature': `${header}.${payload}.`,
    'public key as secret': await new SignJWT(claims)
      .setProtectedHeader({ alg: 'HS256', kid: key?.kid ?? '', typ: 'at+jwt' })
      .sign(secret),
    'other claims': `${header}.${evil}.${signature}`,
    'too long': `${header}.${'A'.repeat(8000)}.${signature}`,
  };
  for (const [name, one] of Object.entries(forged)) {
    assert.deepEqual([await bridgeStatus(one), await chat(bearer(one))], [401, 401], name);
  }
  const response = await fetch(`${url}/v1/chat/completions?access_token=${token}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(CHAT),
  });
  assert.equal(response.status, 401, 'not in the address');
});

test('wrong issuer, audience or type, expired tokens and keys that were rotated away are refused', async (t) => {
  const accounts = await startAccounts(t);
  const { database } = accounts;
  const secretBox = createSecretBox([new Uint8Array(32).fill(7)], systemRandomness);
  const clock = createFakeClock();
  const makeId = createSortableIds(clock, systemRandomness);
  const create = (issuer: string) =>
    createSignedTokens({ database, secretBox, publicUrl: () => issuer, clock, makeId });
  const signed = create('https://one.example');
  // It has read the keys a moment before the first one was made.
  const early = create('https://one.example');
  assert.deepEqual(await early.keySet(), { keys: [] });
  const principal = { id: 'user:usr_1', role: 'user', teams: [], scopes: new Set() } as unknown as Principal;
  const { token } = await signed.issue(principal, ['completions']);
  assert.deepEqual(await signed.read(token), {
    owner: 'user:usr_1',
    credential: '',
    scopes: ['completions'],
    team: '',
    role: 'user',
    teams: [],
    plan: '',
    issuedAt: clock.now(),
    expiresAt: clock.now() + 300_000,
  });
  assert.equal(await create('https://two.example').read(token), undefined, 'another issuer');
  assert.equal((await create('https://two.example').read(token, 'instance'))?.owner, 'user:usr_1', 'another instance');
  assert.equal((await early.read(token, 'instance'))?.owner, 'user:usr_1', 'a key that is newer than the last look');

  const [row] = await database.query.selectFrom('signing_keys').selectAll().execute();
  assert.ok(row !== undefined && !row.private_key.includes('"d"'), 'sealed');
  assert.ok(!('d' in ((await signed.keySet()).keys[0] ?? {})), 'only the public half is published');
  const opened = Buffer.from(secretBox.open(row.private_key, `signing-key:${row.id}`)).toString();
  const privateKey = await importJWK(JSON.parse(opened) as JWK, 'ES256');
  const sign = (audience: string, typ: string, claims = {}) =>
    new SignJWT({
      sid: '',
      scope: 'completions',
      team: '',
      role: 'user',
      teams: [],
      team_limits: [],
      plan: '',
      ...claims,
    })
      .setProtectedHeader({ alg: 'ES256', kid: row.id, typ })
      .setIssuer('https://one.example')
      .setAudience(audience)
      .setSubject('user:usr_1')
      .setIssuedAt(Math.floor(clock.now() / 1000))
      .setExpirationTime(Math.floor(clock.now() / 1000) + 60)
      .sign(privateKey);
  assert.notEqual(await signed.read(await sign(AUDIENCE, 'at+jwt')), undefined);
  assert.equal(await signed.read(await sign('another', 'at+jwt')), undefined, 'another audience');
  assert.equal(await signed.read(await sign(AUDIENCE, 'JWT')), undefined, 'another type');
  const day50 = { usd: 50, period: 'day' };
  for (const [limits, isRead] of [
    [[null], true],
    [[{ plan: 'pro', budget: day50 }], true],
    [[], false],
    [undefined, false],
    [[{ plan: 7 }], false],
    [[{ budget: { ...day50, usd: -1 } }], false],
    [[{ budget: { ...day50, period: 'year' } }], false],
    [[{ budget: 'none' }], false],
  ] as const) {
    const said = await signed.read(await sign(AUDIENCE, 'at+jwt', { teams: ['team_1'], team_limits: limits }));
    assert.equal(said !== undefined, isRead, `a team with the limits ${JSON.stringify(limits)}`);
  }

  await clock.advance(299_000);
  assert.notEqual(await signed.read(token), undefined);
  await clock.advance(2000);
  assert.equal(await signed.read(token), undefined, 'expired');

  const day = 24 * 3_600_000;
  await clock.advance(30 * day - 301_000);
  const kids = async () => (await signed.keySet()).keys.map(({ kid }) => kid);
  assert.deepEqual(await kids(), [row.id]);
  const next = (await signed.issue(principal, ['completions'])).token;
  const both = await kids();
  assert.equal(both.length, 2, 'the old key stays published for a day');
  assert.notEqual(await signed.read(next), undefined);
  const late = await sign(AUDIENCE, 'at+jwt');
  assert.notEqual(await signed.read(late), undefined, 'within the overlap');
  await clock.advance(day);
  assert.deepEqual(await kids(), [both[1]]);
  assert.equal(await signed.read(await sign(AUDIENCE, 'at+jwt')), undefined, 'the key was rotated away');
});
