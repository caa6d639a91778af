import { AppError } from '../../platform/errors/app-error.ts';
import { describeStatus, type ProbeBoard } from '../agents/probe-board.ts';
import type { AvailableSkill, RoutingInput, RoutingResolution } from '../contract/routing.ts';

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

/** Who does the work. A named agent or gateway is never replaced by another. */
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
    const offered = agents.map((agent) => agent.id).join(', ');
    const message =
      known === undefined
        ? `There is no agent "${id}" here. Known agents: ${offered}. "trestle agents" lists those that can be installed.`
        : `The agent "${id}" is not available: ${known.status}.`;
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
  readonly probes: Pick<ProbeBoard, 'results' | 'firstLook' | 'lookAgain'>;
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
    // It may have been installed since the last look. While it is not, looking means no more than to search for its file.
    if (probes.results().get(first)?.status === 'not_installed') await probes.lookAgain(first);
    return resolveRoute(request, facts());
  };
}

interface SkillMatch {
  readonly resolvedSkills: readonly string[];
  readonly skillResolutionSource: 'explicit' | 'local_match' | 'none';
  readonly needsSkillInstall: boolean;
  readonly skillInstallRequestId: string;
}

/**
 * Skills that were asked for count as they are; otherwise those whose id or label stands in the prompt as whole words.
 * A skill that was asked for and is not installed, or not listed at all, needs to be installed.
 */
export function matchSkills(routing: RoutingInput, prompt: string): SkillMatch {
  const { explicitSkills = [], availableSkills = [] } = routing;
  if (explicitSkills.length > 0) {
    const installed = new Set(availableSkills.filter(isInstalled).map(idOf));
    const missing = [...new Set(explicitSkills)].filter((id) => !installed.has(id)).sort();
    return {
      resolvedSkills: explicitSkills,
      skillResolutionSource: 'explicit',
      needsSkillInstall: missing.length > 0,
      skillInstallRequestId: missing.length > 0 ? `skill-install:${missing.join(',')}` : '',
    };
  }
  const text = prompt.toLowerCase();
  const search: Search = { left: MAX_SEARCHED };
  const found = availableSkills
    .filter(isInstalled)
    .filter((skill) => namesOf(skill).some((name) => hasWords(text, name, search)));
  const resolvedSkills = [...new Set(found.map(idOf))];
  return {
    resolvedSkills,
    skillResolutionSource: resolvedSkills.length > 0 ? 'local_match' : 'none',
    needsSkillInstall: false,
    skillInstallRequestId: '',
  };
}

const MAX_NAMED_SKILLS = 20;
const MAX_SKILL_NAME = 64;

/** A prompt for an agent that finds skills by itself: it names those that the call asks for. */
export function promptWithSkills(prompt: string, skills: readonly string[]): string {
  if (skills.length === 0) return prompt;
  const names = skills.slice(0, MAX_NAMED_SKILLS).map((name) => name.replaceAll(/\s+/g, ' ').slice(0, MAX_SKILL_NAME));
  return `Use these skills if you have them: ${names.join(', ')}.\n\n${prompt}`;
}

function idOf(skill: AvailableSkill): string {
  return typeof skill === 'string' ? skill : skill.id;
}

function namesOf(skill: AvailableSkill): string[] {
  return typeof skill === 'string' ? [skill] : [skill.id, skill.label ?? ''];
}

function isInstalled(skill: AvailableSkill): boolean {
  return typeof skill === 'string' || skill.installed !== false;
}

/** How many more characters of the prompt may be looked at, for all skills together. */
interface Search {
  left: number;
}

/** Limits the search, because thousands of skills in a prompt of megabytes would hold up all other callers for seconds. */
const MAX_SEARCHED = 16_000_000;
/** To look around a place where a name was found takes as long as to search so many characters. */
const COST_OF_PLACE = 1000;

/** Whether `words` stands in `text` with no letter or digit right before or after it. */
function hasWords(text: string, words: string, search: Search): boolean {
  const wanted = words.trim().toLowerCase();
  if (wanted === '') return false;
  let from = 0;
  while (search.left > 0) {
    const at = text.indexOf(wanted, from);
    search.left -= (at === -1 ? text.length : at) - from + COST_OF_PLACE;
    if (at === -1) return false;
    from = at + 1;
    if (!endsInWord(text.slice(0, at)) && !startsWithWord(text.slice(at + wanted.length, at + wanted.length + 2))) {
      return true;
    }
  }
  return false;
}

function endsInWord(text: string): boolean {
  return /[\p{L}\p{N}_]$/u.test(text.slice(-2));
}

function startsWithWord(text: string): boolean {
  return /^[\p{L}\p{N}_]/u.test(text);
}
