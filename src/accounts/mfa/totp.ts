import type { TOTP } from 'otpauth';

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
