import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { GivenFactor, SecondFactor } from '../mfa/second-factor.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import type { PasswordCheck } from './password-check.ts';

/** Whoever finds a screen unlocked has a session; what only the owner may change asks for what only the owner knows. */
export interface Reauthentication {
  /** The statements that belong to it, for the batch that follows; throws REAUTHENTICATION_REQUIRED. */
  password(user: UserRow, password: string | undefined, head: RequestHead): Promise<readonly Runnable[]>;
  /** Password and second factor. */
  both(
    user: UserRow,
    given: GivenFactor & { readonly password?: string | undefined },
    head: RequestHead,
  ): Promise<readonly Runnable[]>;
}

export function createReauthentication(passwordCheck: PasswordCheck, secondFactor: SecondFactor): Reauthentication {
  const password: Reauthentication['password'] = async (user, given, head) => {
    const attempt = { user, identifier: user.email, password: given ?? '', known: true, head };
    const right = given === undefined || given === '' ? undefined : await passwordCheck.check(attempt);
    if (right === undefined) throw new AppError('REAUTHENTICATION_REQUIRED', { fields: 'the current password' });
    return right;
  };
  return {
    password,
    async both(user, given, head) {
      const right = await password(user, given.password, head);
      const fields = 'the password and a code or recovery code';
      if (given.code === undefined && given.recoveryCode === undefined) {
        throw new AppError('REAUTHENTICATION_REQUIRED', { fields });
      }
      try {
        return [...right, ...(await secondFactor.prove(user, given, head))];
      } catch (error) {
        throw errorCode(error) === 'INVALID_MFA_CODE' ? new AppError('REAUTHENTICATION_REQUIRED', { fields }) : error;
      }
    },
  };
}
