import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createBridgeAccess } from '../../src/bridge/access.ts';
import { MAIN } from '../../src/bridge/principal.ts';
import type { RequestHead } from '../../src/platform/http/surface.ts';
import type { Credential } from '../../src/platform/identity/principal.ts';
import { GOOD_PASSWORD } from '../kit/accounts/accounts-client.ts';
import { BRIDGE_TOKEN, bearer, CHAT, type Headers, MASTER_KEY, startPeople } from '../kit/start-people.ts';
import { until } from '../kit/until.ts';

const people = await startPeople({ after }, { bridge: BRIDGE_TOKEN, completions: MASTER_KEY });
const { url, send, chat, rpc, logIn, asRoot, newPerson, newToken, setRole, pause, openSocket } = people;

test('a personal access token opens what its scopes name, and nothing else', async () => {
  const admin = await newPerson('operator');
  const all = (await newToken(admin, ['bridge', 'completions', 'account'])).token;
  for (const [scope, expected] of Object.entries({
    completions: { chat: 200, rpc: 403, account: 403 },
    bridge: { chat: 403, rpc: 200, account: 403 },
    account: { chat: 403, rpc: 403, account: 200 },
  })) {
    const { token } = await newToken(admin, [scope]);
    const headers = bearer(token);
    const found = {
      chat: await chat(headers),
      rpc: (await rpc('acp.capabilities', headers)).status,
      account: (await send('GET', '/api/auth/session', headers)).status,
    };
    assert.deepEqual(found, expected, scope);
  }
  assert.equal(await chat(bearer(all)), 200);
  assert.equal((await rpc('acp.capabilities', { authorization: all })).status, 200);
  const refused = await rpc('acp.capabilities', bearer((await newToken(admin, ['completions'])).token));
  assert.deepEqual([refused.body.error.code, refused.body.error.data.code], [-32004, 'FORBIDDEN']);
});

test('a person whose plan does not include agents is refused on the bridge, by login and by token', async () => {
  const user = await newPerson();
  const { token } = await newToken(user, ['bridge', 'completions']);
  for (const headers of [bearer(user.token), bearer(token)]) {
    assert.equal((await rpc('acp.capabilities', headers)).status, 403);
    assert.equal(await chat(headers), 200);
  }
});

test('calls with a token are those of its person: the plan of the person limits them', async () => {
  const user = await newPerson();
  const { token } = await newToken(user, ['completions']);
  const other = { ...CHAT, model: 'openai/gpt-4o' };
  assert.equal((await send('POST', '/v1/chat/completions', bearer(token), other)).body.error.code, 'model_not_allowed');
  const { response } = await send('POST', '/v1/chat/completions', bearer(token), CHAT);
  // The free plan allows 20 requests a minute, with all tokens together.
  const left = Number(response.headers.get('x-ratelimit-remaining-requests'));
  const second = await newToken(user, ['completions']);
  const next = await send('POST', '/v1/chat/completions', bearer(second.token), CHAT);
  assert.equal(Number(next.response.headers.get('x-ratelimit-remaining-requests')), left - 1);
});

test('a token stops with its revocation, and a token that never was is refused, everywhere', async () => {
  const operator = await newPerson('operator');
  const { id, token } = await newToken(operator, ['bridge', 'completions', 'account']);
  const socket = await openSocket(bearer(token));
  assert.equal(await chat(bearer(token)), 200);
  assert.equal((await send('DELETE', `/api/auth/tokens/${id}`, bearer(operator.token))).status, 204);
  for (const dead of [token, `tpt_${'a'.repeat(43)}`, `${token}x`, 'tpt_']) {
    assert.equal(await chat(bearer(dead)), 401);
    assert.equal((await rpc('acp.capabilities', bearer(dead))).status, 401);
    assert.equal((await send('GET', '/api/auth/session', bearer(dead))).status, 401);
  }
  assert.equal(await socket.closed(), 1008);
});

test('a pause counts from the next request on, for logins, cookies and tokens, and closes sockets', async () => {
  const operator = await newPerson('operator');
  const { token } = await newToken(operator, ['bridge', 'completions']);
  const sockets = [await openSocket(bearer(token)), await openSocket(bearer(operator.token))];
  const own = { cookie: operator.cookie, 'sec-fetch-site': 'same-origin' };
  for (const headers of [bearer(token), bearer(operator.token), own]) assert.equal(await chat(headers), 200);
  assert.equal((await pause(operator.id)).status, 200);
  for (const headers of [bearer(token), bearer(operator.token), own]) assert.equal(await chat(headers), 401);
  assert.equal((await rpc('acp.capabilities', bearer(token))).status, 401);
  for (const socket of sockets) assert.equal(await socket.closed(), 1008);
});

