import type { Clock } from '../../platform/clock/clock.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { isFreshLogin } from '../../platform/identity/principal.ts';
import { digestToken } from '../../platform/secrets/tokens.ts';
import type { BasePort, CredentialsPort, PostPort } from '../accounts-core.ts';
import { byAddress, type Limited } from '../limiter/limiter.ts';
import type { GivenFactor, SecondFactor } from '../mfa/second-factor.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import type { CredentialStore } from '../storage/credential-store.ts';
import type { FoundSession } from '../storage/session-store.ts';

export interface PasswordAttempt {
  /** Undefined for an unknown user: the same work is done, and the check fails. */
  readonly user: Pick<UserRow, 'id'> | undefined;
  /** The given name or address, so that failures for unknown users are counted too. */
  readonly identifier: string;
  readonly password: string;
  /** The known device or login session that the attempt comes from: failures of strangers do not count against it. */
  readonly known: string | undefined;
  /** Whether the attempt has a code of the second factor, which the caller checks next. */
  readonly withCode?: boolean;
  readonly head: RequestHead;
}

interface RightPassword {
  /** For the batch that follows from it: undone when a lock has begun since, here or on another instance. */
  readonly statements: readonly Runnable[];
  /** Only the correct second factor lets this login in: strangers have used up the guesses on the account. */
  readonly needsSecondFactor: boolean;
}

/** Compares passwords and counts failures. Every attempt goes through it. */
export interface PasswordCheck {
  /** Returns undefined for a wrong password, and for every password while locked. */
  check(attempt: PasswordAttempt): Promise<RightPassword | undefined>;
}

/** For this long after a reset by a mailed token, the lock of the account is ignored: the guesses were at the old password. */
const FRESH_RESET_MS = 15 * 60_000;

type Parts = Pick<
  BasePort & CredentialsPort & PostPort,
  'database' | 'limiter' | 'credentials' | 'passwords' | 'audit' | 'clock' | 'logger'
>;

export function createPasswordCheck(parts: Parts): PasswordCheck {
  const { database, limiter, credentials, passwords, audit, clock } = parts;

  /** Stores a new hash of the same password with current parameters. A failure is only logged. */
  async function rehash(userId: string, before: string, password: string): Promise<void> {
    if (!passwords.isOutdated(before)) return;
    try {
      await database.write([credentials.rehash({ userId, before, after: await passwords.hash(password) })]);
    } catch (error) {
      parts.logger.warn({ err: error }, 'a password was not rehashed');
    }
  }

  return {
    async check({ user, identifier, password, known, withCode = false, head }) {
      const account = user?.id ?? `unknown:${digestToken(identifier.toLowerCase()).toString('base64url')}`;
      const stored = await credentials.find('password', user?.id ?? '');
      const hash = stored?.value ?? null;
      const fromAddress = byAddress('address_failures', head);
      const isFresh = Math.abs(clock.now() - (stored?.confirmed_at ?? 0)) < FRESH_RESET_MS;
      const own: Limited =
        known === undefined
          ? { policy: 'password_pair', key: `${account} ${fromAddress.key}` }
          : { policy: 'password_known', key: `${account} ${known}` };
      const anywhere: Limited = { policy: 'password_account', key: account };
      let accountLocked = false;
      let hasFailed = false;

      const left = async (): Promise<readonly number[]> => {
        const asked = known === undefined ? [own, fromAddress, anywhere] : [own];
        const [ofOwn, ofAddress, ofAccount] = await limiter.states(asked);
        hasFailed = ofOwn?.isCounted ?? true;
        const ownLeft = ofOwn?.left ?? 0;
        if (ofAddress === undefined) return [ownLeft];
        limiter.refuseUntil(ofAddress.lockedUntil);
        accountLocked = (ofAccount?.lockedUntil ?? 0) > 0 && !isFresh;
        return [accountLocked && !withCode ? 0 : ownLeft, ofAddress.left];
      };

      const keys = [`${own.policy} ${own.key}`, ...(known === undefined ? [`address ${fromAddress.key}`] : [])];
      const leave = await limiter.gate.enter(keys, left);
      if (leave === undefined) {
        // Hashes anyway, so that the response time does not show the lock.
        await passwords.verify(hash, password);
        // No entry per attempt for a known device: the entry of the lock is enough, and nothing else would bound their number.
        if (known !== undefined) return undefined;
        const refused = audit.statement({ event: 'login.refused', subject: user?.id ?? '', head });
        await database.write([limiter.count(fromAddress), refused]);
        return undefined;
      }
      try {
        if ((await passwords.verify(hash, password)) && user !== undefined && hash !== null) {
          await rehash(user.id, hash, password);
          const alsoFree = known === undefined && !accountLocked && !isFresh ? anywhere : undefined;
          const statements = [
            limiter.expectFree(alsoFree === undefined ? [own] : [own, alsoFree]),
            // A failure that was stored since counts as later than this login, so it is kept.
            ...(hasFailed ? [limiter.forget(own)] : []),
            credentials.noteUse('password', user.id, clock.now()),
          ];
          return { statements, needsSecondFactor: accountLocked };
        }
        const counted = known === undefined ? [own, anywhere, fromAddress] : [own];
        await countFailure(counted, user?.id ?? '', head);
        return undefined;
      } finally {
        leave();
      }
    },
  };

  async function countFailure(counted: readonly Limited[], subject: string, head: RequestHead): Promise<void> {
    const results = await database.write([
      ...counted.map(limiter.count),
      audit.statement({ event: 'login.failed', subject, head }),
    ]);
    for (const [index, limited] of counted.entries()) {
      const row = results[index]?.rows[0] as Parameters<typeof limiter.hasLocked>[1];
      if (!limiter.hasLocked(limited, row)) continue;
      const details = { until: new Date(row?.locked_until ?? 0).toISOString() };
      if (limited.policy === 'address_failures') await audit.record({ event: 'address.limited', head });
      else if (limited.policy === 'password_account') {
        await audit.record({ event: 'account.known_devices_only', subject, head, details });
      } else await audit.record({ event: 'login.locked', subject, head, details });
    }
  }
}

