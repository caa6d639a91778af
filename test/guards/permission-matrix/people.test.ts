import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, test } from 'node:test';
import { BRIDGE_TOKEN, bearer, type Headers, MASTER_KEY, startPeople } from '../../kit/start-people.ts';
import { until } from '../../kit/until.ts';
import { checkPermissions } from './permission-matrix.ts';

const people = await startPeople({ after }, { bridge: BRIDGE_TOKEN, completions: MASTER_KEY });
const { url, send, rpc, newPerson, newToken, newTeam, pause, asRoot } = people;

const user = await newPerson();
const worker = await newPerson('user', 'worker');
const mate = await newPerson('user', 'worker');
await newTeam({}, worker, mate);
const operator = await newPerson('operator');
const readonly = await newPerson('readonly');
const reader = await newPerson('readonly', 'worker');
const { key } = (await send('POST', '/api/auth/keys', bearer(worker.token), { name: 'k' })).body as { key: string };
const expired = await newToken(worker, ['bridge', 'completions', 'account']);
const store = new DatabaseSync(join(people.folder, 'accounts.db'));
// The program writes at the same time, and may hold the lock.
await until('the store to be free', () => {
  try {
    store.exec(`update access_tokens set expires_at = 1 where id = '${expired.id}'`);
    return true;
  } catch (error) {
    if (error instanceof Error && error.message === 'database is locked') return false;
    throw error;
  }
});
store.close();
const paused = await newPerson('operator');
const pausedToken = await newToken(paused, ['bridge', 'completions']);
await pause(paused.id);
const revoked = await newToken(operator, ['bridge', 'completions']);
await send('DELETE', `/api/auth/tokens/${revoked.id}`, bearer(operator.token));
const tokenOf = async (...scopes: readonly string[]) => bearer((await newToken(operator, scopes)).token);
const { cookie } = operator;

