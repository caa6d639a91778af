import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { accountsSettingsOf, startAccounts } from '../kit/accounts/start-accounts.ts';
import { startProgram } from '../kit/running-program.ts';

/** Which pages may call which rows (CORS), for every row of the description that the program itself gives. */

const CONSOLE = 'https://console.example';
const PLAYGROUND = 'http://localhost:5173';
const LISTS: Readonly<Record<string, string>> = { accounts: CONSOLE, completions: PLAYGROUND };
const NEVER = ['null', 'https://evil.example', `${CONSOLE}:8443`, `${CONSOLE}.evil.example`, 'http://localhost:5174'];

interface Row {
  readonly method: string;
  readonly path: string;
  readonly service: string;
}

const program = await startProgram(
  { after },
  {
    environment: {
      COMPLETIONS_MASTER_KEY: 'mk-4711-of-nobody-at-all',
      TRESTLE_ACCOUNTS_ALLOWED_ORIGINS: CONSOLE,
      TRESTLE_COMPLETIONS_ALLOWED_ORIGINS: PLAYGROUND,
    },
  },
);
const rows = await rowsOf(program.url);

async function rowsOf(url: string): Promise<readonly Row[]> {
  const { paths } = (await (await fetch(`${url}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, { tags: string[] }>>;
  };
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { tags }]) => ({
      method: method.toUpperCase(),
      path: path.replaceAll(/\{\w+\}/g, 'nobody'),
      service: tags[0] ?? '',
    })),
  );
}

const preflight = (url: string, { method, path }: Row, origin: string) =>
  fetch(`${url}${path}`, {
    method: 'OPTIONS',
    headers: {
      origin,
      'access-control-request-method': method,
      'access-control-request-headers': 'authorization,content-type,x-stainless-os',
    },
  });

const call = (url: string, { method, path }: Row, origin: string) =>
  fetch(`${url}${path}`, { method, redirect: 'manual', headers: { origin } });

async function inspect(response: Response) {
  await response.body?.cancel();
  const { status, headers } = response;
  assert.equal(headers.get('access-control-allow-credentials'), null);
  return { status, allowed: headers.get('access-control-allow-origin'), headers };
}

test('DA-19: a listed origin may call every row of its service and of no other, and read the response', async () => {
  for (const service of Object.keys(LISTS)) assert.ok(rows.filter((row) => row.service === service).length > 10);
  for (const row of rows) {
    for (const [service, origin] of Object.entries(LISTS)) {
      const name = `${row.method} ${row.path} from ${origin}`;
      const asked = await inspect(await preflight(program.url, row, origin));
      const called = await inspect(await call(program.url, row, origin));
      if (row.service === service) {
        assert.deepEqual([asked.status, asked.allowed], [204, origin], name);
        const methods = asked.headers.get('access-control-allow-methods')?.split(', ');
        assert.ok(methods?.includes(row.method), name);
        assert.match(asked.headers.get('access-control-allow-headers') ?? '', /authorization.*x-stainless-os/, name);
        assert.equal(called.allowed, origin, name);
        assert.match(called.headers.get('access-control-expose-headers') ?? '', /X-Request-Id, Retry-After/, name);
      } else if (!row.path.startsWith('/acp')) {
        assert.deepEqual([asked.allowed, called.allowed], [null, null], name);
        assert.ok(asked.status >= 400, name);
      }
    }
  }
});

test('DA-19: null, other ports and all other origins are refused at every row', async () => {
  for (const row of rows.filter(({ service }) => service in LISTS)) {
    for (const origin of NEVER) {
      const name = `${row.method} ${row.path} from ${origin}`;
      const asked = await inspect(await preflight(program.url, row, origin));
      assert.deepEqual([asked.status, asked.allowed], [403, null], name);
      assert.match(asked.headers.get('vary') ?? '', /Origin/, name);
    }
    const called = await inspect(await call(program.url, row, NEVER[0] as string));
    assert.equal(called.allowed, null);
    assert.match(called.headers.get('vary') ?? '', /Origin/);
  }
});

test('DA-19: our own origin is always allowed, and OPTIONS without a preflight is answered as before', async () => {
  const login = { method: 'POST', path: '/api/auth/login', service: 'accounts' };
  assert.equal((await inspect(await call(program.url, login, program.url))).allowed, program.url);
  const plain = await fetch(`${program.url}/api/auth/login`, { method: 'OPTIONS' });
  assert.deepEqual([plain.status, plain.headers.get('allow')], [405, 'POST']);
  const unknown = await fetch(`${program.url}/api/auth/nothing`, { headers: { origin: CONSOLE } });
  assert.deepEqual([unknown.status, unknown.headers.get('access-control-allow-origin')], [404, CONSOLE]);
});

test('DA-19: no origin is allowed unless it is listed, and a reload changes the list', async (t) => {
  const accounts = await startAccounts(t, { settings: '{ public_url: "https://accounts.example" }' });
  const row = { method: 'POST', path: '/api/auth/login', service: 'accounts' };
  const allowed = async (origin: string) => (await inspect(await call(accounts.url, row, origin))).allowed;
  assert.deepEqual([await allowed(CONSOLE), await allowed('http://localhost:3000')], [null, null]);
  assert.equal(await allowed('https://accounts.example'), 'https://accounts.example', 'the public address is our own');
  accounts.reload(accountsSettingsOf(`{ allowed_origins: [${CONSOLE}] }`));
  assert.equal(await allowed(CONSOLE), CONSOLE);
  assert.throws(() => accountsSettingsOf('{ allowed_origins: ["http://localhost:*"] }'), /is not an origin/);
  assert.throws(() => accountsSettingsOf('{ allowed_origins: ["*"] }'), /wildcard/);
});

test('DA-19: a cookie does not count for a page of another origin, listed or not', async (t) => {
  const accounts = await startAccounts(t, { settings: `{ allowed_origins: [${CONSOLE}] }` });
  const ann = await accounts.loggedIn('Ann');
  const cookie = `xc_session=${ann.token}`;
  const write = (origin: string) => accounts.call('DELETE', 'sessions', { cookie, headers: { origin } });
  const refused = await write(CONSOLE);
  assert.deepEqual([refused.status, refused.body.error], [403, 'cross_site_request']);
  assert.equal((await write(accounts.url)).status, 204);
  const read = await accounts.get('session', { cookie, headers: { origin: CONSOLE } });
  assert.equal(read.headers.get('access-control-allow-credentials'), null, 'so a browser hides the response');
  const withToken = await accounts.get('session', { token: ann.token, headers: { origin: CONSOLE } });
  assert.deepEqual([withToken.status, withToken.headers.get('access-control-allow-origin')], [200, CONSOLE]);
});
