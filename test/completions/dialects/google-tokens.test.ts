import assert from 'node:assert/strict';
import { generateKeyPairSync, verify } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { createAuthoriseUpstream } from '../../../src/completions/dialects/authorise-upstream.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { until } from '../../kit/until.ts';

const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });

/** A token server of Google's kind. */
let server: Server;
let tokenUrl: string;
let forms: URLSearchParams[] = [];
let answer: (number: number) => { status: number; body: string } | undefined;

before(async () => {
  server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    forms.push(new URLSearchParams(Buffer.concat(chunks).toString()));
    const said = answer(forms.length);
    if (said !== undefined) response.writeHead(said.status, { 'content-type': 'application/json' }).end(said.body);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  tokenUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/token`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  forms = [];
  answer = (number) => ({ status: 200, body: JSON.stringify({ access_token: `token-${number}`, expires_in: 3600 }) });
});

function serviceAccount(): string {
  return JSON.stringify({
    type: 'service_account',
    client_email: 'robot@project.iam.gserviceaccount.com',
    private_key_id: 'kid-1',
    private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
    token_uri: tokenUrl,
  });
}

function start() {
  const clock = createFakeClock(Date.UTC(2026, 0, 1));
  const authorise = createAuthoriseUpstream({ clock, fetch, readFile: (path) => readFile(path, 'utf8') });
  const authorisation = async (credentials: { key: string; googleCredentialsFile?: string }) =>
    (await authorise({ dialect: 'google-vertex', credentials, url: 'https://v', headers: {}, body: '' })).authorization;
  return { clock, authorisation };
}

test('a service account is exchanged for an access token by a signed claim', async () => {
  const { authorisation } = start();
  assert.equal(await authorisation({ key: serviceAccount() }), 'Bearer token-1');
  const [form] = forms;
  assert.equal(form?.get('grant_type'), 'urn:ietf:params:oauth:grant-type:jwt-bearer');
  const [header = '', claims = '', signature = ''] = (form?.get('assertion') ?? '').split('.');
  const read = (part: string) => JSON.parse(Buffer.from(part, 'base64url').toString());
  assert.deepEqual(read(header), { alg: 'RS256', typ: 'JWT', kid: 'kid-1' });
  const now = Date.UTC(2026, 0, 1) / 1000;
  assert.deepEqual(read(claims), {
    iss: 'robot@project.iam.gserviceaccount.com',
    scope: 'https://www.googleapis.com/auth/cloud-platform',
    aud: tokenUrl,
    iat: now,
    exp: now + 3600,
  });
  const signed = Buffer.from(`${header}.${claims}`);
  assert.ok(verify('RSA-SHA256', signed, publicKey, Buffer.from(signature, 'base64url')));
});

test('a token is fetched once for many calls, and again shortly before it ends', async () => {
  const { clock, authorisation } = start();
  const credentials = { key: serviceAccount() };
  const all = await Promise.all(Array.from({ length: 20 }, () => authorisation(credentials)));
  assert.deepEqual([...new Set(all)], ['Bearer token-1']);
  await clock.advance(54 * 60_000);
  assert.equal(await authorisation(credentials), 'Bearer token-1');
  await clock.advance(2 * 60_000);
  assert.equal(await authorisation(credentials), 'Bearer token-2');
});

test('the account may be in a file, and may be a person’s login', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-google-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, 'credentials.json');
  const login = {
    type: 'authorized_user',
    client_id: 'c',
    client_secret: 's',
    refresh_token: 'r',
    token_uri: tokenUrl,
  };
  await writeFile(file, JSON.stringify(login));
  const { authorisation } = start();
  assert.equal(await authorisation({ key: '', googleCredentialsFile: file }), 'Bearer token-1');
  assert.deepEqual(Object.fromEntries(forms[0] ?? []), {
    grant_type: 'refresh_token',
    refresh_token: 'r',
    client_id: 'c',
    client_secret: 's',
  });
});

test('a token that cannot be had is our own trouble, shows no secret, and is asked for again', async () => {
  const { authorisation } = start();
  const credentials = { key: serviceAccount() };
  const refusals = [
    { status: 401, body: '{"error":"invalid_grant"}' },
    { status: 200, body: '{}' },
    { status: 200, body: '<html>' },
  ];
  for (const refusal of refusals) {
    answer = () => refusal;
    await assert.rejects(authorisation(credentials), (error: Error & { code?: string; details?: unknown }) => {
      assert.equal(error.code, 'UPSTREAM_AUTHENTICATION');
      assert.ok(!JSON.stringify(error.details).includes('PRIVATE'));
      return true;
    });
  }
  answer = () => ({ status: 200, body: '{"access_token":"late"}' });
  assert.equal(await authorisation(credentials), 'Bearer late');
  await assert.rejects(authorisation({ key: '{"type":"service_account"}' }), { code: 'UPSTREAM_AUTHENTICATION' });
  const nowhere = { key: '', googleCredentialsFile: '/nonexistent/credentials.json' };
  await assert.rejects(authorisation(nowhere), { code: 'UPSTREAM_AUTHENTICATION' });
});

test('a token server that never answers is given up', async () => {
  const { clock, authorisation } = start();
  answer = () => undefined;
  const waiting = assert.rejects(authorisation({ key: serviceAccount() }), { code: 'UPSTREAM_AUTHENTICATION' });
  await until('the request for a token', () => forms.length > 0);
  await clock.advance(10_000);
  await waiting;
});
