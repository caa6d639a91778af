import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { BasePort, CredentialsPort, PostPort } from '../accounts-core.ts';
import { byAddress, type Limited } from '../limiter/limiter.ts';
import type { LimitRow, UserRow } from '../storage/accounts-schema.ts';
import { timeText } from '../user-object.ts';
import { matchTotp, normalizeCode, recoveryCodeHash } from './codes.ts';

export interface GivenFactor {
  readonly code?: string | undefined;
  readonly recoveryCode?: string | undefined;
}

/** Where a code comes from. */
export interface FactorOrigin {
  readonly head: RequestHead;
  /** The known device or login session of the user: its wrong codes count apart from those of strangers. */
  readonly known: string | undefined;
}

/** The second factor of someone who has one, and the pending one of someone who enrols. */
export interface SecondFactor {
  /**
   * Checks it, and gives the statements that use it up: they belong into the batch that follows from it, which is undone
   * when the same code is used elsewhere at the same moment, or when a lock began meanwhile. Throws INVALID_MFA_CODE or
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
        // Nobody guesses 120 bits: a correct one counts even while codes are locked.
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
