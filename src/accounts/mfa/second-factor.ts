import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import { createSecondFactorStore, type LockRule } from '../storage/second-factor-store.ts';
import { timeText } from '../user-object.ts';
import { normalizeCode } from './one-time-code.ts';
import { recoveryCodeHash } from './recovery-codes.ts';
import { matchTotp } from './totp.ts';

export interface GivenFactor {
  readonly code?: string | undefined;
  readonly recoveryCode?: string | undefined;
}

/** The second factor of someone who has one, and the pending one of someone who enrols. */
export interface SecondFactor {
  /**
   * Checks it, and gives the statements that use it up: they belong into the batch that follows from it, which is undone
   * when the same code is used elsewhere at the same moment. Throws INVALID_MFA_CODE or MFA_CHALLENGE_LOCKED.
   */
  prove(user: UserRow, given: GivenFactor, head: RequestHead): Promise<readonly Runnable[]>;
  /** A right code for the pending secret: its time step, and the sealed secret that it is for. */
  provePending(user: UserRow, code: string, head: RequestHead): Promise<{ step: number; sealed: string }>;
}

/** Contract/accounts, Rules: TOTP. Five wrong codes lock for five minutes, then longer. */
const MINUTE_MS = 60_000;
const LOOKS = 3;
const LOCK: LockRule = { tries: 5, lockMs: [5, 10, 20, 40, 60].map((minutes) => minutes * MINUTE_MS) };

export function totpContext(userId: string): string {
  return `totp:${userId}`;
}

type Parts = Pick<AccountsCore, 'database' | 'users' | 'secretBox' | 'audit' | 'clock'>;

export function createSecondFactor({ database, users, secretBox, audit, clock }: Parts): SecondFactor {
  const store = createSecondFactorStore(database);

  /** Counted before it is looked at: a burst of guesses gets five, like guesses one after another. */
  async function reserveTry(user: UserRow, head: RequestHead): Promise<UserRow> {
    const now = clock.now();
    for (let look = 1; ; look += 1) {
      const reserved = await store.reserveTry(user.id, LOCK, now);
      if (reserved !== undefined) return reserved;
      const until = (await users.byId(user.id))?.totp_locked_until ?? now;
      // A right code, counted as the fifth try ahead of itself, may have ended the lock between the two.
      if (until <= now && look < LOOKS) continue;
      await audit.record({ event: 'mfa.refused', actor: user.id, subject: user.id, head });
      const retryAfterSeconds = Math.max(1, Math.ceil((until - now) / 1000));
      throw new AppError('MFA_CHALLENGE_LOCKED', { retryAt: timeText(until), retryAfterSeconds });
    }
  }

  async function refuse(reserved: UserRow, head: RequestHead): Promise<never> {
    const { id, totp_locked_until: until } = reserved;
    const failed = audit.statement({ event: 'mfa.failed', actor: id, subject: id, head });
    const locks = until > clock.now() ? [audit.statement(lockEntry(id, until, head))] : [];
    await database.write([failed, ...locks]);
    throw new AppError('INVALID_MFA_CODE');
  }

  const open = (sealed: string, userId: string) => secretBox.open(sealed, totpContext(userId));

  return {
    async prove(user, { code, recoveryCode }, head) {
      if (recoveryCode !== undefined) {
        const reserved = await reserveTry(user, head);
        const hash = recoveryCodeHash(user.id, recoveryCode);
        if (!(await store.hasRecoveryCode(user.id, hash))) return refuse(reserved, head);
        const used = audit.statement({ event: 'mfa.recovery_code_used', actor: user.id, subject: user.id, head });
        return [...store.takeRecoveryCode(user.id, hash), used];
      }
      const digits = normalizeCode(code ?? '');
      const reserved = await reserveTry(user, head);
      const secret = reserved.totp_secret;
      const step = secret === null ? undefined : await matchTotp(open(secret, user.id), digits, clock.now());
      if (step === undefined || step <= reserved.totp_last_step) return refuse(reserved, head);
      return [store.acceptStep(user.id, step)];
    },
    async provePending(user, code, head) {
      const digits = normalizeCode(code);
      const reserved = await reserveTry(user, head);
      const sealed = reserved.totp_pending;
      if (sealed === null) return refuse(reserved, head);
      const step = await matchTotp(open(sealed, user.id), digits, clock.now());
      return step === undefined ? refuse(reserved, head) : { step, sealed };
    },
  };
}

function lockEntry(id: string, until: number, head: RequestHead) {
  return { event: 'mfa.locked', actor: id, subject: id, head, details: { until: timeText(until) } };
}
