import { after, test } from 'node:test';
import { WebSocket } from 'ws';
import { postRpc } from '../../kit/bridge/bridge-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { asMain, asNode, asReview, FORWARD_TOKEN, startNode } from '../../kit/bridge/start-nodes.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { checkPermissions } from './permission-matrix.ts';

const guarded = await startNode({ after }, { id: 'b' });
const open = await startBridge({ after }, { providers: [createScriptedProvider('first')] });
const FOREIGN = { origin: 'https://evil.example' };

/** Every kind of caller that exists today: where it calls, and with which headers. */
const CALLERS = {
  none: [guarded.url, {}],
  wrong: [guarded.url, { authorization: 'Bearer wrong' }],
  cookie: [guarded.url, { cookie: asMain.authorization }],
  review: [guarded.url, asReview],
  main: [guarded.url, asMain],
  node: [guarded.url, asNode()],
  'forward token alone': [guarded.url, { authorization: `Bearer ${FORWARD_TOKEN}` }],
  'main, other origin': [guarded.url, { ...asMain, ...FOREIGN }],
  'open loopback': [open.url, {}],
  'open, other origin': [open.url, FOREIGN],
} as const satisfies Record<string, readonly [string, Readonly<Record<string, string>>]>;

type Caller = keyof typeof CALLERS;
const callers = Object.keys(CALLERS) as Caller[];

const everyone = (outcome: string) =>
  Object.fromEntries(callers.map((caller) => [caller, outcome])) as Record<Caller, string>;

/** What `/acp*` gives: origin first, then the credential. */
const APP_OR_NODE: Record<Caller, string> = {
  none: 'UNAUTHORIZED',
  wrong: 'UNAUTHORIZED',
  cookie: 'UNAUTHORIZED',
  review: 'served',
  main: 'served',
  node: 'served',
  'forward token alone': 'UNAUTHORIZED',
  'main, other origin': 'ORIGIN_NOT_ALLOWED',
  'open loopback': 'served',
  'open, other origin': 'ORIGIN_NOT_ALLOWED',
};

/** What `/api/bridge/*` gives: our own origin, then the credential of this bridge; nodes have none. */
const WORKBENCH: Record<Caller, string> = {
  ...APP_OR_NODE,
  node: 'unauthorized',
  none: 'unauthorized',
  wrong: 'unauthorized',
  cookie: 'unauthorized',
  'forward token alone': 'unauthorized',
  'main, other origin': 'own_origin_required',
  'open, other origin': 'own_origin_required',
};
/** Rows about something that this test has not made. */
const missing = (code: string) =>
  Object.fromEntries(
    callers.map((caller) => [caller, WORKBENCH[caller] === 'served' ? code : WORKBENCH[caller]]),
  ) as Record<Caller, string>;
const NOT_THERE = missing('session_not_found');
const NO_REQUEST = missing('permission_not_found');
const NO_AGENT = missing('agent_unknown');
const NO_RULE = missing('permission_rule_not_found');
const NO_SCHEDULE = missing('schedule_not_found');

const METHODS: Readonly<Record<string, Record<Caller, string>>> = {
  'acp.capabilities': APP_OR_NODE,
  'app.routing.resolve': APP_OR_NODE,
  'session.start': APP_OR_NODE,
  'session.message': APP_OR_NODE,
  'session.cancel': APP_OR_NODE,
  'session.close': APP_OR_NODE,
  'app.jobs.submit': APP_OR_NODE,
  'app.jobs.get': APP_OR_NODE,
  'app.jobs.list': APP_OR_NODE,
  'app.jobs.stats': APP_OR_NODE,
  'app.gateway.connect': APP_OR_NODE,
  // Asked for a method that chat tasks do not need.
  'app.gateway.request': {
    ...APP_OR_NODE,
    review: 'GATEWAY_METHOD_NOT_ALLOWED',
    node: 'GATEWAY_METHOD_NOT_ALLOWED',
  },
  'app.gateway.disconnect': APP_OR_NODE,
  'app.tools.invoke': APP_OR_NODE,
};

