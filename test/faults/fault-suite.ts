export interface FaultOptions {
  readonly cycles: number;
  /** The same seed gives the same faults, as far as time allows. */
  readonly seed: number;
  /** How much there is to do in each cycle, where a suite asks for that; undefined: its usual load. */
  readonly load?: number | undefined;
  say(line: string): void;
}

/** What a run came to, as the log and the store tell it. */
export interface FaultFigure {
  readonly name: string;
  readonly value: string;
  /** Empty for what is only told. */
  readonly goal: string;
  readonly met: boolean;
  /** Nothing was done: what did not break was not tried either, and the run fails. */
  readonly isEmpty?: boolean;
}

export interface FaultReport {
  /** What must never happen: one is enough to fail the run. Times that a slow machine misses are figures. */
  readonly violations: readonly string[];
  readonly figures: readonly FaultFigure[];
  /** Why it could not be run on this machine. */
  readonly impossible?: string;
}

/** Breaks something again and again; answers with what did not hold, and with figures. */
export type FaultSuite = (options: FaultOptions) => Promise<FaultReport>;

/** How much there was of something, without a goal. */
export function countFigure(name: string, count: number): FaultFigure {
  return { name, value: count.toLocaleString('en'), goal: '', met: true };
}

/** How much was done that the run is about: with none, nothing was tried. */
export function workFigure(name: string, count: number): FaultFigure {
  return { name, value: count.toLocaleString('en'), goal: '> 0', met: count > 0, isEmpty: count === 0 };
}

/** How much was done, against the least that a full run does. */
export function leastFigure(name: string, count: number, least: number): FaultFigure {
  return { name, value: count.toLocaleString('en'), goal: `≥ ${least.toLocaleString('en')}`, met: count >= least };
}

/** The figures that missed their goals, without work that was never done: that is a violation. */
export function missedGoals(figures: readonly FaultFigure[]): FaultFigure[] {
  return figures.filter(({ met, isEmpty = false }) => !met && !isEmpty);
}

/** Violations of a run in which something was never done: nothing can break that was not tried. */
export function untried(figures: readonly FaultFigure[]): string[] {
  return figures.flatMap(({ name, value, isEmpty = false }) =>
    isEmpty ? [`${name}: ${value}, so nothing was tried`] : [],
  );
}

/** How often something happened that must not happen. */
export function neverFigure(name: string, count: number): FaultFigure {
  return { name, value: count.toLocaleString('en'), goal: '0', met: count === 0 };
}

/** The figures of a run, which also say what was violated: a table without it would show a run that failed as a good one. */
export function withViolations(figures: readonly FaultFigure[], violations: readonly string[]): readonly FaultFigure[] {
  return violations.length === 0 ? figures : [...figures, neverFigure('violations', violations.length)];
}

/** The longest of some times, against the longest that is allowed. */
export function longestFigure(name: string, times: readonly number[], limitMs?: number): FaultFigure {
  const longest = times.reduce((most, time) => Math.max(most, time), 0);
  const value = `${Math.round(longest).toLocaleString('en')} ms`;
  if (limitMs === undefined) return { name, value, goal: '', met: true };
  return { name, value, goal: `≤ ${limitMs.toLocaleString('en')} ms`, met: longest <= limitMs };
}

/** Numbers from 0 up to 1 that depend on the seed alone (mulberry32). */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
