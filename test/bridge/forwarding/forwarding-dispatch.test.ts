import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BridgeCaller } from '../../../src/bridge/access.ts';
import type { BridgeClient } from '../../../src/bridge/bridge-client.ts';
import type { ForwardedRequest } from '../../../src/bridge/forwarding/call-node.ts';
import type { ForwardCandidate, ForwardDecision } from '../../../src/bridge/forwarding/decide-forward.ts';
import { createForwardingDispatch } from '../../../src/bridge/forwarding/forwarding-dispatch.ts';
import type { CallNames, Place } from '../../../src/bridge/forwarding/session-routes.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import type { MethodCall } from '../../../src/platform/json-rpc/method-table.ts';

const candidate = (id: string): ForwardCandidate => ({
  target: id,
  nextHop: { id, role: '', zone: '', endpoint: `http://${id}.tunnel`, capabilities: [] },
});
const LOCAL: ForwardDecision = { kind: 'local', reason: 'here' };
const to = (...ids: readonly string[]): ForwardDecision => ({
  kind: 'forward',
  reason: 'there',
  candidates: ids.map(candidate),
  rule: undefined,
});
const REFUSED: ForwardDecision = { kind: 'refuse', code: 'TASK_FORWARD_PEER_UNKNOWN', reason: 'nowhere' };

interface World {
  readonly isActive?: boolean;
  readonly decision?: ForwardDecision;
  readonly incoming?: ForwardDecision;
  readonly owner?: string;
  readonly isSettled?: boolean;
  readonly thread?: readonly Place[];
  readonly jobs?: readonly Place[];
  readonly known?: readonly string[];
  /** Resolves what is sent to a node. */
  readonly answer?: (nodeId: string) => Promise<unknown>;
}

/** A dispatch whose decisions the test makes; notes what is done, in order. */
function start(world: World) {
  const { isActive = true, decision = LOCAL, incoming = LOCAL, known = ['b', 'c'] } = world;
  const events: string[] = [];
  const asked: CallNames[] = [];
  const dispatch = createForwardingDispatch(
    {
      isActive,
      canonicalName: (method) => method.replace(/^acme\./, 'app.'),
      async decide(method, principal, about) {
        asked.push(about);
        events.push(`decide ${method}`);
        return { decision, owner: world.owner ?? principal.id, isSettled: world.isSettled ?? false };
      },
      decideIncoming(method, { target }) {
        events.push(`incoming ${method} for ${target}`);
        return incoming;
      },
      candidate: (id) => (known.includes(id) ? candidate(id) : undefined),
      routes: {
        findThread: async () => world.thread ?? [],
        async findJobs(_principal, nodeIds) {
          events.push(`jobs of ${[...nodeIds].join(' ')}`);
          return world.jobs ?? [];
        },
      },
      nodeIds: ['b', 'c'],
      async mergeJobs(_call, method, places, here) {
        const words = places.map(({ nodeId, owner }) => `${nodeId} ${owner}`).join(', ');
        events.push(`merge ${method} of ${words}`);
        here();
        return {} as never;
      },
      async send({ method, candidates, owner, about, accepted }) {
        const ids = candidates.map(({ target }) => target).join(' ');
        events.push(`send ${method} to ${ids} for ${owner || 'nobody'}, binds ${about.binds}`);
        const answer = await (world.answer?.(ids) ?? Promise.resolve('sent'));
        accepted();
        return answer;
      },
      logReceived: (_call, { source }) => void events.push(`received from ${source}`),
    },
    ({ method }) => {
      events.push(`here ${method}`);
      return 'here';
    },
  );
  const call = (method: string, params: object = {}, caller: Partial<BridgeCaller> = {}) =>
    dispatch({
      method,
      params,
      caller: { caller: { principal: MAIN, ...caller } } as unknown as BridgeClient,
    } as MethodCall<BridgeClient>);
  return { call, events, asked };
}

const SENT = { source: 'a', target: 'b', hop: 1, trace: '', owner: '', person: '', team: '', path: '/acp/rpc' };
const forwarded: ForwardedRequest = SENT;

