import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  buildNodeMap,
  decideForward,
  type ForwardDecision,
  type ForwardQuestion,
} from '../../../src/bridge/forwarding/decide-forward.ts';
import fc from '../../kit/properties.ts';
import { resolveTrestle } from '../../kit/resolve-trestle.ts';

const NODES = `
  nodes:
    - { id: hub-1, role: hub, zone: west, bridge_endpoint: "http://10.0.0.1:8787" }
    - { id: exec-b, role: executor, zone: east, bridge_endpoint: "http://10.0.0.3:8787", capabilities: [gpu] }
    - { id: exec-a, role: executor, zone: west, bridge_endpoint: "http://10.0.0.2:8787" }
    - { id: me, role: executor, zone: west, bridge_endpoint: "http://10.0.0.9:8787", capabilities: [gpu] }`;

type Given = Partial<Pick<ForwardQuestion, 'incoming' | 'livesAt'>> & {
  readonly method?: string;
  readonly down?: readonly string[];
  readonly choices?: number;
};

function decide(forwarding: string, given: Given = {}, more = ''): ForwardDecision {
  const { settings } = resolveTrestle(
    `distributed:\n  local_node_id: me${more}${NODES}\n  forwarding: ${forwarding}\n`,
  );
  return decideForward({
    method: given.method ?? 'session.start',
    settings: settings.distributed,
    map: buildNodeMap(settings.distributed),
    incoming: given.incoming,
    livesAt: given.livesAt,
    isUp: (id) => !(given.down ?? []).includes(id),
    choicesOf: () => given.choices ?? 0,
  });
}

/** `exec-a>hub-1` for a target that is reached through another node. */
function summary(decision: ForwardDecision): string {
  if (decision.kind === 'local') return 'local';
  if (decision.kind === 'refuse') return decision.code.replace('TASK_FORWARD_', '');
  return decision.candidates
    .map(({ target, nextHop }) => (target === nextHop.id ? target : `${target}>${nextHop.id}`))
    .join(' ');
}

const START_TO = (target: string) => `{ rules: [{ methods: [session.start], target: ${target} }] }`;
const EXECUTORS = '{ selector: { role: executor } }';
const IN_TURN = '{ selector: { role: executor }, strategy: round_robin }';
const VIA_HUB = 'routes: [{ target_node_id: exec-a, next_hop_node_id: hub-1 }]';

const CASES: readonly (readonly [name: string, expected: string, forwarding: string, given?: Given, more?: string])[] =
  [
    ['nothing configured', 'local', '{}'],
    ['a rule that names a node', 'exec-a', START_TO('{ node_id: exec-a }')],
    ['a rule that names this node', 'local', START_TO('{ node_id: me }')],
    ['a rule about another method', 'local', START_TO('{ node_id: exec-a }'), { method: 'session.message' }],
    [
      'a rule about all methods',
      'exec-a',
      '{ rules: [{ methods: ["*"], target: { node_id: exec-a } }] }',
      { method: 'x.y' },
    ],
    [
      'the first of two rules that match',
      'exec-b',
      '{ rules: [{ methods: [session.start], target: { node_id: exec-b } }, { methods: ["*"], target: { node_id: hub-1 } }] }',
    ],
    ['a selector by role, sorted by id, without this node', 'exec-a exec-b', START_TO(EXECUTORS)],
    ['a selector by capability', 'exec-b', START_TO('{ selector: { capability: gpu } }')],
    ['a selector by zone', 'exec-a hub-1', START_TO('{ selector: { zone: west } }')],
    ['a selector by role and zone', 'exec-a', START_TO('{ selector: { role: executor, zone: west } }')],
    ['B-95: a selector that no node matches', 'PEER_UNKNOWN', START_TO('{ selector: { role: nobody } }')],
    ['round robin, first choice', 'exec-a exec-b', START_TO(IN_TURN), { choices: 0 }],
    ['round robin, second choice', 'exec-b exec-a', START_TO(IN_TURN), { choices: 1 }],
    ['round robin, third choice', 'exec-a exec-b', START_TO(IN_TURN), { choices: 2 }],
    ['first takes no turns', 'exec-a exec-b', START_TO(EXECUTORS), { choices: 1 }],
    ['B-93: a node that is down is skipped', 'exec-b', START_TO(IN_TURN), { down: ['exec-a'] }],
    ['all nodes down: they are tried all the same', 'exec-a exec-b', START_TO(IN_TURN), { down: ['exec-a', 'exec-b'] }],
    [
      'a node that a rule names is tried though it was down',
      'exec-a',
      START_TO('{ node_id: exec-a }'),
      { down: ['exec-a'] },
    ],
    [
      'a route gives the next hop',
      'exec-a>hub-1',
      `{ rules: [{ methods: [session.start], target: { node_id: exec-a } }], ${VIA_HUB} }`,
    ],
    [
      'a route gives the next hop of a selected node',
      'exec-a>hub-1 exec-b',
      `{ rules: [{ methods: [session.start], target: ${EXECUTORS} }], ${VIA_HUB} }`,
    ],
    ['the short form', 'exec-a', '{}', {}, '\n  task_forward_peer_id: exec-a'],
    ['the short form, for messages', 'exec-a', '{}', { method: 'session.message' }, '\n  task_forward_peer_id: exec-a'],
    [
      'the short form is about no other method',
      'local',
      '{}',
      { method: 'session.cancel' },
      '\n  task_forward_peer_id: exec-a',
    ],
    [
      'rules come before the short form',
      'exec-b',
      START_TO('{ node_id: exec-b }'),
      {},
      '\n  task_forward_peer_id: exec-a',
    ],
    ['a built-in peer', 'primary', '{}', {}, '\n  task_forward_peer_id: primary'],
    ['B-90: default_action reject is for what no rule is about', 'PEER_UNKNOWN', '{ default_action: reject }'],
    [
      'B-90: default_action says nothing about a node that is down',
      'exec-a',
      `{ default_action: execute_local, rules: [{ methods: [session.start], target: { node_id: exec-a } }] }`,
      { down: ['exec-a'] },
    ],
    [
      'B-89: a session goes where it lives, whatever the rules say',
      'exec-b',
      START_TO('{ node_id: exec-a }'),
      { livesAt: 'exec-b' },
    ],
    ['B-89: a session that lives here stays here', 'local', START_TO('{ node_id: exec-a }'), { livesAt: 'me' }],
    [
      'B-89: a session goes where it lives although that node is down',
      'exec-b',
      START_TO(IN_TURN),
      { livesAt: 'exec-b', down: ['exec-b'] },
    ],
    ['B-95: a session that lives on a node nobody knows any more', 'PEER_UNKNOWN', '{}', { livesAt: 'gone' }],
    [
      'default_action reject, and a session that lives elsewhere',
      'exec-b',
      '{ default_action: reject }',
      { livesAt: 'exec-b' },
    ],
    [
      'a request that came for this node',
      'local',
      START_TO('{ node_id: exec-a }'),
      { incoming: { target: 'me', hop: 3 } },
    ],
    [
      'a request that came for this node, with default_action reject',
      'local',
      '{ default_action: reject }',
      { incoming: { target: 'me', hop: 1 } },
    ],
    [
      'a request that came for another node goes straight to it',
      'exec-a',
      '{}',
      { incoming: { target: 'exec-a', hop: 1 } },
    ],
    [
      'a request that came for another node, with a route',
      'exec-a>hub-1',
      `{ ${VIA_HUB} }`,
      { incoming: { target: 'exec-a', hop: 1 } },
    ],
    ['a request for a node that only the next hop knows', 'far>hub-1', '{}', { incoming: { target: 'far', hop: 1 } }],
    ['B-95: a request for a node that nobody knows', 'PEER_UNKNOWN', '{}', { incoming: { target: 'nobody', hop: 1 } }],
    ['B-87: the last hop that is allowed', 'exec-a', '{ hop_limit: 3 }', { incoming: { target: 'exec-a', hop: 2 } }],
    ['B-87: one hop too many', 'HOP_LIMIT_EXCEEDED', '{ hop_limit: 3 }', { incoming: { target: 'exec-a', hop: 3 } }],
    ['B-87: a hop limit of one', 'HOP_LIMIT_EXCEEDED', '{ hop_limit: 1 }', { incoming: { target: 'exec-a', hop: 1 } }],
  ];

