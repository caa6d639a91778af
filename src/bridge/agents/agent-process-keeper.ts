import type { ProcessExit, RunningProcess } from '../../platform/child-process/start-process.ts';
import type { Clock } from '../../platform/clock/clock.ts';
import { withinTime } from '../../platform/clock/within-time.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { AgentConnection } from './agent-connection.ts';
import type { AgentProgram, LaunchAgent } from './agent-launcher.ts';
import type { AgentLimits } from './agent-limits.ts';
import { describeFailure } from './describe-failure.ts';

/** A running process of the agent, ready for turns. */
export interface KeptProcess {
  readonly kind: 'kept';
  readonly connection: AgentConnection;
  /** Those that this process has open. */
  readonly conversations: Set<string>;
  /** Whether no further message can come from it: it has ended, or is about to. */
  isBroken(): boolean;
  /** Calls back when it has ended, with the reason in words; the result takes the listener off. */
  whenEnded(listener: (why: string) => void): () => void;
  /** Keeps the process while something uses it; the result lets go of it. */
  hold(): () => void;
  /** Lets go of the process at once if nothing uses it and it has no conversation open. */
  endIfUnused(): Promise<void>;
  /** Ends it by force; all that runs in it ends too. */
  kill(why: string): Promise<void>;
}

export interface StartFailure {
  readonly kind: 'not-started';
  readonly code: 'AGENT_FAILED' | 'AGENT_EXITED' | 'AGENT_TIMEOUT';
  readonly error: string;
}

/** Keeps at most one process of an agent: started on demand, kept warm, ended when idle, restarted with growing pauses. */
export interface ProcessKeeper {
  acquire(): Promise<KeptProcess | StartFailure>;
  current(): KeptProcess | undefined;
  /** The agent does its work: earlier failures no longer count. */
  proved(): void;
  /** Why the agent is left alone for the moment; undefined when it is not. */
  trouble(): string | undefined;
  stop(): Promise<void>;
}

export interface ProcessKeeperOptions {
  readonly id: string;
  readonly program: AgentProgram;
  readonly launch: LaunchAgent;
  connect(process: RunningProcess): Promise<AgentConnection>;
  readonly limits: AgentLimits;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Takes secrets out of what the agent says. */
  hide(text: string): string;
}

/** One failure may be an accident; from the second in a row on, the agent counts as broken until the pause is over. */
const FAILURES_OF_A_BROKEN_AGENT = 2;

