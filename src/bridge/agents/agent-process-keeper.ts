import type { ProcessExit, RunningProcess } from '../../platform/child-process/start-process.ts';
import { pause, unlessAborted, withinTime } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Payer } from '../../platform/identity/owner.ts';
import { TOO_LARGE, TOO_SLOW } from '../../platform/json-rpc/message-channel.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { TraceContext } from '../../platform/telemetry/spans.ts';
import type { AgentConnection } from './agent-connection.ts';
import type { AgentLimits, AgentProcess, LaunchAgent } from './agent-launcher.ts';
import type { AgentProgram, ModelAccess } from './agent-models.ts';
import { describeFailure } from './agent-text.ts';

/** A running process of the agent, ready for turns. */
export interface KeptProcess {
  readonly kind: 'kept';
  readonly connection: AgentConnection;
  /** As that of `ModelAccess`. Absent: the program calls none of our models. */
  readonly meter: ModelAccess['meter'];
  /** Those that this process has open. */
  readonly conversations: Set<string>;
  /** Whether no further message can come from it: it has ended, or is about to. */
  isBroken(): boolean;
  /** Calls back when it has ended, with the reason in words; the result takes the listener off. */
  whenEnded(listener: (why: string) => void): () => void;
  /** Keeps the process while something uses it, as a part of that trace; call the result to release it. */
  hold(trace?: TraceContext): () => void;
  /** Ends the process immediately if nothing uses it and it has no open conversation. */
  endIfUnused(): Promise<void>;
  /** Ends it by force; all that runs in it ends too. */
  kill(why: string): Promise<void>;
}

export interface StartFailure {
  readonly kind: 'not-started';
  readonly code: 'AGENT_FAILED' | 'AGENT_EXITED' | 'AGENT_TIMEOUT';
  readonly error: string;
}

/**
 * Keeps at most one process of an agent for one owner. The process is started on demand, kept for the next turn, and ended when idle.
 * After failures, the owner waits before the next start, longer each time. Other owners have their own keepers and do not wait.
 */
export interface ProcessKeeper {
  /** The running process, or a new one. Never a process that has ended or is about to. */
  acquire(): Promise<KeptProcess | StartFailure>;
  current(): KeptProcess | undefined;
  /** Resets the pause after crashes, because a turn has ended well. */
  proved(): void;
  /** Whether nothing would be lost by forgetting this keeper. */
  isUnused(): boolean;
  /** Ends the process by force, also one that is just starting. The next turn starts another one. */
  end(why: string): Promise<void>;
  stop(): Promise<void>;
}

/** Bounds the processes of all agents and owners together, and of each person and team. */
export interface ProcessLimit {
  /**
   * Counts a process that is about to start; ends the longest idle one if there is no room. False: all are in use, or as many as
   * those that it is for may have.
   */
  enter(payer: Payer): Promise<boolean>;
  /** Counts a process as gone that `enter` has counted. */
  leave(payer: Payer): void;
  readonly idle: Set<IdleProcess>;
}

export interface IdleProcess {
  readonly payer: Payer;
  /** Whether its conversations can be taken up by another process. */
  readonly continues: boolean;
  end(why: string): Promise<void>;
}

/** For whom a process works, and who is charged for it. In the sandbox, turns that may only read have a process that can only read. */
export interface ProcessUser extends Payer {
  readonly isReadOnly?: boolean;
}

export interface ProcessKeeperOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly id: string;
  /** The name for apps: they must not learn where the program is. */
  readonly label: string;
  readonly program: AgentProgram;
  readonly launch: LaunchAgent;
  readonly user: ProcessUser;
  /** The working directory of its conversations, where it can see no other. */
  readonly folder: string;
  connect(process: RunningProcess): Promise<AgentConnection>;
  readonly limits: AgentLimits;
  readonly limit: ProcessLimit;
  /** Removes secrets from texts of the agent. */
  hide(text: string): string;
  /** Called after each attempt to start the program, with the reason of the failure if it did not start. */
  onStart(failure: string | undefined): void;
}

/** Why a process failed: the program did not start, or it ended during a turn. */
type FailureCause = 'start' | 'turn';

/** With these codes the bridge closes a channel: a message is too long, or the program does not read. */
const CLOSED_BY_US: ReadonlySet<number> = new Set([TOO_LARGE, TOO_SLOW]);

/** How many consecutive failures cause no pause, so that the turn after a single crash does not wait. */
const FREE_FAILURES: Readonly<Record<FailureCause, number>> = { start: 0, turn: 1 };

