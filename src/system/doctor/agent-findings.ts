import { buildAgentCatalog, type CatalogAgent } from '../../bridge/agents/agent-catalog.ts';
import { connectAgent } from '../../bridge/agents/agent-launcher.ts';
import { hasReadOnlyMode } from '../../bridge/agents/agent-presets.ts';
import { createAgentProbe, createBuiltinProbe } from '../../bridge/agents/agent-probe.ts';
import type { ProbeResult } from '../../bridge/agents/probe-board.ts';
import { createGatewayProbe } from '../../bridge/gateway/gateway-probe.ts';
import type { Clock } from '../../platform/clock/clock.ts';
import type { DataFiles } from '../data-directory.ts';
import { builtinModelProblem, createProbeEffects } from '../probe-effects.ts';
import { PROGRAM_VERSION } from '../release.ts';
import type { Settings } from '../settings.ts';
import { type Finding, fine, note } from './finding.ts';

const PROBE_TIMEOUT_MS = 15_000;

/** Each agent and the gateway, looked at once. One that is not there is no fault: nobody needs all of them. */
export async function agentFindings(
  settings: Settings,
  environment: Readonly<Record<string, string | undefined>>,
  files: DataFiles,
  clock: Clock,
): Promise<readonly Finding[]> {
  const catalog = buildAgentCatalog(settings.agents);
  const effects = createProbeEffects(environment, files.folder, files.processes);
  const { permissions } = settings.bridge;
  const connected = { permissions, version: PROGRAM_VERSION, clock, logger: { error: () => undefined } };
  const problem = builtinModelProblem(settings, environment);
  const builtin = createBuiltinProbe(PROGRAM_VERSION, settings.agents.builtin.model, problem);
  const agents = catalog.map((agent) => ({
    name: `agent ${agent.id}`,
    probe: createAgentProbe({
      agent,
      effects,
      connect: (process, { protocol }) => connectAgent(process, { ...connected, protocol }),
      clock,
      builtin,
    }),
  }));
  const gateway = {
    name: `gateway ${settings.gateway.provider_id}`,
    probe: createGatewayProbe(settings.gateway.url),
  };
  const found = await Promise.all(
    [...agents, gateway].map(async ({ name, probe }) => {
      const result = await probe(AbortSignal.timeout(PROBE_TIMEOUT_MS)).catch(asFailure);
      const { status, version, model, advice = '' } = result;
      const works = `${version || 'ok'}${model === undefined ? '' : `, model ${model}`}`;
      if (status === 'ok') return fine(name, works);
      return note(name, `${status.replaceAll('_', ' ')}${advice === '' ? '' : `: ${advice}`}`);
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
