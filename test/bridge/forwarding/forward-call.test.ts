import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BridgeClient } from '../../../src/bridge/bridge-client.ts';
import type { PeerAnswer, PeerFailure } from '../../../src/bridge/forwarding/call-node.ts';
import type { ForwardCandidate } from '../../../src/bridge/forwarding/decide-forward.ts';
import { createForwardCall } from '../../../src/bridge/forwarding/forward-call.ts';
import { readCallNames } from '../../../src/bridge/forwarding/session-routes.ts';
import { createUpdateRelay } from '../../../src/bridge/forwarding/update-relay.ts';
import { rawJson } from '../../../src/platform/json-rpc/envelope.ts';
import type { MethodCall } from '../../../src/platform/json-rpc/method-table.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const candidate = (id: string): ForwardCandidate => ({
  target: id,
  nextHop: { id, role: '', zone: '', endpoint: `http://${id}.tunnel`, capabilities: [] },
});

const unreachable: PeerFailure = {
  kind: 'failed',
  code: 'TASK_FORWARD_UNREACHABLE',
  reason: 'nothing listens at its address',
  outcome: 'not_started',
  isDown: true,
};
const lost: PeerFailure = { ...unreachable, code: 'TASK_FORWARD_FAILED', outcome: 'unknown', isDown: false };
const done: PeerAnswer = { kind: 'result', result: { status: 'completed' } };

interface Script {
  readonly method?: string;
  readonly params?: object;
  /** What the node tells on the way to its answer. */
  readonly updates?: readonly object[];
  /** Whether the caller can take more, each time it is asked. */
  readonly drained?: () => Promise<boolean>;
  /** Whether other calls may come on the connection. */
  readonly stays?: boolean;
  readonly answers: Readonly<Record<string, PeerAnswer>>;
  /** The node that a session was bound to by somebody else, or that has it since the last attempt. */
  readonly boundTo?: string;
  /** Nodes that refuse the call only after it was sent. */
  readonly refuses?: readonly string[];
  readonly known?: readonly string[];
}

/** A call that nodes `b` and `c` may take, a start of session `s` unless it is said, and what happens on the way. */
function scriptedCall(script: Script) {
  const { answers, boundTo, known = ['b', 'c', 'd'], updates = [], drained, stays = false } = script;
  const { method = 'session.start', params = { sessionId: 's' } } = script;
  const clock = createFakeClock();
  const events: string[] = [];
  const waits: number[] = [];
  const remembered: string[] = [];
  const told: unknown[] = [];
  let taken = 0;
  const forward = createForwardCall({
    links: { relay: () => undefined },
    async callPeer({ endpoint, beforeSend, connectMs, headersMs, accepted, notified }) {
      const id = new URL(endpoint).hostname.split('.')[0] ?? '';
      events.push(`connect ${id} within ${connectMs}`);
      const answer = answers[id] ?? unreachable;
      const isHeard = script.refuses?.includes(id) ?? false;
      if (answer.kind === 'failed' && answer.outcome === 'not_started' && !isHeard) return answer;
      await beforeSend();
      events.push(`sent to ${id}`);
      waits.push(headersMs);
      accepted();
      for (const update of updates) await notified('session.update', update, undefined);
      return answer;
    },
    routes: {
      async bind({ nodeId }, insteadOf) {
        events.push(`bind ${nodeId} instead of ${insteadOf?.nodeId}`);
        return boundTo === undefined ? { nodeId, usedAt: 7 } : { nodeId: boundTo, usedAt: undefined };
      },
      async release({ nodeId }, bound) {
        events.push(`release ${nodeId} of ${bound.nodeId} at ${bound.usedAt}`);
      },
      async remember({ nodeId, names }) {
        remembered.push(`${nodeId}: ${names.map(({ kind, name }) => `${kind} ${name}`).join(', ')}`);
      },
    },
    health: { markUp: (id) => events.push(`up ${id}`), markDown: (id) => events.push(`down ${id}`) },
    relay: createUpdateRelay(clock),
    clock,
    limits: { connectMs: 4000, turnHeadersMs: 1000, headersMs: 2000 },
    candidate: (id) => (known.includes(id) ? candidate(id) : undefined),
    onFailure: ({ nodeId, outcome }) => events.push(`failed ${nodeId} ${outcome}`),
  });
  const sink = drained === undefined ? undefined : { isBehind: () => false, drained };
  const client = { sink, stays } as unknown as BridgeClient;
  const call = {
    method,
    params,
    id: 1,
    caller: client,
    notify: (_name: string, update: { readonly text: string }) => told.push(JSON.parse(update.text)),
    accept() {
      taken += 1;
    },
  } as unknown as MethodCall<BridgeClient>;
  const outcome = forward(
    {
      call,
      method,
      params,
      candidates: [candidate('b'), candidate('c')],
      owner: 'main',
      about: readCallNames(method, params),
      path: '/acp/rpc',
      headersFor: () => ({}),
      accepted() {
        taken += 1;
      },
    },
    new AbortController().signal,
  );
  return { outcome, events, waits, remembered, told, taken: () => taken };
}