export function createProcessKeeper(options: ProcessKeeperOptions): ProcessKeeper {
  const { id, label, program, launch, limits, limit, clock, hide } = options;
  const logger = options.logger.child({ agent: id });
  /** Cancels the start in progress. Its reason is the text of the failure. */
  let halting = new AbortController();
  let current: KeptProcess | undefined;
  /** The current one, and those that are ending. */
  const living = new Set<KeptProcess>();
  let starting: Promise<KeptProcess | StartFailure> | undefined;
  let isStopped = false;
  const failures: Record<FailureCause, number> = { start: 0, turn: 0 };
  let pauseUntil = 0;

  function noteFailure(cause: FailureCause, why: string): void {
    failures[cause] += 1;
    const doublings = failures[cause] - 1 - FREE_FAILURES[cause];
    const pauseMs = doublings < 0 ? 0 : Math.min(limits.longestPauseMs, limits.firstPauseMs * 2 ** doublings);
    pauseUntil = Math.max(pauseUntil, clock.monotonic() + pauseMs);
    logger.warn({ cause, failures: failures[cause], pauseMs, why }, 'agent failed');
  }

  async function start(): Promise<KeptProcess | StartFailure> {
    const pauseMs = pauseUntil - clock.monotonic();
    const { signal } = halting;
    if (pauseMs > 0) await pause(clock, pauseMs, signal);
    if (signal.aborted) return { kind: 'not-started', code: 'AGENT_EXITED', error: String(signal.reason) };
    if (!(await limit.enter(options.user))) {
      const reason = 'all agent processes are in use, or all that one user or team may have';
      return failed('AGENT_FAILED', `${reason}; try again later, or raise agents.max_processes`);
    }
    const outcome = await startOnce(signal);
    const failure = outcome.kind === 'not-started' ? outcome.error : undefined;
    if (failure === undefined) failures.start = 0;
    else limit.leave(options.user);
    // A cancelled start is not a failure of the program.
    if (signal.aborted) return outcome;
    if (failure !== undefined) noteFailure('start', failure);
    options.onStart(failure);
    return outcome;
  }

  async function startOnce(signal: AbortSignal): Promise<KeptProcess | StartFailure> {
    let process: AgentProcess | undefined;
    try {
      process = await launch(program, { ...options.user, agent: id, folder: options.folder });
    } catch (error) {
      return failed('AGENT_FAILED', describeFailure(error));
    }
    if (process === undefined) return failed('AGENT_FAILED', `${label} is not installed`);
    const exited = process.exited.then((exit) => ({ exit }));
    try {
      const ready = options.connect(process);
      ready.catch(() => undefined);
      const late = () => {
        throw new AppError('CALL_TIMEOUT', { timeoutMs: limits.startMs });
      };
      const first = await withinTime(clock, limits.startMs, unlessAborted(Promise.race([ready, exited]), signal), late);
      if (first === undefined) throw new Error(String(signal.reason));
      if ('exit' in first) return failed('AGENT_EXITED', exitText(first.exit));
      logger.info({ pid: process.pid }, 'agent started');
      return keep(process, first);
    } catch (error) {
      // The connection breaks a moment before the exit is known.
      const gone = signal.aborted ? undefined : await withinTime(clock, limits.killMs, exited, () => undefined);
      if (gone !== undefined) return failed('AGENT_EXITED', exitText(gone.exit));
      const isLate = error instanceof AppError && error.code === 'CALL_TIMEOUT';
      const tail = process.stderrTail();
      await process.stop({ graceMs: limits.killMs });
      if (!isLate) return failed('AGENT_FAILED', describeFailure(error));
      return failed('AGENT_TIMEOUT', `${label} did not answer within ${limits.startMs} ms${said(tail)}`);
    }
  }

  function keep(process: AgentProcess, connection: AgentConnection): KeptProcess {
    let holders = 0;
    const traces = new Set<TraceContext>();
    let stopIdleTimer: (() => void) | undefined;
    let reason: string | undefined;
    let broken = false;
    /** The bridge itself reads nothing more from it. */
    let closedBecause: string | undefined;
    let endedBecause: string | undefined;
    const listeners = new Set<(why: string) => void>();
    const idle: IdleProcess = { payer: options.user, continues: connection.continues, end };

    const kept: KeptProcess = {
      kind: 'kept',
      connection,
      meter: process.meter,
      conversations: new Set(),
      isBroken: () => broken,
      whenEnded(listener) {
        if (endedBecause === undefined) listeners.add(listener);
        else listener(endedBecause);
        return () => listeners.delete(listener);
      },
      hold(trace) {
        stopIdleTimer?.();
        if (trace !== undefined) traces.add(trace);
        followTrace();
        limit.idle.delete(idle);
        holders += 1;
        let held = true;
        return () => {
          if (!held) return;
          held = false;
          if (trace !== undefined) traces.delete(trace);
          followTrace();
          holders -= 1;
          if (holders === 0) waitForUse();
        };
      },
      async endIfUnused() {
        if (holders === 0 && kept.conversations.size === 0) await end('its last conversation was closed');
      },
      kill: end,
    };

    /** Adds model calls of the process to the trace of its turn. With several turns, it is not known which one makes a call. */
    function followTrace(): void {
      const [only] = traces;
      process.follow?.(traces.size === 1 ? only : undefined);
    }

    async function end(why: string): Promise<void> {
      reason ??= endedHere(why);
      retire();
      await process.stop({ graceMs: limits.killMs });
    }

    /** Makes sure that no further turn uses this process. */
    function retire(): void {
      if (current === kept) current = undefined;
      stopIdleTimer?.();
      limit.idle.delete(idle);
    }

    function waitForUse(): void {
      if (reason !== undefined || broken) return;
      limit.idle.add(idle);
      const lasting = connection.continues || kept.conversations.size === 0;
      stopIdleTimer = clock.after(lasting ? limits.idleMs : limits.idleWithConversationsMs, () => {
        void end('it was idle');
      });
    }

    current = kept;
    living.add(kept);
    // Its output may stay open longer, in the hands of a child of its own.
    void process.ended.then(() => {
      broken = true;
      retire();
    });
    // A program that closes its output but keeps running cannot be used any more.
    void connection.closed.then(async (closing) => {
      broken = true;
      if (closing !== undefined && CLOSED_BY_US.has(closing.code)) closedBecause = endedHere(closing.reason);
      retire();
      const gone = await withinTime(clock, limits.killMs, process.exited, () => undefined);
      if (gone === undefined && reason === undefined) await process.stop({ graceMs: limits.killMs });
    });
    void process.exited.then((exit) => {
      const wasInUse = holders > 0;
      const failure = closedBecause ?? exitText(exit);
      endedBecause = reason ?? failure;
      for (const listener of listeners) listener(endedBecause);
      listeners.clear();
      living.delete(kept);
      limit.leave(options.user);
      // A program that ends while no turn uses it has not failed.
      if (reason === undefined && wasInUse) noteFailure('turn', failure);
      else logger.info({ pid: process.pid, why: endedBecause }, 'agent ended');
    });
    waitForUse();
    return kept;
  }

  function failed(code: StartFailure['code'], error: string): StartFailure {
    return { kind: 'not-started', code, error: hide(error) };
  }

  function endedHere(why: string): string {
    return `${label} was ended by the bridge: ${why}`;
  }

  function exitText({ code, signal, stderrTail }: ProcessExit): string {
    const how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`;
    return hide(`${label} ${how}${said(stderrTail)}`);
  }

  /** Cancels the start in progress, and ends every process. */
  async function endAll(why: string): Promise<void> {
    const killAll = () => Promise.all([...living].map((process) => process.kill(why)));
    halting.abort(why);
    await Promise.all([starting, killAll()]);
    // One that became ready at the same moment.
    await killAll();
  }

  return {
    async acquire() {
      if (current !== undefined) return current;
      starting ??= start().then((outcome) => {
        starting = undefined;
        return outcome;
      });
      return starting;
    },
    current: () => current,
    proved() {
      failures.turn = 0;
      pauseUntil = 0;
    },
    isUnused: () =>
      living.size === 0 && starting === undefined && clock.monotonic() >= pauseUntil + limits.longestPauseMs,
    async end(why) {
      const ending = endAll(why);
      if (!isStopped) halting = new AbortController();
      await ending;
    },
    async stop() {
      isStopped = true;
      await endAll('the bridge is stopping');
    },
  };
}

function said(tail: string): string {
  return tail === '' ? '' : `: ${tail}`;
}

type Outcome<Value> =
  | { readonly kind: 'done'; readonly value: Value }
  | { readonly kind: 'broken'; readonly error: unknown }
  | { readonly kind: 'exited'; readonly error: string };

/** The first of: what was asked for, its failure, and the end of the process. A failure may be due to that end. */
export async function firstOf<Value>(process: KeptProcess, work: Promise<Value>): Promise<Outcome<Value>> {
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