/** Every kind of caller that accounts knows, on the paths of the other two services. */
const CALLERS = {
  user: bearer(user.token),
  'user with agents in the plan': bearer(worker.token),
  'team mate': bearer(mate.token),
  'readonly, with agents in the plan': bearer(reader.token),
  'key of a user': bearer(key),
  operator: bearer(operator.token),
  root: asRoot,
  readonly: bearer(readonly.token),
  'paused, login': bearer(paused.token),
  'paused, token': bearer(pausedToken.token),
  'paused, cookie': { cookie: paused.cookie, origin: url },
  'revoked token': bearer(revoked.token),
  'expired token': bearer(expired.token),
  'token for the bridge': await tokenOf('bridge'),
  'token for models': await tokenOf('completions'),
  'token for the account': await tokenOf('account'),
  'token of an operator with admin': await tokenOf('bridge', 'completions', 'account', 'admin'),
  'cookie, own page': { cookie, origin: url, 'sec-fetch-site': 'same-origin' },
  'cookie, other port': { cookie, origin: 'http://127.0.0.1:3000', 'sec-fetch-site': 'same-site' },
  'cookie, other host': { cookie, origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
  'cookie, no origin': { cookie },
  'wrong token and cookie': { cookie, origin: url, authorization: 'Bearer wrong' },
} as const satisfies Record<string, Headers>;

type Caller = keyof typeof CALLERS;
const callers = Object.keys(CALLERS) as Caller[];
type Row = Record<Caller, string>;

const DEAD = {
  'paused, login': '401',
  'paused, token': '401',
  'paused, cookie': '401',
  'revoked token': '401',
  'expired token': '401',
  'wrong token and cookie': '401',
} as const;
/** `/acp` and `/api/ping`: tokens alone, of those whose plan or role includes agents. */
const ACP: Row = {
  ...DEAD,
  user: '403',
  'user with agents in the plan': 'served',
  'team mate': 'served',
  'readonly, with agents in the plan': 'served',
  // A key is for models, and nothing else here knows it.
  'key of a user': '401',
  operator: 'served',
  root: 'served',
  readonly: '403',
  'token for the bridge': 'served',
  'token for models': '403',
  'token for the account': '403',
  'token of an operator with admin': 'served',
  'cookie, own page': '401',
  'cookie, other port': '401',
  'cookie, other host': '401',
  'cookie, no origin': '401',
};
/** Where pages of other origins may be let in, the origin is looked at first. */
const RPC: Row = { ...ACP, 'cookie, other host': '403' };
/** The paths of our own pages. */
const PAGE_READ: Row = {
  ...ACP,
  'cookie, own page': 'served',
  'cookie, other port': '403',
  'cookie, other host': '403',
  'cookie, no origin': 'served',
};
const PAGE_WRITE: Row = { ...PAGE_READ, 'cookie, no origin': '403', 'readonly, with agents in the plan': '403' };
/** Only for those who see the work of others: a token without the scope `admin` does not. */
const PAGE_FOR_ALL: Row = {
  ...PAGE_READ,
  'team mate': '403',
  'readonly, with agents in the plan': '403',
  'token for the bridge': '403',
  'user with agents in the plan': '403',
};
/** What changes the machine: only for administrators, by a login. */
const FRESH_ADMIN: Row = {
  ...PAGE_WRITE,
  'user with agents in the plan': '403',
  'team mate': '403',
  operator: '403',
  'token for the bridge': '403',
  'token of an operator with admin': '403',
  'cookie, own page': '403',
};
const READ: Row = {
  ...PAGE_READ,
  user: 'served',
  readonly: 'served',
  'key of a user': 'served',
  'token for the bridge': '403',
  'token for models': 'served',
};
const MODEL: Row = { ...READ, readonly: '403', 'readonly, with agents in the plan': '403', 'cookie, no origin': '403' };
/** The model APIs: for those who see the work of others. */
const OPERATORS_READ: Row = {
  ...READ,
  ...{ user: '403', 'user with agents in the plan': '403', 'team mate': '403', 'key of a user': '403' },
  ...{ readonly: '403', 'readonly, with agents in the plan': '403', 'token for models': '403' },
};
/** Own keys: a login removes them, a token does not. */
const REMOVE: Row = {
  ...MODEL,
  'token for models': '403',
  'token of an operator with admin': '403',
  'key of a user': '403',
};
/** Keys are created at `/api/auth/keys`, which asks for a fresh login. */
const MASTER: Row = {
  ...REMOVE,
  user: '403',
  'user with agents in the plan': '403',
  'team mate': '403',
  operator: '403',
  root: '403',
  'cookie, own page': '403',
};

/** By hand, on purpose: a new row without a line here fails. */
const EXPECTED: Readonly<Record<string, Row>> = {
  'GET /api/ping': ACP,
  'POST /acp/rpc': RPC,
  'GET /api/bridge/sessions': PAGE_READ,
  'GET /api/bridge/sessions/{sessionId}': PAGE_READ,
  'PATCH /api/bridge/sessions/{sessionId}': PAGE_WRITE,
  'GET /api/bridge/sessions/{sessionId}/turns': PAGE_READ,
  'DELETE /api/bridge/sessions/{sessionId}/turns/{turnId}': PAGE_WRITE,
  'GET /api/bridge/sessions/{sessionId}/updates': PAGE_READ,
  'GET /api/bridge/sessions/{sessionId}/export': PAGE_READ,
  'GET /api/bridge/sessions/{sessionId}/files': PAGE_READ,
  'GET /api/bridge/sessions/{sessionId}/changes': PAGE_READ,
  'GET /api/bridge/sessions/{sessionId}/changes/diff': PAGE_READ,
  'POST /api/bridge/sessions/{sessionId}/undo': PAGE_WRITE,
  'POST /api/bridge/sessions/{sessionId}/merge': PAGE_WRITE,
  'POST /api/bridge/sessions/{sessionId}/steer': PAGE_WRITE,
  'POST /api/bridge/sessions/{sessionId}/fork': PAGE_WRITE,
  'POST /api/bridge/attachments': PAGE_WRITE,
  'GET /api/bridge/agents': PAGE_READ,
  'POST /api/bridge/agents/{providerId}/test': PAGE_WRITE,
  'POST /api/bridge/agents/{providerId}/install': FRESH_ADMIN,
  'POST /api/bridge/agents/{providerId}/login': FRESH_ADMIN,
  'GET /api/bridge/permissions': PAGE_READ,
  'POST /api/bridge/permissions/{permissionId}/answer': PAGE_WRITE,
  'GET /api/bridge/permission-rules': PAGE_READ,
  'DELETE /api/bridge/permission-rules/{ruleId}': PAGE_WRITE,
  'GET /api/bridge/schedules': PAGE_READ,
  'POST /api/bridge/schedules': PAGE_WRITE,
  'GET /api/bridge/schedules/{scheduleId}': PAGE_READ,
  'PATCH /api/bridge/schedules/{scheduleId}': PAGE_WRITE,
  'DELETE /api/bridge/schedules/{scheduleId}': PAGE_WRITE,
  'POST /api/bridge/schedules/{scheduleId}/run': PAGE_WRITE,
  'GET /api/bridge/audit': PAGE_READ,
  'GET /api/bridge/folders': PAGE_READ,
  'GET /api/system/doctor': PAGE_FOR_ALL,
  'GET /api/system/instances': PAGE_FOR_ALL,
  'GET /api/system/series': PAGE_FOR_ALL,
  'GET /api/system/settings': PAGE_FOR_ALL,
  'GET /api/bridge/nodes': PAGE_FOR_ALL,
  'GET /api/bridge/nodes/explain': PAGE_FOR_ALL,
  ...Object.fromEntries(
    ['', '/v1'].flatMap((prefix): [string, Row][] => [
      [`POST ${prefix}/chat/completions`, MODEL],
      [`POST ${prefix}/completions`, MODEL],
      [`GET ${prefix}/models`, READ],
      [`GET ${prefix}/models/{path}`, READ],
      [`POST ${prefix}/keys`, MASTER],
      [`GET ${prefix}/keys`, { ...READ, 'key of a user': '403' }],
      [`PATCH ${prefix}/keys/{id}`, REMOVE],
      [`POST ${prefix}/keys/{id}/rotate`, MASTER],
      [`DELETE ${prefix}/keys/{id}`, REMOVE],
      [`GET ${prefix}/usage`, READ],
      [`GET ${prefix}/usage/calls`, READ],
      [`GET ${prefix}/usage/calls/{id}`, READ],
    ]),
  ),
  'GET /v1/apis': OPERATORS_READ,
  'GET /v1/targets': READ,
  'POST /v1/embeddings': MODEL,
  'POST /v1/images/generations': MODEL,
  'POST /v1/images/edits': MODEL,
  'POST /v1/audio/speech': MODEL,
  'POST /v1/audio/transcriptions': MODEL,
  'POST /v1/audio/translations': MODEL,
  'POST /v1/moderations': MODEL,
  'POST /v1/rerank': MODEL,
  'POST /v1/files': MODEL,
  'GET /v1/files': READ,
  'GET /v1/files/{id}': READ,
  'DELETE /v1/files/{id}': MODEL,
  'GET /v1/files/{id}/content': READ,
  'POST /v1/batches': MODEL,
  'GET /v1/batches': READ,
  'GET /v1/batches/{id}': READ,
  'POST /v1/batches/{id}/cancel': MODEL,
  'POST /v1/responses': MODEL,
  'POST /v1/messages': MODEL,
  'POST /v1/messages/count_tokens': MODEL,
  'POST /v1/models/{path}': MODEL,
  'POST /v1beta/models/{path}': MODEL,
  'GET /v1beta/models': READ,
  'GET /v1beta/models/{path}': READ,
};

const BODY = {
  ...{ jsonrpc: '2.0', id: '1', method: 'acp.capabilities', params: {} },
  ...{ model: 'demo/echo', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 9 },
  contents: [{ parts: [{ text: 'Hello' }] }],
};

async function ask(name: string, caller: Caller): Promise<string> {
  const [method = '', path = ''] = name.split(' ');
  const query = path.endsWith('/explain')
    ? '?method=session.start'
    : /^POST \/v1(?:beta)?\/models/.test(name)
      ? ':generateContent'
      : '';
  const filled = path.replace('{path}', 'demo/echo').replaceAll(/\{\w+\}/g, 'nobody') + query;
  const { status } = await send(method, filled, CALLERS[caller], method === 'GET' ? undefined : BODY);
  return status === 401 || status === 403 ? String(status) : 'served';
}

test('every path of bridge and completions lets in the people that it should, and nobody else', async () => {
  const { paths } = (await send('GET', '/openapi.json')).body as { paths: Record<string, Record<string, unknown>> };
  const isOurs = (path: string) =>
    /^\/(?:api\/ping|api\/bridge|api\/system\/|acp\/rpc|v1|chat|completions|models|keys|usage)/.test(path);
  const names = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods)
      // Upgrades and preflights have tests of their own.
      .filter((method) => method !== 'options' && path !== '/api/bridge/live' && isOurs(path))
      .map((method) => `${method.toUpperCase()} ${path}`),
  );
  await checkPermissions({ names, callers, expected: EXPECTED, ask });
});

