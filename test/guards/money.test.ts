import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { startSystem } from '../../src/system/start-system.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';
import { answers, completionOf, eventsOf, startScriptedUpstream, streams } from '../kit/scripted-upstream.ts';
import { silentLogger } from '../kit/silent-logger.ts';
import { until } from '../kit/until.ts';

const MASTER_KEY = 'master-key-5d4c3b2a1f0e9';
const BRIDGE_TOKEN = 'bridge-token-9e8d7c6b5a4f3';
const EMBEDDINGS = {
  object: 'list',
  data: [{ object: 'embedding', index: 0, embedding: [0.1] }],
  usage: { prompt_tokens: 1, total_tokens: 1 },
};

/** Operations that answer with neither choices nor embeddings; those of audio and of edits take forms. */
const MEDIA = /\/(?:images|audio|moderations|rerank)\b/;
const FORMS = /\/(?:edits|transcriptions|translations)$/;

/** The model API of the operator: every call of it costs money. Its list of models is free. */
const upstream = await startScriptedUpstream({ after }, (response, request) => {
  if (request.path.endsWith('/models')) return answers({ data: [{ id: 'small' }] })(response, request);
  if (request.path.endsWith('/embeddings')) return answers(EMBEDDINGS)(response, request);
  if (request.path.endsWith('/speech'))
    return answers('sound', 200, { 'content-type': 'audio/mpeg' })(response, request);
  if (MEDIA.test(request.path)) return answers({ data: [], results: [], text: 'ok' })(response, request);
  const reply = request.json.stream === true ? streams(eventsOf(['ok'])) : answers(completionOf('ok'));
  return reply(response, request);
});
const paid = () => upstream.requests.filter(({ path }) => !path.endsWith('/models')).length;

const folder = await mkdtemp(join(tmpdir(), 'trestle-money-'));
const { settings, problems } = resolveTrestle(
  JSON.stringify({
    listen: '127.0.0.1:0',
    data_dir: folder,
    bridge: { auth_token: BRIDGE_TOKEN },
    agents: { builtin: { model: 'lab/small' } },
    completions: {
      master_key: MASTER_KEY,
      apis: { lab: { dialect: 'openai', base_url: upstream.url, api_key: 'lab-key-5f2c8a91d4' } },
    },
  }),
);
assert.deepEqual(problems, []);
const system = await startSystem({
  settings,
  services: ['bridge', 'completions', 'accounts'],
  environment: {},
  homeDirectory: folder,
  privatePaths: { folders: [], files: [] },
  logger: silentLogger,
  requestLines: undefined,
});
after(async () => {
  await system.stop();
  await rm(folder, { recursive: true, force: true });
});
const { url } = system.summary();

type Headers = Readonly<Record<string, string>>;
type Json = Record<string, unknown>;
const asMaster = { authorization: `Bearer ${MASTER_KEY}` };
const asMain = { authorization: `Bearer ${BRIDGE_TOKEN}` };

const send = (method: string, path: string, headers: Headers, body?: unknown) =>
  fetch(`${url}${path}`, {
    method,
    headers: { ...headers, ...(body !== undefined && !isForm(body) && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: isForm(body) ? body : JSON.stringify(body) }),
    redirect: 'manual',
  });
const isForm = (body: unknown): body is FormData => body instanceof FormData;
const jsonOf = async (response: Response) => (await response.json()) as Json;

async function issue(limits: object = {}): Promise<{ id: string; key: string }> {
  return (await jsonOf(await send('POST', '/keys', asMaster, { name: 'k', ...limits }))) as { id: string; key: string };
}