const ROUTES: Readonly<Record<string, Record<Caller, string>>> = {
  'GET /api/ping': {
    ...APP_OR_NODE,
    node: 'UNAUTHORIZED',
    'main, other origin': 'served',
    'open, other origin': 'served',
  },
  'POST /acp/rpc': APP_OR_NODE,
  'UPGRADE /acp': APP_OR_NODE,
  'OPTIONS /acp/rpc': everyone('served'),
  // For anyone but nodes there is nothing.
  'POST /gateway/:gatewayProviderId': { ...everyone('NOT_FOUND'), node: 'served' },
  'GET /api/bridge/sessions': WORKBENCH,
  'GET /api/bridge/sessions/:sessionId': NOT_THERE,
  'PATCH /api/bridge/sessions/:sessionId': NOT_THERE,
  'GET /api/bridge/sessions/:sessionId/turns': NOT_THERE,
  'DELETE /api/bridge/sessions/:sessionId/turns/:turnId': NOT_THERE,
  'GET /api/bridge/sessions/:sessionId/updates': NOT_THERE,
  'GET /api/bridge/sessions/:sessionId/export': NOT_THERE,
  'GET /api/bridge/sessions/:sessionId/files': NOT_THERE,
  'GET /api/bridge/sessions/:sessionId/changes': NOT_THERE,
  'GET /api/bridge/sessions/:sessionId/changes/diff': NOT_THERE,
  'POST /api/bridge/sessions/:sessionId/undo': NOT_THERE,
  'POST /api/bridge/sessions/:sessionId/merge': NOT_THERE,
  'POST /api/bridge/sessions/:sessionId/steer': NOT_THERE,
  'POST /api/bridge/sessions/:sessionId/fork': NOT_THERE,
  'POST /api/bridge/attachments': WORKBENCH,
  'GET /api/bridge/agents': WORKBENCH,
  'POST /api/bridge/agents/:providerId/test': NO_AGENT,
  'POST /api/bridge/agents/:providerId/install': { ...NO_AGENT, review: 'forbidden' },
  'POST /api/bridge/agents/:providerId/login': { ...NO_AGENT, review: 'forbidden' },
  'GET /api/bridge/permissions': WORKBENCH,
  'POST /api/bridge/permissions/:permissionId/answer': NO_REQUEST,
  'GET /api/bridge/permission-rules': WORKBENCH,
  'DELETE /api/bridge/permission-rules/:ruleId': NO_RULE,
  'GET /api/bridge/schedules': WORKBENCH,
  'POST /api/bridge/schedules': WORKBENCH,
  'GET /api/bridge/schedules/:scheduleId': NO_SCHEDULE,
  'PATCH /api/bridge/schedules/:scheduleId': NO_SCHEDULE,
  'DELETE /api/bridge/schedules/:scheduleId': NO_SCHEDULE,
  'POST /api/bridge/schedules/:scheduleId/run': NO_SCHEDULE,
  'UPGRADE /api/bridge/live': WORKBENCH,
  'GET /api/bridge/audit': WORKBENCH,
  'GET /api/bridge/folders': WORKBENCH,
  'GET /api/bridge/nodes': { ...WORKBENCH, review: 'forbidden' },
  'GET /api/bridge/nodes/explain': { ...WORKBENCH, review: 'forbidden' },
  // The signature in the path is the credential, and this path has none.
  'GET /artifacts/*': everyone('ARTIFACT_LINK_INVALID'),
};

const REFUSALS = [
  'UNAUTHORIZED',
  'ORIGIN_NOT_ALLOWED',
  'GATEWAY_METHOD_NOT_ALLOWED',
  'NOT_FOUND',
  'ARTIFACT_LINK_INVALID',
  'unauthorized',
  'own_origin_required',
  'forbidden',
  'agent_unknown',
  'session_not_found',
  'permission_not_found',
  'permission_rule_not_found',
  'schedule_not_found',
];

/** Anything but a refusal means that the caller was let in. */
const outcomeOf = (text: string) => REFUSALS.find((code) => text.includes(`"${code}"`)) ?? 'served';

const call = (method: string) => ({ jsonrpc: '2.0', id: 1, method, params: { method: 'config.set' } });

const QUERIES: Readonly<Record<string, string>> = {
  '/api/bridge/sessions/:sessionId/files': '?path=a',
  '/api/bridge/sessions/:sessionId/changes/diff': '?path=a',
  '/api/bridge/nodes/explain': '?method=session.start',
};

const BODIES: Readonly<Record<string, object>> = {
  '/api/bridge/sessions/:sessionId': { pinned: true },
  '/api/bridge/sessions/:sessionId/undo': { turnId: 'turn-1' },
  '/api/bridge/sessions/:sessionId/merge': {},
  '/api/bridge/sessions/:sessionId/steer': { text: 'x' },
  '/api/bridge/sessions/:sessionId/fork': {},
  '/api/bridge/agents/:providerId/login': {},
  '/api/bridge/permissions/:permissionId/answer': { decision: 'allow' },
  '/api/bridge/schedules/:scheduleId': { enabled: false },
};

async function askRoute(name: string, caller: Caller): Promise<string> {
  const [url, headers] = CALLERS[caller];
  const [method = '', path = ''] = name.split(' ');
  if (method === 'UPGRADE') return askUpgrade(`${url.replace('http', 'ws')}${path}`, headers);
  const names = path
    .replace(':gatewayProviderId', 'openclaw')
    .replace(/:(?:session|permission|rule|schedule|provider)Id/, 'none')
    .replace('*', 'x/1/y/z');
  const query = QUERIES[path] ?? '';
  const body = BODIES[path] ?? call('acp.capabilities');
  const hasBody = method === 'POST' || method === 'PATCH';
  const response = await fetch(`${url}${names}${query}`, {
    method,
    headers: { ...headers, ...(hasBody && { 'content-type': 'application/json' }) },
    ...(hasBody && { body: JSON.stringify(body) }),
  });
  return outcomeOf(await response.text());
}

function askUpgrade(url: string, headers: Readonly<Record<string, string>>): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const socket = new WebSocket(url, { headers });
  socket.on('open', () => resolve('served'));
  socket.on('error', reject);
  socket.on('unexpected-response', async (_request, response) => {
    let text = '';
    for await (const chunk of response) text += String(chunk);
    resolve(outcomeOf(text));
  });
  return promise.finally(() => socket.terminate());
}

test('every route of the bridge lets in whom it should, and nobody else', async () => {
  const { routes, upgrades = [] } = guarded.bridge.surface;
  const names = [
    ...routes.map(({ method, path }) => `${method} ${path}`),
    ...upgrades.map(({ path }) => `UPGRADE ${path}`),
  ];
  await checkPermissions({ names, callers, expected: ROUTES, ask: askRoute });
});

test('every method of the bridge lets in whom it should, and nobody else', async () => {
  await checkPermissions({
    names: guarded.bridge.methods.map(({ name }) => name),
    callers,
    expected: METHODS,
    async ask(name, caller) {
      const [url, headers] = CALLERS[caller];
      return outcomeOf((await postRpc(url, call(name), { ...headers })).text);
    },
  });
});
