import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Compile } from 'typebox/schema';
import { buildAgentCatalog } from '../../src/bridge/agents/agent-catalog.ts';
import type { ProbeResult } from '../../src/bridge/agents/probe-board.ts';
import { type CapabilitiesSource, createCapabilitiesText } from '../../src/bridge/capabilities.ts';
import { Capabilities } from '../../src/bridge/contract/surface.ts';
import { resolveTrestle } from '../kit/resolve-trestle.ts';

const { settings } = resolveTrestle('agents: { catalog: [gemini, builtin], custom: [{ id: mine, command: mine }] }');
const agents = buildAgentCatalog(settings.agents);

function source(results: Map<string, ProbeResult>, revision: () => number, methods: readonly string[]) {
  const probes = { results: () => results, revision };
  const gateway = { id: 'openclaw', label: 'OpenClaw' };
  return { agents, gateway, probes, methodNames: new Set(methods) } satisfies CapabilitiesSource;
}

test('the catalog has the configured order, custom agents last', () => {
  assert.deepEqual(
    agents.map(({ id }) => id),
    ['gemini', 'builtin', 'mine'],
  );
});

test('the answer is kept as it is until a probe finds something else', () => {
  const results = new Map([['gemini', { status: 'ok', version: '1.0.0' }]]);
  let revision = 1;
  const text = createCapabilitiesText(source(results, () => revision, []));
  const first = text();
  results.set('gemini', { status: 'not_installed', version: '' });
  assert.equal(text(), first);
  revision = 2;
  const second = JSON.parse(text());
  assert.deepEqual(second.providerProbeSummary[0], {
    providerId: 'gemini',
    available: false,
    status: 'not_installed',
  });
  assert.equal(second.providerCatalog[0].enabled, false);
  assert.equal(second.providerCatalog[0].unavailableReason, 'not_installed');
});

test('sessions are announced only where they are served, and the answer fits its schema', () => {
  const withSessions = createCapabilitiesText(source(new Map(), () => 1, ['session.start']));
  const without = createCapabilitiesText(source(new Map(), () => 1, ['acp.capabilities']));
  assert.equal(JSON.parse(withSessions()).singleAgent, true);
  assert.equal(JSON.parse(without()).singleAgent, false);
  assert.ok(Compile(Capabilities).Check(JSON.parse(without())));
});

test('DB-35: a gateway is advertised only where its methods are served', () => {
  const of = (methods: readonly string[]) => JSON.parse(createCapabilitiesText(source(new Map(), () => 1, methods))());
  const adapter = of(['acp.capabilities', 'session.start']);
  assert.deepEqual(adapter.availableExecutionTargets, ['agent']);
  assert.deepEqual(adapter.gatewayProviders, []);
  assert.ok(!JSON.stringify(adapter.providerProbeSummary).includes('openclaw'));
  const bridge = of(['session.start', 'app.gateway.connect']);
  assert.deepEqual(bridge.availableExecutionTargets, ['agent', 'gateway']);
  assert.equal(bridge.gatewayProviders[0].providerId, 'openclaw');
});