/** Someone who may only read gets nothing that starts or changes work. */
const WRITE_METHOD: Row = { ...RPC, 'readonly, with agents in the plan': '403' };

const METHODS: Readonly<Record<string, Row>> = {
  'acp.capabilities': RPC,
  'app.routing.resolve': RPC,
  'session.start': WRITE_METHOD,
  'session.message': WRITE_METHOD,
  'session.cancel': WRITE_METHOD,
  'session.close': WRITE_METHOD,
  'app.jobs.submit': WRITE_METHOD,
  'app.jobs.get': RPC,
  'app.jobs.list': RPC,
  'app.jobs.stats': RPC,
  'app.gateway.connect': WRITE_METHOD,
  'app.gateway.request': WRITE_METHOD,
  'app.gateway.disconnect': WRITE_METHOD,
  'app.tools.invoke': WRITE_METHOD,
};

/** Valid for every method: what is not is refused before it is known who may do it. */
const PARAMS = {
  sessionId: 'of-the-matrix',
  taskPrompt: 'Hello',
  jobId: 'job-none',
  method: 'config.set',
  tool: 'none',
};

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  readonly components: {
    readonly schemas: { readonly JsonRpcRequest: { readonly oneOf: readonly { title: string }[] } };
  };
}

test('every method of the bridge lets in the people that it should, and nobody else', async () => {
  const { components } = (await send('GET', '/openapi.json')).body as Description;
  await checkPermissions({
    names: components.schemas.JsonRpcRequest.oneOf.map(({ title }) => title),
    callers,
    expected: METHODS,
    async ask(method, caller) {
      const { status } = await rpc(method, CALLERS[caller], PARAMS);
      return status === 401 || status === 403 ? String(status) : 'served';
    },
  });
});

