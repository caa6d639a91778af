import { AppError } from '../platform/errors/app-error.ts';
import type { RequestHead } from '../platform/http/surface.ts';
import type { UserCall } from './access.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort, SessionsPort } from './accounts-core.ts';
import { refuseForLastAdmin } from './administration/user-administration.ts';
import type { User } from './contract/conventions.ts';
import { type Export, MAX_EXPORTED_ENTRIES, type ProfileChange } from './contract/own-data.ts';
import type { Credentials } from './credentials/own-credentials.ts';
import { byAddress } from './limiter/limiter.ts';
import type { OwnSessions } from './login/kept-sessions.ts';
import type { Reauthentication } from './login/password-check.ts';
import { accountClosingMail, accountExistsMail, registrationCodeMail, securityNoticeMail } from './mail/messages.ts';
import { explainTaken, nameKey, normalizeName, requireEmail } from './registration/new-user.ts';
import { createEmailCodes, requireAllowedDomain } from './registration/registration.ts';
import type { AuditRow, FoundUser } from './storage/accounts-schema.ts';
import { createAuditStore } from './storage/administration-stores.ts';
import type { FoundSession } from './storage/session-store.ts';
import { DAY_MS } from './storage/user-store.ts';
import { describeSubscription } from './subscriptions/subscriptions.ts';
import { describeTeam } from './teams/teams.ts';
import { describeToken } from './tokens/access-tokens.ts';
import { timeText } from './user-object.ts';

type ProfileParts = BasePort &
  PeoplePort &
  CredentialsPort &
  SessionsPort &
  PostPort & { readonly reauthentication: Reauthentication };

interface Changed {
  readonly message: 'profile_changed' | 'verification_sent';
  readonly user: User;
}

/** Changes the caller's own name, or the e-mail address by a code that is mailed to the new address. */
export function createProfile(parts: ProfileParts) {
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

  /** Does the same work and returns the same response whether or not the address is taken; its owner gets a notice instead of a code. */
  async function sendCode(user: FoundSession, email: string, password: string | undefined, head: RequestHead) {
    const proof = await parts.reauthentication.passwordOrFreshLogin(user, password, head);
    // Without the session, because the recipient is not the caller: the limits on mails to strangers apply.
    await limiter.takeMail({ email, address: head.address });
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

  /** Changes the address, invalidates tokens that were mailed to the old one, and ends every other session. */
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

/** How long owners can undo the deletion of their account. */
const GRACE_MS = 14 * DAY_MS;
const MAX_EXPORTED_SUBSCRIPTIONS = 1000;

/** Exports all data of the caller, or schedules its deletion. */
interface Closing {
  exportOf(call: UserCall): Promise<Export>;
  /** Deletes the account in 14 days. Needs the password or a fresh login. */
  begin(password: string | undefined, call: UserCall): Promise<Answer>;
  undo(call: UserCall): Promise<Answer>;
}

interface Answer {
  readonly message: string;
  readonly user: User;
}

type ClosingParts = BasePort &
  PeoplePort &
  CredentialsPort &
  PostPort & {
    readonly reauthentication: Reauthentication;
    readonly ownCredentials: Credentials;
    readonly ownSessions: OwnSessions;
  };

export function createClosing(parts: ClosingParts): Closing {
  const { database, userAdministration: store, limiter, audit, mail, clock } = parts;
  const auditStore = createAuditStore(database);
  const entryOf = (event: string, { caller: { user }, head }: UserCall, details = {}) =>
    audit.statement({ event, actor: user.id, subject: user.id, head, details });
  const described = async (message: string, user: FoundUser) => ({
    message,
    user: await parts.userObjects.describe(user),
  });

  return {
    async exportOf(call) {
      const { user } = call.caller;
      call.reply.header('content-disposition', 'attachment; filename="account.json"');
      await limiter.takeAll([{ policy: 'export', key: user.id }]);
      await database.write([entryOf('user.exported', call)]);
      const now = clock.now();
      const keys = parts.completionKeys();
      const entries = await auditStore.list({ about: user.id }, undefined, MAX_EXPORTED_ENTRIES + 1);
      const subscriptions = await parts.subscriptions.ofUser(user.id, MAX_EXPORTED_SUBSCRIPTIONS);
      return {
        exportedAt: timeText(now),
        user: await parts.userObjects.describe(user),
        credentials: [...(await parts.ownCredentials.list(user.id))],
        sessions: await parts.ownSessions.list(user),
        subscriptions: subscriptions.map((row) => describeSubscription(row, now)),
        teams: (await parts.teams.teamsOf(user.id)).map((team) => describeTeam(team, team.member_role)),
        tokens: (await parts.accessTokens.ofOwner(`user:${user.id}`, now)).map(describeToken),
        keys: [...((await keys?.list(user.id)) ?? [])],
        usage: (await keys?.usage(user.id)) ?? null,
        audit: entries.slice(0, MAX_EXPORTED_ENTRIES).map((row) => ownEntry(row, user.id)),
        auditIsComplete: entries.length <= MAX_EXPORTED_ENTRIES,
      };
    },
    async begin(password, call) {
      const { user } = call.caller;
      const proof = await parts.reauthentication.passwordOrFreshLogin(user, password, call.head);
      const deletesAt = clock.now() + GRACE_MS;
      const changed = await store.change(user.id, (standing) => {
        // Asking again does not put it off.
        if (standing.user.closing_at !== null) return { change: {}, also: proof };
        refuseForLastAdmin(standing);
        const entry = entryOf('user.closing', call, { deletesAt: timeText(deletesAt) });
        const notice = mail.enqueue(accountClosingMail(user.email, deletesAt));
        return { change: { closing_at: deletesAt, updated_at: clock.now() }, also: [...proof, entry, notice] };
      });
      mail.wake();
      return described('account_closing', changed ?? user);
    },
    async undo(call) {
      const { user } = call.caller;
      const changed = await store.change(user.id, (standing) => {
        const { closing_at: deletesAt } = standing.user;
        if (deletesAt === null) return { change: {}, also: [] };
        // The deletion may have begun with what is stored elsewhere, such as keys.
        if (deletesAt <= clock.now()) throw new AppError('INVALID_SESSION');
        const notice = mail.enqueue(securityNoticeMail(user.email, 'accountKept'));
        return {
          change: { closing_at: null, updated_at: clock.now() },
          also: [entryOf('user.closing_undone', call), notice],
        };
      });
      mail.wake();
      return described('account_kept', changed ?? user);
    },
  };
}

/** Omits the client address of other people, such as administrators: it is not the owner's data. */
function ownEntry({ at, event, actor, address, details }: AuditRow, userId: string) {
  const isSomeoneElse = actor !== '' && actor !== userId;
  return {
    at: timeText(at),
    event,
    byOwner: actor === userId,
    ...(isSomeoneElse ? {} : { address }),
    details: JSON.parse(details) as Record<string, unknown>,
  };
}
