import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort, SessionsPort } from '../accounts-core.ts';
import { securityNoticeMail } from '../mail/messages.ts';
import { requireRole } from '../permissions.ts';
import { intoTeam, isStillBacked } from '../registration/invitations.ts';
import { createPersonCreation, normalizeEmail, normalizeName } from '../registration/new-user.ts';
import { refuseUnlessOpen } from '../registration/registration.ts';
import type { InvitationRow, UserRow } from '../storage/accounts-schema.ts';
import { createInvitationStore } from '../storage/administration-stores.ts';
import { linkSubject } from '../storage/credential-store.ts';
import type { OauthIdentity } from './oauth-providers.ts';

/** The reason for which a login failed: the parameter `error` of the URL that the browser returns to. */
export type OauthProblem =
  | 'account_exists'
  | 'already_linked'
  | 'email_not_verified'
  | 'access_denied'
  | 'invitation_required'
  | 'registration_closed'
  | 'domain_not_allowed'
  | 'invalid_state'
  | 'provider_failed';

export type OauthOutcome = { readonly userId: string } | { readonly problem: OauthProblem };

/** Finds or creates the user for an account at a provider. Only the stored link between the two counts, not an e-mail address. */
export interface OauthAccounts {
  /** Returns the linked user, or creates one if nobody here has the address. */
  enter(namespace: string, identity: OauthIdentity, head: RequestHead): Promise<OauthOutcome>;
  /** Links it to someone who is logged in, as long as the session that asked for it has not ended. */
  link(namespace: string, identity: OauthIdentity, linker: Linker, head: RequestHead): Promise<OauthOutcome>;
}

export interface Linker {
  readonly user: UserRow;
  /** Undoes the batch when the session that asked for it has ended. */
  readonly isLive: Runnable;
}

const REGISTRATION_PROBLEMS = ['invitation_required', 'registration_closed', 'domain_not_allowed'] as const;

function isRegistrationProblem(text: string): text is (typeof REGISTRATION_PROBLEMS)[number] {
  return REGISTRATION_PROBLEMS.some((problem) => problem === text);
}

const NAME_TRIES = 5;
/** For an invitation that is lost while the user is created. */
const ENTER_TRIES = 3;

type Parts = BasePort & PeoplePort & CredentialsPort & SessionsPort & PostPort;

export function createOauthAccounts(parts: Parts): OauthAccounts {
  const { database, users, credentials, audit, clock, randomness } = parts;
  const invitations = createInvitationStore(database);
  const createPerson = createPersonCreation(parts);

  /** The mode of registration applies here too. The provider vouches for the address that an invitation is for. */
  function refusalOf(email: string, invitation: InvitationRow | undefined): OauthProblem | undefined {
    const { registration } = parts.settings();
    if (registration !== 'closed' && invitation !== undefined) return undefined;
    try {
      refuseUnlessOpen(email, parts.settings());
      return undefined;
    } catch (error) {
      const problem = errorCode(error).toLowerCase();
      if (!isRegistrationProblem(problem)) throw error;
      return problem;
    }
  }

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
    invitation: InvitationRow | undefined,
    head: RequestHead,
  ): Promise<OauthOutcome> {
    const { userId: _, ...link } = linkRow(namespace, identity, '');
    const { user } = await createPerson({
      how: 'oauth',
      ...account,
      emailVerified: true,
      link,
      role: invitation === undefined ? 'user' : requireRole(invitation.role, 'root'),
      plan: invitation?.plan ?? '',
      head,
      details: { provider: namespace, ...(invitation !== undefined && { invitation: invitation.id }) },
      also: (userId) => (invitation === undefined ? [] : intoTeam(parts.teams, invitation, userId, clock.now())),
      proof: async () => (invitation === undefined ? [] : [invitations.take(invitation.id, clock.now())]),
    });
    return { userId: user.id };
  }

  async function linked(namespace: string, { id }: OauthIdentity): Promise<OauthOutcome | undefined> {
    const link = await credentials.find('oauth', linkSubject(namespace, id));
    return link === undefined ? undefined : { userId: link.user_id };
  }

  async function enter(
    namespace: string,
    identity: OauthIdentity,
    head: RequestHead,
    tries = ENTER_TRIES,
  ): Promise<OauthOutcome> {
    const link = await linked(namespace, identity);
    if (link !== undefined) return link;
    const email = normalizeEmail(identity.email ?? '');
    if (email === undefined) return { problem: 'email_not_verified' };
    if (await parts.blacklist.has(email)) return { problem: 'access_denied' };
    // An address alone proves nothing, so its user has to log in and link the account. The link exists if the same login
    // arrived twice and the other request has just created the user.
    if ((await users.byEmail(email)) !== undefined) {
      return (await linked(namespace, identity)) ?? { problem: 'account_exists' };
    }
    const found = await invitations.byEmail(email, clock.now());
    const invitation = found !== undefined && (await isStillBacked(found, parts)) ? found : undefined;
    const refusal = refusalOf(email, invitation);
    if (refusal !== undefined) return { problem: refusal };
    for (const name of nameChoices(identity.name, email)) {
      try {
        return await register(namespace, identity, { email, name }, invitation, head);
      } catch (error) {
        const made = await linked(namespace, identity);
        if (made !== undefined) return made;
        if (errorCode(error) === 'EMAIL_ALREADY_EXISTS') return { problem: 'account_exists' };
        // The invitation was used or revoked since it was read.
        const isInvitationLost = errorCode(error) === 'STORAGE_CONFLICT' && invitation !== undefined;
        if (isInvitationLost && tries > 1) return enter(namespace, identity, head, tries - 1);
        if (errorCode(error) !== 'NAME_ALREADY_EXISTS') throw error;
      }
    }
    throw new AppError('NAME_ALREADY_EXISTS');
  }

  return {
    enter: (namespace, identity, head) => enter(namespace, identity, head),
    async link(namespace, identity, { user, isLive }, head) {
      const details = { how: namespace };
      const entry = audit.statement({ event: 'oauth.linked', actor: user.id, subject: user.id, head, details });
      const notice = parts.mail.enqueue(securityNoticeMail(user.email, 'oauthLinked'));
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

  /** Yields the name at the provider, then variants with a number for when it is taken. */
  function* nameChoices(given: string, email: string): Generator<string> {
    const [local = 'user'] = email.split('@');
    const name = normalizeName(given) ?? local;
    yield name;
    for (let tries = 1; tries < NAME_TRIES; tries += 1) {
      yield `${[...name].slice(0, 56).join('').trimEnd()} ${1000 + randomness.below(9000)}`;
    }
  }
}
