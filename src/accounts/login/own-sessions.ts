import { expectChanges } from '../../platform/database/statement.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { Call } from '../../platform/http/surface.ts';
import type { UserCall } from '../access.ts';
import type { BasePort, PeoplePort, PostPort, SessionsPort } from '../accounts-core.ts';
import type { AuditEntry } from '../audit.ts';
import type { OwnSession } from '../contract/login.ts';
import { cookieText, SESSION_COOKIE } from '../cookies.ts';
import type { FoundSession } from '../storage/session-store.ts';
import { timeText } from '../user-object.ts';

type Parts = BasePort & PeoplePort & SessionsPort & PostPort;

export type OwnSessions = ReturnType<typeof createOwnSessions>;

/** The own login sessions: who am I, log out, see the others, end them. */
export function createOwnSessions(parts: Parts) {
  const { sessions, settings, database, audit, userObjects, clock } = parts;

  const clearCookie = ({ head, reply }: Pick<Call, 'head' | 'reply'>): void => {
    const options = { secure: parts.cookiesAreSecure(head), maxAgeSeconds: 0 };
    reply.header('set-cookie', cookieText(SESSION_COOKIE, '', options));
  };
  const entryOf = (event: string, { caller: { user }, head }: UserCall): AuditEntry => ({
    event,
    actor: user.id,
    subject: user.id,
    head,
  });

  /** Ends one session and records it, in one batch. Throws SESSION_NOT_FOUND where there was none to end. */
  const endOne = (id: string, event: string, call: UserCall) =>
    database.write(
      [expectChanges(sessions.end({ id, userId: call.caller.user.id }), 1), audit.statement(entryOf(event, call))],
      { conflict: 'SESSION_NOT_FOUND' },
    );

  return {
    async current(user: FoundSession) {
      const { access_expires_at: tokenEnds, session_created_at: since } = user;
      // A cookie lasts longer than the token would by itself.
      const ends = tokenEnds > clock.now() ? tokenEnds : since + settings().sessions.cookie_lifetime;
      return {
        user: await userObjects.describe(user),
        session: { id: user.session_id, createdAt: timeText(since), expiresAt: timeText(ends) },
      };
    },
    async list(user: FoundSession): Promise<OwnSession[]> {
      const now = clock.now();
      return (await sessions.ofUser(user.id, user.access_epoch, now)).map((row) => ({
        id: row.id,
        current: row.id === user.session_id,
        createdAt: timeText(row.created_at),
        lastSeenAt: timeText(row.last_seen_at),
        // One that is not in use can still be refreshed.
        expiresAt: timeText(row.access_expires_at > now ? row.access_expires_at : row.expires_at),
        address: row.address,
        userAgent: row.user_agent,
      }));
    },
    async logOut(call: UserCall): Promise<void> {
      await endOne(call.caller.user.session_id, 'logout', call).catch((error) => {
        // Another request may have ended it first: then there is nothing left to do, and nothing to record.
        if (errorCode(error) !== 'SESSION_NOT_FOUND') throw error;
      });
      clearCookie(call);
    },
    async end(id: string, call: UserCall): Promise<void> {
      await endOne(id, 'session.ended', call);
      if (id === call.caller.user.session_id) clearCookie(call);
    },
    /** Ends all sessions but this one, and records it if any did end. */
    endOthers(call: UserCall): Promise<void> {
      const { id: userId, session_id: id } = call.caller.user;
      return database.transaction(async (transaction) => {
        const { changes } = await transaction.run(sessions.endOthersOf({ id, userId }));
        if (changes > 0) await transaction.run(audit.statement(entryOf('sessions.ended', call)));
      });
    },
  };
}
