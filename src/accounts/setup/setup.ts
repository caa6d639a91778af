import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { explainTaken } from '../administration/user-administration.ts';
import { checkNewPassword } from '../passwords/password-rules.ts';
import { normalizeEmail } from '../registration/email-address.ts';
import { normalizeName } from '../registration/identity-names.ts';
import { newUserRow } from '../registration/new-user.ts';
import type { FoundUser } from '../storage/accounts-schema.ts';

export interface FirstAdmin {
  readonly token: string;
  readonly name: string;
  readonly email: string;
  readonly password: string;
}

/** The first administrator (contract/accounts, Rules: First admin): there is no account and no password before it. */
export interface Setup {
  /** A token for the set-up page, good once and for 15 minutes; undefined as soon as there is an administrator. */
  issueToken(): Promise<string | undefined>;
  /** Makes the one root user, once. */
  complete(first: FirstAdmin, head: RequestHead): Promise<FoundUser>;
}

type Parts = Pick<
  AccountsCore,
  'database' | 'users' | 'userAdministration' | 'flows' | 'audit' | 'passwords' | 'clock' | 'makeId' | 'randomness'
>;

export function createSetup(parts: Parts): Setup {
  const { database, users, userAdministration, flows, audit, clock } = parts;
  return {
    async issueToken() {
      if (await userAdministration.hasAdmin()) return undefined;
      const { token, statement } = flows.issue('setup', {});
      await database.write([statement, audit.statement({ event: 'setup.offered', actor: 'system' })]);
      return token;
    },
    async complete(first, head) {
      // Nothing else is looked at for someone who was not given the link.
      if ((await flows.open('setup', first.token)) === undefined) throw new AppError('INVALID_TOKEN');
      if (await userAdministration.hasAdmin()) throw new AppError('SETUP_DONE');
      const name = normalizeName(first.name);
      if (name === undefined) throw new AppError('NAME_REQUIRED');
      const email = normalizeEmail(first.email);
      if (email === undefined) throw new AppError('INVALID_EMAIL');
      checkNewPassword(first.password, { name, email });
      const passwordHash = await parts.passwords.hash(first.password);
      const user = newUserRow(
        { name, email, emailVerified: true, confirmed: true, passwordHash, role: 'root', now: clock.now() },
        parts.makeId,
        parts.randomness,
      );
      const done = audit.statement({ event: 'setup.completed', actor: user.id, subject: user.id, head });
      try {
        await database.write([flows.take('setup', first.token), ...users.add(user), done]);
      } catch (error) {
        if (errorCode(error) === 'STORAGE_CONFLICT') throw new AppError('INVALID_TOKEN');
        // Another link was quicker, perhaps with the same name or address. Any other failure may be that of this very one.
        const isTaken = errorCode(error) === 'STORAGE_DUPLICATE';
        if (isTaken && (await userAdministration.hasAdmin())) throw new AppError('SETUP_DONE');
        explainTaken(error);
      }
      return user;
    },
  };
}
