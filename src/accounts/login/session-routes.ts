import { Type } from 'typebox';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { Call, Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { AuditEntry } from '../audit.ts';
import { User } from '../contract/user.ts';
import { cookieText, SESSION_COOKIE } from '../cookies.ts';
import type { FoundSession, SessionStore } from '../storage/session-store.ts';
import { timeText } from '../user-object.ts';

const CurrentSession = Type.Object({
  user: User,
  session: Type.Object({ id: Type.String(), createdAt: Type.String(), expiresAt: Type.String() }),
});
export const OwnSession = Type.Object({
  id: Type.String(),
  current: Type.Boolean(),
  createdAt: Type.String(),
  lastSeenAt: Type.String(),
  expiresAt: Type.String(),
  address: Type.String(),
  userAgent: Type.String(),
});
const Sessions = Type.Object({ sessions: Type.Array(OwnSession) });

/** The sessions of whoever is logged in, newest first. */
export async function ownSessions(store: Pick<SessionStore, 'ofUser'>, user: FoundSession, now: number) {
  return (await store.ofUser(user.id, user.access_epoch, now)).map((row) => ({
    id: row.id,
    current: row.id === user.session_id,
    createdAt: timeText(row.created_at),
    lastSeenAt: timeText(row.last_seen_at),
    // One that is not in use can still be refreshed.
    expiresAt: timeText(row.access_expires_at > now ? row.access_expires_at : row.expires_at),
    address: row.address,
    userAgent: row.user_agent,
  }));
}

type Parts = Pick<
  AccountsCore,
  'access' | 'sessions' | 'settings' | 'database' | 'audit' | 'userObjects' | 'clock' | 'cookiesAreSecure'
>;

/** The own sessions: who am I, log out, see the others, end them. */
export function sessionRoutes(parts: Parts): readonly Route[] {
  const { access, sessions, settings, database, audit, userObjects, clock } = parts;

  const clearCookie = ({ head, reply }: Call): void => {
    const options = { secure: parts.cookiesAreSecure(head), maxAgeSeconds: 0 };
    reply.header('set-cookie', cookieText(SESSION_COOKIE, '', options));
  };

  /** Ends one session and records it, in one batch; returns false where there was none to end. */
  const endOne = async (session: { id: string; userId: string }, entry: AuditEntry): Promise<boolean> => {
    try {
      await database.write([expectChanges(sessions.end(session), 1), audit.statement(entry)]);
      return true;
    } catch (error) {
      if (errorCode(error) === 'STORAGE_CONFLICT') return false;
      throw error;
    }
  };

  /** Records that sessions ended, if any did. */
  const endOthers = (end: Runnable, entry: AuditEntry): Promise<void> =>
    database.transaction(async (transaction) => {
      const { changes } = await transaction.run(end);
      if (changes > 0) await transaction.run(audit.statement(entry));
    });

  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'GET',
      path: '/api/auth/session',
      guard: access.user,
      summary: 'The current session and its user.',
      schema: { response: { 200: CurrentSession } },
      async handle({ caller: { user } }) {
        return {
          user: await userObjects.describe(user),
          session: {
            id: user.session_id,
            createdAt: timeText(user.session_created_at),
            // A cookie lasts longer than the token would by itself.
            expiresAt: timeText(
              user.access_expires_at > clock.now()
                ? user.access_expires_at
                : user.session_created_at + settings().sessions.cookie_lifetime,
            ),
          },
        };
      },
    },
    {
      method: 'DELETE',
      path: '/api/auth/session',
      guard: access.userEvenReadonly,
      summary: 'Logs out: the session and its refresh tokens end.',
      schema: { response: { 204: Type.Null() } },
      async handle(call) {
        const { id: userId, session_id: id } = call.caller.user;
        const entry = { event: 'logout', actor: userId, subject: userId, head: call.head };
        // Another request may have ended it first: then there is nothing left to do, and nothing to record.
        await endOne({ id, userId }, entry);
        clearCookie(call);
      },
    },
    {
      method: 'GET',
      path: '/api/auth/sessions',
      guard: access.user,
      summary: 'The own sessions, newest first.',
      schema: { response: { 200: Sessions } },
      async handle({ caller: { user } }) {
        return { sessions: await ownSessions(sessions, user, clock.now()) };
      },
    },
    {
      method: 'DELETE',
      path: '/api/auth/sessions/:id',
      guard: access.userEvenReadonly,
      summary: 'Ends one of the own sessions.',
      schema: { response: { 204: Type.Null() } },
      async handle(call) {
        const { id: userId, session_id: current } = call.caller.user;
        const id = call.params.id ?? '';
        const entry = { event: 'session.ended', actor: userId, subject: userId, head: call.head };
        if (!(await endOne({ id, userId }, entry))) throw new AppError('SESSION_NOT_FOUND');
        if (id === current) clearCookie(call);
      },
    },
    {
      method: 'DELETE',
      path: '/api/auth/sessions',
      guard: access.userEvenReadonly,
      summary: 'Ends all own sessions but this one.',
      schema: { response: { 204: Type.Null() } },
      async handle({ caller: { user }, head }) {
        const entry = { event: 'sessions.ended', actor: user.id, subject: user.id, head };
        await endOthers(sessions.endOthersOf({ id: user.session_id, userId: user.id }), entry);
      },
    },
  ];
  return rows;
}
