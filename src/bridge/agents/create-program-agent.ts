import type { RunningProcess } from '../../platform/child-process/start-process.ts';
import { withinTime } from '../../platform/clock/clock.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import { OPERATOR } from '../principal.ts';
import { promptWithSkills } from '../routing/match-skills.ts';
import type { AgentConnection, PromptEnd } from './agent-connection.ts';
import type { AgentLimits, AgentProgram, LaunchAgent } from './agent-launcher.ts';
import type { ProgramProbe } from './agent-probe.ts';
import {
  createProcessKeeper,
  type KeptProcess,
  type ProcessKeeper,
  type ProcessLimit,
  type StartFailure,
} from './agent-process-keeper.ts';
import type { AgentProvider, AgentTurn, Closing, TurnEnd, TurnUsage } from './agent-provider.ts';
import { asObject, createHiding, describeFailure } from './agent-text.ts';
import { type ConversationReference, type OpenTurn, openTurn, readReference, writeReference } from './open-turn.ts';

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
}

type Found = { readonly kind: 'found'; readonly process: KeptProcess; readonly conversation: string };

/** The code of the Agent Client Protocol. */
const AUTHENTICATION_REQUIRED = -32000;
const NOBODY: Closing = { owner: OPERATOR, left: () => undefined };
const NOT_DELETED = 'the agent offers no way to delete a conversation';

/** Beyond so many owners, those of whom nothing runs are forgotten. */
const MAX_IDLE_KEEPERS = 100;
/** One failed start may be an accident; from the second in a row on, the agent counts as broken until the pause is over. */
const STARTS_OF_A_BROKEN_AGENT = 2;

/**
 * An agent that is a program of this machine. Each owner has a process of their own, which serves all of the owner's
 * conversations: a turn that ends the process ends nothing of anybody else, and only its owner waits for the next one.
 */
