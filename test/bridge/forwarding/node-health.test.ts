import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildNodeMap, type ForwardDecision } from '../../../src/bridge/forwarding/decide-forward.ts';
import { createCallOrder } from '../../../src/bridge/forwarding/forwarding-dispatch.ts';
import { createNodeHealth, createNodeReports, nodeControls } from '../../../src/bridge/forwarding/node-health.ts';
import type { DistributedSettings } from '../../../src/bridge/settings.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

test('B-93: a node that is down is looked at until it answers, and is used again', async () => {
  const clock = createFakeClock();
  let answers = false;
  const probed: string[] = [];
  const health = createNodeHealth({
    clock,
    probeMs: 5000,
    async probe(id) {
      probed.push(id);
      return answers;
    },
  });
  assert.equal(health.isUp('b'), true);
  health.markDown('b', 'gone');
  health.markDown('b', 'still gone');
  assert.equal(health.isUp('b'), false);
  assert.equal(health.reasonOf('b'), 'still gone');
  await clock.advance(12_000);
  assert.deepEqual(probed, ['b', 'b']);
  assert.equal(health.isUp('b'), false);
  answers = true;
  await clock.advance(5000);
  assert.equal(health.isUp('b'), true);
  await clock.advance(60_000);
  assert.equal(probed.length, 3, 'a node that is up is not looked at');
  assert.equal(clock.pending(), 0);
});

test('forwarding: a call that goes well ends the looking, and so does a stop', async () => {
  const clock = createFakeClock();
  const health = createNodeHealth({ clock, probeMs: 5000, probe: () => Promise.reject(new Error('no')) });
  health.markUp('b');
  health.markDown('b', 'gone');
  health.markUp('b');
  assert.equal(clock.pending(), 0);
  health.markDown('c', 'gone');
  await clock.advance(5000);
  assert.equal(health.isUp('c'), false, 'a probe that fails is no answer');
  health.stop();
  assert.equal(clock.pending(), 0);
});

test('forwarding: calls about one thing go out one after the other, others go their way', async () => {
  const order = createCallOrder();
  const seen: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = order.run('s', async (letNext) => {
    seen.push('first begins');
    await gate.promise;
    letNext();
    await new Promise((resolve) => setImmediate(resolve));
    seen.push('first ends');
  });
  const second = order.run('s', async () => void seen.push('second'));
  const failing = order.run('s', async () => {
    seen.push('third');
    throw new Error('failed');
  });
  const fourth = order.run('s', async () => void seen.push('fourth'));
  await order.run('other', async () => void seen.push('other'));
  assert.deepEqual(seen, ['first begins', 'other']);
  gate.resolve();
  await assert.rejects(failing);
  await Promise.all([first, second, fourth]);
  assert.deepEqual(seen.slice(0, 3), ['first begins', 'other', 'second']);
  assert.deepEqual(seen.slice(3).sort(), ['first ends', 'fourth', 'third']);
});

const target = (changes: object) => ({
  node_id: '',
  selector: { role: '', zone: '', capability: '' },
  strategy: 'first',
  ...changes,
});
const node = (id: string, more: object = {}) => ({
  ...{ id, role: '', zone: '', bridge_endpoint: `http://${id}.tunnel:1`, capabilities: [] },
  ...more,
});
const settings = (changes: object = {}) =>
  ({
    local_node_id: 'a',
    task_forward_peer_id: '',
    nodes: [node('c', { role: 'exec', capabilities: ['gpu'] }), node('b')],
    forwarding: { hop_limit: 3, default_action: 'reject', rules: [], routes: [], ...changes },
  }) as unknown as DistributedSettings;

function reportsOf(given: DistributedSettings, decision?: ForwardDecision) {
  const asked: unknown[] = [];
  const reports = createNodeReports({
    settings: given,
    map: buildNodeMap(given),
    health: { reasonOf: (id) => (id === 'b' ? 'nothing listens at its address' : undefined) },
    async decide(method, sessionId) {
      asked.push([method, sessionId]);
      return decision ?? { kind: 'local', reason: 'it lives here' };
    },
  });
  return { reports, asked };
}

