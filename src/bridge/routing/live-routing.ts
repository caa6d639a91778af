import { describeStatus, type ProbeBoard } from '../agents/probe-board.ts';
import type { RoutingResolution } from '../contract/routing.ts';
import { type RouteRequest, type RoutingFacts, resolveRoute, wantsGateway } from './resolve-route.ts';

export interface LiveRoutingOptions {
  readonly agentIds: readonly string[];
  readonly gatewayId: string;
  readonly defaultAgent: string;
  readonly probes: Pick<ProbeBoard, 'results' | 'firstLook'>;
}

/** Resolves routes by what the probes found last. It waits only for an agent that nobody has looked at yet. */
export function createLiveRouting(options: LiveRoutingOptions): (request: RouteRequest) => Promise<RoutingResolution> {
  const { agentIds, gatewayId, defaultAgent, probes } = options;

  function facts(): RoutingFacts {
    const results = probes.results();
    const found = (id: string) => {
      const result = results.get(id) ?? { status: 'not_configured', version: '' };
      return { id, isAvailable: result.status === 'ok', status: describeStatus(result) };
    };
    return { agents: agentIds.map(found), gateway: found(gatewayId), defaultAgent };
  }

  return async (request) => {
    const { routing, sessionAgent } = request;
    const first = wantsGateway(routing) ? gatewayId : routing.explicitProviderId || sessionAgent || defaultAgent;
    await probes.firstLook(first);
    return resolveRoute(request, facts());
  };
}
