import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WebSocket } from 'ws';
import type { ServiceName } from '../../src/system/settings.ts';
import { startSystem } from '../../src/system/start-system.ts';
import { GOOD_PASSWORD } from './accounts/accounts-client.ts';
import { inTime } from './in-time.ts';
import { resolveTrestle } from './resolve-trestle.ts';
import type { Scope } from './running-program.ts';
import { silentLogger } from './silent-logger.ts';

export const MASTER_KEY = 'master-key-5d4c3b2a1f0e9';
export const BRIDGE_TOKEN = 'bridge-token-9e8d7c6b5a4f3';
export type Headers = Readonly<Record<string, string>>;
// biome-ignore lint/suspicious/noExplicitAny: tests look at answers of every shape.
export type Json = any;

export const bearer = (token: string): Headers => ({ authorization: `Bearer ${token}` });
export const CHAT = { model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }] };

interface MoreSettings extends Readonly<Record<string, object>> {
  readonly plans?: object;
  readonly completions?: object;
}

/** All three services in this process, with a first administrator, and the calls that people make. */
export async function startPeople(
  scope: Scope,
  tokens: { readonly bridge: string; readonly completions: string },
  { plans = {}, completions = {}, ...more }: MoreSettings = {},
  environment: Readonly<Record<string, string>> = {},
) {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-people-'));
  const { settings, problems } = resolveTrestle(
    JSON.stringify({
      listen: '127.0.0.1:0',
      data_dir: folder,
      bridge: { auth_token: tokens.bridge, trust_users: true },
      agents: { builtin: { model: 'demo/echo' } },
      completions: {
        master_key: tokens.completions,
        apis: { lab: { dialect: 'openai', base_url: 'http://127.0.0.1:9', api_key: 'lab-key-5f2c8a91d4' } },
        ...completions,
      },
      plans: {
        poor: { models: ['*'], requests_per_minute: 20, budget: { usd: 0, period: 'month' } },
        worker: { bridge: true, running_turns: 1, jobs: 3 },
        ...plans,
      },
      accounts: { require_verification: false, trial_days: 0 },
      ...more,
    }),
  );
  assert.deepEqual(problems, []);
  const system = await startSystem({
    settings,
    services: ['bridge', 'completions', 'accounts'],
    environment,
    homeDirectory: folder,
    privatePaths: { folders: [], files: [] },
    logger: silentLogger,
    requestLines: undefined,
  });
  scope.after(async () => {
    await system.stop();
    await rm(folder, { recursive: true, force: true });
  });
  const { url, firstAdmin = '' } = system.summary();

  async function send(method: string, path: string, headers: Headers = {}, body?: unknown) {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: (text === '' ? undefined : JSON.parse(text)) as Json, response };
  }

  const chat = async (headers: Headers) => (await send('POST', '/v1/chat/completions', headers, CHAT)).status;
  const rpc = (method: string, headers: Headers, params: object = {}) =>
    send('POST', '/acp/rpc', headers, { jsonrpc: '2.0', id: '1', method, params });

  async function logIn(identifier: string) {
    const { body, response } = await send('POST', '/api/auth/login', {}, { identifier, password: GOOD_PASSWORD });
    const cookie = response.headers.getSetCookie().find((one) => one.startsWith('xc_session=')) ?? '';
    return { token: body.token as string, cookie: cookie.split(';')[0] ?? '', id: body.user.id as string };
  }

  const person = (name: string) => ({ name, email: `${name}@example.org`, password: GOOD_PASSWORD });
  await send('POST', '/api/auth/setup', {}, { ...person('root'), token: new URL(firstAdmin).hash.slice(1) });
  const root = await logIn('root');

  let people = 0;
  let teams = 0;
  /** Registers someone, gives them the role and the plan, and logs them in. */
  async function newPerson(role = 'user', plan = '') {
    people += 1;
    const name = `person${people}`;
    assert.equal((await send('POST', '/api/auth/register', {}, person(name))).status, 201);
    const { id } = await logIn(name);
    if (role !== 'user') await setRole(id, role);
    if (plan !== '') assert.equal((await setPlan(id, plan)).status, 200);
    return { name, ...(await logIn(name)) };
  }
  const asRoot = bearer(root.token);
  const setRole = (id: string, role: string) => send('POST', `/api/auth/admin/users/${id}/role`, asRoot, { role });
  const setPlan = (id: string, plan: string) => send('POST', `/api/auth/admin/users/${id}/plan`, asRoot, { plan });
  const pause = (id: string) => send('POST', `/api/auth/admin/users/${id}/pause`, asRoot, {});

  async function newToken(owner: { readonly token: string }, scopes: readonly string[]) {
    const { status, body } = await send('POST', '/api/auth/tokens', bearer(owner.token), { name: 'laptop', scopes });
    assert.equal(status, 201, JSON.stringify(body));
    return body as { id: string; token: string };
  }

  /** A socket of the bridge, all that it receives, and how it ends. */
  async function openSocket(headers: Headers, path = '/acp') {
    const socket = new WebSocket(`${url.replace('http', 'ws')}${path}`, { headers });
    const closed = new Promise<number>((resolve) => socket.on('close', resolve));
    const messages: string[] = [];
    socket.on('message', (data) => messages.push(String(data)));
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    socket.on('open', resolve);
    socket.on('unexpected-response', (_request, response) => reject(new Error(`refused: ${response.statusCode}`)));
    socket.on('error', reject);
    await promise;
    scope.after(() => socket.terminate());
    const call = (method: string, params: object) =>
      socket.send(JSON.stringify({ jsonrpc: '2.0', id: `${method} ${messages.length}`, method, params }));
    return { closed: () => inTime('the socket to close', closed), messages, call };
  }

  /** Creates a team whose members are those people. */
  async function newTeam(settings: object, ...members: readonly { readonly id: string }[]): Promise<string> {
    teams += 1;
    const { status, body } = await send('POST', '/api/auth/teams', asRoot, { name: `Team ${teams}`, ...settings });
    assert.equal(status, 201, JSON.stringify(body));
    const { id } = body.team as { id: string };
    for (const { id: userId } of members) {
      const added = await send('POST', `/api/auth/teams/${id}/members`, asRoot, { userId });
      assert.ok(added.status < 300, JSON.stringify(added.body));
    }
    return id;
  }

  return {
    folder,
    newTeam,
    url,
    send,
    chat,
    rpc,
    logIn,
    root,
    asRoot,
    newPerson,
    newToken,
    setRole,
    setPlan,
    pause,
    openSocket,
  };
}