/** Confirms the owner before sensitive changes, because a session alone may be that of someone at an unlocked screen. */
export interface Reauthentication {
  /** The statements that belong to it, for the batch that follows; throws REAUTHENTICATION_REQUIRED. */
  password(user: FoundSession, password: string | undefined, head: RequestHead): Promise<readonly Runnable[]>;
  /** The password, or a login in the last five minutes. */
  passwordOrFreshLogin(
    user: FoundSession,
    password: string | undefined,
    head: RequestHead,
  ): Promise<readonly Runnable[]>;
  /** Password and second factor. For someone without a password: a fresh login and the second factor. */
  both(
    user: FoundSession,
    given: GivenFactor & { readonly password?: string | undefined },
    head: RequestHead,
  ): Promise<readonly Runnable[]>;
}

export function createReauthentication(parts: {
  readonly passwordCheck: PasswordCheck;
  readonly secondFactor: SecondFactor;
  readonly credentials: Pick<CredentialStore, 'find'>;
  readonly clock: Pick<Clock, 'now'>;
}): Reauthentication {
  const { passwordCheck, secondFactor, credentials, clock } = parts;

  async function password(user: FoundSession, given: string | undefined, head: RequestHead, fields: string) {
    const known = user.session_id;
    const attempt = { user, identifier: user.email, password: given ?? '', known, head };
    const right = given === undefined || given === '' ? undefined : await passwordCheck.check(attempt);
    if (right === undefined) throw new AppError('REAUTHENTICATION_REQUIRED', { fields });
    return right.statements;
  }

  const passwordOrFreshLogin: Reauthentication['passwordOrFreshLogin'] = async (user, given, head) => {
    if ((given === undefined || given === '') && isFreshLogin(user.session_created_at, clock.now())) return [];
    return password(user, given, head, 'the current password, or a login from the last five minutes');
  };

  return {
    password: (user, given, head) => password(user, given, head, 'the current password'),
    passwordOrFreshLogin,
    async both(user, given, head) {
      const hasPassword = (await credentials.find('password', user.id)) !== undefined;
      const right = hasPassword
        ? await password(user, given.password, head, 'the current password')
        : await passwordOrFreshLogin(user, undefined, head);
      const fields = 'the password and a code or recovery code';
      if (given.code === undefined && given.recoveryCode === undefined) {
        throw new AppError('REAUTHENTICATION_REQUIRED', { fields });
      }
      try {
        return [...right, ...(await secondFactor.prove(user, given, { head, known: user.session_id }))];
      } catch (error) {
        throw errorCode(error) === 'INVALID_MFA_CODE' ? new AppError('REAUTHENTICATION_REQUIRED', { fields }) : error;
      }
    },
  };
}
