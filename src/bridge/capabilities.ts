import type { CatalogAgent } from './agents/agent-catalog.ts';
import { describeStatus, type ProbeBoard, type ProbeResult } from './agents/probe-board.ts';
import type { Capabilities } from './contract/surface.ts';

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

/** The answer to `acp.capabilities` as text, made anew only when a probe result changed. */
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

export function describeCapabilities({ agents, gateway, probes, methodNames }: CapabilitiesSource): Capabilities {
  const results = probes.results();
  const found = (id: string): ProbeResult => results.get(id) ?? { status: 'not_configured', version: '' };
  // An adapter serves no method of the gateway.
  const hasGateway = methodNames.has('app.gateway.connect');
  const gateways = hasGateway ? [gateway] : [];
  return {
    singleAgent: methodNames.has('session.start'),
    multiAgent: methodNames.has('session.start'),
    availableExecutionTargets: hasGateway ? ['agent', 'gateway'] : ['agent'],
    providerCatalog: agents.map((agent) => ({
      providerId: agent.id,
      label: agent.label,
      targets: ['agent'],
      category: agent.category,
      ...availability(found(agent.id)),
    })),
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

function availability(result: ProbeResult): {
  enabled: boolean;
  unavailableReason: string;
  version: string;
} {
  const { status, version } = result;
  return { enabled: status === 'ok', unavailableReason: status === 'ok' ? '' : describeStatus(result), version };
}