export function createProgramAgent(options: ProgramAgentOptions): AgentProvider {
  const { id, label, program, limits, clock } = options;
  const hide = createHiding(program, label);
  const keepers = new Map<string, ProcessKeeper>();
  const turns = new Map<string, OpenTurn>();
  let isStopped = false;
  /** Failed starts since the last successful one, of all owners. */
  let failedStarts = 0;
  let trouble = { why: '', until: 0 };

  function keeperOf(owner: string): ProcessKeeper {
    const known = keepers.get(owner);
    if (known !== undefined) return known;
    if (keepers.size >= MAX_IDLE_KEEPERS) {
      for (const [other, keeper] of keepers) if (keeper.isUnused()) keepers.delete(other);
    }
    const keeper = createProcessKeeper({ ...options, owner, hide, onStart: noteStart });
    if (isStopped) void keeper.stop();
    keepers.set(owner, keeper);
    return keeper;
  }

  function noteStart(failure: string | undefined): void {
    failedStarts = failure === undefined ? 0 : failedStarts + 1;
    // What was found when it was last looked at may no longer hold.
    if (failure !== undefined) options.probe.forget();
    if (failure !== undefined) trouble = { why: failure, until: clock.monotonic() + limits.longestPauseMs };
  }

  /** The process that has a conversation open. */
  function holderOf(conversation: string): KeptProcess | undefined {
    for (const keeper of keepers.values()) {
      const process = keeper.current();
      if (process?.conversations.has(conversation)) return process;
    }
    return undefined;
  }

  /** Finds the conversation, runs the turn in it, and turns whatever happens into an end. */
  async function run(turn: AgentTurn, find: (open: OpenTurn) => Promise<Found | TurnEnd>): Promise<TurnEnd> {
    const open = openTurn({ turn, clock, silenceMs: limits.silenceMs, onSilence: giveUp });
    turns.set(turn.turnId, open);
    let letGo = (): void => undefined;
    try {
      const found = await Promise.race([find(open), open.ended]);
      if (found.kind !== 'found') return found;
      if (open.isOver()) return await open.ended;
      letGo = found.process.hold();
      return await Promise.race([prompt(open, found), open.ended]);
    } catch (error) {
      return open.failed('AGENT_FAILED', hide(describeFailure(error)));
    } finally {
      turns.delete(turn.turnId);
      open.finish();
      letGo();
    }
  }

  async function prompt(open: OpenTurn, { process, conversation }: Found): Promise<TurnEnd> {
    const { turn } = open;
    open.begin({ process, conversation });
    const { workingDirectory: folder, model, usedModel, ask } = turn;
    const text = promptWithSkills(turn.prompt, turn.skills);
    const request = { conversation, text, folder, model, report: open.report, usedModel, ask };
    const asked = process.connection.prompt(request);
    const outcome = await firstOf(process, asked);
    if (outcome.kind === 'exited') return open.verdict?.(undefined) ?? open.failed('AGENT_EXITED', outcome.error);
    if (outcome.kind === 'broken') return refused(open, outcome.error);
    if (outcome.value.kind !== 'failed') keeperOf(turn.owner).proved();
    if (outcome.value.kind === 'lost') process.conversations.delete(conversation);
    return toTurnEnd(open, outcome.value);
  }

  function toTurnEnd(open: OpenTurn, end: PromptEnd): TurnEnd {
    if (end.kind === 'lost') return { kind: 'lost', detail: hide(end.detail) };
    if (open.verdict !== undefined) return open.verdict(end.usage);
    if (end.kind === 'cancelled') return cancelled(open, end.usage);
    if (end.kind === 'failed') return open.failed('AGENT_FAILED', hide(end.error), end.usage);
    const { stopReason, output = open.output(), usage } = end;
    return { kind: 'completed', output, stopReason, ...(usage !== undefined && { usage }) };
  }

  function refused(open: OpenTurn, error: unknown): TurnEnd {
    // The login may have ended: the next look at the agent finds out.
    if (asObject(error).code === AUTHENTICATION_REQUIRED) options.probe.forget();
    return open.failed('AGENT_FAILED', hide(describeFailure(error)));
  }

  /** Waits for an answer that the agent must give soon; returns it, or the end of the turn. */
  async function answered<Value>(
    open: OpenTurn,
    process: KeptProcess,
    work: Promise<Value>,
  ): Promise<{ readonly kind: 'done'; readonly value: Value } | TurnEnd> {
    const late = { kind: 'late' } as const;
    const outcome = await withinTime(clock, limits.startMs, firstOf(process, work), () => late);
    if (outcome.kind === 'done') return outcome;
    if (outcome.kind === 'exited') return open.failed('AGENT_EXITED', outcome.error);
    if (outcome.kind === 'broken') return refused(open, outcome.error);
    if (process.conversations.size === 0) void process.kill('it opened no conversation in time');
    return open.failed('AGENT_TIMEOUT', `the agent opened no conversation within ${limits.startMs} ms`);
  }

  /**
   * Asks the owner's process for something that can be asked twice. One that was kept warm may turn out to be gone only
   * now; then a new one is asked, so that no turn fails because of an earlier one.
   */
  async function askProcess<Value>(
    open: OpenTurn,
    work: (connection: AgentConnection) => Promise<Value>,
  ): Promise<{ readonly kind: 'done'; readonly value: Value; readonly process: KeptProcess } | TurnEnd> {
    const keeper = keeperOf(open.turn.owner);
    for (;;) {
      const warm = keeper.current();
      const process = await keeper.acquire();
      if (process.kind === 'not-started') return notStarted(open, process);
      const letGo = process.hold();
      try {
        const outcome = await answered(open, process, work(process.connection));
        if (outcome.kind === 'done') return { ...outcome, process };
        if (process !== warm || outcome.kind !== 'failed' || outcome.code !== 'AGENT_EXITED') return outcome;
      } finally {
        letGo();
      }
    }
  }

  async function openConversation(open: OpenTurn): Promise<Found | TurnEnd> {
    const { workingDirectory: folder, model } = open.turn;
    const outcome = await askProcess(open, (connection) => connection.open(folder, model));
    if (outcome.kind !== 'done') return outcome;
    const { value: conversation, process } = outcome;
    if (open.isOver()) {
      // Nobody will ever learn of this conversation.
      process.connection.close(conversation).catch(() => undefined);
      return { kind: 'cancelled', output: '' };
    }
    process.conversations.add(conversation);
    const { continues, deletes } = process.connection;
    open.turn.opened(writeReference({ conversation, folder, continues, deletes }));
    return { kind: 'found', process, conversation };
  }

  async function findConversation(open: OpenTurn, reference: ConversationReference): Promise<Found | TurnEnd> {
    const { conversation, folder, continues } = reference;
    const running = holderOf(conversation);
    if (running !== undefined) return { kind: 'found', process: running, conversation };
    if (!continues) return { kind: 'lost', detail: 'the process that held the conversation has ended' };
    const outcome = await askProcess(open, async (connection) => {
      if (!connection.continues) throw new Error('this agent cannot take up conversations');
      await connection.resume(conversation, folder);
    });
    // Agents tell a lost conversation from other trouble in different ways, and wrongly (contract/bridge 4).
    if (outcome.kind === 'failed' && outcome.code === 'AGENT_FAILED') return { kind: 'lost', detail: outcome.error };
    if (outcome.kind !== 'done') return outcome;
    outcome.process.conversations.add(conversation);
    return { kind: 'found', process: outcome.process, conversation };
  }

  /** Asks a turn to stop; an agent that does not is ended by force. Resolves when it is quiet. */
  async function quieten(open: OpenTurn): Promise<void> {
    const place = open.place();
    if (place === undefined) return;
    place.process.connection.interrupt(place.conversation);
    const isQuiet = await withinTime(
      clock,
      limits.cancelMs,
      open.finished.then(() => true),
      () => false,
    );
    if (!isQuiet) await place.process.kill('it went on with a turn that was stopped');
  }

  async function stopTurn(open: OpenTurn, verdict: (usage: TurnUsage | undefined) => TurnEnd): Promise<void> {
    open.verdict ??= verdict;
    await quieten(open);
    open.end(open.verdict(undefined));
  }

  function giveUp(open: OpenTurn): void {
    const error = `nothing has happened for ${limits.silenceMs} ms`;
    void stopTurn(open, (usage) => open.failed('AGENT_TIMEOUT', error, usage));
  }

  const cancel = (open: OpenTurn) => stopTurn(open, (usage) => cancelled(open, usage));

  return {
    id,
    async probe(signal) {
      if (failedStarts >= STARTS_OF_A_BROKEN_AGENT && clock.monotonic() < trouble.until) {
        return { status: `failed: ${shortened(trouble.why)}`, version: '' };
      }
      return options.probe.look(signal);
    },
    startTurn: (turn) => run(turn, openConversation),
    async continueTurn(text, turn) {
      const reference = readReference(text);
      if (reference === undefined) return { kind: 'lost', detail: 'the reference is not one of this agent' };
      return run(turn, (open) => findConversation(open, reference));
    },
    async cancel(turnId) {
      const open = turns.get(turnId);
      if (open !== undefined) await cancel(open);
    },
    async close(text, { owner, left } = NOBODY) {
      const reference = readReference(text);
      if (reference === undefined) return;
      const { conversation, deletes } = reference;
      const holder = holderOf(conversation);
      const open = [...turns.values()].find((turn) => turn.place()?.conversation === conversation);
      if (open !== undefined) await cancel(open);
      if (holder === undefined && !deletes) {
        left(NOT_DELETED);
        return;
      }
      // What another process has stored can be deleted by any process of the agent.
      const process = holder ?? (await keeperOf(owner).acquire());
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
    async stop() {
      isStopped = true;
      await Promise.all([...keepers.values()].map((keeper) => keeper.stop()));
    },
  };
}

type Outcome<Value> =
  | { readonly kind: 'done'; readonly value: Value }
  | { readonly kind: 'broken'; readonly error: unknown }
  | { readonly kind: 'exited'; readonly error: string };

/** The first of: what was asked for, its failure, and the end of the process. A failure may be due to that end. */
async function firstOf<Value>(process: KeptProcess, work: Promise<Value>): Promise<Outcome<Value>> {
  const { promise, resolve } = Promise.withResolvers<Outcome<Value>>();
  const forget = process.whenEnded((error) => resolve({ kind: 'exited', error }));
  work.then(
    (value) => resolve({ kind: 'done', value }),
    (error: unknown) => {
      if (!process.isBroken()) resolve({ kind: 'broken', error });
    },
  );
  try {
    return await promise;
  } finally {
    forget();
  }
}

function notStarted(open: OpenTurn, { code, error }: StartFailure): TurnEnd {
  return open.failed(code, error);
}

function cancelled(open: OpenTurn, usage: TurnUsage | undefined): TurnEnd {
  return { kind: 'cancelled', output: open.output(), ...(usage !== undefined && { usage }) };
}

function shortened(text: string): string {
  return text.replaceAll(/\s+/g, ' ').slice(0, 80);
}
