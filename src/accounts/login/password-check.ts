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
  /** Undefined for someone who does not exist: the same is done, and the answer is no. */
  readonly user: Pick<UserRow, 'id'> | undefined;
  /** What was asked for, so that failures on what does not exist count as well. */
  readonly identifier: string;
  readonly password: string;
  /** The device or login session of that user that it comes from: failures of strangers do not count against it. */
  readonly known: string | undefined;
  /** Whether a code of the second factor came along, which the caller checks next. */
  readonly withCode?: boolean;
  readonly head: RequestHead;
}

interface RightPassword {
  /** For the batch that follows from it: undone when a lock has begun since, here or on another instance. */
  readonly statements: readonly Runnable[];
  /** Only the correct second factor lets this login in: strangers have used up the guesses on the account. */
  readonly needsSecondFactor: boolean;
}

/** Compares passwords, and counts what is wrong: the one way by which anybody can try one. */
export interface PasswordCheck {
  /** Undefined for a wrong password, and for any while it is locked. */
  check(attempt: PasswordAttempt): Promise<RightPassword | undefined>;
}

/** A password that its owner has just set by a mailed token is not the one that strangers have been guessing at. */
const FRESH_RESET_MS = 15 * 60_000;

type Parts = Pick<
  BasePort & CredentialsPort & PostPort,
  'database' | 'limiter' | 'credentials' | 'passwords' | 'audit' | 'clock' | 'logger'
>;

export function createPasswordCheck(parts: Parts): PasswordCheck {
  const { database, limiter, credentials, passwords, audit, clock } = parts;

  /** The same password under newer parameters. Nothing fails because of it. */
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
        // As much work as for a password that is compared, so that nobody can tell.
        await passwords.verify(hash, password);
        // One record of the lock is enough for a known device: nothing else bounds how many it could write.
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
            // Of a failure that was stored since, this login counts as the earlier one.
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

/** Anyone who finds a screen unlocked has a session; what only the owner may change asks for what only the owner knows. */
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
