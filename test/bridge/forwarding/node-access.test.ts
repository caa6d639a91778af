import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createBridgeAccess } from '../../../src/bridge/access.ts';
import { principalOf } from '../../../src/bridge/principal.ts';
import type { RequestHead } from '../../../src/platform/http/surface.ts';
import type { PersonTokens } from '../../../src/platform/identity/principal.ts';
import { postRpc, refusedUpgrade } from '../../kit/bridge/bridge-client.ts';
import { MAIN_TOKEN } from '../../kit/bridge/start-bridge.ts';
import {
  asMain,
  asNode,
  asReview,
  FORWARD_TOKEN,
  type NodeUnderTest,
  startNode,
  turn,
} from '../../kit/bridge/start-nodes.ts';

const rpc = (method: string, params: unknown = {}) => ({ jsonrpc: '2.0', id: 1, method, params });
const ownersOf = async ({ database }: NodeUnderTest) =>
  (await database.read(database.query.selectFrom('sessions').select('owner').compile())).map(({ owner }) => owner);

test('B-92: the forward token opens forwarded requests and nothing else', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const bare = { authorization: `Bearer ${FORWARD_TOKEN}` };
  assert.equal((await postRpc(b.url, rpc('acp.capabilities'), bare)).status, 401);
  assert.equal((await fetch(`${b.url}/api/ping`, { headers: bare })).status, 401);
  assert.equal((await fetch(`${b.url}/api/ping`, { headers: asNode() })).status, 401);
  assert.equal((await refusedUpgrade(b.url, { headers: bare })).status, 401);
  assert.equal((await postRpc(b.url, rpc('acp.capabilities'), asNode())).status, 200);
});

test('B-92: headers of a forwarded request are ignored with any other credential, where nothing is handed on', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const { authorization: _ours, ...spoofed } = asNode({ 'x-app-forward-target': 'nowhere', 'x-app-forward-hop': '99' });
  for (const [credential, owner] of [
    [asMain, 'main'],
    [asReview, 'review'],
  ] as const) {
    const answer = await postRpc(b.url, rpc('session.start', turn(`of-${owner}`)), { ...spoofed, ...credential });
    assert.equal(answer.json.result?.success, true);
    // Not even a malformed one is looked at.
    const odd = { ...spoofed, ...credential, 'x-app-forward-hop': 'x' };
    assert.equal((await postRpc(b.url, rpc('acp.capabilities'), odd)).status, 200);
  }
  assert.deepEqual((await ownersOf(b)).sort(), ['main', 'review']);
  assert.equal((await postRpc(b.url, rpc('acp.capabilities'), spoofed)).status, 401);
});

test('forwarding: where no forward token is set it is the main token', async (t) => {
  const b = await startNode(t, { id: 'b', forwardToken: '' });
  const asOther = { ...asNode(), authorization: `Bearer ${MAIN_TOKEN}` };
  await postRpc(b.url, rpc('session.start', turn('s1')), asOther);
  assert.deepEqual(await ownersOf(b), ['node:other']);
  assert.equal((await postRpc(b.url, rpc('acp.capabilities'), asMain)).status, 200);
  assert.equal((await postRpc(b.url, rpc('acp.capabilities'), { ...asOther, ...asReview })).status, 200);
  await postRpc(b.url, rpc('session.start', turn('s2')), { ...asOther, ...asReview });
  assert.deepEqual((await ownersOf(b)).sort(), ['node:other', 'review']);
});

test('forwarding: a hop header that is malformed or repeated is answered with 400 and -32600', async (t) => {
  const b = await startNode(t, { id: 'b' });
  for (const hop of ['', 'x', '-1', '1.5', '1, 2', '99999']) {
    const { status, json } = await postRpc(b.url, rpc('acp.capabilities'), asNode({ 'x-app-forward-hop': hop }));
    assert.equal(status, 400, hop);
    assert.equal(json.error?.code, -32600);
  }
});

const settings = (main: string, forward: string) => ({
  bridge: { auth_token: main, review_auth_token: '', allowed_origins: [], app_origin: '' },
  distributed: { task_forward_token: forward, local_node_id: 'b' },
});
const accessWith = (main: string, forward: string, personTokens?: PersonTokens) =>
  createBridgeAccess({
    personTokens,
    settings: settings(main, forward),
    throttle: { note: () => ({ firstOverLimit: false }) },
    commandToken: 'command-token-3f2a',
    clock: { now: () => 0 },
    onFlood: () => undefined,
    onIgnoredForward: () => undefined,
  });
const headWith = (headers: Readonly<Record<string, string>>, address = '127.0.0.1') =>
  ({ path: '/acp', headers, address }) as unknown as RequestHead;