/** The rows as the program describes them: `POST /v1/responses`, and `RPC session.start` for methods of the bridge. */
interface Operation {
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: Json } } };
}
const document = (await jsonOf(await send('GET', '/openapi.json', {}))) as unknown as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Json>> };
};
function methodNames(schema: Json): string[] {
  if (typeof schema.$ref === 'string')
    return methodNames(document.components.schemas[schema.$ref.split('/').at(-1) ?? ''] ?? {});
  const variants = (schema.anyOf ?? schema.oneOf) as Json[] | undefined;
  if (variants !== undefined) return variants.flatMap(methodNames);
  const { method } = (schema.properties ?? {}) as { method?: { const?: string } };
  return method?.const === undefined ? [] : [method.const];
}
const rpc = document.paths['/acp/rpc']?.post?.requestBody?.content['application/json'].schema ?? {};
const ROWS = [
  ...Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
  ),
  ...methodNames(rpc).map((name) => `RPC ${name}`),
];

/** Rows that make a model answer. Every other row that takes a body must not. */
const CALLS_A_MODEL = [
  'POST /chat/completions',
  'POST /v1/chat/completions',
  'POST /completions',
  'POST /v1/completions',
  'POST /v1/embeddings',
  'POST /v1/images/generations',
  'POST /v1/images/edits',
  'POST /v1/audio/speech',
  'POST /v1/audio/transcriptions',
  'POST /v1/audio/translations',
  'POST /v1/moderations',
  'POST /v1/rerank',
  'POST /v1/responses',
  'POST /v1/messages',
  'POST /v1/models/{path}',
  'POST /v1beta/models/{path}',
  'RPC session.start',
  'RPC session.message',
  'RPC app.jobs.submit',
];
/** Rows that take a body and call no model: a new row must be sorted into one of the lists. */
const CALLS_NONE: readonly string[] = [
  // Carries the methods below.
  'POST /acp/rpc',
  'POST /v1/messages/count_tokens',
  // What a batch costs is for test/contract/completions/stored-objects.test.ts: it needs a file of its own.
  ...['POST /v1/files', 'POST /v1/batches', 'POST /v1/batches/{id}/cancel'],
  ...['', '/v1'].flatMap((prefix) => [
    `POST ${prefix}/keys`,
    `PATCH ${prefix}/keys/{id}`,
    `POST ${prefix}/keys/{id}/rotate`,
  ]),
  ...['acp.capabilities', 'app.routing.resolve', 'session.cancel', 'session.close', 'app.jobs.get', 'app.jobs.list']
    .concat('app.jobs.stats', 'app.gateway.connect', 'app.gateway.request', 'app.gateway.disconnect')
    .concat('app.tools.invoke')
    .map((name) => `RPC ${name}`),
];
/**
 * Rows of accounts are called with the others below, and are not listed: the service reaches no model by itself. It only
 * issues keys, and the matrix of its credentials lists every row.
 */
const isOfAccounts = (row: string) => row.includes(' /api/');

/** What would make a model answer, in every row's own words. */
const BODY = {
  ...{ model: 'lab/small', messages: [{ role: 'user', content: 'Hello' }], input: 'Hello', max_tokens: 9 },
  contents: [{ parts: [{ text: 'Hello' }] }],
};
const bodyOf = (row: string) => {
  if (FORMS.test(row)) return formOf({ model: 'lab/small', prompt: 'Hello' });
  if (row.endsWith('/rerank')) return { ...BODY, query: 'Hello', documents: ['Hello'] };
  return / (?:\/v1)?\/completions$|\/generations$/.test(row) ? { ...BODY, prompt: 'Hello' } : BODY;
};
function formOf(fields: Readonly<Record<string, string>>): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  form.append('file', new Blob(['sound']), 'a.wav');
  return form;
}
let session = 0;
const paramsOf = (method: string): Json => {
  session += 1;
  const sessionId = method === 'session.message' ? 'shared' : `s${session}`;
  return {
    sessionId,
    threadId: sessionId,
    taskPrompt: 'Hello',
    provider: 'builtin',
    prompt: 'Hello',
    model: 'lab/small',
  };
};

async function call(row: string, headers: Headers): Promise<number> {
  const [method = '', path = ''] = row.split(' ');
  const response =
    method === 'RPC'
      ? await send('POST', '/acp/rpc', headers, { jsonrpc: '2.0', id: 1, method: path, params: paramsOf(path) })
      : await send(method, filled(path), headers, takesBody(row) ? bodyOf(row) : undefined);
  await response.arrayBuffer();
  return response.status;
}

