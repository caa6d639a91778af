import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { explainTaken } from '../administration/user-administration.ts';
import { securityNoticeMail } from '../mail/messages.ts';
import { normalizeEmail } from '../registration/email-address.ts';
import { normalizeName } from '../registration/identity-names.ts';
import { newUserRow } from '../registration/new-user.ts';
import { trialOf } from '../registration/trial.ts';
import type { UserRow } from '../storage/accounts-schema.ts';
import { linkSubject } from '../storage/credential-store.ts';
import type { OauthIdentity } from './oauth-provider.ts';

/** Why someone was not let in, as the address that the browser is sent back to says it. */
export type OauthProblem =
  | 'account_exists'
  | 'already_linked'
  | 'email_not_verified'
  | 'access_denied'
  | 'invalid_state'
  | 'provider_failed';

export type OauthOutcome = { readonly userId: string } | { readonly problem: OauthProblem };

/** From an account elsewhere to a user here: by the link between them, and by nothing else. */
export interface OauthAccounts {
  /** Whom it belongs to; a new user when the address is new here too. */
  enter(namespace: string, identity: OauthIdentity, head: RequestHead): Promise<OauthOutcome>;
  /** Links it to someone who is logged in, as long as the session that asked for it has not ended. */
  link(namespace: string, identity: OauthIdentity, linker: Linker, head: RequestHead): Promise<OauthOutcome>;
}

export interface Linker {
  readonly user: UserRow;
  /** Undoes the batch when the session that asked for it has ended. */
  readonly isLive: Runnable;
}

const NAME_TRIES = 5;

type Parts = Pick<
  AccountsCore,
  | 'database'
  | 'users'
  | 'credentials'
  | 'subscriptions'
  | 'blacklist'
  | 'audit'
  | 'mail'
  | 'settings'
  | 'clock'
  | 'randomness'
  | 'makeId'
>;

export function createOauthAccounts(parts: Parts): OauthAccounts {
  const { database, users, credentials, audit, clock, randomness } = parts;

  const linkRow = (namespace: string, { id, email }: OauthIdentity, userId: string) => ({
    id: parts.makeId('lnk_'),
    userId,
    provider: namespace,
    providerUserId: id,
    email: normalizeEmail(email ?? '') ?? '',
    now: clock.now(),
  });

  async function register(
    namespace: string,
    identity: OauthIdentity,
    account: { readonly email: string; readonly name: string },
    head: RequestHead,
  ): Promise<OauthOutcome> {
    const now = clock.now();
    const user = newUserRow(
      { ...account, emailVerified: true, passwordHash: null, role: 'user', now },
      parts.makeId,
      randomness,
    );
    const trial = trialOf(user.id, parts.settings().trial_days, now, parts.makeId);
    const details = { how: namespace };
    await database
      .write([
        ...users.add(user),
        credentials.addLink(linkRow(namespace, identity, user.id)),
        ...trial.map(parts.subscriptions.add),
        audit.statement({ event: 'register', actor: user.id, subject: user.id, head, details }),
      ])
      .catch(explainTaken);
    return { userId: user.id };
  }

  async function linked(namespace: string, { id }: OauthIdentity): Promise<OauthOutcome | undefined> {
    const link = await credentials.find('oauth', linkSubject(namespace, id));
    return link === undefined ? undefined : { userId: link.user_id };
  }

  return {
    async enter(namespace, identity, head) {
      const link = await linked(namespace, identity);
      if (link !== undefined) return link;
      const email = normalizeEmail(identity.email ?? '');
      if (email === undefined) return { problem: 'email_not_verified' };
      if (await parts.blacklist.has(email)) return { problem: 'access_denied' };
      // Whoever has this address here logs in and links the account: an address alone proves nothing to us. Unless it is
      // the same login, come twice at once, and the other one was quicker.
      if ((await users.byEmail(email)) !== undefined) {
        return (await linked(namespace, identity)) ?? { problem: 'account_exists' };
      }
      for (const name of nameChoices(identity.name, email)) {
        try {
          return await register(namespace, identity, { email, name }, head);
        } catch (error) {
          const made = await linked(namespace, identity);
          if (made !== undefined) return made;
          if (errorCode(error) === 'EMAIL_ALREADY_EXISTS') return { problem: 'account_exists' };
          if (errorCode(error) !== 'NAME_ALREADY_EXISTS') throw error;
        }
      }
      throw new AppError('NAME_ALREADY_EXISTS');
    },
    async link(namespace, identity, { user, isLive }, head) {
      const details = { how: namespace };
      const entry = audit.statement({ event: 'oauth.linked', actor: user.id, subject: user.id, head, details });
      const what = 'An account from elsewhere can now log in to your account.';
      const notice = parts.mail.enqueue(securityNoticeMail(user.email, what));
      try {
        await database.write([isLive, credentials.addLink(linkRow(namespace, identity, user.id)), entry, notice]);
      } catch (error) {
        if (errorCode(error) === 'STORAGE_CONFLICT') return { problem: 'invalid_state' };
        if (errorCode(error) !== 'STORAGE_DUPLICATE') throw error;
        const other = await credentials.find('oauth', linkSubject(namespace, identity.id));
        return other?.user_id === user.id ? { userId: user.id } : { problem: 'already_linked' };
      }
      parts.mail.wake();
      return { userId: user.id };
    },
  };

  /** The name that they have elsewhere, or something like it that is not taken. */
  function* nameChoices(given: string, email: string): Generator<string> {
    const [local = 'user'] = email.split('@');
    const name = normalizeName(given) ?? local;
    yield name;
    for (let tries = 1; tries < NAME_TRIES; tries += 1) {
      yield `${[...name].slice(0, 56).join('').trimEnd()} ${1000 + randomness.below(9000)}`;
    }
  }
}
