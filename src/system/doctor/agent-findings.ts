import { buildAgentCatalog } from '../../bridge/agents/agent-catalog.ts';
import { createAgentProbe, type ProbeEffects } from '../../bridge/agents/agent-probe.ts';
import type { ProbeResult } from '../../bridge/agents/probe-board.ts';
import { createGatewayProbe } from '../../bridge/gateway/gateway-probe.ts';
import { PROGRAM_VERSION } from '../release.ts';
import type { Settings } from '../settings.ts';
import { type Finding, fine, note } from './finding.ts';

const PROBE_TIMEOUT_MS = 15_000;

/** Each agent and the gateway, looked at once. One that is not there is no fault: nobody needs all of them. */
export function agentFindings(settings: Settings, effects: ProbeEffects): Promise<readonly Finding[]> {
  const agents = buildAgentCatalog(settings.agents).map((agent) => ({
    name: `agent ${agent.id}`,
    probe: createAgentProbe({ agent, effects, ownVersion: PROGRAM_VERSION }),
  }));
  const gateway = {
    name: `gateway ${settings.gateway.provider_id}`,
    probe: createGatewayProbe(settings.gateway.url),
  };
  return Promise.all(
    [...agents, gateway].map(async ({ name, probe }) => {
      const { status, version } = await probe(AbortSignal.timeout(PROBE_TIMEOUT_MS)).catch(asFailure);
      return status === 'ok' ? fine(name, version || 'ok') : note(name, status.replaceAll('_', ' '));
    }),
  );
}

function asFailure(error: unknown): ProbeResult {
  return { status: `failed: ${error instanceof Error ? error.message : error}`, version: '' };
}
