import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Actor, UserCall } from '../access.ts';
import type { AccountsCore, BasePort, PeoplePort, PostPort } from '../accounts-core.ts';
import type { NewUser, Renewal, UserQuery } from '../contract/administration.ts';
import { pageOf } from '../contract/conventions.ts';
import { securityNoticeMail } from '../mail/messages.ts';
import { requirePlan } from '../owners.ts';
import { isAdminRole, isRole, mayActOn, requireRole, unknownRole } from '../permissions.ts';
import { createPersonCreation, nameKey, normalizeEmail, randomUuid, requireEmail } from '../registration/new-user.ts';
import type { FoundUser } from '../storage/accounts-schema.ts';
import type { UserChange, UserDecision, UserStanding } from '../storage/user-administration-store.ts';
import { DAY_MS } from '../storage/user-store.ts';
import { timeText } from '../user-object.ts';

/** The actor of changes that this program makes by itself. */
const SYSTEM: Actor = { id: 'system', role: 'root' };
/** Accounts that one round deletes. */
const MAX_DUE = 20;

interface UserAdministration {
  /** Creates a user without a password, and mails a token to set one. */
  create(given: NewUser, actor: Actor): Promise<FoundUser>;
  setRole(id: string, role: string, actor: Actor): Promise<FoundUser>;
  /** Assigns a plan, from the next request on. Empty: the plan of a subscription, or the default plan. */
  setPlan(id: string, plan: string, actor: Actor): Promise<FoundUser>;
  /** Every session ends immediately. */
  pause(id: string, actor: Actor): Promise<FoundUser>;
  resume(id: string, actor: Actor): Promise<FoundUser>;
  /** Assigns a new UUID for proxy nodes, which expires only if `renewal` has a time. */
  renewUuid(id: string, renewal: Renewal, actor: Actor): Promise<FoundUser>;
  endSessions(id: string, actor: Actor): Promise<FoundUser>;
  /** Removes the authenticator app and the recovery codes of a user who has lost them, ends every session, and mails the owner. */
  resetMfa(id: string, actor: Actor): Promise<FoundUser>;
  /** Removes a user with keys, mails and personal data. Only the id remains, in the audit log and in usage. */
  remove(id: string, actor: Actor): Promise<void>;
  /** Removes the accounts whose owners requested it and can no longer undo it. Throws the errors of those that remain. */
  removeDue(): Promise<void>;
  /** Blocks an address for registration and login, and logs its user out. */
  block(email: string, actor: Actor): Promise<{ email: string }>;
  /** One page of users, with how many there are on all pages. */
  list(query: UserQuery): Promise<{ rows: FoundUser[]; nextCursor: string | null; total: number }>;
}

type Parts = AccountsCore;

