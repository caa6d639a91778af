import type { Randomness } from '../../src/platform/clock/randomness.ts';

/** The same numbers for the same seed: a small generator (mulberry32), good enough for tests and for nothing else. */
export function createFakeRandomness(seed = 1): Randomness {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    bytes: (length) => Uint8Array.from({ length }, () => Math.floor(next() * 256)),
    below: (limit) => Math.floor(next() * limit),
  };
}
