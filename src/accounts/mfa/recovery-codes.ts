import type { Randomness } from '../../platform/clock/randomness.ts';
import { digestToken } from '../../platform/secrets/tokens.ts';

const COUNT = 10;
const LENGTH = 24;
/** Crockford's: nothing that is taken for something else. */
const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

/** Ten codes of 120 bits, six groups of four: random enough to be stored as plain digests (ASVS 6.5.2). */
export function createRecoveryCodes(randomness: Pick<Randomness, 'below'>): string[] {
  return Array.from({ length: COUNT }, () => {
    const letters = Array.from({ length: LENGTH }, () => ALPHABET.charAt(randomness.below(ALPHABET.length)));
    return (letters.join('').match(/.{4}/g) ?? []).join('-');
  });
}

/** Case, dashes and spaces do not matter: these codes are copied from paper. */
export function recoveryCodeHash(userId: string, code: string): string {
  const plain = code.slice(0, 64).toLowerCase().replaceAll(/[\s-]/g, '').replaceAll('o', '0').replaceAll(/[il]/g, '1');
  return digestToken(`${userId}:${plain}`).toString('base64url');
}