export function createUserAdministration(parts: Parts): UserAdministration {
  const { database, users, userAdministration: store, sessions, flowStore, audit, clock } = parts;
  const createPerson = createPersonCreation(parts);

  const entryOf = (event: string, subject: string, actor: Actor, details: Readonly<Record<string, unknown>> = {}) => ({
    event,
    actor: actor.id,
    subject,
    ...(actor.head !== undefined && { head: actor.head }),
    details,
  });

  async function change(
    id: string,
    actor: Actor,
    event: string,
    decide: (standing: UserStanding) => UserChange,
    also: (
      user: FoundUser,
      change: UserChange,
    ) => { details?: Record<string, unknown>; statements?: Runnable[] } = () => ({}),
  ): Promise<FoundUser> {
    const changed = await store.change(id, (standing): UserDecision => {
      const { user } = standing;
      if (!mayActOn(actor.role, user.role)) throw new AppError('FORBIDDEN');
      const decided = decide(standing);
      // A change without effect is neither stored nor recorded.
      if (isAlreadySo(user, decided)) return { change: {}, also: [] };
      const { details = {}, statements = [] } = also(user, decided);
      const entry = audit.statement(entryOf(event, user.id, actor, details));
      return { change: { ...decided, updated_at: clock.now() }, also: [...statements, entry] };
    });
    if (changed === undefined) throw new AppError('USER_NOT_FOUND');
    return changed;
  }

  /** Removes what is in other stores and in files. */
  async function removeElsewhere(user: Pick<FoundUser, 'id' | 'email'>, { id: actor, head }: Actor): Promise<void> {
    const keys = parts.completionKeys();
    const by = { actor, ...(head !== undefined && { head }) };
    for (const { id } of (await keys?.list(user.id)) ?? []) await keys?.remove(user.id, id, by);
    await keys?.eraseContents(user.id);
    await parts.mail.forget(user.email);
  }

  async function remove(id: string, actor: Actor, also: (standing: UserStanding) => void): Promise<void> {
    const check = (standing: UserStanding): void => {
      if (!mayActOn(actor.role, standing.user.role)) throw new AppError('FORBIDDEN');
      refuseForLastAdmin(standing);
      also(standing);
    };
    const standing = await store.standing(id);
    if (standing === undefined) throw new AppError('USER_NOT_FOUND');
    check(standing);
    // Removes data in other stores first, because nothing would find it after the user is removed.
    await removeElsewhere(standing.user, actor);
    const removed = await store.remove(id, (current) => {
      check(current);
      return [audit.statement(entryOf('user.deleted', id, actor, { role: current.user.role }))];
    });
    if (removed === undefined) throw new AppError('USER_NOT_FOUND');
    // A key or a mail may have been created since.
    await removeElsewhere(removed, actor);
    await database.emptyLog();
  }

  const ending = (user: FoundUser): Runnable[] => [sessions.endAllOf(user.id), flowStore.removeOfUser(user.id)];
  const nextEpoch = (user: FoundUser): UserChange => ({ access_epoch: user.access_epoch + 1 });

  return {
    async create(given, actor) {
      if (parts.settings().registration === 'closed') throw new AppError('REGISTRATION_CLOSED');
      const role = requireRole(given.role, actor.role);
      const { email, name } = given;
      const by = { how: 'administrator', actor: actor.id, head: actor.head } as const;
      return (await createPerson({ ...by, name, email, emailVerified: false, role })).user;
    },
    async setRole(id, given, actor) {
      const role = requireRole(given, actor.role);
      return change(
        id,
        actor,
        'role.changed',
        (standing) => {
          if (!isAdminRole(role)) refuseForLastAdmin(standing);
          return { role, root_mark: null };
        },
        (user) => ({ details: { before: user.role, after: role } }),
      );
    },
    async setPlan(id, given, actor) {
      const plan = requirePlan(given, parts.settings());
      return change(
        id,
        actor,
        'plan.changed',
        () => ({ plan }),
        (user) => ({ details: { before: user.plan, after: plan } }),
      );
    },
    async pause(id, actor) {
      const paused = await change(
        id,
        actor,
        'user.paused',
        (standing) => {
          refuseForLastAdmin(standing);
          return standing.user.active === 0 ? { active: 0 } : { active: 0, ...nextEpoch(standing.user) };
        },
        (user) => ({ statements: [...ending(user), ...parts.webhooks.enqueue(pausedEvent(user, actor))] }),
      );
      parts.webhooks.wake();
      return paused;
    },
    resume: (id, actor) => change(id, actor, 'user.resumed', () => ({ active: 1 })),
    async renewUuid(id, renewal, actor) {
      const expiresAt = readExpiry(renewal, clock.now());
      return change(
        id,
        actor,
        'proxy_uuid.renewed',
        () => ({ proxy_uuid: randomUuid(parts.randomness), proxy_uuid_expires_at: expiresAt }),
        () => ({ details: { expiresAt } }),
      );
    },
    endSessions: (id, actor) =>
      change(
        id,
        actor,
        'sessions.ended_by_admin',
        ({ user }) => nextEpoch(user),
        (user) => ({ statements: ending(user) }),
      ),
    async resetMfa(id, actor) {
      const changed = await change(
        id,
        actor,
        'mfa.reset',
        ({ user }) => {
          if (user.totp_state === null) throw new AppError('MFA_NOT_ENABLED');
          return nextEpoch(user);
        },
        (user) => ({
          statements: [
            parts.credentials.removeSecondFactor(user.id),
            ...ending(user),
            parts.mail.enqueue(securityNoticeMail(user.email, 'mfaReset')),
          ],
        }),
      );
      parts.mail.wake();
      return { ...changed, totp_state: null, totp_issued_at: null, totp_confirmed_at: null };
    },
    remove: (id, actor) => remove(id, actor, () => undefined),
    async removeDue() {
      const failures: unknown[] = [];
      for (const id of await store.dueForDeletion(clock.now(), MAX_DUE)) {
        const stillDue = ({ user: { closing_at: at } }: UserStanding): void => {
          if (at === null || at > clock.now()) throw new AppError('USER_NOT_FOUND');
        };
        await remove(id, SYSTEM, stillDue).catch((error) => {
          // The owner has undone it, or another instance has removed the user.
          if (errorCode(error) !== 'USER_NOT_FOUND') failures.push(error);
        });
      }
      if (failures.length > 0) throw new AggregateError(failures, 'accounts were not deleted');
    },
    async block(given, actor) {
      const email = requireEmail(given);
      if (await parts.blacklist.has(email)) return { email };
      const statements = [
        parts.blacklist.put({ email, created_by: actor.id, created_at: clock.now() }),
        parts.clientList.touch(),
        audit.statement(entryOf('blacklist.added', email, actor)),
      ];
      const user = await users.byEmail(email);
      if (user === undefined) {
        await database.write(statements);
        return { email };
      }
      await change(
        user.id,
        actor,
        'user.blocked',
        (standing) => {
          refuseForLastAdmin(standing);
          return nextEpoch(standing.user);
        },
        (blocked) => ({ statements: [...statements, ...ending(blocked)] }),
      );
      return { email };
    },
    async list({ search, role, cursor, limit }) {
      if (role !== undefined && !isRole(role)) throw unknownRole();
      const key = search === undefined || search.trim() === '' ? undefined : nameKey(search);
      const filter = { role, search: key };
      const read = (most: number) => store.list(filter, cursor, most);
      const [page, total] = await Promise.all([pageOf(limit, read), store.count(filter)]);
      return { ...page, total };
    },
  };
}

