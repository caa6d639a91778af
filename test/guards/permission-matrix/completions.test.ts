import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import type { Owner } from '../../../src/platform/identity/owner.ts';
import { labAt, startCompletions } from '../../kit/completions/start-completions.ts';
import { MASTER_KEY } from '../../kit/completions/start-keys.ts';
import { answers, completionOf, startScriptedUpstream } from '../../kit/scripted-upstream.ts';
import { checkPermissions } from './permission-matrix.ts';

const EMBEDDINGS = {
  object: 'list',
  data: [{ object: 'embedding', index: 0, embedding: [0.1] }],
  usage: { prompt_tokens: 1, total_tokens: 1 },
};
/** An answer to every other operation. */
const ANSWER = completionOf('ok', { data: [], results: [], text: 'ok' });
const upstream = await startScriptedUpstream({ after }, (response, request) =>
  request.path.endsWith('/speech')
    ? answers('sound', 200, { 'content-type': 'audio/mpeg' })(response, request)
    : answers(request.path.endsWith('/embeddings') ? EMBEDDINGS : ANSWER)(response, request),
);

/** Owners as accounts knows them; whoever is not here is unknown, and the key counts by itself. */
const owners = new Map<string, Owner>(
  (['active', 'paused', 'blocked', 'closing', 'gone'] as const).map((state) => [
    state,
    {
      id: state,
      state,
      role: 'user',
      plan: '',
      allowed: undefined,
      buckets: [],
      teams: [],
      bridge: false,
      revision: 1,
    },
  ]),
);
let skew = 0;
const guarded = await startCompletions(
  { after },
  {
    settings: labAt(upstream.url, { master_key: MASTER_KEY }),
    clock: { ...systemClock, now: () => Date.now() + skew },
    owners: { ownerOf: (id) => owners.get(id), watch: () => () => undefined, record: async () => undefined },
  },
);
const open = await startCompletions({ after }, { settings: labAt(upstream.url) });

const asMaster = { authorization: `Bearer ${MASTER_KEY}` };

async function issue(fields: object): Promise<{ readonly id: string; readonly key: string }> {
  const response = await guarded.post('/keys', { name: 'a key', ...fields }, { headers: asMaster });
  return (await response.json()) as { id: string; key: string };
}
const bearer = async (fields: object) => ({ authorization: `Bearer ${(await issue(fields)).key}` });

const plain = await issue({});
const expiring = await bearer({ expires_at: new Date(Date.now() + 60_000).toISOString() });
const revoked = await issue({});
await fetch(`${guarded.url}/keys/${revoked.id}`, { method: 'DELETE', headers: asMaster });
skew = 120_000;

/** Every kind of caller: where it calls, and with which headers. */
const CALLERS = {
  none: [guarded.url, {}],
  garbage: [guarded.url, { authorization: 'Bearer nonsense' }],
  'not a bearer': [guarded.url, { authorization: `Basic ${btoa(`user:${MASTER_KEY}`)}` }],
  'key of nobody': [guarded.url, { authorization: `Bearer tsk_${'a'.repeat(43)}` }],
  'revoked key': [guarded.url, { authorization: `Bearer ${revoked.key}` }],
  'expired key': [guarded.url, expiring],
  'key of a paused owner': [guarded.url, await bearer({ owner: 'paused' })],
  'key of a blocked owner': [guarded.url, await bearer({ owner: 'blocked' })],
  'key of an owner who is leaving': [guarded.url, await bearer({ owner: 'closing' })],
  'key of an owner who is gone': [guarded.url, await bearer({ owner: 'gone' })],
  'login session': [guarded.url, { authorization: 'Bearer xs_0123456789', cookie: 'xc_session=xs_0123456789' }],
  'key in a cookie': [guarded.url, { cookie: `key=${plain.key}; authorization=Bearer ${plain.key}` }],
  'key as x-api-key': [guarded.url, { 'x-api-key': plain.key }],
  'key as x-goog-api-key': [guarded.url, { 'x-goog-api-key': plain.key }],
  key: [guarded.url, { authorization: `Bearer ${plain.key}` }],
  'key of an active owner': [guarded.url, await bearer({ owner: 'active' })],
  'key for another model': [guarded.url, await bearer({ models: ['demo/echo'] })],
  'master key': [guarded.url, asMaster],
  'open, none': [open.url, {}],
  'open, any word': [open.url, { authorization: 'Bearer none-needed' }],
  'open, key of nobody': [open.url, { authorization: `Bearer tsk_${'a'.repeat(43)}` }],
} as const satisfies Record<string, readonly [string, Readonly<Record<string, string>>]>;