function filled(path: string): string {
  return path.replace('/models/{path}', '/models/lab/small:generateContent').replaceAll(/\{\w+\}/g, 'x');
}

function takesBody(row: string) {
  return row.startsWith('POST ') || row.startsWith('PUT ') || row.startsWith('PATCH ');
}
const metered = async () => {
  const { total } = (await jsonOf(await send('GET', '/usage', asMaster))) as { total: { requests: number } };
  return total.requests;
};

test('money: every row is sorted into those that call a model and those that do not', () => {
  const known = new Set([...CALLS_A_MODEL, ...CALLS_NONE]);
  const acting = ROWS.filter((row) => (takesBody(row) || row.startsWith('RPC ')) && !isOfAccounts(row));
  assert.deepEqual(
    acting.filter((row) => !known.has(row)),
    [],
    'say whether the row calls a model',
  );
  assert.deepEqual(
    [...known].filter((row) => !acting.includes(row)),
    [],
    'the row is gone',
  );
});

test('money: every call of an admitted caller that reaches the model is metered', async () => {
  const first = { sessionId: 'shared', threadId: 'shared', taskPrompt: 'Hello' };
  const started = await send('POST', '/acp/rpc', asMain, {
    jsonrpc: '2.0',
    id: 1,
    method: 'session.start',
    params: first,
  });
  assert.equal((await jsonOf(started)).error, undefined);
  for (const row of CALLS_A_MODEL) {
    const before = paid();
    const status = await call(
      row,
      row.startsWith('RPC ') ? asMain : { authorization: `Bearer ${(await issue()).key}` },
    );
    assert.equal(status, 200, row);
    await until(`${row} reaches the model`, () => paid() > before);
  }
  await until('as many calls are metered as were paid', async () => (await metered()) === paid());
});

test('money: every row that calls a model counts against the limit of its key', async () => {
  for (const row of CALLS_A_MODEL.filter((each) => each.startsWith('POST '))) {
    const headers = { authorization: `Bearer ${(await issue({ requests_per_minute: 1 })).key}` };
    assert.equal(await call(row, headers), 200, row);
    const before = paid();
    assert.equal(await call(row, headers), 429, row);
    assert.equal(paid(), before, row);
  }
});

test('money: nothing that a stranger sends reaches the model, by any row', async () => {
  const revoked = await issue();
  await send('DELETE', `/keys/${revoked.id}`, asMaster);
  const key = await issue();
  const strangers: Readonly<Record<string, Headers>> = {
    nobody: {},
    garbage: {
      authorization: 'Bearer nonsense',
      'x-api-key': 'nonsense',
      'x-goog-api-key': 'no',
      cookie: 'xc_session=nonsense',
    },
    'revoked key': { authorization: `Bearer ${revoked.key}`, 'x-api-key': revoked.key, 'x-goog-api-key': revoked.key },
  };
  const before = { paid: paid(), metered: await metered() };
  for (const [who, headers] of Object.entries(strangers)) {
    for (const row of ROWS) await call(row, headers);
    assert.equal(paid(), before.paid, who);
  }
  // A credential of one service is a stranger's in the others.
  for (const row of ROWS.filter((each) => each.startsWith('RPC ')))
    await call(row, { authorization: `Bearer ${key.key}` });
  for (const row of CALLS_A_MODEL.filter((each) => each.startsWith('POST ')))
    assert.equal(await call(row, asMain), 401, row);
  assert.deepEqual({ paid: paid(), metered: await metered() }, before);
});

test('money: an admitted caller’s other rows call no model', async () => {
  const before = paid();
  for (const row of ROWS.filter((each) => !CALLS_A_MODEL.includes(each))) {
    await call(row, row.startsWith('RPC ') ? asMain : asMaster);
  }
  await until('as many calls are metered as were paid', async () => (await metered()) === paid());
  assert.equal(paid(), before);
});
