/** Time as a parameter: wall time for records, monotonic time for durations and deadlines, and timers. */
export interface Clock {
  /** Milliseconds since 1970, as the wall clock has it. May jump. */
  now(): number;
  /** Milliseconds since some fixed moment. Never jumps, never goes back. */
  monotonic(): number;
  /** Runs `action` once, never before `ms` milliseconds; the result cancels it. Does not keep the process alive. */
  after(ms: number, action: () => void): () => void;
}

/** Node runs a timer with a longer time after a millisecond. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms, action) {
    const timer = startTimer(ms, action).unref();
    return () => clearTimeout(timer);
  },
};

/** Its timers keep the program running: for a wait before anything is open that would, such as the wait for another process. */
export const wakefulClock: Pick<Clock, 'after'> = {
  after(ms, action) {
    const timer = startTimer(ms, action);
    return () => clearTimeout(timer);
  },
};

/** Node counts in whole milliseconds: alone, a timer may run before its time by a part of one. */
function startTimer(ms: number, action: () => void): NodeJS.Timeout {
  return setTimeout(action, ms > 0 ? Math.min(Math.ceil(ms) + 1, MAX_TIMER_MS) : ms);
}

/** Resolves when the time has passed, or as soon as `signal` aborts: the caller checks it then. */
export function pause(clock: Pick<Clock, 'after'>, ms: number, signal?: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const cancel = clock.after(ms, done);
  signal?.addEventListener('abort', done, { once: true });
  function done(): void {
    cancel();
    signal?.removeEventListener('abort', done);
    resolve();
  }
  if (signal?.aborted === true) done();
  return promise;
}

/** What `work` gives, or what `late` gives (or throws) when that takes longer than `ms`. Late work is not stopped. */
export async function withinTime<T, Late>(
  clock: Pick<Clock, 'after'>,
  ms: number,
  work: Promise<T>,
  late: () => Late,
): Promise<T | Late> {
  const { promise: timeUp, resolve } = Promise.withResolvers<typeof TIME_UP>();
  const cancel = clock.after(ms, () => resolve(TIME_UP));
  try {
    const first = await Promise.race([work, timeUp]);
    return first === TIME_UP ? late() : (first as T);
  } finally {
    cancel();
  }
}

const TIME_UP = Symbol('time up');

/** What the work gives, or undefined as soon as the signal aborts; late work is not stopped. */
export async function unlessAborted<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value | undefined> {
  const { promise: aborted, resolve } = Promise.withResolvers<undefined>();
  const release = onAbort(signal, () => resolve(undefined));
  try {
    return await Promise.race([work, aborted]);
  } finally {
    release();
  }
}

/** Calls the action when the signal aborts, or now if it has; the result takes it off. */
export function onAbort(signal: AbortSignal, action: () => void): () => void {
  signal.addEventListener('abort', action, { once: true });
  if (signal.aborted) action();
  return () => signal.removeEventListener('abort', action);
}

interface JoinedSignal {
  readonly signal: AbortSignal;
  /** When the work that the signal was for is over. */
  release(): void;
}

/**
 * A signal that is aborted with the first of the given ones. `AbortSignal.any` does the same, but what still listens to its
 * result is kept for as long as the given ones live: with one that lives as long as the program, for ever.
 */
export function joinSignals(...signals: readonly AbortSignal[]): JoinedSignal {
  const joined = new AbortController();
  const onAbort = (): void => joined.abort(signals.find(({ aborted }) => aborted)?.reason);
  for (const signal of signals) signal.addEventListener('abort', onAbort, { once: true });
  if (signals.some(({ aborted }) => aborted)) onAbort();
  return {
    signal: joined.signal,
    release() {
      for (const signal of signals) signal.removeEventListener('abort', onAbort);
    },
  };
}

export interface Deadline extends JoinedSignal {
  /** Whether the time was up, and not one of the given signals the reason. */
  hasPassed(): boolean;
}

/** A signal that is aborted after `ms`, or with the first of the given ones. Release it when the work is over. */
export function deadline(
  clock: Pick<Clock, 'after'>,
  ms: number,
  signals: readonly AbortSignal[] = [],
  reason?: Error,
): Deadline {
  const late = new AbortController();
  const cancel = clock.after(ms, () => late.abort(reason));
  const { signal, release } = joinSignals(late.signal, ...signals);
  return {
    signal,
    hasPassed: () => late.signal.aborted,
    release() {
      cancel();
      release();
    },
  };
}

/** Work that is repeated until it is stopped. */
export interface Repeated {
  /** Resolves when the work under way has ended. */
  stop(): Promise<void>;
}

export interface RepeatOptions {
  readonly clock: Pick<Clock, 'after'>;
  /** From the end of one time to the beginning of the next. */
  readonly pauseMs: number;
  /** Until the first time; `pauseMs` unless given. */
  readonly firstAfterMs?: number;
  /** Ends soon after `signal` aborts. */
  work(signal: AbortSignal): Promise<unknown>;
  onError(error: unknown): void;
}

export function repeat({ clock, pauseMs, firstAfterMs = pauseMs, work, onError }: RepeatOptions): Repeated {
  const stopped = new AbortController();
  let cancel = () => {};
  let underWay: Promise<void> = Promise.resolve();
  const after = (ms: number): void => {
    cancel = clock.after(ms, () => {
      underWay = work(stopped.signal)
        .catch(onError)
        .then(() => {
          if (!stopped.signal.aborted) after(pauseMs);
        });
    });
  };
  after(firstAfterMs);
  return {
    stop() {
      stopped.abort();
      cancel();
      return underWay;
    },
  };
}