function pausedEvent({ id: userId }: FoundUser, { id: by }: Actor) {
  return { event: 'user.paused', data: { userId, by } } as const;
}

/** Null: it does not end. */
function readExpiry({ expires_in_days: days, expires_at: text }: Renewal, now: number): number | null {
  if (days !== undefined && text !== undefined) throw invalid('give expires_in_days or expires_at, not both');
  if (days !== undefined) return now + days * DAY_MS;
  if (text === undefined) return null;
  const at = /^\d{4}-\d\d-\d\dT/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(at)) throw invalid('expires_at is not a time such as 2030-01-31T00:00:00Z');
  if (at <= now) throw invalid('expires_at has passed');
  return at;
}

function invalid(reason: string): AppError {
  return new AppError('INVALID_REQUEST', { reason, issues: [{ path: '/expires_at', message: reason }] });
}

function isAlreadySo(user: FoundUser, decided: UserChange): boolean {
  return Object.entries(decided).every(([name, value]) => user[name as keyof UserChange] === value);
}

/** Throws LAST_ADMIN for the last administrator who can log in. */
export function refuseForLastAdmin({ user, otherAdmins }: UserStanding): void {
  if (isAdminRole(user.role) && user.active === 1 && otherAdmins === 0) throw new AppError('LAST_ADMIN');
}

/** Lists and removes blocked addresses, which may neither register nor log in. `UserAdministration.block` adds one. */
export function createBlacklist({
  database,
  blacklist,
  clientList,
  audit,
  owners,
  users,
}: BasePort & PeoplePort & PostPort) {
  return {
    async list({ cursor = '', limit }: { cursor?: string; limit?: number }) {
      const read = (most: number) => blacklist.list(cursor, most);
      const { rows, nextCursor } = await pageOf(limit, read, ({ email }) => email);
      const described = rows.map(({ email, created_by: createdBy, created_at: at }) => ({
        email,
        createdBy,
        createdAt: timeText(at),
      }));
      return { blacklist: described, nextCursor };
    },
    async remove(given: string, { caller: { user }, head }: UserCall): Promise<void> {
      const email = normalizeEmail(given);
      if (email === undefined) throw new AppError('ADDRESS_NOT_LISTED');
      const person = await users.byEmail(email);
      if (person !== undefined && !mayActOn(user.role, person.role)) throw new AppError('FORBIDDEN');
      const removed = audit.statement({ event: 'blacklist.removed', actor: user.id, subject: email, head });
      const statements = [expectChanges(blacklist.remove(email), 1), clientList.touch(), removed];
      try {
        await database.write(statements, { conflict: 'ADDRESS_NOT_LISTED' });
      } finally {
        if (person !== undefined) await owners.refresh(person.id);
      }
    },
  };
}
