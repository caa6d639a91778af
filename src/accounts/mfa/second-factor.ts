import type { TOTP } from 'otpauth';
import type { Randomness } from '../../platform/clock/randomness.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { digestToken } from '../../platform/secrets/tokens.ts';
import type { BasePort, CredentialsPort, PostPort } from '../accounts-core.ts';
import { byAddress, type Limited } from '../limiter/limiter.ts';
import type { LimitRow, UserRow } from '../storage/accounts-schema.ts';
import { timeText } from '../user-object.ts';

export interface GivenFactor {
  readonly code?: string | undefined;
  readonly recoveryCode?: string | undefined;
}

/** The request and the device that a code was sent from. */
export interface FactorOrigin {
  readonly head: RequestHead;
  /** The known device or login session of the user: its wrong codes count apart from those of strangers. */
  readonly known: string | undefined;
}

/** The second factor of someone who has one, and the pending one of someone who enrols. */
export interface SecondFactor {
  /**
   * Checks it, and gives the statements that use it up: they belong into the batch that follows from it, which is undone
   * when the same code is used elsewhere at the same moment, or when a lock has begun since. Throws INVALID_MFA_CODE or
   * MFA_CHALLENGE_LOCKED.
   */
  prove(user: Pick<UserRow, 'id'>, given: GivenFactor, origin: FactorOrigin): Promise<readonly Runnable[]>;
  /** A right code for the pending secret: its time step, the sealed secret that it is for, and the statements. */
  provePending(
    user: Pick<UserRow, 'id'>,
    code: string,
    origin: FactorOrigin,
  ): Promise<{ step: number; sealed: string; statements: readonly Runnable[] }>;
}

export function totpContext(userId: string): string {
  return `totp:${userId}`;
}

type Parts = BasePort & CredentialsPort & PostPort;

export function createSecondFactor({ database, credentials, limiter, secretBox, audit, clock }: Parts): SecondFactor {
  const limitOf = ({ id }: Pick<UserRow, 'id'>, { known }: FactorOrigin): Limited =>
    known === undefined
      ? { policy: 'second_factor', key: id }
      : { policy: 'second_factor_known', key: `${id} ${known}` };

  /** Refusals count against the address, which bounds how many records they leave. */
  async function refuseLocked(id: string, until: number, { head }: FactorOrigin): Promise<never> {
    const refused = audit.statement({ event: 'mfa.refused', actor: id, subject: id, head });
    await database.write([limiter.count(byAddress('address_failures', head)), refused]);
    const retryAfterSeconds = Math.max(1, Math.ceil((until - clock.now()) / 1000));
    throw new AppError('MFA_CHALLENGE_LOCKED', { retryAt: timeText(until), retryAfterSeconds });
  }

  async function refuseWhileLocked(user: Pick<UserRow, 'id'>, origin: FactorOrigin): Promise<void> {
    const until = await limiter.lockedUntil(limitOf(user, origin));
    if (until > 0) await refuseLocked(user.id, until, origin);
  }

  /** Counts a wrong code. Of a burst, only as many are counted, and called wrong, as may fail one after another. */
  async function refuse({ id }: Pick<UserRow, 'id'>, origin: FactorOrigin): Promise<never> {
    const limited = limitOf({ id }, origin);
    const [{ rows }] = await database.write([limiter.count(limited)]);
    const [counted]: readonly LimitRow[] = rows;
    if (counted === undefined) return refuseLocked(id, await limiter.lockedUntil(limited), origin);
    const entry = { actor: id, subject: id, head: origin.head };
    const failed = audit.statement({ ...entry, event: 'mfa.failed' });
    const locks = limiter.hasLocked(limited, counted)
      ? [audit.statement({ ...entry, event: 'mfa.locked', details: { until: timeText(counted.locked_until) } })]
      : [];
    await database.write([failed, ...locks]);
    throw new AppError('INVALID_MFA_CODE');
  }

  const open = (sealed: string, userId: string) => secretBox.open(sealed, totpContext(userId));
  const accepted = (user: Pick<UserRow, 'id'>, origin: FactorOrigin): readonly Runnable[] => {
    const limited = limitOf(user, origin);
    return [limiter.expectFree([limited]), limiter.forget(limited)];
  };

  return {
    async prove(user, { code, recoveryCode }, origin) {
      if (recoveryCode !== undefined) {
        // Accepted even while codes are locked, because 120 bits cannot be guessed.
        const hash = recoveryCodeHash(user.id, recoveryCode);
        if (!(await credentials.hasRecoveryCode(user.id, hash))) {
          await refuseWhileLocked(user, origin);
          return refuse(user, origin);
        }
        const entry = { event: 'mfa.recovery_code_used', actor: user.id, subject: user.id, head: origin.head };
        const forget = limiter.forget(limitOf(user, origin));
        return [credentials.takeRecoveryCode(user.id, hash), forget, audit.statement(entry)];
      }
      const digits = normalizeCode(code ?? '');
      await refuseWhileLocked(user, origin);
      const totp = await credentials.find('totp', user.id);
      const isActive = totp?.state === 'active';
      const step = isActive ? await matchTotp(open(totp.value, user.id), digits, clock.now()) : undefined;
      if (totp === undefined || step === undefined || step <= totp.counter) return refuse(user, origin);
      return [...accepted(user, origin), credentials.acceptStep(user.id, step, clock.now())];
    },
    async provePending(user, code, origin) {
      const digits = normalizeCode(code);
      await refuseWhileLocked(user, origin);
      const totp = await credentials.find('totp', user.id);
      if (totp?.state !== 'pending') return refuse(user, origin);
      const step = await matchTotp(open(totp.value, user.id), digits, clock.now());
      if (step === undefined) return refuse(user, origin);
      return { step, sealed: totp.value, statements: accepted(user, origin) };
    },
  };
}

/** RFC 6238 as authenticator apps expect it. */
const STEP_MS = 30_000;
const DIGITS = 6;
const SECRET_BYTES = 20;

interface TotpLabel {
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
/** Crockford's alphabet, without characters that look alike. */
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