test('a new role counts from the next request on, and closes the sockets of the old one', async () => {
  const operator = await newPerson('operator');
  const { token } = await newToken(operator, ['bridge', 'completions', 'admin']);
  const socket = await openSocket(bearer(token));
  assert.equal((await rpc('acp.capabilities', bearer(token))).status, 200);
  await setRole(operator.id, 'user');
  assert.equal((await rpc('acp.capabilities', bearer(token))).status, 403);
  assert.equal((await send('GET', '/api/auth/admin/users', bearer(token))).status, 403);
  assert.equal(await socket.closed(), 1008);
  await setRole(operator.id, 'readonly');
  assert.equal(await chat(bearer(token)), 403);
  assert.equal((await send('GET', '/v1/models', bearer(token))).status, 200);
});

test('an operator who may no longer see the work of everyone loses the sockets that do, and nobody else loses any', async () => {
  const operator = await newPerson('operator');
  const { token } = await newToken(operator, ['bridge', 'admin']);
  const ownWork = await newToken(operator, ['bridge']);
  const page = { cookie: operator.cookie, origin: url };
  const seeing = [
    await openSocket(bearer(operator.token)),
    await openSocket(bearer(token)),
    await openSocket(page, '/api/bridge/live'),
  ];
  const others = [await openSocket(bearer(ownWork.token)), await openSocket(asRoot)];
  const change = async (mayRead: boolean) => {
    const { version, matrix } = (await send('GET', '/api/auth/admin/settings', asRoot)).body;
    const next = { version, matrix: { ...matrix, 'admin.bridge.read': { operator: mayRead } } };
    assert.equal((await send('POST', '/api/auth/admin/settings', asRoot, next)).status, 200);
  };
  await change(false);
  for (const socket of seeing) assert.equal(await socket.closed(), 1008);
  const blind = await openSocket(bearer(token));
  await change(true);
  for (const socket of [...others, blind]) {
    socket.call('acp.capabilities', {});
    await until('the response on a socket that stays open', () => socket.messages.length > 0);
  }
});

test('a logout closes the sockets of that login, and those of no other', async () => {
  const operator = await newPerson('operator');
  const other = await logIn(operator.name);
  const [ended, kept] = [await openSocket(bearer(operator.token)), await openSocket(bearer(other.token))];
  const page = await openSocket({ cookie: operator.cookie, origin: url }, '/api/bridge/live');
  await send('DELETE', '/api/auth/session', bearer(operator.token));
  assert.equal(await page.closed(), 1008);
  assert.equal(await ended.closed(), 1008);
  assert.equal((await rpc('acp.capabilities', bearer(operator.token))).status, 401);
  await send('POST', `/api/auth/admin/users/${operator.id}/end-sessions`, asRoot, {});
  assert.equal(await kept.closed(), 1008);
});

