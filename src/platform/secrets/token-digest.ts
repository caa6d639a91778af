import { hash, timingSafeEqual } from 'node:crypto';

/** SHA-256: how tokens are stored, and how they are compared. Only for tokens of full randomness, never for passwords. */
export function digestToken(token: string): Buffer {
  return hash('sha256', token, 'buffer');
}

/** Whether two secrets are the same, in a time that says nothing about where they differ. An empty one matches nothing. */
export function sameSecret(given: string, expected: string): boolean {
  return createSecretMatcher(expected)(given);
}

/** As `sameSecret`, with the expected secret digested once. */
export function createSecretMatcher(secret: string): (given: string) => boolean {
  if (secret.length === 0) return () => false;
  const expected = digestToken(secret);
  return (given) => timingSafeEqual(digestToken(given), expected);
}
