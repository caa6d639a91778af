export interface FaultOptions {
  readonly cycles: number;
  /** The same seed gives the same faults, as far as time allows. */
  readonly seed: number;
  say(line: string): void;
}

/** Breaks something again and again; answers with what did not hold. */
export type FaultSuite = (options: FaultOptions) => Promise<readonly string[]>;

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