test('forwarding: a call for a person is theirs where the token counts, refused where it ended, and of the node elsewhere', async () => {
  const token = (name: string) => `ey${name}.e30.c2ln`;
  const read: string[] = [];
  const access = accessWith('main', FORWARD_TOKEN, {
    issue: () => undefined,
    forPayer: () => undefined,
    async read(given) {
      read.push(given);
      if (given === token('ann')) return principalOf('user:ann');
      if (given === token('reader')) return { ...principalOf('user:reader'), scopes: new Set() };
      return given === token('ended') ? 'refused' : 'foreign';
    },
  });
  const enter = async (name: string, more: Readonly<Record<string, string>> = {}) => {
    const headers = asNode({ 'x-app-forward-owner': 'user:x', 'x-app-forward-person': token(name), ...more });
    return access.fromAppOrNode(headWith(headers));
  };
  const ann = await enter('ann');
  assert.deepEqual([ann.principal.id, ann.forwarded?.source, access.stillAllowed(ann)], ['user:ann', 'other', true]);
  assert.equal((await enter('foreign')).principal.id, 'node:other:user:x');
  for (const name of ['ended', 'reader']) await assert.rejects(enter(name), { code: 'FORWARD_PERSON_REFUSED' });
  const before = read.length;
  const passing = await enter('ann', { 'x-app-forward-target': 'c' });
  assert.deepEqual([passing.principal.id, passing.forwarded?.person], ['node:other:user:x', token('ann')]);
  await assert.rejects(enter('ann', { authorization: 'Bearer wrong' }), { code: 'UNAUTHORIZED' });
  const asOperator = await enter('ann', { authorization: 'Bearer main' });
  assert.equal(asOperator.principal.id, 'main', 'the header counts with the forward token alone');
  assert.equal(read.length, before, 'neither reads the token');
});

test('forwarding: sockets of nodes end when the forward token is replaced, and only then', async () => {
  const access = accessWith('main', FORWARD_TOKEN);
  const caller = await access.fromAppOrNode(headWith(asNode()));
  assert.equal(caller.principal.id, 'node:other');
  access.reload(settings('another main', FORWARD_TOKEN));
  assert.equal(access.stillAllowed(caller), true);
  access.reload(settings('another main', 'another forward'));
  assert.equal(access.stillAllowed(caller), false);
  assert.throws(() => access.fromAppOrNode(headWith(asNode())), { code: 'UNAUTHORIZED' });
});

for (const [address, principal] of [
  ['127.0.0.1', 'node:other'],
  ['::1', 'node:other'],
  ['10.0.0.7', 'node:other'],
  ['100.64.1.1', 'node:other'],
  ['fe80::1', 'node:other'],
  ['8.8.8.8', 'main'],
  ['2606:4700::1111', 'main'],
  ['169.254.169.254', 'main'],
] as const) {
  test(`forwarding: with no token at all, headers from ${address} make the caller ${principal}`, async () => {
    const { authorization: _none, ...headers } = asNode();
    assert.equal((await accessWith('', '').fromAppOrNode(headWith(headers, address))).principal.id, principal);
  });
}

test('B-94: /gateway/<id> is there for forwarded requests to a gateway that is known, for anyone else it is not', async (t) => {
  const b = await startNode(t, { id: 'b' });
  const post = async (path: string, headers: Readonly<Record<string, string>>) => {
    const body = JSON.stringify(rpc('acp.capabilities'));
    const answer = await fetch(`${b.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
    });
    await answer.arrayBuffer();
    return answer.status;
  };
  assert.equal(await post('/gateway/openclaw', asNode()), 200);
  assert.equal(await post('/gateway/openclaw', asMain), 404);
  assert.equal(await post('/gateway/openclaw', { 'x-app-bridge-forwarded': '1' }), 404);
  assert.equal(await post('/gateway/openclaw', {}), 404);
  for (const method of ['GET', 'PUT', 'OPTIONS', 'DELETE']) {
    const { status, headers } = await fetch(`${b.url}/gateway/openclaw`, { method, headers: asNode() });
    assert.equal(status, 404, method);
    assert.equal(headers.get('allow'), null);
  }
  for (const id of ['other', '', '..%2f..%2facp%2frpc', '%2e%2e', 'openclaw%2f..', 'openclaw/x', 'openclaw%00']) {
    assert.ok([400, 404].includes(await post(`/gateway/${id}`, asNode())), id);
  }
});

test('B-94: a request is handed on at the path it came on', async (t) => {
  const c = await startNode(t, { id: 'c' });
  const b = await startNode(t, { id: 'b', peers: { c: c.url } });
  for (const path of ['/acp/rpc', '/gateway/openclaw']) {
    const answer = await fetch(`${b.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...asNode({ 'x-app-forward-target': 'c' }) },
      body: JSON.stringify(rpc('session.start', turn(`s${path.length}`))),
    });
    const { result } = (await answer.json()) as { result?: { resolvedProviderId?: string } };
    assert.equal(result?.resolvedProviderId, 'agent-of-c');
  }
});