test('the cookie counts for requests of our own pages, and never on /acp', async () => {
  const { cookie } = await newPerson('operator');
  const own = { origin: url };
  const write: readonly (readonly [Headers, number])[] = [
    [own, 200],
    [{ 'sec-fetch-site': 'same-origin' }, 200],
    [{ ...own, 'sec-fetch-site': 'same-origin' }, 200],
    [{}, 403],
    [{ 'sec-fetch-site': 'none' }, 403],
    // Another port of this host is the same site, and gets the same cookies.
    [{ origin: 'http://127.0.0.1:3000', 'sec-fetch-site': 'same-site' }, 403],
    [{ origin: 'http://127.0.0.1:3000' }, 403],
    [{ origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' }, 403],
    [{ origin: 'null' }, 403],
    [{ ...own, 'sec-fetch-site': 'cross-site' }, 403],
  ];
  for (const [headers, status] of write) {
    assert.equal(await chat({ cookie, ...headers }), status, JSON.stringify(headers));
  }
  const read: readonly (readonly [Headers, number])[] = [
    [{}, 200],
    [{ 'sec-fetch-site': 'none' }, 200],
    [{ 'sec-fetch-site': 'same-origin' }, 200],
    [{ 'sec-fetch-site': 'same-site' }, 403],
    [{ 'sec-fetch-site': 'cross-site' }, 403],
    [{ origin: 'http://127.0.0.1:3000' }, 403],
  ];
  for (const path of ['/v1/models', '/api/auth/session', '/usage', '/api/bridge/sessions']) {
    for (const [headers, status] of read) {
      const found = await send('GET', path, { cookie, ...headers });
      assert.equal(found.status, status, `${path} ${JSON.stringify(headers)}`);
    }
  }
  assert.equal((await rpc('acp.capabilities', { cookie, ...own })).status, 401);
  assert.equal((await send('GET', '/api/ping', { cookie, ...own })).status, 401);
  await assert.rejects(openSocket({ cookie, ...own }), /401/);
  // An upgrade has no Sec-Fetch-Site: it must name our origin.
  for (const headers of [{}, { origin: 'http://127.0.0.1:3000' }, { 'sec-fetch-site': 'same-origin' }] as Headers[]) {
    await assert.rejects(openSocket({ cookie, ...headers }, '/api/bridge/live'), /403/, JSON.stringify(headers));
  }
});

test('a bearer token wins over the cookie, even a wrong one', async () => {
  const { cookie } = await newPerson();
  for (const wrong of ['Bearer wrong', 'wrong', 'Basic abc', `Bearer tpt_${'a'.repeat(43)}`, 'Bearer tsk_none']) {
    const headers = { cookie, origin: url, authorization: wrong };
    assert.equal(await chat(headers), 401, wrong);
    assert.equal((await send('GET', '/api/auth/session', headers)).status, 401, wrong);
  }
  const master = { cookie, origin: 'https://evil.example', ...bearer(MASTER_KEY) };
  assert.equal((await send('GET', '/keys', master)).status, 200);
});

test('no token makes another, and none but root makes service accounts with what they must not have', async () => {
  const user = await newPerson();
  const { token } = await newToken(user, ['account', 'completions']);
  const more = { name: 'more', scopes: ['completions'] };
  assert.equal((await send('POST', '/api/auth/tokens', bearer(token), more)).body.error, 'login_required');
  assert.equal((await send('POST', '/api/auth/keys', bearer(token), { name: 'k' })).body.error, 'login_required');
  const link = await send('GET', '/api/auth/oauth/login/github?link=1', bearer(token));
  assert.equal(link.body.error, 'login_required', 'an access token adds no means of login');
  const admin = { name: 'a', scopes: ['admin'] };
  assert.equal((await send('POST', '/api/auth/tokens', bearer(user.token), admin)).status, 403);
  assert.equal((await send('POST', '/api/auth/admin/services', bearer(user.token), { name: 'ci' })).status, 403);
  const { service } = (await send('POST', '/api/auth/admin/services', asRoot, { name: 'ci' })).body;
  const tokens = `/api/auth/admin/services/${service.id}/tokens`;
  assert.equal((await send('POST', tokens, asRoot, { name: 't', scopes: ['account'] })).status, 403);
  const made = (await send('POST', tokens, asRoot, { name: 't', scopes: ['completions', 'bridge'] })).body;
  assert.equal(await chat(bearer(made.token)), 200);
  assert.equal((await send('GET', '/api/auth/session', bearer(made.token))).status, 403);
  assert.equal((await rpc('acp.capabilities', bearer(made.token))).status, 403);
  assert.equal((await send('DELETE', `/api/auth/admin/services/${service.id}`, asRoot)).status, 204);
  assert.equal(await chat(bearer(made.token)), 401);
});

test('an open bridge and open completions know people too, and take a dead token for no token nowhere', async () => {
  const open = await startPeople({ after }, { bridge: '', completions: '' });
  const made = await open.send('POST', '/api/auth/tokens', open.asRoot, {
    name: 't',
    scopes: ['completions'],
  });
  const capabilities = { jsonrpc: '2.0', id: '1', method: 'acp.capabilities', params: {} };
  const asked = async (headers: Headers) => [
    (await open.send('POST', '/v1/chat/completions', headers, CHAT)).status,
    (await open.send('POST', '/acp/rpc', headers, capabilities)).status,
  ];
  assert.deepEqual(await asked({}), [200, 200]);
  assert.deepEqual(await asked(bearer('any-word')), [200, 200]);
  // Its scope holds where no credential is needed at all.
  assert.deepEqual(await asked(bearer(made.body.token)), [200, 403]);
  await open.send('DELETE', `/api/auth/tokens/${made.body.id}`, open.asRoot);
  assert.deepEqual(await asked(bearer(made.body.token)), [401, 401]);
});

test('a login that is in use ends with the next request, however it ends', async () => {
  const ways: Record<string, (user: Awaited<ReturnType<typeof newPerson>>) => Promise<{ status: number }>> = {
    logout: ({ token }) => send('DELETE', '/api/auth/session', bearer(token)),
    'ended by another login': async ({ name }) =>
      send('DELETE', '/api/auth/sessions', bearer((await logIn(name)).token)),
    pause: ({ id }) => pause(id),
    'new password': async ({ name }) =>
      send('POST', '/api/auth/password/change', bearer((await logIn(name)).token), {
        currentPassword: GOOD_PASSWORD,
        newPassword: `${GOOD_PASSWORD} again`,
      }),
  };
  for (const [way, end] of Object.entries(ways)) {
    const user = await newPerson();
    const cookie = { cookie: user.cookie, 'sec-fetch-site': 'same-origin' };
    // The second call finds the login in memory.
    for (const headers of [bearer(user.token), bearer(user.token), cookie, cookie]) {
      assert.equal(await chat(headers), 200, way);
    }
    const { status } = await end(user);
    assert.ok(status < 300, `${way}: ${status}`);
    for (const headers of [bearer(user.token), cookie]) assert.equal(await chat(headers), 401, way);
  }
});

test('the cookie of a login that is in use still needs a page of our own', async () => {
  const { cookie } = await newPerson();
  assert.equal(await chat({ cookie, 'sec-fetch-site': 'same-origin' }), 200);
  assert.equal(await chat({ cookie, 'sec-fetch-site': 'cross-site' }), 403);
});

test('only administrators with a recent login, and the operator, install agents and log in to them', async () => {
  const [install, login] = ['/api/bridge/agents/nobody/install', '/api/bridge/agents/builtin/login'];
  const [user, operator, admin] = [
    await newPerson('user', 'worker'),
    await newPerson('operator'),
    await newPerson('admin'),
  ];
  const { token } = await newToken(admin, ['bridge', 'admin']);
  const inTeam = { ...bearer(admin.token), 'x-team': await people.newTeam({ plan: 'worker' }, admin) };
  for (const [headers, expected] of [
    [bearer(user.token), [403, 'forbidden']],
    [bearer(operator.token), [403, 'forbidden']],
    [inTeam, [403, 'forbidden']],
    [bearer(token), [403, 'login_required']],
    [{}, [401, 'unauthorized']],
    [bearer(admin.token), [404, 'agent_unknown']],
    [bearer(BRIDGE_TOKEN), [404, 'agent_unknown']],
  ] as const) {
    const { status, body } = await send('POST', install, headers);
    assert.deepEqual([status, body.error], expected);
    const next = await send('POST', login, headers, {});
    assert.deepEqual([next.status, next.body.error], status === 404 ? [409, 'agent_without_login'] : expected);
  }
});

test('an administrator whose login is older than five minutes is asked to confirm it', async () => {
  let now = 0;
  const owner = { teams: [] } as unknown as Credential['owner'];
  const credential = { id: 'ses_1', owner, loggedInAt: 0, isLive: () => true, onEnd: () => () => undefined };
  const access = createBridgeAccess({
    settings: {
      bridge: { auth_token: BRIDGE_TOKEN, review_auth_token: '', allowed_origins: [], app_origin: '' },
      distributed: { task_forward_token: '', local_node_id: '' },
    },
    identify: () => ({ ...MAIN, id: 'user:usr_1', role: 'admin', credential }),
    throttle: { note: () => ({ firstOverLimit: false }) },
    commandToken: 'command-token-3f2a',
    clock: { now: () => now },
    onFlood: () => undefined,
    onIgnoredForward: () => undefined,
  });
  const head = { method: 'POST', path: '/api/bridge/agents/x/install', headers: bearer('login'), address: '127.0.0.1' };
  now = 5 * 60_000;
  await access.freshAdmin(head as unknown as RequestHead);
  now += 1;
  await assert.rejects(async () => access.freshAdmin(head as unknown as RequestHead), {
    code: 'REAUTHENTICATION_REQUIRED',
  });
});
