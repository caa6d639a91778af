import type { CatalogAgent } from './agents/agent-catalog.ts';
import type { AgentProvider } from './agents/agent-provider.ts';
import { describeStatus, type ProbeBoard, type ProbeResult } from './agents/probe-board.ts';
import type { AgentList, Capabilities, ProviderEntry } from './contract/surface.ts';

export interface GatewayEntry {
  readonly id: string;
  readonly label: string;
}

export interface CapabilitiesSource {
  readonly agents: readonly CatalogAgent[];
  readonly gateway: GatewayEntry;
  readonly probes: Pick<ProbeBoard, 'results' | 'revision'>;
  /** Names of the served methods: what is not served is not announced. */
  readonly methodNames: ReadonlySet<string>;
}

/** The answer to `acp.capabilities` as text, made again only when a probe result changed. */
export function createCapabilitiesText(source: CapabilitiesSource): () => string {
  let text = '';
  let madeAt = -1;
  return () => {
    const revision = source.probes.revision();
    if (madeAt !== revision) {
      text = JSON.stringify(describeCapabilities(source));
      madeAt = revision;
    }
    return text;
  };
}

const NOT_CONFIGURED: ProbeResult = { status: 'not_configured', version: '' };

export function describeCapabilities({ agents, gateway, probes, methodNames }: CapabilitiesSource): Capabilities {
  const results = probes.results();
  const found = (id: string): ProbeResult => results.get(id) ?? NOT_CONFIGURED;
  // An adapter serves no method of the gateway.
  const hasGateway = methodNames.has('app.gateway.connect');
  const gateways = hasGateway ? [gateway] : [];
  return {
    singleAgent: methodNames.has('session.start'),
    multiAgent: methodNames.has('session.start'),
    availableExecutionTargets: hasGateway ? ['agent', 'gateway'] : ['agent'],
    providerCatalog: agents.map((agent) => describeAgent(agent, results)),
    gatewayProviders: gateways.map(({ id, label }) => ({
      providerId: id,
      label,
      targets: ['gateway'],
      ...availability(found(id)),
    })),
    providerProbeSummary: [...agents, ...gateways].map(({ id }) => {
      const { status } = found(id);
      return { providerId: id, available: status === 'ok', status };
    }),
  };
}

export function describeAgent(
  { id, label, category }: CatalogAgent,
  results: ReadonlyMap<string, ProbeResult>,
): ProviderEntry {
  return { providerId: id, label, targets: ['agent'], category, ...availability(results.get(id) ?? NOT_CONFIGURED) };
}

function availability(result: ProbeResult): {
  enabled: boolean;
  unavailableReason: string;
  version: string;
} {
  const { status, version } = result;
  return { enabled: status === 'ok', unavailableReason: status === 'ok' ? '' : describeStatus(result), version };
}

const NO_ABILITIES = { steer: 'no', fork: 'no', forkFrom: 'last_turn' } as const;

/** The agents with their state, for people: `GET /api/bridge/agents`. */
export function listAgents(
  agents: readonly CatalogAgent[],
  providers: ReadonlyMap<string, AgentProvider>,
  probes: Pick<ProbeBoard, 'results'>,
): AgentList {
  const results = probes.results();
  return {
    agents: agents.map(({ id, label, category }) => {
      const { status: state, version, model = '', advice = '' } = results.get(id) ?? NOT_CONFIGURED;
      const { modes = [], abilities = NO_ABILITIES } = providers.get(id) ?? {};
      const shown = modes.map((mode) => ({ id: mode.id, name: mode.name }));
      return { providerId: id, label, category, state, advice, version, model, modes: shown, ...abilities };
    }),
  };
}