test('without other nodes a call stays here, and nothing is decided', async () => {
  const { call, events } = start({ isActive: false });
  assert.equal(await call('session.start', { sessionId: 's' }), 'here');
  assert.deepEqual(events, ['here session.start']);
});

test('what another node sends is run here, handed on or refused, also where no call of our own is forwarded', async () => {
  const here = start({ isActive: false });
  assert.equal(await here.call('acme.jobs.get', {}, { forwarded }), 'here');
  assert.deepEqual(here.events, ['received from a', 'incoming app.jobs.get for b', 'here acme.jobs.get']);
  const on = start({ incoming: to('c') });
  assert.equal(await on.call('session.start', { sessionId: 's' }, { forwarded }), 'sent');
  assert.equal(on.events.at(-1), 'send session.start to c for nobody, binds never');
  const nowhere = start({ incoming: REFUSED });
  assert.throws(() => nowhere.call('session.start', {}, { forwarded }), {
    code: 'TASK_FORWARD_PEER_UNKNOWN',
    details: { reason: 'nowhere', outcome: 'not_started' },
  });
});

test('a call that stays goes to the methods of this bridge, and one for nobody is refused', async () => {
  const { call, events, asked } = start({});
  assert.equal(await call('acme.jobs.get', { jobId: 'j' }), 'here');
  assert.deepEqual(events, ['decide app.jobs.get', 'here acme.jobs.get']);
  assert.deepEqual(asked[0]?.names, [{ kind: 'job', name: 'j' }]);
  await assert.rejects(Promise.resolve(start({ decision: REFUSED }).call('session.start', { sessionId: 's' })), {
    code: 'TASK_FORWARD_PEER_UNKNOWN',
  });
});

test('a call for another node is sent for the owner of what it is about, and binds unless that was settled', async () => {
  const fresh = start({ decision: to('b', 'c') });
  assert.equal(await fresh.call('session.start', { sessionId: 's' }), 'sent');
  assert.equal(fresh.events.at(-1), 'send session.start to b c for main, binds before');
  const settled = start({ decision: to('b'), isSettled: true, owner: 'review' });
  await settled.call('session.message', { sessionId: 's' });
  assert.equal(settled.events.at(-1), 'send session.message to b for review, binds never');
});

test('nobody does to the work of others on another node what they may not do here', async () => {
  const reader: Principal = { ...MAIN, role: 'readonly' };
  const { call, events } = start({ decision: to('b'), owner: 'review' });
  await assert.rejects(Promise.resolve(call('session.message', { sessionId: 's' }, { principal: reader })), {
    code: 'FORBIDDEN',
  });
  await call('app.jobs.get', { jobId: 'j' }, { principal: reader });
  assert.deepEqual(events.at(-1), 'send app.jobs.get to b for review, binds never');
  const thread = start({ thread: [{ nodeId: 'b', owner: 'review' }] });
  await assert.rejects(Promise.resolve(thread.call('session.cancel', { threadId: 't' }, { principal: reader })), {
    code: 'FORBIDDEN',
  });
  assert.ok(!thread.events.some((event) => event.startsWith('send')));
});

test('calls of one owner about one thing go one after the other, until the node has taken the first', async () => {
  const gate = Promise.withResolvers<unknown>();
  const { call, events } = start({ decision: to('b'), answer: () => gate.promise });
  const sends = () => events.filter((event) => event.startsWith('send')).length;
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  const all = [call('session.start', { sessionId: 's' }), call('session.message', { sessionId: 's' })];
  await turn();
  assert.equal(sends(), 1);
  all.push(call('session.start', { sessionId: 'other' }));
  all.push(call('session.start', { sessionId: 's' }, { principal: principalOf('review') }));
  all.push(call('app.jobs.get', { jobId: 's' }));
  await turn();
  assert.equal(sends(), 4, 'another session, another owner and a job of that name do not wait');
  // What another bridge has put in order would wait for itself in a circle.
  all.push(call('session.message', { sessionId: 's' }, { hop: 1 }));
  await turn();
  assert.equal(sends(), 5);
  gate.resolve('sent');
  assert.deepEqual(await Promise.all(all), Array(6).fill('sent'));
});

