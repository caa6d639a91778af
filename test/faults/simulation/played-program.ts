import { type Clock, pause } from '../../../src/platform/clock/clock.ts';
import { AppError, errorCode } from '../../../src/platform/errors/app-error.ts';
import { type PlayedProcess, startPlayedProcess } from './played-process.ts';

/** A running part of the program, with whoever starts it again when it is gone. */
export interface PlayedProgram<Part> {
  /** Makes a call of a client. Nothing happens while it does not run: nobody takes the connection. */
  ask<Told>(call: (part: Part) => Promise<Told>, onEnd: (ended: Ended<Told>) => void): void;
  isRunning(): boolean;
  /** Calls that were neither answered nor lost. */
  underWay(): number;
  /** Kills it; calls under way are never answered. It starts again by itself. */
  crash(): void;
  /** Stops it in good order; it starts again by itself. */
  restart(): void;
  /** Stops it as SIGSTOP does, for so long; calls that arrive wait. */
  freeze(ms: number): void;
  /** The run is over: from now on nothing happens. */
  end(): void;
}

/** A call as its client knows it afterwards. Times are of the monotonic clock of the world. */
export interface Ended<Told> extends CallTimes {
  readonly outcome: 'ok' | 'fail' | 'unknown';
  /** Of a refusal. */
  readonly code?: string;
  /** Only of an answer. */
  readonly told?: Told;
}

export interface CallTimes {
  readonly startedAt: number;
  readonly endedAt: number;
}

/** What it goes through. */
export type ProgramEvent =
  | { readonly kind: 'start' | 'ready' | 'kill' | 'stop' | 'over' | 'freeze'; readonly at: number }
  /** It could not start, as when the store is away. */
  | { readonly kind: 'not-started'; readonly at: number; readonly code: string }
  | { readonly kind: 'stopped'; readonly at: number; readonly ms: number }
  /** A fault of the program: no answer that a client may ever get. */
  | { readonly kind: 'unexpected'; readonly at: number; readonly error: string };

export interface PlayedProgramOptions<Part> {
  readonly clock: Clock;
  /** So long a stop waits for the calls under way; it takes no new ones. 0 where it does that itself. */
  readonly drainMs: number;
  /** How far the wall clock of its machine is ahead; not at all unless it is said. */
  readonly aheadMs?: number;
  open(process: PlayedProcess): Promise<Part>;
  /** In good order. */
  close(part: Part): Promise<void>;
  note(event: ProgramEvent): void;
}

const RESTART_MS = 1000;
const DRAIN_STEP_MS = 100;

export function startPlayedProgram<Part>(options: PlayedProgramOptions<Part>): PlayedProgram<Part> {
  const { clock, note, aheadMs = 0 } = options;
  let process = startPlayedProcess(clock, aheadMs);
  let part: Part | undefined;
  let isStopping = false;
  let underWay = new Set<() => void>();

  function start(): void {
    const own = startPlayedProcess(clock, aheadMs);
    process = own;
    note({ kind: 'start', at: clock.monotonic() });
    options.open(own).then(
      (opened) => {
        if (!own.isAlive()) return;
        part = opened;
        note({ kind: 'ready', at: clock.monotonic() });
      },
      (error: unknown) => {
        if (!own.isAlive()) return;
        noteUnexpected(error);
        note({ kind: 'not-started', at: clock.monotonic(), code: errorCode(error) });
        die();
      },
    );
  }

  function die(): void {
    process.die();
    part = undefined;
    isStopping = false;
    const lost = underWay;
    underWay = new Set();
    for (const end of lost) end();
    clock.after(RESTART_MS, start);
  }

  async function drain(own: PlayedProcess): Promise<void> {
    const calls = underWay;
    for (let ms = 0; ms < options.drainMs && calls.size > 0; ms += DRAIN_STEP_MS) await pause(own.clock, DRAIN_STEP_MS);
  }

  function noteUnexpected(error: unknown): void {
    if (error instanceof AppError) return;
    note({ kind: 'unexpected', at: clock.monotonic(), error: String(error) });
  }

  start();
  return {
    isRunning: () => part !== undefined,
    underWay: () => underWay.size,
    ask(call, onEnd) {
      if (part === undefined || (isStopping && options.drainMs > 0)) return;
      const own = process;
      const startedAt = clock.monotonic();
      const calls = underWay;
      const times = () => ({ startedAt, endedAt: clock.monotonic() });
      const lost = () => onEnd({ ...times(), outcome: 'unknown' });
      calls.add(lost);
      const called = part;
      const answer = own.isFrozen() ? own.awake().then(() => call(called)) : call(called);
      answer.then(
        (told) => {
          if (own.isAlive() && calls.delete(lost)) onEnd({ ...times(), outcome: 'ok', told });
        },
        (error: unknown) => {
          if (!own.isAlive() || !calls.delete(lost)) return;
          noteUnexpected(error);
          const code = errorCode(error);
          // Then it is not known whether it was done.
          onEnd({ ...times(), outcome: code === 'STORAGE_UNAVAILABLE' ? 'unknown' : 'fail', code });
        },
      );
    },
    crash() {
      if (!process.isAlive()) return;
      note({ kind: 'kill', at: clock.monotonic() });
      die();
    },
    restart() {
      if (part === undefined || isStopping) return;
      isStopping = true;
      const own = process;
      const startedAt = clock.monotonic();
      note({ kind: 'stop', at: startedAt });
      const stopping = part;
      drain(own)
        .then(() => options.close(stopping))
        // A process whose stop fails is gone all the same.
        .catch(noteUnexpected)
        .then(() => {
          if (!own.isAlive()) return;
          note({ kind: 'stopped', at: clock.monotonic(), ms: clock.monotonic() - startedAt });
          die();
        });
    },
    freeze(ms) {
      if (part === undefined) return;
      const own = process;
      note({ kind: 'freeze', at: clock.monotonic() });
      own.freeze();
      clock.after(ms, own.thaw);
    },
    end() {
      note({ kind: 'over', at: clock.monotonic() });
      process.die();
    },
  };
}