test('B-90: the next node is asked when the one before has certainly done nothing, in the time that is left', async () => {
  const { outcome, events } = scriptedCall({ answers: { b: unreachable, c: done } });
  assert.deepEqual(await outcome, rawJson('{"status":"completed"}'));
  assert.deepEqual(events, [
    'connect b within 2000',
    'failed b not_started',
    'down b',
    'connect c within 4000',
    'bind c instead of undefined',
    'sent to c',
    'up c',
  ]);
});

test('B-90: where nobody knows what a node has done, no other is asked', async () => {
  const { outcome, events } = scriptedCall({ answers: { b: lost, c: done } });
  await assert.rejects(outcome, { code: 'TASK_FORWARD_FAILED' });
  assert.deepEqual(events, ['connect b within 2000', 'bind b instead of undefined', 'sent to b', 'failed b unknown']);
});

test('a session that another call has bound since is started there, and nowhere else', async () => {
  const { outcome, events } = scriptedCall({ answers: { b: done, d: done }, boundTo: 'd' });
  await outcome;
  assert.deepEqual(
    events.filter((event) => event.startsWith('sent')),
    ['sent to d'],
  );
});

test('a session that was bound to a node that is not known here is started nowhere', async () => {
  const { outcome, events } = scriptedCall({ answers: { b: done, c: done }, boundTo: 'gone' });
  await assert.rejects(outcome, {
    code: 'TASK_FORWARD_PEER_UNKNOWN',
    details: { reason: 'the node that has what it is about is not known here', outcome: 'not_started' },
  });
  assert.equal(events.filter((event) => event.startsWith('sent')).length, 0);
});

test('when all nodes are down, the last one says so', async () => {
  const { outcome, events } = scriptedCall({ answers: {} });
  await assert.rejects(outcome, { code: 'TASK_FORWARD_UNREACHABLE' });
  assert.deepEqual(
    events.filter((event) => event.startsWith('down')),
    ['down b', 'down c'],
  );
});

test('a session is bound before it is started, and remembered after it was spoken to; other calls bind nothing', async () => {
  const start = scriptedCall({ answers: { b: done } });
  await start.outcome;
  assert.deepEqual([start.remembered, start.waits], [[], [1000]]);
  const message = scriptedCall({ method: 'session.message', answers: { b: done } });
  await message.outcome;
  assert.deepEqual(message.remembered, ['b: session s']);
  assert.ok(!message.events.some((event) => event.startsWith('bind')));
  const cancel = scriptedCall({ method: 'session.cancel', answers: { b: done } });
  await cancel.outcome;
  assert.deepEqual([cancel.remembered, cancel.waits], [[], [2000]]);
});

test('a job is remembered under the names that the node gave it', async () => {
  const result = { jobId: 'job_1', sessionId: 'job_1' };
  const submit = scriptedCall({
    method: 'app.jobs.submit',
    params: { idempotencyKey: 'once' },
    answers: { b: { kind: 'result', result } },
  });
  await submit.outcome;
  assert.deepEqual(submit.remembered, ['b: job job_1, session job_1, jobs b']);
});

