import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BridgeClient } from '../../../src/bridge/bridge-client.ts';
import { forwardHeaders, hopHeader, readForwarded, readHop } from '../../../src/bridge/forwarding/call-node.ts';
import { createOnwardHeaders, resumeHeaders } from '../../../src/bridge/forwarding/forward-call.ts';

const person = 'eyJhbGciOiJFUzI1NiJ9.e30.c2lnbmF0dXJl';
const people = { owner: 'review', person, team: 'team_1' };
const request = { source: 'edge-1', target: 'exec-a', hop: 2, trace: 'req-1', ...people };
const sent = forwardHeaders(request, '1.0.0');

test('forwarding: what one node writes into headers the next one reads', () => {
  assert.deepEqual(readForwarded(sent, '/acp/rpc'), { ...request, path: '/acp/rpc' });
  assert.equal(sent['x-app-contract'], '1.0.0');
  assert.equal(sent['x-app-forward-hop'], '2');
  const without = { ...request, trace: '', owner: '', person: '', team: '' };
  const bare = forwardHeaders(without, '1.0.0');
  assert.deepEqual(readForwarded(bare, '/p'), { ...without, path: '/p' });
});

for (const [name, values] of [
  ['x-app-bridge-forwarded', ['0', '1, 1', 'true', '']],
  ['x-app-forward-hop', ['', '-1', '1.5', 'x', '1, 2', '1000', ' 1', '0x1', undefined]],
  ['x-app-forward-source', ['', 'a b', '../x', 'a, b', 'x'.repeat(65), undefined]],
  ['x-app-forward-target', ['', 'a/b', 'a, b', undefined]],
  ['x-app-forward-trace', ['', 'a b', 'x'.repeat(201)]],
  ['x-app-forward-owner', ['', 'a\tb', 'main, review']],
  ['x-app-forward-team', ['', 'a b', 'team_1, team_2']],
  ['x-app-forward-person', ['', 'tpt_x', `${person}, ${person}`, `${person}.x`, `ey.${'x'.repeat(4001)}.x`]],
] as const) {
  for (const value of values) {
    test(`forwarding: ${name} of ${JSON.stringify(value ?? 'nothing')} is refused as malformed`, () => {
      const headers = { ...sent, [name]: value };
      if (value === undefined) delete headers[name];
      assert.throws(() => readForwarded(headers, '/acp/rpc'), { code: 'INVALID_REQUEST' });
    });
  }
}

test('forwarding: the hop of a request without the forward token is read where it is a number', () => {
  assert.equal(readHop(hopHeader(4)), 4);
  for (const value of [undefined, '', 'x', '-1', '1, 2', '1000']) {
    assert.equal(readHop({ 'x-app-forward-hop': value }), undefined, String(value));
  }
});

const onward = (changes: object, token = 'secret') =>
  createOnwardHeaders({ localId: 'a', contract: '1.0.0', token: () => token })({
    ...{ target: 'c', owner: 'main', person: '', team: '', incoming: undefined, requestId: 'req-9' },
    ...changes,
  });

test('forwarding: a call of our own goes out with the forward token, this node and its caller', () => {
  assert.deepEqual(onward({}), {
    authorization: 'Bearer secret',
    'x-request-id': 'req-9',
    'x-app-bridge-forwarded': '1',
    'x-app-forward-source': 'a',
    'x-app-forward-target': 'c',
    'x-app-forward-hop': '1',
    'x-app-forward-trace': 'req-9',
    'x-app-contract': '1.0.0',
  });
  const named = onward({ owner: 'review', person, team: 'team_1', hop: 4 });
  assert.deepEqual(
    ['owner', 'person', 'team', 'hop'].map((name) => named[`x-app-forward-${name}`]),
    ['review', person, 'team_1', '5'],
  );
  const bare = onward({ requestId: '' }, '');
  assert.deepEqual(
    ['authorization', 'x-request-id', 'x-app-forward-trace'].map((name) => name in bare),
    [false, false, false],
  );
});

test('forwarding: what another node has sent goes on as that node sent it, one hop further', () => {
  const incoming = { ...request, path: '/acp/rpc' };
  const headers = onward({ incoming, target: 'exec-b', owner: 'node:edge-1', hop: 9 });
  assert.deepEqual(readForwarded(headers, '/p'), { ...request, target: 'exec-b', hop: 3, path: '/p' });
  assert.equal(headers['x-request-id'], 'req-1', 'the logs of all nodes have the same one');
});

test('forwarding: a repeated request is sent on with what its turn is found by', () => {
  const of = (resume: object) => resumeHeaders({ resume } as unknown as BridgeClient);
  assert.deepEqual(of({ afterSeq: 0, idempotencyKey: 'k' }), { 'last-event-id': '0', 'idempotency-key': 'k' });
  assert.deepEqual(of({ afterSeq: undefined, idempotencyKey: '' }), {});
});
