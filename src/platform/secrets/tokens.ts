import { hash, timingSafeEqual } from 'node:crypto';
import type { Randomness } from '../clock/randomness.ts';

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

const TOKEN_BYTES = 32;

/** A new credential: the prefix, then 256 random bits in base64url. */
export function createToken(randomness: Pick<Randomness, 'bytes'>, prefix = ''): string {
  return prefix + Buffer.from(randomness.bytes(TOKEN_BYTES)).toString('base64url');
}

const MIN_LENGTH = 16;
const MIN_DISTINCT = 8;
/** Nobody tries longer ones; and the checks below stay quick. */
const LOOKED_AT = 256;

const COMMON_WORDS =
  /change_?me|replace_?me|p[a@]ssw[o0]rd|passwd|secret|token|example|default|admin|letmein|welcome|qwerty|dummy|test|demo|your|here|key|my/gi;

/** Why a configured token would be guessed; undefined when nothing speaks against it. Ends a sentence: "The token ...". */
export function tokenWeakness(token: string): string | undefined {
  const text = token.slice(0, LOOKED_AT);
  if (text.length < MIN_LENGTH) return `is shorter than ${MIN_LENGTH} characters`;
  if (/^(.{1,8})\1+.{0,7}$/s.test(text)) return 'repeats the same few characters';
  if (new Set(text).size < MIN_DISTINCT) return `has fewer than ${MIN_DISTINCT} different characters`;
  if (isSequence(text)) return 'is a sequence of neighbouring characters';
  const rest = text.replaceAll(COMMON_WORDS, '').replaceAll(/[\s_.,:;!-]|0?1?2?3456?7?8?9?0?/g, '');
  if (rest.length < MIN_LENGTH / 2 || new Set(rest).size < MIN_DISTINCT / 2) return 'is made of common words';
  return undefined;
}

/** `abcdefgh...`, `9876543210...`, `0123456789abcdef`: nearly every step is the same. */
function isSequence(text: string): boolean {
  const steps = new Map<number, number>();
  for (let index = 1; index < text.length; index += 1) {
    const step = text.charCodeAt(index) - text.charCodeAt(index - 1);
    steps.set(step, (steps.get(step) ?? 0) + 1);
  }
  return Math.max(...steps.values()) > (text.length - 1) * 0.6;
}