test('B-96: an error of the node is the answer, and a method that it lacks says whose word that is', async () => {
  const error = { status: 200, code: -32601, message: 'no such method', data: { code: 'METHOD_NOT_FOUND' } };
  const lacking = scriptedCall({ answers: { b: { kind: 'error', error } } });
  await assert.rejects(lacking.outcome, { details: { sourceNodeId: 'b', code: 'METHOD_NOT_FOUND' } });
  assert.ok(lacking.events.includes('up b'), 'a node that answers is up');
  const other = { ...error, code: -32602, data: { code: 'INVALID_PARAMS' } };
  const refusing = scriptedCall({ answers: { b: { kind: 'error', error: other } } });
  const { status: _, ...told } = other;
  await assert.rejects(refusing.outcome, { text: JSON.stringify(told) });
});

test('a node that takes no new work has said it better than we could', async () => {
  const error = { status: 503, code: -32020, message: 'it is shutting down', data: { code: 'SHUTTING_DOWN' } };
  const { outcome } = scriptedCall({ answers: { c: { ...unreachable, error } } });
  await assert.rejects(outcome, { code: 'SHUTTING_DOWN' });
});

test('what the node tells on the way reaches the caller once it was taken, until the caller is gone', async () => {
  const updates = [{ seq: 1 }, { seq: 2 }, { seq: 3 }];
  const all = scriptedCall({ answers: { b: done }, updates });
  await all.outcome;
  assert.deepEqual([all.told, all.taken()], [updates, 2]);
  let left = 2;
  const gone = scriptedCall({ answers: { b: done }, updates, drained: async () => --left > 0 });
  await gone.outcome;
  assert.deepEqual(gone.told, [{ seq: 1 }, { seq: 2 }]);
});

test('on a connection with several calls an update of a session comes once, and those without a number all come', async () => {
  const updates = [{ seq: 1 }, { seq: 1 }, { note: 'a' }, { note: 'a' }, { seq: 2 }];
  const script = { answers: { b: done }, updates, drained: async () => true };
  const shared = scriptedCall({ ...script, stays: true });
  await shared.outcome;
  assert.deepEqual(shared.told, [{ seq: 1 }, { note: 'a' }, { note: 'a' }, { seq: 2 }]);
  const alone = scriptedCall(script);
  await alone.outcome;
  assert.deepEqual(alone.told, updates);
});

test('a place is given back when the last node has refused the call, and nothing was started', async () => {
  const { outcome, events } = scriptedCall({ answers: { b: unreachable, c: unreachable }, refuses: ['b', 'c'] });
  await assert.rejects(outcome, { code: 'TASK_FORWARD_UNREACHABLE' });
  assert.deepEqual(
    events.filter((event) => /bind|release/.test(event)),
    ['bind b instead of undefined', 'bind c instead of b', 'release c of c at 7'],
  );
  const halfway = scriptedCall({ answers: { b: unreachable, c: unreachable }, refuses: ['b'] });
  await assert.rejects(halfway.outcome, { code: 'TASK_FORWARD_UNREACHABLE' });
  assert.ok(halfway.events.includes('release b of b at 7'), 'the second node was never bound');
});

for (const [code, isReleased] of [
  ['INVALID_PARAMS', true],
  ['FORBIDDEN', true],
  ['SESSION_BUSY', false],
  ['STORAGE_UNAVAILABLE', false],
  ['INTERNAL_ERROR', false],
  ['not known here', false],
] as const) {
  test(`after the error ${code} of a node its place is ${isReleased ? 'given back' : 'kept'}`, async () => {
    const error: PeerAnswer = { kind: 'error', error: { status: 200, code: -32000, message: 'm', data: { code } } };
    const { outcome, events } = scriptedCall({ answers: { b: error } });
    await assert.rejects(outcome, { message: code });
    assert.equal(events.includes('release b of b at 7'), isReleased);
  });
}

test('a place is kept where nobody knows what the node has done', async () => {
  const { outcome, events } = scriptedCall({ answers: { b: lost } });
  await assert.rejects(outcome, { code: 'TASK_FORWARD_FAILED' });
  assert.deepEqual(
    events.filter((event) => event.startsWith('release')),
    [],
  );
});
