import { AppError } from '../../platform/errors/app-error.ts';
import { describeStatus, type ProbeBoard } from '../agents/probe-board.ts';
import type { RoutingInput, RoutingResolution } from '../contract/routing.ts';
import { matchSkills } from './match-skills.ts';

/** What routing knows of the world at one moment. */
export interface RoutingFacts {
  /** In catalog order, by their latest probe result. */
  readonly agents: readonly { readonly id: string; readonly isAvailable: boolean; readonly status: string }[];
  readonly gateway: { readonly id: string; readonly isAvailable: boolean; readonly status: string };
  /** The agent for requests that name none. */
  readonly defaultAgent: string;
}

export interface RouteRequest {
  readonly routing: RoutingInput;
  readonly prompt: string;
  /** The agent of the session, where there is one. */
  readonly sessionAgent: string;
  /** Whether it must be that agent: only it can continue what it began. */
  readonly continues: boolean;
}

export function wantsGateway(routing: RoutingInput): boolean {
  return routing.explicitExecutionTarget === 'gateway';
}

/** Who does the work (contract/bridge 5). A named agent or gateway is never replaced by another. */
export function resolveRoute(request: RouteRequest, facts: RoutingFacts): RoutingResolution {
  const { routing, continues, sessionAgent } = request;
  if (wantsGateway(routing)) return resolveGateway(request, routing.preferredGatewayProviderId ?? '', facts);
  // A session that the gateway has goes on there by itself.
  const goesOn = continues && sessionAgent === facts.gateway.id;
  if (goesOn && !routing.explicitExecutionTarget && !routing.explicitProviderId) {
    return resolveGateway(request, sessionAgent, facts);
  }
  return resolveAgent(request, facts);
}

function resolveAgent(request: RouteRequest, { agents, defaultAgent }: RoutingFacts): RoutingResolution {
  const { routing, sessionAgent, continues } = request;
  const named = routing.explicitProviderId ?? '';
  const isUp = (id: string) => agents.some((agent) => agent.id === id && agent.isAvailable);
  const unavailable = (id: string) => {
    const known = agents.find((agent) => agent.id === id);
    const message =
      known === undefined ? `There is no agent "${id}".` : `The agent "${id}" is not available: ${known.status}.`;
    return refused(request, 'single-agent', 'PROVIDER_UNAVAILABLE', message);
  };

  const only = named !== '' ? named : continues ? sessionAgent : '';
  if (only !== '') return isUp(only) ? availableRoute(request, only) : unavailable(only);
  if (routing.routingMode === 'explicit') {
    if (sessionAgent !== '')
      return isUp(sessionAgent) ? availableRoute(request, sessionAgent) : unavailable(sessionAgent);
    const message = 'The routing mode is explicit, and explicitProviderId names no agent.';
    return refused(request, 'single-agent', 'PROVIDER_UNAVAILABLE', message);
  }
  const first = [sessionAgent, defaultAgent, ...agents.map(({ id }) => id)].find(isUp);
  if (first !== undefined) return availableRoute(request, first);
  return refused(request, 'single-agent', 'PROVIDER_UNAVAILABLE', 'No agent is available.');
}

function resolveGateway(request: RouteRequest, wanted: string, { gateway }: RoutingFacts): RoutingResolution {
  if (wanted === '') throw new AppError('GATEWAY_PROVIDER_REQUIRED');
  if (wanted === gateway.id && gateway.isAvailable) {
    return gatewayRoute(request, wanted);
  }
  const message =
    wanted === gateway.id
      ? `The gateway "${wanted}" is not available: ${gateway.status}.`
      : `There is no gateway "${wanted}".`;
  return refused(request, 'gateway', 'GATEWAY_UNAVAILABLE', message);
}

/** The route to a gateway that can be used. */
export function gatewayRoute(request: Pick<RouteRequest, 'routing' | 'prompt'>, gatewayId: string): RoutingResolution {
  return { ...availableRoute(request, ''), resolvedExecutionTarget: 'gateway', resolvedGatewayProviderId: gatewayId };
}

/** What a route says when the gateway turned out to be gone. */
export function gatewayUnavailable(reason: string) {
  return {
    resolvedGatewayProviderId: '',
    resolvedSkills: [],
    unavailable: true,
    unavailableCode: 'GATEWAY_UNAVAILABLE',
    unavailableMessage: `The gateway is not available: ${reason}.`,
  };
}

/** The route to an agent that can be used. */
export function availableRoute(
  { routing, prompt }: Pick<RouteRequest, 'routing' | 'prompt'>,
  agentId: string,
): RoutingResolution {
  const skills = matchSkills(routing, prompt);
  return {
    resolvedExecutionTarget: 'single-agent',
    resolvedProviderId: agentId,
    providerId: agentId,
    resolvedGatewayProviderId: '',
    resolvedModel: routing.explicitModel ?? '',
    ...skills,
    resolvedSkills: [...skills.resolvedSkills],
    status: 'available',
    unavailable: false,
  };
}

/** The route of a run that names its agents itself, step by step. */
export function multiAgentRoute(request: Pick<RouteRequest, 'routing' | 'prompt'>): RoutingResolution {
  return { ...availableRoute(request, ''), resolvedExecutionTarget: 'multi-agent' };
}

type Target = RoutingResolution['resolvedExecutionTarget'];

function refused(request: RouteRequest, target: Target, code: string, message: string): RoutingResolution {
  return {
    ...availableRoute(request, ''),
    resolvedExecutionTarget: target,
    resolvedSkills: [],
    status: 'unavailable',
    unavailable: true,
    unavailableCode: code,
    unavailableMessage: message,
  };
}

interface LiveRoutingOptions {
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