export function createProcessKeeper(options: ProcessKeeperOptions): ProcessKeeper {
  const { id, program, launch, limits, clock, hide } = options;
  const logger = options.logger.child({ agent: id });
  const stopped = Promise.withResolvers<undefined>();
  let current: KeptProcess | undefined;
  let starting: Promise<KeptProcess | StartFailure> | undefined;
  let isStopped = false;
  let failures = 0;
  let lastFailure = '';
  let pauseUntil = 0;

  function noteFailure(why: string): void {
    failures += 1;
    lastFailure = why;
    pauseUntil =
      clock.monotonic() + Math.min(limits.longestPauseMs, limits.firstPauseMs * 2 ** Math.min(failures - 1, 20));
    logger.warn({ failures, why }, 'agent failed');
  }

  async function start(): Promise<KeptProcess | StartFailure> {
    const pauseMs = pauseUntil - clock.monotonic();
    if (pauseMs > 0) await withinTime(clock, pauseMs, stopped.promise, () => undefined);
    if (isStopped) return { kind: 'not-started', code: 'AGENT_EXITED', error: 'the bridge is stopping' };
    const outcome = await startOnce();
    if (outcome.kind === 'not-started') noteFailure(outcome.error);
    return outcome;
  }

  async function startOnce(): Promise<KeptProcess | StartFailure> {
    let process: RunningProcess | undefined;
    try {
      process = await launch(program);
    } catch (error) {
      return failed('AGENT_FAILED', describeFailure(error));
    }
    if (process === undefined) return failed('AGENT_FAILED', `"${program.command}" is not installed`);
    const exited = process.exited.then((exit) => ({ exit }));
    try {
      const ready = options.connect(process);
      ready.catch(() => undefined);
      const late = () => {
        throw new AppError('CALL_TIMEOUT', { timeoutMs: limits.startMs });
      };
      const first = await withinTime(clock, limits.startMs, Promise.race([ready, exited, stopped.promise]), late);
      if (first === undefined) throw new Error('the bridge is stopping');
      if ('exit' in first) return failed('AGENT_EXITED', exitText(first.exit));
      logger.info({ pid: process.pid }, 'agent started');
      return keep(process, first);
    } catch (error) {
      // The connection breaks a moment before the exit is known.
      const gone = await withinTime(clock, limits.killMs, exited, () => undefined);
      if (gone !== undefined) return failed('AGENT_EXITED', exitText(gone.exit));
      const isLate = error instanceof AppError && error.code === 'CALL_TIMEOUT';
      const tail = process.stderrTail();
      await process.stop({ graceMs: limits.killMs });
      if (!isLate) return failed('AGENT_FAILED', describeFailure(error));
      return failed('AGENT_TIMEOUT', `"${program.command}" did not answer within ${limits.startMs} ms${said(tail)}`);
    }
  }

  function keep(process: RunningProcess, connection: AgentConnection): KeptProcess {
    let holders = 0;
    let stopIdleTimer: (() => void) | undefined;
    let reason: string | undefined;
    let broken = false;
    let endedBecause: string | undefined;
    const listeners = new Set<(why: string) => void>();

    const kept: KeptProcess = {
      kind: 'kept',
      connection,
      conversations: new Set(),
      isBroken: () => broken,
      whenEnded(listener) {
        if (endedBecause === undefined) listeners.add(listener);
        else listener(endedBecause);
        return () => listeners.delete(listener);
      },
      hold() {
        stopIdleTimer?.();
        holders += 1;
        let held = true;
        return () => {
          if (!held) return;
          held = false;
          holders -= 1;
          if (holders === 0) waitForUse();
        };
      },
      async endIfUnused() {
        if (holders === 0 && kept.conversations.size === 0) await end('its last conversation was closed');
      },
      kill: end,
    };

    async function end(why: string): Promise<void> {
      reason ??= `"${program.command}" was ended by the bridge: ${why}`;
      if (current === kept) current = undefined;
      stopIdleTimer?.();
      await process.stop({ graceMs: limits.killMs });
    }

    function waitForUse(): void {
      if (reason !== undefined) return;
      const lasting = connection.continues || kept.conversations.size === 0;
      stopIdleTimer = clock.after(lasting ? limits.idleMs : limits.idleWithConversationsMs, () => {
        void end('it was idle');
      });
    }

    current = kept;
    // A program that closes its output but goes on running is of no use to anyone.
    void connection.closed.then(async () => {
      broken = true;
      const gone = await withinTime(clock, limits.killMs, process.exited, () => undefined);
      if (gone === undefined && reason === undefined) await process.stop({ graceMs: limits.killMs });
    });
    void process.exited.then((exit) => {
      endedBecause = reason ?? exitText(exit);
      for (const listener of listeners) listener(endedBecause);
      listeners.clear();
      stopIdleTimer?.();
      if (current === kept) current = undefined;
      if (reason === undefined) noteFailure(exitText(exit));
      else logger.info({ pid: process.pid, why: reason }, 'agent ended');
    });
    waitForUse();
    return kept;
  }

  function failed(code: StartFailure['code'], error: string): StartFailure {
    return { kind: 'not-started', code, error: hide(error) };
  }

  function exitText({ code, signal, stderrTail }: ProcessExit): string {
    const how = signal === null ? `ended with exit code ${code}` : `was ended by ${signal}`;
    return hide(`"${program.command}" ${how}${said(stderrTail)}`);
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
      failures = 0;
      pauseUntil = 0;
    },
    trouble() {
      const isBroken = failures >= FAILURES_OF_A_BROKEN_AGENT && clock.monotonic() < pauseUntil;
      return isBroken ? lastFailure : undefined;
    },
    async stop() {
      isStopped = true;
      stopped.resolve(undefined);
      await starting;
      await current?.kill('the bridge is stopping');
    },
  };
}

function said(tail: string): string {
  return tail === '' ? '' : `: ${tail}`;
}
