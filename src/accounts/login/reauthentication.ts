import type { Clock } from '../../platform/clock/clock.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { GivenFactor, SecondFactor } from '../mfa/second-factor.ts';
import type { CredentialStore } from '../storage/credential-store.ts';
import type { FoundSession } from '../storage/session-store.ts';
import type { PasswordCheck } from './password-check.ts';
import { isFreshLogin } from './session-check.ts';

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
    if ((given === undefined || given === '') && isFreshLogin(user, clock.now())) return [];
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
