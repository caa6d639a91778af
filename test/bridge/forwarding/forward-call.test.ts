import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BridgeClient } from '../../../src/bridge/bridge-client.ts';
import { readCallNames } from '../../../src/bridge/forwarding/call-names.ts';
import type { ForwardCandidate } from '../../../src/bridge/forwarding/decide-forward.ts';
import { createForwardCall } from '../../../src/bridge/forwarding/forward-call.ts';
import type { PeerAnswer, PeerFailure } from '../../../src/bridge/forwarding/read-peer-answer.ts';
import { createUpdateRelay } from '../../../src/bridge/forwarding/update-relay.ts';
import type { MethodCall } from '../../../src/platform/json-rpc/method-call.ts';
import { rawJson } from '../../../src/platform/json-rpc/raw-json.ts';
import { createFakeClock } from '../../fakes/fake-clock.ts';

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
  readonly answers: Readonly<Record<string, PeerAnswer>>;
  /** The node that a session was bound to by somebody else, or that has it since the last attempt. */
  readonly boundTo?: string;
  readonly known?: readonly string[];
}

/** A start of session `s` that nodes `b` and `c` may take, and what happens on the way. */
function scriptedCall({ answers, boundTo, known = ['b', 'c', 'd'] }: Script) {
  const clock = createFakeClock();
  const events: string[] = [];
  const forward = createForwardCall({
    async callPeer({ endpoint, beforeSend, connectMs }) {
      const id = new URL(endpoint).hostname.split('.')[0] ?? '';
      events.push(`connect ${id} within ${connectMs}`);
      const answer = answers[id] ?? unreachable;
      if (answer.kind === 'failed' && answer.outcome === 'not_started') return answer;
      await beforeSend();
      events.push(`sent to ${id}`);
      return answer;
    },
    routes: {
      async bind({ nodeId }, insteadOf) {
        events.push(`bind ${nodeId} instead of ${insteadOf}`);
        return boundTo ?? nodeId;
      },
      async remember() {},
    },
    health: { markUp: (id) => events.push(`up ${id}`), markDown: (id) => events.push(`down ${id}`) },
    relay: createUpdateRelay(clock),
    clock,
    limits: { connectMs: 4000, turnHeadersMs: 1000, headersMs: 1000 },
    candidate: (id) => (known.includes(id) ? candidate(id) : undefined),
    onFailure: ({ nodeId, outcome }) => events.push(`failed ${nodeId} ${outcome}`),
  });
  const method = 'session.start';
  const params = { sessionId: 's' };
  const client = { kind: 'request', drained: undefined } as unknown as BridgeClient;
  const call = {
    method,
    params,
    id: 1,
    caller: client,
    notify() {},
    accept() {},
  } as unknown as MethodCall<BridgeClient>;
  const outcome = forward(
    {
      call,
      method,
      candidates: [candidate('b'), candidate('c')],
      owner: 'main',
      about: readCallNames(method, params),
      path: '/acp/rpc',
      headersFor: () => ({}),
      accepted() {},
    },
    new AbortController().signal,
  );
  return { outcome, events };
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

test('a session that another call has bound meanwhile is started there, and nowhere else', async () => {
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