/** Paths of accounts that need no credential; `test/contract/accounts/credential-matrix.test.ts` has the roles for all others. */
const PUBLIC =
  /^(?:POST \/api\/auth\/(?:register|login|setup|refresh|invitations\/accept|mfa\/verify|passkeys\/|token\/(?:exchange|refresh)|password\/forgot|device\/(?:code|token))|GET \/api\/auth\/(?:methods|oauth\/))/;

/** Gives a short-lived token with the scopes of the one that came. */
const ANY_SCOPE: ReadonlySet<string> = new Set(['POST /api/auth/token/jwt']);

test('no path of accounts that needs a credential takes one that is dead, for something else, or from elsewhere', async () => {
  const { paths } = (await send('GET', '/openapi.json')).body as Description;
  const names = Object.entries(paths).flatMap(([path, methods]) =>
    Object.keys(methods)
      .filter((method) => method !== 'options' && /^\/api\/auth\//.test(path))
      .map((method) => `${method.toUpperCase()} ${path}`),
  );
  const refused: readonly (readonly [Caller, string])[] = [
    // Where only a login will do, a token is not even looked up.
    ...(Object.keys(DEAD) as (keyof typeof DEAD)[]).map(
      (caller) => [caller, caller.endsWith('token') ? '401 or 403' : '401'] as const,
    ),
    ['key of a user', '401'],
    ['token for models', '403'],
    ['token for the bridge', '403'],
    ['cookie, other port', '403'],
    ['cookie, other host', '403'],
  ];
  const wrong: string[] = [];
  for (const name of names.filter((one) => !PUBLIC.test(one))) {
    for (const [caller, expected] of refused) {
      if (ANY_SCOPE.has(name) && caller.startsWith('token for')) continue;
      const found = await ask(name, caller);
      if (!expected.includes(found)) wrong.push(`${name} as ${caller}: ${found} instead of ${expected}`);
    }
    const found = name.startsWith('GET') ? '403' : await ask(name, 'cookie, no origin');
    if (found !== '403') wrong.push(`${name} as cookie, no origin: ${found} instead of 403`);
  }
  assert.deepEqual(wrong, []);
});
