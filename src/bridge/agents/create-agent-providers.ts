import type { RunningProcess } from '../../platform/child-process/start-process.ts';
import type { Payer } from '../../platform/identity/owner.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { isPersons } from '../principal.ts';
import { type AgentPlace, type CatalogAgent, readOnlyEnvironment } from './agent-catalog.ts';
import type { AgentFence } from './agent-fence.ts';
import { type AgentLimits, connectAgent, DEFAULT_AGENT_LIMITS, type LaunchAgent } from './agent-launcher.ts';
import { createAgentLogin, createProgramProbe, type ProbeEffects } from './agent-probe.ts';
import type { IdleProcess, ProcessLimit } from './agent-process-keeper.ts';
import type { AgentAbilities, AgentMode, AgentProvider, PermissionPolicy } from './agent-provider.ts';
import { THINKING_LEVELS } from './builtin/complete-chat.ts';
import { createProgramAgent } from './create-program-agent.ts';

type Place<Kind extends AgentPlace['kind']> = Extract<AgentPlace, { kind: Kind }>;

export interface AgentProvidersOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly catalog: readonly CatalogAgent[];
  readonly permissions: PermissionPolicy;
  /** Of this program; agents may learn it. */
  readonly version: string;
  readonly launch: LaunchAgent;
  readonly fence: Pick<AgentFence, 'isFenced'>;
  readonly probeEffects: ProbeEffects;
  /** Gives the tools of this program to the turns of agents that work here. */
  wrap(provider: AgentProvider): AgentProvider;
  createBuiltin(): AgentProvider;
  createRemote(id: string, place: Place<'remote'>): AgentProvider;
  createOnRunner(id: string, place: Place<'runner'>): AgentProvider;
  readonly limits?: Partial<AgentLimits>;
  /** Of all agents and owners together. */
  readonly maxProcesses: number;
}

/** An implementation for each agent of the catalog, in its order. Nothing is started before the first turn. */
export function createAgentProviders(options: AgentProvidersOptions): ReadonlyMap<string, AgentProvider> {
  const limit = createProcessLimit(options.maxProcesses);
  const create = ({ id, label, place }: CatalogAgent): AgentProvider => {
    if (place.kind === 'in-process') return options.wrap(options.createBuiltin());
    if (place.kind === 'remote') return options.createRemote(id, place);
    if (place.kind === 'runner') return options.createOnRunner(id, place);
    return options.wrap(createFromProgram({ id, label }, place, options, limit));
  };
  return new Map(options.catalog.map((agent) => [agent.id, create(agent)]));
}

/** Codex has no modes of its own: a mode is one of its sandboxes. */
const CODEX_MODES: readonly AgentMode[] = [
  { id: 'write', name: 'Write in the folder' },
  { id: 'read-only', name: 'Read only', permissions: 'deny' },
];

const ABILITIES: Readonly<Record<'codex' | 'acp', AgentAbilities>> = {
  codex: { steer: 'yes', fork: 'yes', forkFrom: 'last_turn' },
  acp: { steer: 'no', fork: 'offered', forkFrom: 'last_turn' },
};

function createFromProgram(
  { id, label }: Pick<CatalogAgent, 'id' | 'label'>,
  place: Place<'program'>,
  options: AgentProvidersOptions,
  limit: ProcessLimit,
): AgentProvider {
  const { launch, clock, logger, permissions, version } = options;
  const connect = (process: RunningProcess) =>
    connectAgent(process, { protocol: place.protocol, permissions, version, clock, logger });
  const program =
    permissions === 'allow'
      ? place
      : { ...place, environment: { ...place.environment, ...readOnlyEnvironment(place.command) } };
  const probed = { id, place: { ...place, ...program }, effects: options.probeEffects, connect, clock };
  const probe = createProgramProbe(probed);
  const provider = createProgramAgent({
    id,
    label,
    program,
    launch,
    connect,
    probe,
    limits: { ...DEFAULT_AGENT_LIMITS, ...options.limits },
    limit,
    modes: place.protocol === 'codex' ? CODEX_MODES : undefined,
    thinking: place.protocol === 'codex' ? THINKING_LEVELS : undefined,
    abilities: ABILITIES[place.protocol],
    isFenced: options.fence.isFenced,
    clock,
    logger,
  });
  return { ...provider, logIn: createAgentLogin(probed, probe.forget) };
}

/** What one person or team leaves to others: a quarter of the processes. */
const LEFT_TO_OTHERS = 1 / 4;

function createProcessLimit(maxProcesses: number): ProcessLimit {
  let running = 0;
  /** By person or team. A member's process for a team counts for both. */
  const ofPersons = new Map<string, number>();
  const maxOfOne = Math.max(1, maxProcesses - Math.ceil(maxProcesses * LEFT_TO_OTHERS));
  // In the order in which they became idle.
  const idle = new Set<IdleProcess>();

  function count(payer: Payer, change: 1 | -1): void {
    running += change;
    for (const id of personsOf(payer)) {
      const left = (ofPersons.get(id) ?? 0) + change;
      if (left > 0) ofPersons.set(id, left);
      else ofPersons.delete(id);
    }
  }

  return {
    idle,
    async enter(payer) {
      count(payer, 1);
      const full = personsOf(payer).filter((id) => (ofPersons.get(id) ?? 0) > maxOfOne);
      if (running <= maxProcesses && full.length === 0) return true;
      const waiting = [...idle].filter((one) => full.every((id) => personsOf(one.payer).includes(id)));
      // Nobody loses a conversation to somebody else who has a process to spare.
      const own = waiting.find((one) => one.payer.owner === payer.owner);
      const victim = waiting.find(({ continues }) => continues) ?? own ?? waiting[0];
      if (victim === undefined) {
        count(payer, -1);
        return false;
      }
      idle.delete(victim);
      await victim.end('another agent process needed its place (agents.max_processes)');
      return true;
    },
    leave: (payer) => count(payer, -1),
  };
}

function personsOf({ owner, member = '' }: Payer): readonly string[] {
  return [owner, member].filter(isPersons);
}
