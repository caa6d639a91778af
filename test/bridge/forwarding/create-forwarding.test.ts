import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import type { BridgeCaller } from '../../../src/bridge/access.ts';
import type { BridgeClient } from '../../../src/bridge/bridge-client.ts';
import { createForwarding, type ForwardingOptions } from '../../../src/bridge/forwarding/create-forwarding.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import type { BridgeGroups } from '../../../src/bridge/settings.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import type { Credential, Principal } from '../../../src/platform/identity/principal.ts';
import type { MethodCall } from '../../../src/platform/json-rpc/method-table.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { type SeenRequest, startScriptedHttp } from '../../kit/scripted-http.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

type Answer = (request: SeenRequest) => { readonly status?: number; readonly result?: unknown } | undefined;

const selector = { role: '', zone: '', capability: '' };
const rule = (methods: readonly string[], target: object) => ({
  methods,
  target: { node_id: '', selector, strategy: 'round_robin', ...target },
});
const client = (caller: Partial<BridgeCaller> = {}): BridgeClient => ({
  caller: { principal: MAIN, ...caller },
  sink: undefined,
  stays: false,
  resume: { afterSeq: undefined, idempotencyKey: '' },
});

describe('forwarding to nodes that a test plays, on sqlite', () => {
  const places = databasePlaces('sqlite');

  /** A bridge `a` with nodes that answer as the test says; calls of all methods go to them by turns. */
  async function start(
    context: TestContext,
    nodes: Readonly<Record<string, Answer>>,
    forwarding: object = {},
    options: Partial<ForwardingOptions> = {},
  ) {
    const clock = createFakeClock();
    const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
    const peers: Record<string, Awaited<ReturnType<typeof startScriptedHttp>>> = {};
    for (const [id, answer] of Object.entries(nodes)) {
      peers[id] = await startScriptedHttp(context, (request) => {
        const answered = answer(request);
        if (answered === undefined) return;
        const { status = 200, result = {} } = answered;
        const { id: callId = null } = request.body === '' ? {} : JSON.parse(request.body);
        const text = JSON.stringify({ jsonrpc: '2.0', id: callId, result });
        const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
        request.response.writeHead(status, headers).end(text);
      });
    }
    const settings = {
      bridge: { auth_token: 'main-token', method_prefix_aliases: ['acme'] },
      distributed: {
        ...{ local_node_id: 'a', task_forward_peer_id: '', task_forward_token: 'forward-token' },
        nodes: Object.entries(peers).map(([id, { url }]) => ({
          ...{ id, role: 'exec', zone: '', capabilities: [], bridge_endpoint: url },
        })),
        forwarding: {
          ...{ hop_limit: 3, default_action: 'execute_local', routes: [] },
          rules: [rule(['*'], { selector: { ...selector, role: 'exec' } })],
          ...forwarding,
        },
      },
    } as unknown as BridgeGroups;
    const made = await createForwarding({
      settings,
      database,
      links: { relay: (place, path) => `/relayed/${place}${path}` },
      contract: '1.0.0',
      withFiles: async (_owner, params) => params,
      clock,
      logger: silentLogger,
      ...options,
    });
    context.after(() => made.stop());
    const here: string[] = [];
    const dispatch = made.wrap(({ method }) => {
      here.push(method);
      return { jobs: [], summary: {}, nextCursor: null };
    });
    const call = async (method: string, params: object = {}, from: Partial<BridgeCaller> = {}): Promise<unknown> => {
      const given = { method, params, id: 1, requestId: 'req-1', caller: client(from), notify() {}, accept() {} };
      const answer = await dispatch(given as unknown as MethodCall<BridgeClient>);
      const { text } = answer as { readonly text?: string };
      return text === undefined ? answer : JSON.parse(text);
    };
    const asked = (id: string) => (peers[id]?.requests ?? []).map(({ body }) => JSON.parse(body).method as string);
    return { made, call, clock, peers, here, asked, settings };
  }
  const ok: Answer = () => ({ result: { ok: true } });

  test('starts take turns over the nodes, an alias goes out under its own name, and settings decide what stays', async (t) => {
    const { call, asked } = await start(t, { b: ok, c: ok });
    for (const sessionId of ['1', '2', '3', '4']) await call('session.start', { sessionId });
    assert.deepEqual([asked('b').length, asked('c').length], [2, 2]);
    await call('acme.other');
    assert.ok([...asked('b'), ...asked('c')].includes('app.other'));
    const staying = await start(t, { b: ok }, { rules: [] });
    await staying.call('session.start', { sessionId: 's' });
    assert.deepEqual([staying.here, staying.asked('b')], [['session.start'], []]);
    const rejecting = await start(t, {}, { rules: [], default_action: 'reject' });
    await assert.rejects(rejecting.call('session.start', { sessionId: 's' }), { code: 'TASK_FORWARD_PEER_UNKNOWN' });
  });

  test('a node that takes no work is asked every five seconds whether it does again, as the operator', async (t) => {
    let status = 503;
    const { made, call, clock, peers, asked } = await start(t, { b: () => ({ status, result: {} }) });
    await assert.rejects(call('session.start', { sessionId: 's' }), { code: 'TASK_FORWARD_FAILED' });
    const state = () => made.nodes.list().nodes[0]?.state;
    assert.equal(state(), 'it takes no new work');
    await clock.advance(4999);
    assert.deepEqual(asked('b'), ['session.start']);
    await clock.advance(1);
    await peers.b?.arrived(2);
    const probe = peers.b?.requests[1];
    assert.deepEqual(
      [asked('b')[1], JSON.parse(probe?.body ?? '').params, probe?.headers['x-app-forward-owner']],
      ['acp.capabilities', {}, undefined],
    );
    assert.deepEqual(
      ['x-app-forward-target', 'x-request-id', 'x-app-forward-person', 'x-app-forward-team'].map(
        (name) => probe?.headers[name],
      ),
      ['b', undefined, undefined, undefined],
    );
    status = 200;
    await until('it to be up', async () => {
      await clock.advance(5000);
      return state() === 'up';
    });
  });

  test('a call carries the person that it is for while the login lives, and nobody for tokens and nodes', async (t) => {
    let isLive = true;
    const issued: string[] = [];
    const personTokens = {
      issue(principal: Principal) {
        issued.push(principal.id);
        return principal.id === 'user:none' ? undefined : 'eyJh.e30.c2ln';
      },
      forPayer: () => undefined,
      read: async () => 'foreign' as const,
    };
    const { call, peers } = await start(t, { b: ok }, {}, { personTokens });
    const headers = () => {
      const sent = peers.b?.requests.at(-1)?.headers ?? {};
      return [sent['x-app-forward-person'], sent['x-app-forward-team'], sent['x-app-forward-owner']];
    };
    const credential = { isLive: () => isLive } as Credential;
    const ann: Principal = { ...principalOf('user:ann'), credential };
    await call('app.x', {}, { principal: ann });
    assert.deepEqual(headers(), ['eyJh.e30.c2ln', undefined, 'user:ann']);
    const atWork: Principal = { ...ann, id: 'team:t', team: 't', member: ann };
    await call('app.x', {}, { principal: atWork });
    assert.deepEqual(
      [headers(), issued],
      [
        ['eyJh.e30.c2ln', 't', 'team:t'],
        ['user:ann', 'user:ann'],
      ],
    );
    await call('app.x', {}, { principal: { ...atWork, member: { ...ann, id: 'user:none' } } });
    assert.deepEqual(headers(), [undefined, undefined, 'team:t'], 'no team without a person');
    await call('app.x', {}, { principal: principalOf('review') });
    assert.deepEqual(headers(), [undefined, undefined, 'review']);
    isLive = false;
    await assert.rejects(call('app.x', {}, { principal: ann }), { code: 'UNAUTHORIZED' });
    assert.equal(peers.b?.requests.length, 4);
  });

  test('a drain refuses new work for other nodes, lets other calls pass, and waits for what is under way', async (t) => {
    const held = Promise.withResolvers<void>();
    const { made, call, clock, peers } = await start(t, {
      b(request) {
        if (!request.body.includes('held')) return { result: { ok: true } };
        void held.promise.then(() => request.response.writeHead(200).end('{"jsonrpc":"2.0","id":1,"result":{}}'));
        return undefined;
      },
    });
    const slow = call('session.start', { sessionId: 'held' });
    await peers.b?.arrived(1);
    let isSettled = false;
    const settled = made.settle().then(() => {
      isSettled = true;
    });
    for (const method of ['session.start', 'session.message', 'app.jobs.submit']) {
      await assert.rejects(call(method, { sessionId: 's' }), { code: 'SHUTTING_DOWN' }, method);
    }
    await call('session.cancel', { sessionId: 's' });
    await clock.advance(1000);
    assert.equal(isSettled, false);
    held.resolve();
    await slow;
    await settled;
  });

  test('a call beyond the hop limit is refused before anything is sent, by every way', async (t) => {
    const { made, call, peers } = await start(t, { b: ok });
    await call('session.start', { sessionId: 's' }, { hop: 2 });
    assert.equal(peers.b?.requests[0]?.headers['x-app-forward-hop'], '3');
    const code = 'TASK_FORWARD_HOP_LIMIT_EXCEEDED';
    await assert.rejects(call('session.start', { sessionId: 't' }, { hop: 3 }), { code });
    const following = made.following({ follow: async () => undefined, forget: () => undefined } as never);
    const far = { principal: MAIN, hop: 3 };
    await assert.rejects(
      following.follow(far, 's', 0, {} as never, () => undefined),
      { code },
    );
    assert.equal(peers.b?.requests.length, 1);
  });

  test('jobs that were forwarded are listed with those of this bridge, with links that lead through it', async (t) => {
    const artifacts = [{ url: '/api/artifacts/x' }];
    const { call, peers, made } = await start(
      t,
      {
        b: (request) =>
          request.body.includes('app.jobs.list')
            ? { result: { jobs: [{ jobId: 'job-1', result: { artifacts } }], summary: { total: 1 } } }
            : { result: { jobId: 'job-1', sessionId: 's' } },
      },
      { rules: [rule(['app.jobs.submit'], { node_id: 'b' })] },
    );
    await call('app.jobs.submit', { taskPrompt: 'x' });
    const list = (await call('app.jobs.list')) as { jobs: { jobId: string; nodeId: string }[]; nodes: unknown[] };
    assert.deepEqual(
      list.jobs.map(({ jobId, nodeId }) => [jobId, nodeId]),
      [['job-1', 'b']],
    );
    assert.deepEqual(list.nodes, [
      { nodeId: 'a', status: 'ok' },
      { nodeId: 'b', status: 'ok' },
    ]);
    assert.equal(JSON.parse(peers.b?.requests[1]?.body ?? '').id, 'report');
    assert.equal(made.nodes.list().nodes[0]?.state, 'up');
  });

  test('a node that takes no reports is down, and the list says why', async (t) => {
    const { call, made } = await start(
      t,
      { b: (request) => (request.body.includes('app.jobs.stats') ? { status: 503 } : { result: { jobId: 'job-1' } }) },
      { rules: [rule(['app.jobs.submit'], { node_id: 'b' })] },
    );
    await call('app.jobs.submit', { taskPrompt: 'x' });
    const { nodes } = (await call('app.jobs.stats')) as { nodes: unknown[] };
    assert.deepEqual(nodes[1], { nodeId: 'b', status: 'unavailable', error: 'it takes no new work' });
    assert.equal(made.nodes.list().nodes[0]?.state, 'it takes no new work');
  });

  test('a file comes from the node that has it, with the token of this moment', async (t) => {
    const { made, peers, settings } = await start(t, { b: () => ({ result: 'file' }) });
    const signal = new AbortController().signal;
    await assert.rejects(made.download('x', '/api/artifacts/y', signal), { code: 'NOT_FOUND' });
    const token = () => peers.b?.requests.at(-1)?.headers.authorization;
    const read = async () => {
      const file = await made.download('b', '/api/artifacts/y', signal);
      for await (const _chunk of file.body);
    };
    await read();
    assert.deepEqual([peers.b?.requests[0]?.path, token()], ['/api/artifacts/y', 'Bearer forward-token']);
    const distributed = { ...settings.distributed, task_forward_token: '' };
    made.reload({ ...settings, distributed });
    await read();
    assert.equal(token(), 'Bearer main-token', 'without a token for nodes it is the main token');
  });

  test('an explanation knows where a session lives, and changes no turn of the nodes', async (t) => {
    const { made, call, asked } = await start(t, { b: ok, c: ok });
    const first = async (sessionId?: string) =>
      (await made.nodes.explain('session.start', sessionId)).candidates[0]?.node_id;
    assert.deepEqual([await first(), await first()], ['b', 'b']);
    await call('session.start', { sessionId: '1' });
    assert.deepEqual(asked('b'), ['session.start']);
    assert.equal(await first(), 'c');
    assert.equal(await first('1'), 'b', 'it lives there');
  });
});