/** The credentials of the operator there. */
export const ELSEWHERE = {
  main: bearer('elsewhere-main-token-4d3c2b'),
  master: bearer('elsewhere-master-key-8f7e6d'),
};

/** Other services of the same people, on a machine without accounts. */
export async function startElsewhere(
  scope: Scope,
  more: object,
  services: readonly ServiceName[] = ['bridge', 'completions'],
) {
  const folder = await mkdtemp(join(tmpdir(), 'trestle-elsewhere-'));
  const { settings, problems } = resolveTrestle(
    JSON.stringify({
      listen: '127.0.0.1:0',
      data_dir: folder,
      bridge: { auth_token: ELSEWHERE.main.authorization?.slice(7), trust_users: true },
      agents: { builtin: { model: 'demo/echo' } },
      completions: { master_key: ELSEWHERE.master.authorization?.slice(7) },
      plans: { worker: { bridge: true }, slow: { requests_per_minute: 1 } },
      ...more,
    }),
  );
  assert.deepEqual(problems, []);
  scope.after(() => rm(folder, { recursive: true, force: true }));
  const options = { environment: {}, homeDirectory: folder, privatePaths: { folders: [], files: [] } };
  const system = await startSystem({ ...options, settings, services, logger: silentLogger, requestLines: undefined });
  scope.after(() => system.stop());
  async function send(method: string, path: string, headers: Headers = {}, body?: unknown) {
    const response = await fetch(`${system.summary().url}${path}`, {
      method,
      headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: (text === '' ? undefined : JSON.parse(text)) as Json, response };
  }
  return {
    url: system.summary().url,
    send,
    chat: (headers: Headers, model = CHAT.model) => send('POST', '/v1/chat/completions', headers, { ...CHAT, model }),
    rpc: (method: string, headers: Headers, params: object = {}) =>
      send('POST', '/acp/rpc', headers, { jsonrpc: '2.0', id: '1', method, params }),
  };
}