test('forwarding: the report of nodes has those that the settings name, their way and their state', () => {
  const routes = [{ target_node_id: 'c', next_hop_node_id: 'b' }];
  const { reports } = reportsOf(settings({ routes }));
  assert.deepEqual(reports.list(), {
    local_node_id: 'a',
    hop_limit: 3,
    default_action: 'reject',
    nodes: [
      {
        ...{ id: 'b', role: '', zone: '', endpoint: 'http://b.tunnel:1', capabilities: [], next_hop: 'b' },
        state: 'nothing listens at its address',
      },
      {
        ...{ id: 'c', role: 'exec', zone: '', endpoint: 'http://c.tunnel:1', capabilities: ['gpu'], next_hop: 'b' },
        state: 'up',
      },
    ],
  });
});

test('forwarding: a built-in node is reported where a setting names or selects it, and nowhere else', () => {
  const ids = (given: DistributedSettings) =>
    reportsOf(given)
      .reports.list()
      .nodes.map(({ id }) => id);
  const rule = (changes: object) => settings({ rules: [{ methods: ['*'], target: target(changes) }] });
  assert.deepEqual(ids(settings()), ['b', 'c']);
  assert.deepEqual(ids({ ...settings(), task_forward_peer_id: 'edge' }), ['b', 'c', 'edge']);
  assert.deepEqual(ids(rule({ node_id: 'primary' })), ['b', 'c', 'primary']);
  assert.deepEqual(ids(rule({})), ['b', 'c', 'edge', 'primary'], 'a selector without conditions selects all');
  assert.deepEqual(ids(rule({ selector: { role: 'exec', zone: '', capability: '' } })), ['b', 'c']);
  const routes = [{ target_node_id: 'far', next_hop_node_id: 'edge' }];
  assert.deepEqual(ids(settings({ routes })), ['b', 'c', 'edge']);
  assert.deepEqual(ids(settings({ routes: [{ target_node_id: 'edge', next_hop_node_id: 'b' }] })), ['b', 'c', 'edge']);
});

test('forwarding: an explanation says what would happen to a call, where it would go, and why', async () => {
  const given = settings();
  const nextHop = buildNodeMap(given).others.get('b');
  assert.ok(nextHop);
  const candidates = [{ target: 'c', nextHop }];
  const decisions: [ForwardDecision, object][] = [
    [
      { kind: 'local', reason: 'it lives here' },
      { action: 'local', reason: 'it lives here', candidates: [] },
    ],
    [
      { kind: 'forward', reason: 'rule 1', candidates, rule: undefined },
      {
        ...{ action: 'forward', reason: 'rule 1' },
        candidates: [{ node_id: 'c', next_hop: 'b', endpoint: 'http://b.tunnel:1' }],
      },
    ],
    [
      { kind: 'refuse', code: 'TASK_FORWARD_PEER_UNKNOWN', reason: 'no rule' },
      { action: 'refuse', code: 'TASK_FORWARD_PEER_UNKNOWN', reason: 'no rule', candidates: [] },
    ],
  ];
  for (const [decision, expected] of decisions) {
    const { reports, asked } = reportsOf(given, decision);
    assert.deepEqual(await reports.explain('session.start', 's'), { method: 'session.start', ...expected });
    assert.deepEqual(asked, [['session.start', 's']]);
  }
});

test('forwarding: the controls of trestle nodes give these reports', async () => {
  const { reports, asked } = reportsOf(settings());
  const [list, explain] = nodeControls(reports);
  assert.deepEqual([list?.name, explain?.name], ['nodes.list', 'nodes.explain']);
  assert.deepEqual(list?.handle({} as never, {} as never), reports.list());
  await explain?.handle({ method: 'session.message', session_id: 's' } as never, {} as never);
  assert.deepEqual(asked, [['session.message', 's']]);
});
