import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { after, test } from 'node:test';
import { openClient } from '../kit/bridge/session-client.ts';
import { FORWARD_TOKEN } from '../kit/bridge/start-nodes.ts';
import { startFaultProxy } from '../kit/fault-proxy.ts';
import { type RunningProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

const PASSWORD = 'copper kettle 47 over the pass';
const MAIN_TOKEN = 'main-token-5a4b3c2d1e0f';
const asMain = { authorization: `Bearer ${MAIN_TOKEN}` };
const scope = { after };
const QUICK = { taskPrompt: 'hello', routing: { explicitProviderId: 'builtin', explicitModel: 'demo/echo' } };

type Headers = Readonly<Record<string, string>>;

async function startNode(id: string, services: readonly string[], settings: object): Promise<RunningProgram> {
  const dataDirectory = await temporaryFolder(scope);
  const file = join(dataDirectory, 'trestle.yaml');
  const { distributed, ...more } = settings as { readonly distributed?: object };
  const text = JSON.stringify({
    bridge: { auth_token: MAIN_TOKEN, trust_users: true, user_root: join(dataDirectory, 'people', '{user}') },
    agents: { catalog: ['builtin'], builtin: { model: 'demo/echo' } },
    plans: { worker: { bridge: true }, local: { bridge: id === 'a' } },
    distributed: { local_node_id: id, task_forward_token: FORWARD_TOKEN, ...distributed },
    ...more,
  });
  await writeFile(file, text, { mode: 0o600 });
  return startProgram(scope, { dataDirectory, args: ['--config', file, ...services] });
}

// The address of accounts, which other nodes read its keys from: it leads nowhere at first.
const accounts = await startFaultProxy(scope, 9);
// A bridge alone charges nobody: it sends the token of a person to completions that do.
const models = await startNode('m', ['completions'], { accounts: { issuer: accounts.url } });
const builtin = { model: 'demo/echo', base_url: `${models.url}/v1`, charge_people: 'there' };
const b = await startNode('b', ['bridge'], {
  accounts: { issuer: accounts.url },
  agents: { catalog: ['builtin'], builtin },
});
const c = await startNode('c', ['bridge'], {});
const a = await startNode('a', [], {
  accounts: { public_url: accounts.url, require_verification: false, registration: 'open', trial_days: 0 },
  distributed: {
    nodes: [
      { id: 'b', bridge_endpoint: b.url },
      { id: 'c', bridge_endpoint: c.url },
    ],
    forwarding: {
      rules: [
        { methods: ['session.start', 'app.jobs.submit'], target: { node_id: 'b' } },
        { methods: ['session.message'], target: { node_id: 'c' } },
      ],
    },
  },
});

// biome-ignore lint/suspicious/noExplicitAny: tests look at answers of every shape.
type Json = any;

async function send(
  url: string,
  path: string,
  headers: Headers,
  body?: unknown,
): Promise<{ status: number; body: Json }> {
  const response = await fetch(`${url}${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, body: text === '' ? undefined : JSON.parse(text) };
}
const rpc = (url: string, headers: Headers, method: string, params: object) =>
  send(url, '/acp/rpc', headers, { jsonrpc: '2.0', id: 1, method, params });
const bearer = (token: string): Headers => ({ authorization: `Bearer ${token}` });

async function logIn(name: string) {
  const { body } = await send(a.url, '/api/auth/login', {}, { identifier: name, password: PASSWORD });
  return { id: body.user.id as string, token: body.token as string, headers: bearer(body.token) };
}
const person = (name: string) => ({ name, email: `${name}@example.org`, password: PASSWORD });
await send(a.url, '/api/auth/setup', {}, { ...person('root'), token: String(a.summary.firstAdmin).split('#')[1] });
const root = await logIn('root');
async function newPerson(name: string, plan: string) {
  assert.equal((await send(a.url, '/api/auth/register', {}, person(name))).status, 201);
  const found = await logIn(name);
  await send(a.url, `/api/auth/admin/users/${found.id}/plan`, root.headers, { plan });
  return found;
}
const ann = await newPerson('ann', 'worker');
const signed = async (who: typeof ann) =>
  bearer((await send(a.url, '/api/auth/token/jwt', who.headers, {})).body.access_token);

/** Owners of the sessions of a node, as they are stored. */
function ownersOn({ dataDirectory }: RunningProgram, sessionId: string): readonly string[] {
  const database = new DatabaseSync(join(dataDirectory, 'bridge.db'), { readOnly: true });
  try {
    const rows = database.prepare('select owner from sessions where session_id = ?').all(sessionId);
    return rows.map(({ owner }) => String(owner)).sort();
  } finally {
    database.close();
  }
}
const seenOn = async (url: string, headers: Headers) => {
  const { status, body } = await send(url, '/api/bridge/sessions', headers);
  assert.equal(status, 200, JSON.stringify(body));
  return (body.sessions as readonly { readonly sessionId: string }[]).map(({ sessionId }) => sessionId).sort();
};

test('a node that cannot check who the caller is says so, and serves everybody else', async () => {
  const { status, body } = await rpc(a.url, ann.headers, 'session.start', { ...QUICK, sessionId: 'early' });
  assert.deepEqual([status, body.error.data.code], [503, 'ISSUER_UNAVAILABLE'], JSON.stringify(body));
  const ofMain = await rpc(a.url, asMain, 'session.start', { ...QUICK, sessionId: 'of-main' });
  assert.equal(ofMain.body.result?.success, true, JSON.stringify(ofMain.body));
  assert.deepEqual([ownersOn(b, 'early'), ownersOn(b, 'of-main')], [[], ['node:a']]);
  accounts.setTarget(a.port);
  const started = await until('the keys to be read', async () => {
    const answer = await rpc(a.url, ann.headers, 'session.start', { ...QUICK, sessionId: 'early' });
    return answer.status !== 503 && answer.body;
  });
  assert.equal(started.result?.success, true, JSON.stringify(started));
  assert.deepEqual(ownersOn(b, 'early'), [`user:${ann.id}`]);
});

test('a forwarded session runs as the person there, who sees it on both nodes, and others on none', async (t) => {
  const bob = await newPerson('bob', 'worker');
  const { body: personal } = await send(a.url, '/api/auth/tokens', ann.headers, { name: 'x', scopes: ['bridge'] });
  for (const [headers, sessionId] of [
    [ann.headers, 'by-login'],
    [bearer(personal.token), 'by-token'],
    [await signed(ann), 'by-signed'],
    [bob.headers, 'of-bob'],
  ] as const) {
    const { body } = await rpc(a.url, headers, 'session.start', { ...QUICK, sessionId });
    assert.equal(body.result?.success, true, JSON.stringify(body));
    const owner = sessionId === 'of-bob' ? bob.id : ann.id;
    assert.deepEqual(ownersOn(b, sessionId), [`user:${owner}`]);
  }
  assert.deepEqual(await seenOn(b.url, await signed(ann)), ['by-login', 'by-signed', 'by-token', 'early']);
  assert.deepEqual(await seenOn(b.url, await signed(bob)), ['of-bob']);

  // Continued by way of the first node, over a socket, and on the node itself.
  const client = await openClient(t, a.url, { headers: ann.headers });
  const continued = await client.call('session.message', { ...QUICK, sessionId: 'by-login' });
  assert.equal(continued.result?.success, true, JSON.stringify(continued));
  const follower = await openClient(t, a.url, { headers: ann.headers, query: 'sessionId=by-login&afterSeq=0' });
  await until('the updates of the session', () => follower.updates.length > 0);
  const direct = await rpc(b.url, await signed(ann), 'session.message', { ...QUICK, sessionId: 'by-login' });
  assert.equal(direct.body.result?.success, true, JSON.stringify(direct.body));
  const stolen = await rpc(b.url, await signed(bob), 'session.message', { ...QUICK, sessionId: 'by-login' });
  assert.equal(stolen.body.error?.data.code, 'SESSION_CONTINUATION_UNAVAILABLE');
  await until('both to be charged where the models are', async () => {
    const usage = JSON.stringify((await send(models.url, '/usage?group_by=owner', {})).body);
    return [ann, bob].every(({ id }) => usage.includes(`user:${id}`));
  });
  for (const node of [a, b]) {
    for (const secret of [ann.token, personal.token]) assert.ok(!node.stderr().includes(secret), 'logged');
  }
});

test('jobs of people on another node are listed once, for them and for administrators', async () => {
  const eve = await newPerson('eve', 'worker');
  const submitted = await rpc(a.url, eve.headers, 'app.jobs.submit', { ...QUICK, sessionId: 'job-of-eve' });
  const { jobId } = submitted.body.result as { readonly jobId: string };
  const own = await rpc(a.url, eve.headers, 'app.jobs.get', { jobId });
  assert.notEqual(own.body.result?.status, 'not_found', JSON.stringify(own.body));
  const other = await newPerson('dan', 'worker');
  await rpc(a.url, other.headers, 'app.jobs.submit', { ...QUICK, sessionId: 'job-of-dan' });
  for (const [headers, count] of [
    [eve.headers, 1],
    [other.headers, 1],
    [root.headers, 2],
  ] as const) {
    const { result } = (await rpc(a.url, headers, 'app.jobs.list', {})).body;
    const ids = (result.jobs as readonly { readonly jobId: string }[]).map((job) => job.jobId);
    assert.deepEqual(
      [ids.length, new Set(ids).size, result.summary.total],
      [count, count, count],
      JSON.stringify(result),
    );
  }
});

test('a person whose plan does not include the bridge there is refused, and the node stays up for others', async () => {
  const tim = await newPerson('tim', 'local');
  const { status, body } = await rpc(a.url, tim.headers, 'session.start', { ...QUICK, sessionId: 'of-tim' });
  assert.deepEqual([status, body.error.data.code], [403, 'FORWARD_PERSON_REFUSED'], JSON.stringify(body));
  assert.match(body.error.message, /does not include the bridge/);
  assert.deepEqual(ownersOn(b, 'of-tim'), []);
  const { body: answer } = await rpc(a.url, asMain, 'session.start', { ...QUICK, sessionId: 'after-tim' });
  assert.equal(answer.result?.success, true, JSON.stringify(answer));
});

test('a node that knows no people has the call as one of the first node', async () => {
  await rpc(a.url, ann.headers, 'session.message', { ...QUICK, sessionId: 'elsewhere' });
  const known = await rpc(a.url, ann.headers, 'session.message', { ...QUICK, sessionId: 'elsewhere' });
  // It has no such session, and takes the call all the same: no token is asked for.
  assert.equal(known.body.error?.data.code, 'SESSION_CONTINUATION_UNAVAILABLE', JSON.stringify(known.body));
  const started = await rpc(c.url, { ...forwardedBy(ann.id) }, 'session.start', { ...QUICK, sessionId: 'elsewhere' });
  assert.equal(started.body.result?.success, true, JSON.stringify(started.body));
  assert.deepEqual(ownersOn(c, 'elsewhere'), [`node:a:user:${ann.id}`]);
  const continued = await rpc(a.url, ann.headers, 'session.message', { ...QUICK, sessionId: 'elsewhere' });
  assert.equal(continued.body.result?.success, true, JSON.stringify(continued.body));
});

test('forwarded work for a team is that of the team there, for all of its members', async () => {
  const [tom, una] = [await newPerson('tom', 'worker'), await newPerson('una', 'worker')];
  const { body } = await send(a.url, '/api/auth/teams', root.headers, { name: 'Bridge builders' });
  const team = body.team.id as string;
  for (const { id: userId } of [ann, tom]) {
    assert.ok((await send(a.url, `/api/auth/teams/${team}/members`, root.headers, { userId })).status < 300);
  }
  const started = await rpc(a.url, ann.headers, 'session.start', { ...QUICK, sessionId: 'of-team', team });
  assert.equal(started.body.result?.output, 'hello', JSON.stringify(started.body));
  assert.deepEqual([ownersOn(a, 'of-team'), ownersOn(b, 'of-team')], [[], [`team:${team}`]]);
  // Tom finds it where it lives, although messages of his own would go to another node.
  const message = { sessionId: 'of-team', taskPrompt: 'and on' };
  const went = await rpc(a.url, { ...tom.headers, 'x-team': team }, 'session.message', message);
  assert.equal(went.body.result?.output, 'and on', JSON.stringify(went.body));
  const plain = await rpc(a.url, tom.headers, 'session.message', message);
  assert.equal(plain.body.result?.output, 'and on', JSON.stringify(plain.body));
  const strange = await rpc(a.url, una.headers, 'session.message', message);
  assert.equal(strange.body.error?.data.code, 'SESSION_CONTINUATION_UNAVAILABLE', JSON.stringify(strange.body));
  const job = await rpc(a.url, ann.headers, 'app.jobs.submit', { ...QUICK, team });
  const { jobId } = job.body.result;
  const listed = async (headers: Headers, params: object = {}) =>
    ((await rpc(a.url, headers, 'app.jobs.list', params)).body.result.jobs as Json[]).filter(
      (one) => one.jobId === jobId,
    );
  assert.deepEqual((await listed(tom.headers)).length, 1);
  assert.deepEqual((await listed(tom.headers, { team })).length, 1);
  assert.deepEqual(await listed(una.headers), []);
});

test('someone who is paused reaches nothing by way of the first node', async () => {
  await send(a.url, `/api/auth/admin/users/${ann.id}/pause`, root.headers, {});
  const { status } = await rpc(a.url, ann.headers, 'session.message', { ...QUICK, sessionId: 'by-login' });
  assert.equal(status, 401);
});

/** The headers with which node a hands on a call of someone, without a token of theirs. */
function forwardedBy(id: string): Headers {
  return {
    ...bearer(FORWARD_TOKEN),
    'x-app-bridge-forwarded': '1',
    'x-app-forward-source': 'a',
    'x-app-forward-target': 'c',
    'x-app-forward-hop': '1',
    'x-app-forward-owner': `user:${id}`,
  };
}
