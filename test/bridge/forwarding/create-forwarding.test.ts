import assert from 'node:assert/strict';
import type { IncomingHttpHeaders } from 'node:http';
import { describe, type TestContext, test } from 'node:test';
import type { BridgeCaller } from '../../../src/bridge/access.ts';
import type { ForwardedRequest } from '../../../src/bridge/forwarding/call-node.ts';
import type { ForwardingOptions } from '../../../src/bridge/forwarding/create-forwarding.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import type { Credential, Principal } from '../../../src/platform/identity/principal.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';
import { type Answer, fromNode, rule, startForwarding } from './played-nodes.ts';

describe('forwarding to nodes that a test plays, on sqlite', () => {
  const places = databasePlaces('sqlite');
  const start = (
    context: TestContext,
    nodes: Readonly<Record<string, Answer>>,
    forwarding?: Parameters<typeof startForwarding>[3],
    options?: Partial<ForwardingOptions>,
  ) => startForwarding(context, places, nodes, forwarding, options);
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

  test('calls are looked at as soon as a setting could lead them elsewhere, and otherwise go on as they came', async (t) => {
    const code = 'TASK_FORWARD_PEER_UNKNOWN';
    const about = { sessionId: 's' };
    for (const forwarding of [{ rules: [], peer: 'gone' }, { rules: [rule(['*'], { node_id: 'gone' })] }]) {
      const { call, here } = await start(t, {}, forwarding);
      await assert.rejects(call('session.start', about), { code }, JSON.stringify(forwarding));
      assert.deepEqual(here, []);
    }
    const looking = await start(t, { b: ok }, { rules: [] });
    await assert.rejects(looking.call('session.start', {}), { code: 'INVALID_PARAMS' });
    const alone = await start(t, {}, { rules: [] });
    await alone.call('session.start', {});
    assert.deepEqual(alone.here, ['session.start'], 'the session itself refuses wrong params');
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
    const artifacts = [{ downloadUrl: '/api/artifacts/x' }];
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
    const list = (await call('app.jobs.list')) as {
      jobs: { jobId: string; nodeId: string; result: object }[];
      nodes: unknown[];
    };
    assert.deepEqual(
      list.jobs.map(({ jobId, nodeId }) => [jobId, nodeId]),
      [['job-1', 'b']],
    );
    assert.deepEqual(list.jobs[0]?.result, { artifacts: [{ downloadUrl: '/relayed/node.b/api/artifacts/x' }] });
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

  test('a drain waits no longer than turns may take, and a stop ends what is under way', async (t) => {
    for (const [settleMs, expected] of [
      [undefined, 25_000],
      [() => 1000, 1000],
    ] as const) {
      const { made, call, clock, peers } = await start(t, { b: () => undefined }, {}, { settleMs });
      const held = call('session.start', { sessionId: 's' });
      await peers.b?.arrived(1);
      let isSettled = false;
      const settled = made.settle().then(() => {
        isSettled = true;
      });
      await clock.advance(expected - 1);
      assert.equal(isSettled, false);
      await clock.advance(1);
      await settled;
      const ended = assert.rejects(held, {
        code: 'TASK_FORWARD_FAILED',
        details: { nodeId: 'b', reason: 'this node is shutting down', outcome: 'unknown' },
      });
      await Promise.all([made.stop(), ended]);
      assert.equal(clock.pending(), 0);
    }
  });

  test('a call goes out with the files that it names and with what its turn is found by', async (t) => {
    const withFiles: ForwardingOptions['withFiles'] = async (owner, params) => ({ ...Object(params), filesOf: owner });
    const { call, peers } = await start(t, { b: ok }, {}, { withFiles });
    const resume = { afterSeq: 4, idempotencyKey: 'key-1' };
    await call('session.start', { sessionId: 's' }, { principal: principalOf('review') }, { resume });
    const [sent] = peers.b?.requests ?? [];
    assert.deepEqual(JSON.parse(sent?.body ?? '').params, { sessionId: 's', filesOf: 'review' });
    assert.deepEqual(
      ['last-event-id', 'idempotency-key', 'x-request-id', 'x-app-forward-hop'].map((name) => sent?.headers[name]),
      ['4', 'key-1', 'req-1', '1'],
    );
    assert.equal(sent?.path, '/acp/rpc');
  });

  test('what another bridge has sent for a third one goes on to it, on its path and for its caller', async (t) => {
    const logged: object[] = [];
    const logger = { ...silentLogger, debug: (about: unknown) => void logged.push(about as object) };
    const { call, peers, here } = await start(t, { b: ok, c: ok }, {}, { logger });
    const principal = principalOf('node:x:ann');
    await call('session.start', { sessionId: 's' }, { principal, forwarded: fromNode() });
    const [sent] = peers.c?.requests ?? [];
    assert.deepEqual([peers.b?.requests.length, sent?.path], [0, '/gateway/c']);
    assert.deepEqual(
      ['source', 'target', 'hop', 'trace', 'owner'].map((name) => sent?.headers[`x-app-forward-${name}`]),
      ['x', 'c', '2', 'trace-x', 'ann'],
    );
    const about = { method: 'session.start', requestId: 'req-1', source: 'x', target: 'c', hop: 1, trace: 'trace-x' };
    assert.deepEqual(logged, [about]);
    const refused = (changes: Partial<ForwardedRequest>) =>
      call('session.start', { sessionId: 's' }, { principal, forwarded: fromNode(changes) });
    await assert.rejects(refused({ hop: 3 }), { code: 'TASK_FORWARD_HOP_LIMIT_EXCEEDED' });
    await assert.rejects(refused({ target: 'gone' }), { code: 'TASK_FORWARD_PEER_UNKNOWN' });
    assert.deepEqual(here, []);
    await refused({ target: 'a', hop: 3 });
    assert.deepEqual(here, ['session.start'], 'one that has arrived is not limited');
  });

  test('a session of another node is followed there, as a call about it would go', async (t) => {
    const personTokens = {
      issue: ({ id }: Principal) => (id === 'user:ann' ? 'eyJh.e30.c2ln' : undefined),
      forPayer: () => undefined,
      read: async () => 'foreign' as const,
    };
    const { made, call, peers } = await start(t, { b: ok, c: ok }, {}, { personTokens });
    const ann: Principal = { ...principalOf('user:ann'), credential: { isLive: () => true } as Credential };
    await call('session.start', { sessionId: 'anns' }, { principal: ann });
    const local: string[] = [];
    const following = made.following({
      follow: async (_principal: Principal, id: string) => void local.push(id),
      forget: () => undefined,
    } as never);
    let lost = 0;
    const follow = (caller: BridgeCaller, sessionId: string) =>
      following.follow(caller, sessionId, 4, { drained: async () => true } as never, () => {
        lost += 1;
      });
    const seen = async (id: string, count: number) => {
      await peers[id]?.arrived(count);
      const { path, headers } = peers[id]?.requests.at(-1) ?? { path: '', headers: {} };
      const names = ['target', 'owner', 'person', 'hop', 'source', 'trace'];
      return [path, ...names.map((name) => (headers as IncomingHttpHeaders)[`x-app-forward-${name}`])];
    };
    const path = (id: string) => `/acp?sessionId=${id}&afterSeq=4`;
    await follow({ principal: ann, hop: 1 }, 'anns');
    assert.deepEqual(await seen('b', 2), [path('anns'), 'b', 'user:ann', 'eyJh.e30.c2ln', '2', 'a', undefined]);
    await follow({ principal: MAIN }, 'anns');
    assert.deepEqual(await seen('b', 3), [path('anns'), 'b', 'user:ann', undefined, '1', 'a', undefined]);
    const principal = principalOf('node:x:ann');
    await follow({ principal, forwarded: fromNode() }, 'far');
    assert.deepEqual(await seen('c', 1), [path('far'), 'c', 'ann', undefined, '2', 'x', 'trace-x']);
    await until('the nodes to refuse', () => lost === 3);
    await follow({ principal: principalOf('review') }, 'anns');
    await follow({ principal, forwarded: fromNode({ target: 'a' }) }, 'mine');
    await follow({ principal: MAIN }, 'nobodys');
    assert.deepEqual(local, ['anns', 'mine', 'nobodys']);
    const beyond = follow({ principal, forwarded: fromNode({ hop: 3 }) }, 'far');
    await assert.rejects(beyond, { code: 'TASK_FORWARD_HOP_LIMIT_EXCEEDED' });
    const unknown = follow({ principal, forwarded: fromNode({ target: 'gone' }) }, 'far');
    await assert.rejects(unknown, { code: 'TASK_FORWARD_PEER_UNKNOWN' });
  });

  test('a node is asked for the jobs of a caller with their token, and for those of others without', async (t) => {
    const personTokens = {
      issue: () => 'eyJh.e30.c2ln',
      forPayer: () => undefined,
      read: async () => 'foreign' as const,
    };
    const submit = { rules: [rule(['app.jobs.submit'], { node_id: 'b' })] };
    const { call, peers } = await start(t, { b: () => ({ result: { jobId: 'job-1' } }) }, submit, { personTokens });
    const ann: Principal = {
      ...{ ...principalOf('user:ann'), seesAll: true },
      credential: { isLive: () => true } as Credential,
    };
    await call('app.jobs.submit', { taskPrompt: 'x' }, { principal: ann });
    await call('app.jobs.submit', { taskPrompt: 'x' }, { principal: principalOf('review') });
    await call('app.jobs.list', {}, { principal: ann });
    const asked = (peers.b?.requests ?? [])
      .slice(2)
      .map(({ headers }) => [headers['x-app-forward-owner'], headers['x-app-forward-person']]);
    assert.deepEqual(asked.sort(), [
      ['review', undefined],
      ['user:ann', 'eyJh.e30.c2ln'],
    ]);
  });

  test('a call that no node takes is noted with the node and the reason', async (t) => {
    const noted: unknown[] = [];
    const logger = { ...silentLogger, warn: (...about: unknown[]) => void noted.push(about) };
    const { call } = await start(t, { b: () => ({ status: 404 }) }, {}, { logger });
    await assert.rejects(call('session.start', { sessionId: 's' }), { code: 'TASK_FORWARD_FAILED' });
    const failure = { nodeId: 'b', reason: 'it serves nothing at this path', outcome: 'not_started' };
    assert.deepEqual(noted, [[failure, 'a call could not be forwarded']]);
  });
});
