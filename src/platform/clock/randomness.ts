import { randomBytes, randomInt } from 'node:crypto';

/** Randomness as a parameter. All of it comes from the operating system's secure source. */
export interface Randomness {
  bytes(length: number): Uint8Array;
  /** A whole number from 0 up to, not including, `limit`. */
  below(limit: number): number;
}

export const systemRandomness: Randomness = {
  bytes: (length) => randomBytes(length),
  below: (limit) => randomInt(limit),
};