type Caller = keyof typeof CALLERS;
const callers = Object.keys(CALLERS) as Caller[];

/** What most rows give: any key that works. */
const WITH_KEY: Record<Caller, string> = {
  none: 'invalid_api_key',
  garbage: 'invalid_api_key',
  'not a bearer': 'invalid_api_key',
  'key of nobody': 'invalid_api_key',
  'revoked key': 'invalid_api_key',
  'expired key': 'invalid_api_key',
  'key of a paused owner': 'invalid_api_key',
  'key of a blocked owner': 'invalid_api_key',
  'key of an owner who is leaving': 'invalid_api_key',
  'key of an owner who is gone': 'invalid_api_key',
  'login session': 'invalid_api_key',
  'key in a cookie': 'invalid_api_key',
  'key as x-api-key': 'invalid_api_key',
  'key as x-goog-api-key': 'invalid_api_key',
  key: 'served',
  'key of an active owner': 'served',
  'key for another model': 'served',
  'master key': 'served',
  'open, none': 'served',
  'open, any word': 'served',
  'open, key of nobody': 'invalid_api_key',
};

/** Rows that call a model: a key must be allowed to use it. */
const MODEL: Record<Caller, string> = { ...WITH_KEY, 'key for another model': 'model_not_allowed' };
/** Anthropic's clients send their key in a header of their own. */
const ANTHROPIC = (row: Record<Caller, string>) => ({ ...row, 'key as x-api-key': 'served' });
/** So do Google's. */
const GEMINI = (row: Record<Caller, string>) => ({ ...row, 'key as x-goog-api-key': 'served' });
/** Rows of the operator. */
const WITH_MASTER_KEY: Record<Caller, string> = {
  ...WITH_KEY,
  key: 'forbidden',
  'key of an active owner': 'forbidden',
  'key for another model': 'forbidden',
};

const EXPECTED: Readonly<Record<string, Record<Caller, string>>> = {
  'POST /chat/completions': MODEL,
  'POST /v1/chat/completions': MODEL,
  'POST /completions': MODEL,
  'POST /v1/completions': MODEL,
  'POST /v1/embeddings': MODEL,
  'POST /v1/images/generations': MODEL,
  'POST /v1/images/edits': MODEL,
  'POST /v1/audio/speech': MODEL,
  'POST /v1/audio/transcriptions': MODEL,
  'POST /v1/audio/translations': MODEL,
  'POST /v1/moderations': MODEL,
  'POST /v1/rerank': MODEL,
  // A file that is not for a batch needs the right to `<api>/files`.
  'POST /v1/files': ANTHROPIC(MODEL),
  'GET /v1/files': ANTHROPIC(WITH_KEY),
  'GET /v1/files/:id': ANTHROPIC(WITH_KEY),
  'DELETE /v1/files/:id': ANTHROPIC(WITH_KEY),
  'GET /v1/files/:id/content': ANTHROPIC(WITH_KEY),
  'POST /v1/batches': WITH_KEY,
  'GET /v1/batches': WITH_KEY,
  'GET /v1/batches/:id': WITH_KEY,
  'POST /v1/batches/:id/cancel': WITH_KEY,
  'POST /v1/responses': MODEL,
  'POST /v1/messages': ANTHROPIC(MODEL),
  // Counts without asking a model.
  'POST /v1/messages/count_tokens': ANTHROPIC(WITH_KEY),
  'POST /v1beta/models/*': GEMINI(MODEL),
  'POST /v1/models/*': GEMINI(ANTHROPIC(MODEL)),
  'GET /v1beta/models': GEMINI(WITH_KEY),
  'GET /v1beta/models/*': GEMINI({ ...WITH_KEY, 'key for another model': 'model_not_found' }),
  'GET /models': WITH_KEY,
  'GET /v1/models': GEMINI(ANTHROPIC(WITH_KEY)),
  'GET /v1/apis': WITH_MASTER_KEY,
  'GET /v1/targets': WITH_KEY,
  // A model that a key may not use does not exist for it.
  'GET /models/*': { ...WITH_KEY, 'key for another model': 'model_not_found' },
  'GET /v1/models/*': GEMINI(ANTHROPIC({ ...WITH_KEY, 'key for another model': 'model_not_found' })),
  'POST /keys': WITH_MASTER_KEY,
  'POST /v1/keys': WITH_MASTER_KEY,
  'GET /keys': WITH_MASTER_KEY,
  'GET /v1/keys': WITH_MASTER_KEY,
  'PATCH /keys/:id': WITH_MASTER_KEY,
  'PATCH /v1/keys/:id': WITH_MASTER_KEY,
  'POST /keys/:id/rotate': WITH_MASTER_KEY,
  'POST /v1/keys/:id/rotate': WITH_MASTER_KEY,
  'DELETE /keys/:id': WITH_MASTER_KEY,
  'DELETE /v1/keys/:id': WITH_MASTER_KEY,
  'GET /usage': WITH_KEY,
  'GET /v1/usage': WITH_KEY,
  'GET /usage/calls': WITH_KEY,
  'GET /v1/usage/calls': WITH_KEY,
  'GET /usage/calls/:id': WITH_KEY,
  'GET /v1/usage/calls/:id': WITH_KEY,
};