test('a cancel or close of a thread goes to every node that has sessions of it, and here', async () => {
  const thread = [
    { nodeId: 'b', owner: 'main' },
    { nodeId: 'c', owner: 'main' },
  ];
  for (const method of ['session.cancel', 'session.close']) {
    const { call, events } = start({ thread });
    assert.deepEqual(await call(method, { threadId: 't' }), { accepted: true });
    assert.deepEqual(events, [
      `send ${method} to b for main, binds never`,
      `send ${method} to c for main, binds never`,
      `here ${method}`,
    ]);
  }
  const alone = start({});
  assert.equal(await alone.call('session.cancel', { threadId: 't' }), 'here');
  const named = start({ thread });
  await named.call('session.cancel', { threadId: 't', sessionId: 's' });
  assert.deepEqual(
    named.events,
    ['decide session.cancel', 'here session.cancel'],
    'a session is meant, not the thread',
  );
  const none = start({ thread });
  await none.call('session.cancel', {});
  assert.deepEqual(none.events, ['decide session.cancel', 'here session.cancel']);
});

test('when a node of a thread fails or is not known, the others are still asked, and the caller learns of it', async () => {
  const thread = ['b', 'x', 'c'].map((nodeId) => ({ nodeId, owner: 'main' }));
  const { call, events } = start({ thread });
  await assert.rejects(Promise.resolve(call('session.cancel', { threadId: 't' })), {
    code: 'TASK_FORWARD_PEER_UNKNOWN',
    details: { reason: 'node "x" is not known here', outcome: 'not_started' },
  });
  assert.deepEqual(
    events.map((event) => event.split(' ').slice(0, 4).join(' ')),
    ['send session.cancel to b', 'send session.cancel to c', 'here session.cancel'],
  );
});

test('lists of jobs are merged with those of the nodes that have some, unless another bridge asks', async () => {
  const { call, events } = start({ jobs: [{ nodeId: 'b', owner: 'review' }] });
  await call('acme.jobs.list');
  assert.deepEqual(events, [
    'jobs of b c',
    'decide app.jobs.list',
    'merge app.jobs.list of b review',
    'here acme.jobs.list',
  ]);
  const once = start({ jobs: [{ nodeId: 'b', owner: 'review' }] });
  await once.call('app.jobs.stats', {}, { hop: 1 });
  assert.deepEqual(once.events, ['decide app.jobs.stats', 'here app.jobs.stats']);
  await assert.rejects(Promise.resolve(start({ decision: REFUSED }).call('app.jobs.list')), {
    code: 'TASK_FORWARD_PEER_UNKNOWN',
  });
});

test('a person asks each node with jobs in their own name first, for all that they see', async () => {
  const principal: Principal = { ...principalOf('user:a'), credential: {} as never };
  const jobs = [
    { nodeId: 'b', owner: 'user:a' },
    { nodeId: 'b', owner: 'team:t' },
    { nodeId: 'c', owner: 'team:t' },
  ];
  const { call, events } = start({ jobs });
  await call('app.jobs.stats', {}, { principal });
  assert.equal(events[2], 'merge app.jobs.stats of b user:a, c user:a, b team:t, c team:t');
});

test('a list that a rule sends to a node is that of the node, or merged where others have jobs too', async () => {
  const alone = start({ decision: to('b'), jobs: [{ nodeId: 'b', owner: 'main' }] });
  assert.equal(await alone.call('app.jobs.list'), 'sent');
  assert.equal(alone.events.at(-1), 'send app.jobs.list to b for main, binds never');
  const jobs = [
    { nodeId: 'b', owner: 'main' },
    { nodeId: 'b', owner: 'review' },
    { nodeId: 'c', owner: 'main' },
  ];
  const merged = start({ decision: to('b'), jobs });
  await merged.call('app.jobs.list');
  assert.equal(merged.events[2], 'merge app.jobs.list of b main, b review, c main');
});
