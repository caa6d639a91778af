import { AppError } from '../platform/errors/app-error.ts';
import type { RequestHead } from '../platform/http/surface.ts';
import type { UserCall } from './access.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort, SessionsPort } from './accounts-core.ts';
import type { ProfileChange } from './contract/own-data.ts';
import type { User } from './contract/user.ts';
import { byAddress } from './limiter/limiter.ts';
import type { Reauthentication } from './login/password-check.ts';
import { accountExistsMail, registrationCodeMail, securityNoticeMail } from './mail/messages.ts';
import { nameKey, normalizeName, requireEmail } from './registration/identity.ts';
import { explainTaken } from './registration/new-user.ts';
import { createEmailCodes, requireAllowedDomain } from './registration/registration.ts';
import type { FoundSession } from './storage/session-store.ts';

type Parts = BasePort &
  PeoplePort &
  CredentialsPort &
  SessionsPort &
  PostPort & { readonly reauthentication: Reauthentication };

interface Changed {
  readonly message: 'profile_changed' | 'verification_sent';
  readonly user: User;
}

/** What owners change of themselves: the name, and the e-mail address by a code that is mailed to the new one. */
export function createProfile(parts: Parts) {
  const { database, userAdministration: store, users, sessions, flowStore, limiter, audit, mail, clock } = parts;
  const codes = createEmailCodes({ ...parts, kind: 'email_code', store: flowStore });

  const changedEntry = (user: FoundSession, head: RequestHead, changed: 'name' | 'email') =>
    audit.statement({ event: 'profile.changed', actor: user.id, subject: user.id, head, details: { changed } });

  async function rename(user: FoundSession, given: string, head: RequestHead): Promise<void> {
    const name = normalizeName(given);
    if (name === undefined) throw new AppError('NAME_REQUIRED');
    const change = { name, name_key: nameKey(name), updated_at: clock.now() };
    const also = [changedEntry(user, head, 'name')];
    await store.change(user.id, () => ({ change, also })).catch(explainTaken);
  }

  /** The answer and the work are the same whether or not someone has the address: its owner gets a notice instead. */
  async function sendCode(user: FoundSession, email: string, password: string | undefined, head: RequestHead) {
    const proof = await parts.reauthentication.passwordOrFreshLogin(user, password, head);
    await limiter.takeMail({ email, address: head.address, session: user.session_id });
    const [other, blocked] = await Promise.all([users.byEmail(email), parts.blacklist.has(email)]);
    const code = await codes.current(email, user.id);
    const message = other === undefined ? registrationCodeMail(email, code) : accountExistsMail(email);
    const asked = audit.statement({ event: 'profile.email_asked', actor: user.id, subject: user.id, head });
    await database.write([...proof, asked, blocked ? mail.enqueueNothing() : mail.enqueue(message)], {
      conflict: 'REAUTHENTICATION_REQUIRED',
      details: { fields: 'the current password' },
    });
    mail.wake();
  }

  /** Nothing that was mailed to the old address counts any more, and every other session ends. */
  async function moveTo(user: FoundSession, email: string, code: string, head: RequestHead): Promise<void> {
    await limiter.refuseWhileLocked(byAddress('address_failures', head));
    if (!(await codes.check(email, code, user.id)) || (await parts.blacklist.has(email))) {
      const failed = audit.statement({ event: 'profile.code_failed', actor: user.id, subject: user.id, head });
      await database.write([limiter.count(byAddress('address_failures', head)), failed]);
      throw new AppError('INVALID_CODE');
    }
    const epoch = user.access_epoch;
    const change = { email, email_verified: 1, access_epoch: epoch + 1, updated_at: clock.now() };
    const also = [
      codes.take(email, user.id),
      sessions.endOthersOf({ id: user.session_id, userId: user.id }),
      sessions.carryOver({ id: user.session_id, epoch }),
      flowStore.removeOfUser(user.id),
      changedEntry(user, head, 'email'),
      mail.enqueue(securityNoticeMail(user.email, 'emailChanged')),
    ];
    await store
      .change(user.id, ({ user: current }) => {
        // Another change ended this session while the code was checked.
        if (current.access_epoch !== epoch || current.email !== user.email) throw new AppError('INVALID_SESSION');
        return { change, also };
      })
      .catch(explainTaken);
    mail.wake();
  }

  return async (
    { name, email: given, code, password }: ProfileChange,
    { caller, head }: UserCall,
  ): Promise<Changed> => {
    const { user } = caller;
    if ((name === undefined) === (given === undefined))
      throw new AppError('MISSING_CREDENTIALS', { fields: 'name or email' });
    const described = async (message: Changed['message']) => ({
      message,
      user: await parts.userObjects.describe((await users.byId(user.id)) ?? user),
    });
    if (name !== undefined) {
      await rename(user, name, head);
      return described('profile_changed');
    }
    const email = requireEmail(given ?? '');
    requireAllowedDomain(email, parts.settings().allowed_domains);
    if (email === user.email) return described('profile_changed');
    if (code === undefined) {
      await sendCode(user, email, password, head);
      return described('verification_sent');
    }
    await moveTo(user, email, code, head);
    return described('profile_changed');
  };
}