/** A body that fits every row that calls a model. */
const BODY = {
  ...{ model: 'lab/small', messages: [{ role: 'user', content: 'Hello' }], input: 'Hello', max_tokens: 9 },
  contents: [{ parts: [{ text: 'Hello' }] }],
  ...{ query: 'Hello', documents: ['Hello'] },
};

/** Rows that take a file. */
const FORMS = /\/(?:edits|transcriptions|translations|files)$/;

function formOf(): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries({ model: 'lab/small', prompt: 'Hello' })) form.append(name, value);
  form.append('file', new Blob(['sound']), 'a.wav');
  return form;
}

function bodyOf(path: string): object {
  if (path.endsWith('/keys') || path.endsWith('/keys/:id')) return { name: 'made' };
  if (path.endsWith('/rotate')) return {};
  if (path.endsWith('/batches')) return { input_file_id: 'none', endpoint: 'none', completion_window: '24h' };
  return (path.endsWith('/completions') && !path.includes('chat')) || path.endsWith('/generations')
    ? { ...BODY, prompt: 'Hello' }
    : BODY;
}

async function ask(name: string, caller: Caller): Promise<string> {
  const [url, headers] = CALLERS[caller];
  const [method = '', path = ''] = name.split(' ');
  const takesBody = method === 'POST' || method === 'PATCH';
  const isForm = FORMS.test(path);
  const operation = /^POST \/v1(?:beta)?\/models\/\*$/.test(name) ? ':generateContent' : '';
  const response = await fetch(`${url}${path.replace(':id', 'key_none').replace('*', 'lab/small')}${operation}`, {
    method,
    headers: { ...headers, ...(takesBody && !isForm && { 'content-type': 'application/json' }) },
    ...(takesBody && { body: isForm ? formOf() : JSON.stringify(bodyOf(path)) }),
  });
  const text = await response.text();
  // Whoever may revoke a key is told that this one does not exist.
  if (response.ok || /"(?:key_not_found|call_not_found|nothing_stored)"/.test(text)) return 'served';
  const { error } = JSON.parse(text) as { error: { code?: string; type: string; details?: { reason: string }[] } };
  // Google's shape has the code among the details.
  const [detail] = error.details ?? [];
  if (detail !== undefined) return detail.reason.toLowerCase();
  // Anthropic's shape has a type in the place of a code.
  if (error.code !== undefined) return error.code;
  return error.type === 'authentication_error' ? 'invalid_api_key' : 'model_not_allowed';
}

test('every route of completions lets in whom it should, and nobody else', async () => {
  await checkPermissions({
    names: guarded.completions.surface.routes.map(({ method, path }) => `${method} ${path}`),
    callers,
    expected: EXPECTED,
    ask,
  });
});

test('a key counts in its header alone: not in the path, the query or the body', async () => {
  for (const place of [`?key=${plain.key}`, `?api_key=${plain.key}`, `?authorization=Bearer%20${plain.key}`]) {
    const response = await guarded.post(`/v1/chat/completions${place}`, { ...BODY, api_key: plain.key });
    assert.equal(response.status, 401, place);
  }
});
