import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forwardHeaders, readForwarded } from '../../../src/bridge/forwarding/call-node.ts';

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
