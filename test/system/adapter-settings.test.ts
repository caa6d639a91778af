import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adapterSettings, type Settings } from '../../src/system/settings.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

const PLACE = { homeDirectory: '/home/ann', xdgDataHome: undefined };

function settingsOf(text: string): Settings {
  const { settings, problems } = resolveTrestle(text);
  assert.deepEqual(problems, []);
  return settings;
}

test('an adapter has one agent, a place of its own, and hands nothing on', () => {
  const settings = settingsOf(`
data_dir: /data
database: { url: "postgres://db/x" }
gateway: { url: "ws://127.0.0.1:1" }
agents: { opencode: { url: "http://10.0.0.1:8788" }, custom: [{ id: claude }, { id: mine, command: mine }] }
distributed:
  local_node_id: a
  task_forward_peer_id: primary
  forwarding: { default_action: reject, rules: [{ methods: ["*"], target: { node_id: edge } }] }
`);
  const narrowed = adapterSettings(settings, 'opencode', PLACE);
  assert.deepEqual(narrowed.agents.catalog, ['opencode']);
  assert.deepEqual([narrowed.agents.default, narrowed.agents.opencode.url], ['opencode', '']);
  assert.deepEqual(narrowed.agents.custom, []);
  assert.equal(narrowed.data_dir, '/data/adapters/opencode');
  assert.deepEqual([narrowed.database.url, narrowed.gateway.url], ['', '']);
  assert.deepEqual(narrowed.distributed.forwarding.rules, []);
  assert.equal(narrowed.distributed.forwarding.default_action, 'execute_local');
  assert.equal(narrowed.distributed.task_forward_peer_id, '');
  const ports = ['opencode', 'gemini', 'mine', 'claude'].map((name) => adapterSettings(settings, name, PLACE).listen);
  assert.deepEqual(ports, ['127.0.0.1:8788', '127.0.0.1:8789', '127.0.0.1:8790', '127.0.0.1:8790']);
});

test('only agents that speak the Agent Client Protocol have an adapter', () => {
  const settings = settingsOf('agents: { custom: [{ id: far, url: "http://10.0.0.1:1" }] }');
  for (const name of ['builtin', 'codex', 'far', 'nobody', '__proto__']) {
    assert.throws(() => adapterSettings(settings, name, PLACE), { code: 'ADAPTER_UNKNOWN' }, name);
  }
});
