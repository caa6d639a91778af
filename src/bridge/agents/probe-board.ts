import { type Clock, deadline, joinSignals, pause } from '../../platform/clock/clock.ts';

/** What a probe found. `status` is `ok`, `not_installed`, `not_logged_in`, `not_configured` or `failed: <short>`. */
export interface ProbeResult {
  readonly status: string;
  /** Empty: unknown. */
  readonly version: string;
  /** Of an agent that has one model unless a turn names another. */
  readonly model?: string;
  /** What to do about a status that is not `ok`. */
  readonly advice?: string | undefined;
}

/** The status for people: what is wrong, then what to do. */
export function describeStatus({ status, advice = '' }: ProbeResult): string {
  return advice === '' ? status : `${status}: ${advice}`;
}

/** Looks once whether a provider can be used. It must end by itself soon after `signal` aborts. */
export type Probe = (signal: AbortSignal) => Promise<ProbeResult>;

export interface ProbeBoard {
  /** The latest result of each provider, in the order given. Never waits. */
  results(): ReadonlyMap<string, ProbeResult>;
  /** Increases whenever a result changes, so that texts made from the results can be cached. */
  revision(): number;
  /** Calls the listener with the id of a provider whose result has changed. */
  onChange(listener: (id: string) => void): void;
  /** Resolves after the first probe of every provider. */
  readonly firstRound: Promise<void>;
  /** Resolves after the first probe of that provider; immediately for one that is not on the board. */
  firstLook(id: string): Promise<void>;
  /** Probes a provider now, without waiting for the interval. */
  lookNow(id: string): void;
  /** The same, and resolves after the probe. */
  lookAgain(id: string): Promise<void>;
  stop(): Promise<void>;
}

export interface ProbeBoardOptions {
  readonly probes: ReadonlyMap<string, Probe>;
  readonly clock: Clock;
  readonly intervalMs: number;
  readonly timeoutMs: number;
}

const NOT_YET: ProbeResult = { status: 'failed: not probed yet', version: '' };

/** A probe that was cut off gets twice the time at the next look, up to this many times the first limit. */
const MAX_GROWTH = 4;

/** Runs all probes repeatedly in the background, in parallel. A slow probe is aborted and never overlaps itself. */
export function startProbeBoard({ probes, clock, intervalMs, timeoutMs }: ProbeBoardOptions): ProbeBoard {
  const stopped = new AbortController();
  const results = new Map<string, ProbeResult>();
  let revision = 0;
  let onChange: (id: string) => void = () => undefined;
  for (const id of probes.keys()) results.set(id, NOT_YET);

  /** Returns whether the probe was cut off. */
  async function look(id: string, probe: Probe, limitMs: number): Promise<boolean> {
    const { result, isLate } = await limited(probe, clock, limitMs, stopped.signal);
    const before = results.get(id);
    const isSame = before?.status === result.status && before.version === result.version;
    if (isSame && before.advice === result.advice) return isLate;
    results.set(id, result);
    revision += 1;
    onChange(id);
    return isLate;
  }

  /** Providers to probe again immediately, and the functions that end the pauses of others. */
  const asked = new Set<string>();
  const pausing = new Map<string, () => void>();
  /** Called after the next look that begins. */
  const waiting = new Map<string, (() => void)[]>();

  function takeWaiting(id: string): readonly (() => void)[] {
    const taken = waiting.get(id) ?? [];
    waiting.delete(id);
    return taken;
  }

  function lookNow(id: string): void {
    asked.add(id);
    pausing.get(id)?.();
  }

  async function watch(id: string, probe: Probe, firstDone: () => void): Promise<void> {
    let limitMs = timeoutMs;
    while (!stopped.signal.aborted) {
      asked.delete(id);
      const told = takeWaiting(id);
      const isLate = await look(id, probe, limitMs);
      limitMs = isLate ? Math.min(limitMs * 2, MAX_GROWTH * timeoutMs) : timeoutMs;
      firstDone();
      for (const tell of told) tell();
      // A probe that was requested while this one ran must run again, because this one may have missed the change.
      if (asked.has(id)) continue;
      const awake = new AbortController();
      const { signal, release } = joinSignals(stopped.signal, awake.signal);
      pausing.set(id, () => awake.abort());
      await pause(clock, intervalMs, signal);
      pausing.delete(id);
      release();
    }
    for (const tell of takeWaiting(id)) tell();
  }

  const watches: Promise<void>[] = [];
  const firsts = new Map<string, Promise<void>>();
  for (const [id, probe] of probes) {
    const { promise, resolve } = Promise.withResolvers<void>();
    watches.push(watch(id, probe, resolve));
    firsts.set(id, promise);
  }

  return {
    results: () => results,
    revision: () => revision,
    onChange(listener) {
      onChange = listener;
    },
    firstRound: Promise.all(firsts.values()).then(() => undefined),
    firstLook: (id) => firsts.get(id) ?? Promise.resolve(),
    lookNow,
    lookAgain(id) {
      if (!probes.has(id) || stopped.signal.aborted) return Promise.resolve();
      const { promise, resolve } = Promise.withResolvers<void>();
      waiting.set(id, [...(waiting.get(id) ?? []), resolve]);
      lookNow(id);
      return promise;
    },
    async stop() {
      stopped.abort();
      await Promise.all(watches);
    },
  };
}

interface Look {
  readonly result: ProbeResult;
  readonly isLate: boolean;
}

async function limited(probe: Probe, clock: Clock, limitMs: number, stopped: AbortSignal): Promise<Look> {
  const { signal, hasPassed, release } = deadline(clock, limitMs, [stopped]);
  try {
    return { result: await probe(signal), isLate: hasPassed() };
  } catch (error) {
    const isLate = hasPassed();
    const status = isLate ? 'failed: timed out' : `failed: ${shortReason(error)}`;
    return { result: { status, version: '' }, isLate };
  } finally {
    release();
  }
}

function shortReason(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.replaceAll(/\s+/g, ' ').slice(0, 80);
}
