import type { RunningProcess } from '../../platform/child-process/start-process.ts';
import { onAbort, unlessAborted, withinTime } from '../../platform/clock/clock.ts';
import { type Payer, payerName } from '../../platform/identity/owner.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { MAIN } from '../principal.ts';
import { promptWithSkills } from '../routing/resolve-route.ts';
import { takenServers, untakenServers, withoutSecrets } from '../sessions/mcp-servers.ts';
import type { AgentConnection, PromptEnd } from './agent-connection.ts';
import type { AgentLimits, LaunchAgent } from './agent-launcher.ts';
import type { AgentProgram } from './agent-models.ts';
import type { ProgramProbe } from './agent-probe.ts';
import {
  createProcessKeeper,
  firstOf,
  type KeptProcess,
  type ProcessKeeper,
  type ProcessLimit,
  type ProcessUser,
} from './agent-process-keeper.ts';
import type {
  AgentAbilities,
  AgentEnd,
  AgentMode,
  AgentOffers,
  AgentProvider,
  AgentTurn,
  Closing,
  Fork,
  Forked,
  SupervisedTurn,
} from './agent-provider.ts';
import { asObject, createHiding, describeFailure } from './agent-text.ts';
import { type PlacedFile, promptContent } from './prompt-content.ts';

export interface ProgramAgentOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly id: string;
  /** Its name for apps. */
  readonly label: string;
  readonly program: AgentProgram;
  readonly launch: LaunchAgent;
  /** Speaks the agent's protocol over the pipes of its process. */
  connect(process: RunningProcess): Promise<AgentConnection>;
  readonly probe: ProgramProbe;
  readonly limits: AgentLimits;
  readonly limit: ProcessLimit;
  readonly modes?: readonly AgentMode[] | undefined;
  readonly thinking?: AgentOffers['thinking'] | undefined;
  readonly abilities: AgentAbilities;
  /** Whether the programs of an owner see one working directory only. */
  isFenced(owner: string): boolean;
}

interface KeptOf extends Payer {
  readonly keeper: ProcessKeeper;
  readonly folder: string;
}

type Failure = Extract<AgentEnd, { kind: 'failed' }>;
type Found = { readonly kind: 'found'; readonly process: KeptProcess; readonly conversation: string };

/** The code of the Agent Client Protocol. */
const AUTHENTICATION_REQUIRED = -32000;
const NOBODY: Closing = { owner: MAIN.id, left: () => undefined };
const NOT_DELETED = 'the agent offers no way to delete a conversation';

/** Beyond this number of keepers, those without a process are removed. */
const MAX_IDLE_KEEPERS = 100;
/** After this many consecutive failed starts, the agent counts as broken until the pause is over. */
const STARTS_OF_A_BROKEN_AGENT = 2;

/**
 * Creates an agent that is a program of this machine. Each owner has a separate process, which serves all of the owner's
 * conversations, or in the sandbox those in one folder. A turn that ends the process therefore affects no other owner.
 */
