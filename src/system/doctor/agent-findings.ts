import { buildAgentCatalog, type CatalogAgent } from '../../bridge/agents/agent-catalog.ts';
import { hasReadOnlyMode } from '../../bridge/agents/agent-presets.ts';
import { createAgentProbe, type ProbeEffects } from '../../bridge/agents/agent-probe.ts';
import type { ProbeResult } from '../../bridge/agents/probe-board.ts';
import { createGatewayProbe } from '../../bridge/gateway/gateway-probe.ts';
import { PROGRAM_VERSION } from '../release.ts';
import type { Settings } from '../settings.ts';
import { type Finding, fine, note } from './finding.ts';

const PROBE_TIMEOUT_MS = 15_000;

/** Each agent and the gateway, looked at once. One that is not there is no fault: nobody needs all of them. */
export async function agentFindings(settings: Settings, effects: ProbeEffects): Promise<readonly Finding[]> {
  const catalog = buildAgentCatalog(settings.agents);
  const agents = catalog.map((agent) => ({
    name: `agent ${agent.id}`,
    probe: createAgentProbe({ agent, effects, ownVersion: PROGRAM_VERSION }),
  }));
  const gateway = {
    name: `gateway ${settings.gateway.provider_id}`,
    probe: createGatewayProbe(settings.gateway.url),
  };
  const found = await Promise.all(
    [...agents, gateway].map(async ({ name, probe }) => {
      const { status, version } = await probe(AbortSignal.timeout(PROBE_TIMEOUT_MS)).catch(asFailure);
      return status === 'ok' ? fine(name, version || 'ok') : note(name, status.replaceAll('_', ' '));
    }),
  );
  return [...found, ...readOnlyFindings(settings, catalog)];
}

/** Agents that are told to write nothing, and may not be able to promise it. */
function readOnlyFindings({ bridge }: Settings, catalog: readonly CatalogAgent[]): readonly Finding[] {
  if (bridge.permissions === 'allow') return [];
  const unsure = catalog.filter(({ id, place }) => place.kind === 'program' && !hasReadOnlyMode(id));
  if (unsure.length === 0) return [];
  const names = unsure.map(({ id }) => id).join(', ');
  const text = `no read-only mode is known of ${names}: what they ask for is denied, what they do without asking is not prevented`;
  return [note('permissions', text)];
}

function asFailure(error: unknown): ProbeResult {
  return { status: `failed: ${error instanceof Error ? error.message : error}`, version: '' };
}
