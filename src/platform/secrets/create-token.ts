import type { Randomness } from '../clock/randomness.ts';

const TOKEN_BYTES = 32;

/** A new credential: the prefix, then 256 random bits in base64url. */
export function createToken(randomness: Pick<Randomness, 'bytes'>, prefix = ''): string {
  return prefix + Buffer.from(randomness.bytes(TOKEN_BYTES)).toString('base64url');
}