export function createProgramAgent(options: ProgramAgentOptions): AgentProvider {
  const { id, label, program, limits, clock } = options;
  const hide = createHiding(program, label);
  const keepers = new Map<string, KeptOf>();
  let isStopped = false;
  /** Failed starts since the last successful one, of all owners. */
  let failedStarts = 0;
  let trouble = { why: '', until: 0 };

  /** A member at work for a team has a process of their own, because its key charges both. */
  const nameOf = (user: ProcessUser, folder: string) =>
    options.isFenced(user.owner)
      ? JSON.stringify([payerName(user), folder, user.isReadOnly === true])
      : payerName(user);

  function keeperOf({ owner, member, isReadOnly = false }: ProcessUser, folder: string): ProcessKeeper {
    const user = { owner, member, isReadOnly };
    const name = nameOf(user, folder);
    const known = keepers.get(name);
    if (known !== undefined) return known.keeper;
    if (keepers.size >= MAX_IDLE_KEEPERS) {
      for (const [other, { keeper }] of keepers) if (keeper.isUnused()) keepers.delete(other);
    }
    const keeper = createProcessKeeper({ ...options, user, folder, hide, onStart: noteStart });
    if (isStopped) void keeper.stop();
    keepers.set(name, { keeper, owner, member, folder });
    return keeper;
  }

  function noteStart(failure: string | undefined): void {
    failedStarts = failure === undefined ? 0 : failedStarts + 1;
    // What was found when it was last looked at may no longer hold.
    if (failure !== undefined) options.probe.forget();
    if (failure !== undefined) trouble = { why: failure, until: clock.monotonic() + limits.longestPauseMs };
  }

  /** The process that has a conversation open. Processes of other owners may have conversations of the same name. */
  function holderOf(conversation: string, user: ProcessUser, folder: string): KeptProcess | undefined {
    const process = keepers.get(nameOf(user, folder))?.keeper.current();
    return process?.conversations.has(conversation) === true ? process : undefined;
  }

  /**
   * The processes of an owner that have a conversation open: where several members of a team work, there may be more than one. In
   * the sandbox each folder has a process of its own, and these may have conversations of the same name.
   */
  function holdersOf(conversation: string, owner: string, folder: string): readonly KeptProcess[] {
    return [...keepers.values()].flatMap((kept) => {
      const isOurs = kept.owner === owner && (kept.folder === folder || !options.isFenced(owner));
      const process = isOurs ? kept.keeper.current() : undefined;
      return process?.conversations.has(conversation) === true ? [process] : [];
    });
  }

  /** Runs a turn, and removes the secrets of its MCP servers from errors of the agent. */
  async function run(turn: SupervisedTurn, signal: AbortSignal): Promise<AgentEnd> {
    const end = await runOpen(turn, signal);
    if (end.kind === 'failed') return { ...end, error: withoutSecrets(end.error, turn.mcpServers) };
    return end.kind === 'lost' ? { ...end, detail: withoutSecrets(end.detail, turn.mcpServers) } : end;
  }

  /** Finds the conversation, runs the turn in it, and turns whatever happens into an end. */
  async function runOpen(turn: SupervisedTurn, signal: AbortSignal): Promise<AgentEnd> {
    const reference = turn.reference === undefined ? undefined : readReference(turn.reference);
    if (turn.reference !== undefined && reference === undefined) {
      return { kind: 'lost', detail: 'the reference is not one of this agent' };
    }
    let letGo = (): void => undefined;
    try {
      const finding = reference === undefined ? openConversation(turn) : findConversation(turn, reference);
      const found = await unlessAborted(finding, signal);
      if (found === undefined) return { kind: 'cancelled' };
      if (found.kind !== 'found') return found;
      letGo = found.process.hold(turn.trace?.context);
      if (turn.ready !== undefined) await turn.ready;
      return await prompt(turn, found, signal);
    } catch (error) {
      return failed('AGENT_FAILED', hide(describeFailure(error)));
    } finally {
      letGo();
    }
  }

  async function prompt(turn: SupervisedTurn, found: Found, signal: AbortSignal): Promise<AgentEnd> {
    const { process, conversation } = found;
    const { workingDirectory: folder } = turn;
    const prompt = promptWithSkills(turn.prompt, turn.skills);
    const files = options.isFenced(turn.owner) ? turn.files?.map(asFenced) : turn.files;
    const { text, parts, notes } = await promptContent(prompt, files, process.connection.accepts);
    for (const note of notes) turn.report({ kind: 'status', text: note });
    turn.begun();
    const asked = process.connection.prompt({ ...turn, conversation, text, parts, folder });
    const releases = [
      onAbort(signal, () => process.connection.interrupt(conversation)),
      onAbort(turn.force, () => void process.kill('it went on with a turn that was stopped')),
    ];
    const cost = process.meter?.();
    const outcome = await firstOf(process, asked);
    const costUsd = cost?.();
    for (const release of releases) release();
    if (outcome.kind === 'exited')
      return signal.aborted ? { kind: 'cancelled' } : failed('AGENT_EXITED', outcome.error);
    if (outcome.kind === 'broken') return refused(outcome.error);
    if (outcome.value.kind !== 'failed') keeperOf(turn, folder).proved();
    if (outcome.value.kind === 'lost') process.conversations.delete(conversation);
    const end = toAgentEnd(outcome.value, signal);
    // The cost that our own models have charged replaces the cost that the agent reports.
    return costUsd === undefined || end.kind === 'lost' ? end : { ...end, usage: { ...end.usage, costUsd } };
  }

  function toAgentEnd(end: PromptEnd, signal: AbortSignal): AgentEnd {
    if (end.kind === 'lost') return { kind: 'lost', detail: hide(end.detail) };
    const used = end.usage === undefined ? {} : { usage: end.usage };
    if (signal.aborted || end.kind === 'cancelled') return { kind: 'cancelled', ...used };
    if (end.kind === 'failed') return { ...failed('AGENT_FAILED', hide(end.error)), ...used };
    return end;
  }

  function refused(error: unknown): Failure {
    // The login may have ended: the next look at the agent finds out.
    if (asObject(error).code === AUTHENTICATION_REQUIRED) options.probe.forget();
    return failed('AGENT_FAILED', hide(describeFailure(error)));
  }

  /** Waits for an answer that the agent must give soon; returns it, or the end of the turn. */
  async function answered<Value>(
    process: KeptProcess,
    work: Promise<Value>,
  ): Promise<{ readonly kind: 'done'; readonly value: Value } | Failure> {
    const late = { kind: 'late' } as const;
    const outcome = await withinTime(clock, limits.startMs, firstOf(process, work), () => late);
    if (outcome.kind === 'done') return outcome;
    if (outcome.kind === 'exited') return failed('AGENT_EXITED', outcome.error);
    if (outcome.kind === 'broken') return refused(outcome.error);
    if (process.conversations.size === 0) void process.kill('it opened no conversation in time');
    return failed('AGENT_TIMEOUT', `the agent opened no conversation within ${limits.startMs} ms`);
  }

  /**
   * Asks the owner's process for something that can be asked twice. A process that was kept from an earlier turn may turn out to have ended only
   * now; then a new one is asked, so that no turn fails because of an earlier one.
   */
  async function askProcess<Value>(
    turn: ProcessUser & Pick<AgentTurn, 'workingDirectory'>,
    work: (connection: AgentConnection) => Promise<Value>,
  ): Promise<{ readonly kind: 'done'; readonly value: Value; readonly process: KeptProcess } | Failure> {
    const keeper = keeperOf(turn, turn.workingDirectory);
    for (;;) {
      const warm = keeper.current();
      const process = await keeper.acquire();
      if (process.kind === 'not-started') return failed(process.code, process.error);
      const letGo = process.hold();
      try {
        const outcome = await answered(process, work(process.connection));
        if (outcome.kind === 'done') return { ...outcome, process };
        if (process !== warm || outcome.code !== 'AGENT_EXITED') return outcome;
      } finally {
        letGo();
      }
    }
  }

  async function openConversation(turn: AgentTurn) {
    const { workingDirectory: folder, model, opened, mcpServers = [] } = turn;
    const outcome = await askProcess(turn, (connection) =>
      connection.open(folder, model, takenServers(connection.servers, mcpServers)),
    );
    if (outcome.kind !== 'done') return outcome;
    const { value: conversation, process } = outcome;
    for (const text of untakenServers(process.connection.servers, mcpServers)) turn.report({ kind: 'status', text });
    opened(referenceTo(process, conversation, folder));
    return { kind: 'found', process, conversation } as const;
  }

  /** Notes that a process has a conversation, and returns the reference to it. */
  function referenceTo(process: KeptProcess, conversation: string, folder: string): string {
    process.conversations.add(conversation);
    const { continues, deletes } = process.connection;
    return JSON.stringify({ conversation, folder, continues, deletes } satisfies ConversationReference);
  }

  async function fork(text: string, { owner, member, folder, turnId, mcpServers = [] }: Fork): Promise<Forked> {
    const reference = readReference(text);
    if (reference === undefined) return { why: 'the agent does not know the conversation' };
    if (turnId !== undefined) return { why: 'this agent copies whole conversations only; leave `turnId` out' };
    const found = await findConversation({ owner, member, workingDirectory: folder, mcpServers }, reference);
    if (found.kind === 'lost') return { why: `the agent has lost the conversation: ${hide(found.detail)}` };
    if (found.kind !== 'found') return { why: found.kind === 'failed' ? found.error : 'the agent did not answer' };
    const { process, conversation } = found;
    const servers = takenServers(process.connection.servers, mcpServers);
    const copying = process.connection.fork?.(conversation, folder, servers);
    if (copying === undefined) return { why: 'this agent cannot copy conversations' };
    const letGo = process.hold();
    try {
      const outcome = await answered(process, copying);
      if (outcome.kind !== 'done') return { why: withoutSecrets(outcome.error, mcpServers) };
      return { reference: referenceTo(process, outcome.value, folder) };
    } finally {
      letGo();
    }
  }

  async function findConversation(
    turn: ProcessUser & Pick<AgentTurn, 'workingDirectory' | 'mcpServers'>,
    reference: ConversationReference,
  ): Promise<Found | AgentEnd> {
    const { conversation, continues } = reference;
    const { owner, workingDirectory, mcpServers = [] } = turn;
    // In the sandbox a process sees its own folder only: a turn in another one takes the conversation along.
    const folder = options.isFenced(owner) ? workingDirectory : reference.folder;
    // A conversation that ends with its process stays in it, be the folder writable there or not.
    const other = continues ? undefined : { owner, member: turn.member, isReadOnly: turn.isReadOnly !== true };
    const running =
      holderOf(conversation, turn, workingDirectory) ?? (other && holderOf(conversation, other, workingDirectory));
    if (running !== undefined) return { kind: 'found', process: running, conversation };
    if (!continues)
      return { kind: 'lost', detail: 'the process that held the conversation has ended, or is that of another member' };
    // Another member's process would not know what is said from now on: it takes the conversation up again when it is needed.
    for (const other of holdersOf(conversation, owner, reference.folder)) other.conversations.delete(conversation);
    const outcome = await askProcess(turn, async (connection) => {
      if (!connection.continues) throw new Error('this agent cannot take up conversations');
      await connection.resume(conversation, folder, takenServers(connection.servers, mcpServers));
    });
    // Agents tell a lost conversation from other trouble in different ways, and wrongly.
    if (outcome.kind === 'failed' && outcome.code === 'AGENT_FAILED') return { kind: 'lost', detail: outcome.error };
    if (outcome.kind !== 'done') return outcome;
    outcome.process.conversations.add(conversation);
    return { kind: 'found', process: outcome.process, conversation };
  }

  return {
    id,
    ...(options.modes !== undefined && { modes: options.modes }),
    ...(options.thinking !== undefined && { thinking: options.thinking }),
    abilities: options.abilities,
    timeouts: { silenceMs: limits.silenceMs, stopMs: limits.cancelMs },
    async probe(signal) {
      if (failedStarts >= STARTS_OF_A_BROKEN_AGENT && clock.monotonic() < trouble.until) {
        return { status: `failed: ${shortened(trouble.why)}`, version: '' };
      }
      return options.probe.look(signal);
    },
    run,
    fork,
    async close(text, { owner, left } = NOBODY) {
      const reference = readReference(text);
      if (reference === undefined) return;
      const { conversation, deletes } = reference;
      const [holder] = holdersOf(conversation, owner, reference.folder);
      if (holder === undefined && !deletes) {
        left(NOT_DELETED);
        return;
      }
      // What another process has stored can be deleted by any process of the agent.
      const process = holder ?? (await keeperOf({ owner }, reference.folder).acquire());
      if (process.kind === 'not-started') {
        left(`the agent did not start to delete it: ${process.error}`);
        return;
      }
      process.conversations.delete(conversation);
      const letGo = process.hold();
      const told = firstOf(process, process.connection.close(conversation));
      const outcome = await withinTime(clock, limits.closeMs, told, () => undefined);
      letGo();
      const rest = outcome?.kind === 'done' ? outcome.value : 'the agent did not say whether it is deleted';
      if (rest !== undefined) left(hide(rest));
      await process.endIfUnused();
    },
    endWhere(isMeant) {
      for (const kept of keepers.values()) if (isMeant(kept)) void kept.keeper.end('its owner may not work any more');
    },
    async stop() {
      isStopped = true;
      await Promise.all([...keepers.values()].map(({ keeper }) => keeper.stop()));
    },
  };
}

/** The file where a program in the sandbox finds it. */
function asFenced(file: PlacedFile): PlacedFile {
  return file.fencedPath === undefined ? file : { ...file, path: file.fencedPath };
}

function failed(code: Failure['code'], error: string): Failure {
  return { kind: 'failed', code, error };
}

/** Everything that is needed to continue a conversation, also after a restart of the bridge. */
interface ConversationReference {
  /** The agent's own name for it. */
  readonly conversation: string;
  readonly folder: string;
  /** Whether another process of the agent can take it up: what is not so is lost with its process. */
  readonly continues: boolean;
  /** Whether another process of the agent can delete it. */
  readonly deletes: boolean;
}

function readReference(text: string): ConversationReference | undefined {
  try {
    const { conversation, folder, continues, deletes } = asObject(JSON.parse(text));
    if (typeof conversation !== 'string' || typeof folder !== 'string') return undefined;
    return { conversation, folder, continues: continues === true, deletes: deletes === true };
  } catch {
    return undefined;
  }
}

function shortened(text: string): string {
  return text.replaceAll(/\s+/g, ' ').slice(0, 80);
}