describe('where a call goes', () => {
  for (const [name, expected, forwarding, given, more] of CASES) {
    test(`${name.startsWith('B-') ? name : `forwarding: ${name}`}`, () => {
      // A route to a node that is not in `nodes` is refused by the configuration; the decision copes with it all the same.
      if (expected === 'far>hub-1') {
        const { settings } = resolveTrestle(`distributed:\n  local_node_id: me${NODES}\n`);
        const map = { ...buildNodeMap(settings.distributed), nextHopOf: () => 'hub-1' };
        const question = { method: 'a.b', settings: settings.distributed, map, livesAt: undefined };
        const incoming = { target: 'far', hop: 1 };
        assert.equal(summary(decideForward({ ...question, incoming, isUp: () => true, choicesOf: () => 0 })), expected);
        return;
      }
      assert.equal(summary(decide(forwarding, given, more)), expected);
    });
  }

  test('forwarding: a bridge without an id runs what others send it', () => {
    const { settings } = resolveTrestle('');
    const decision = decideForward({
      method: 'session.start',
      settings: settings.distributed,
      map: buildNodeMap(settings.distributed),
      incoming: { target: 'exec-a', hop: 9 },
      livesAt: undefined,
      isUp: () => true,
      choicesOf: () => 0,
    });
    assert.equal(decision.kind, 'local');
  });

  test('B-93: over any number of starts no two nodes differ by more than one', () => {
    const { settings } = resolveTrestle(
      `distributed:\n  local_node_id: me${NODES}\n  forwarding: ${START_TO(IN_TURN)}\n`,
    );
    const { distributed } = settings;
    const map = buildNodeMap(distributed);
    const question = { method: 'session.start', settings: distributed, map, incoming: undefined, livesAt: undefined };
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 999 }), (starts) => {
        const counts = new Map([
          ['exec-a', 0],
          ['exec-b', 0],
        ]);
        for (let choices = 0; choices < starts; choices += 1) {
          const decision = decideForward({ ...question, isUp: () => true, choicesOf: () => choices });
          const [first = ''] = summary(decision).split(' ');
          counts.set(first, (counts.get(first) ?? 0) + 1);
        }
        assert.equal(counts.size, 2);
        assert.ok(Math.max(...counts.values()) - Math.min(...counts.values()) <= 1);
      }),
    );
  });

  test('forwarding: a configured node replaces the built-in peer of its name', () => {
    const text = 'distributed: { nodes: [{ id: primary, bridge_endpoint: "http://10.1.1.1:9" }] }';
    const map = buildNodeMap(resolveTrestle(text).settings.distributed);
    assert.equal(map.others.get('primary')?.endpoint, 'http://10.1.1.1:9');
    assert.equal(map.others.get('edge')?.endpoint, 'http://172.29.10.2:8787');
    const builtIn = buildNodeMap(resolveTrestle('').settings.distributed);
    assert.equal(builtIn.others.get('primary')?.endpoint, 'http://172.29.10.1:8787');
  });
});
