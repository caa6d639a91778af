import type { TOTP } from 'otpauth';
import type { Randomness } from '../../platform/clock/randomness.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { digestToken } from '../../platform/secrets/tokens.ts';

/** RFC 6238 as authenticator apps expect it (contract/accounts, Rules: TOTP). */
const STEP_MS = 30_000;
const DIGITS = 6;
const SECRET_BYTES = 20;

export interface TotpLabel {
  readonly issuer: string;
  readonly account: string;
}

/** The time step whose code it is, one step early or late allowed; undefined when it is none of them. */
export async function matchTotp(secret: Uint8Array, code: string, now: number): Promise<number | undefined> {
  const totp = await totpOf(secret);
  const delta = totp.validate({ token: code, timestamp: now, window: 1 });
  return delta === null ? undefined : Math.floor(now / STEP_MS) + delta;
}

/** What an authenticator app reads from the QR code. */
export async function totpUri(secret: Uint8Array, label: TotpLabel): Promise<{ secret: string; uri: string }> {
  const totp = await totpOf(secret, label);
  return { secret: totp.secret.base32, uri: totp.toString() };
}

export function newTotpSecret(bytes: (length: number) => Uint8Array): Uint8Array {
  return bytes(SECRET_BYTES);
}

async function totpOf(secret: Uint8Array, label?: TotpLabel): Promise<TOTP> {
  const otpauth = await import('otpauth');
  return new otpauth.TOTP({
    ...(label === undefined ? {} : { issuer: label.issuer, label: label.account }),
    algorithm: 'SHA1',
    digits: DIGITS,
    period: STEP_MS / 1000,
    secret: new otpauth.Secret({ buffer: Uint8Array.from(secret).buffer }),
  });
}

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

/**
 * The six digits that someone typed, however they typed them: spaces, full-width digits. Throws INVALID_REQUEST for what
 * cannot be a code; leading zeros are digits like any other.
 */
export function normalizeCode(text: string): string {
  const code = text.slice(0, 64).normalize('NFKC').replaceAll(/\s/g, '');
  if (!/^[0-9]{6}$/.test(code)) throw new AppError('INVALID_REQUEST', { reason: 'a code has six digits' });
  return code;
}
