import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agentPresets, buildAgentCatalog, type CatalogAgent } from '../../../src/bridge/agents/agent-catalog.ts';
import { checkBridgeSettings } from '../../../src/bridge/check-bridge-settings.ts';
import { resolveTrestle } from '../../kit/resolve-trestle.ts';

function catalogOf(agents: object): readonly CatalogAgent[] {
  const { settings } = resolveTrestle(JSON.stringify({ agents }));
  assert.deepEqual(checkBridgeSettings(settings), []);
  return buildAgentCatalog(settings.agents);
}

const program = (command: string, args: readonly string[], environment = {}) => ({
  kind: 'program',
  protocol: 'acp',
  command,
  args,
  environment,
});

test('the catalog has the four agents, and no preset that nobody asked for', () => {
  assert.deepEqual(
    catalogOf({}).map(({ id, category, place }) => [id, category, place.kind === 'program' && place.protocol]),
    [
      ['builtin', 'native', false],
      ['codex', 'native', 'codex'],
      ['opencode', 'protocol-adapter', 'acp'],
      ['gemini', 'protocol-adapter', 'acp'],
    ],
  );
});

test('a preset needs nothing but its name in the catalog', () => {
  for (const { id, label, command, args, env } of agentPresets) {
    const [, preset] = catalogOf({ catalog: ['builtin', id] });
    assert.deepEqual(preset, {
      id,
      label,
      category: 'protocol-adapter',
      place: { ...program(command, args, env), preset: id },
    });
  }
});

test('a custom entry of a preset’s id changes what it names and keeps the rest', () => {
  const [, auggie] = catalogOf({ catalog: ['builtin'], custom: [{ id: 'auggie', env: { A: 'b' } }] });
  const environment = { AUGMENT_DISABLE_AUTO_UPDATE: '1', A: 'b' };
  assert.deepEqual(auggie?.place, { ...program('auggie', ['--acp'], environment), preset: 'auggie' });
  const [, qwen] = catalogOf({ catalog: ['builtin'], custom: [{ id: 'qwen', env: { OPENAI_MODEL: 'm' } }] });
  const waits = { QWEN_CODE_LEGACY_MCP_BLOCKING: '1' };
  const place = { ...program('qwen', ['--acp'], { ...waits, OPENAI_MODEL: 'm' }), preset: 'qwen' };
  assert.deepEqual([qwen?.label, qwen?.place], ['Qwen Code', place]);
  const args = ['--acp', '--auth-type', 'openai'];
  const [, withArgs] = catalogOf({ catalog: ['builtin'], custom: [{ id: 'qwen', args }] });
  assert.deepEqual(withArgs?.place, { ...program('qwen', args, waits), preset: 'qwen' });
  const [, withCommand] = catalogOf({ catalog: ['builtin'], custom: [{ id: 'qwen', command: '/opt/q', label: 'Q' }] });
  assert.deepEqual([withCommand?.label, withCommand?.place], ['Q', program('/opt/q', [])]);
});

test('an agent with an address is remote, with its token', () => {
  const [agent] = catalogOf({
    catalog: ['opencode'],
    default: 'opencode',
    opencode: { url: 'http://10.0.0.2:1', token: 't-0123456789abcdef' },
  });
  assert.deepEqual(agent?.place, { kind: 'remote', url: 'http://10.0.0.2:1', token: 't-0123456789abcdef' });
});

test('a custom agent that is no preset must say how it is reached', () => {
  const { settings } = resolveTrestle('agents: { custom: [{ id: mine }] }');
  const [complaint] = checkBridgeSettings(settings);
  assert.equal(complaint?.path, 'agents.custom[0]');
});
