import { expectChanges } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { bearerToken, type Call, type RequestHead } from '../../platform/http/surface.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import type { UserCall } from '../access.ts';
import type { AccountsCore, BasePort, PeoplePort, PostPort, SessionsPort } from '../accounts-core.ts';
import type { AuditEntry } from '../audit.ts';
import type { User } from '../contract/conventions.ts';
import type { OwnSession } from '../contract/login.ts';
import { cookieText, readCookie, SESSION_COOKIE } from '../cookies.ts';
import { tokenKey } from '../flows.ts';
import type { FoundRefreshToken, FoundSession } from '../storage/session-store.ts';
import { timeText } from '../user-object.ts';
import { REFRESH_LIFETIME_MS, REPLAY_MS, type SessionOpening } from './session-opening.ts';

/** A session token and the refresh token that goes with it. */
interface TokenPair {
  readonly token: string;
  readonly refreshToken: string;
  readonly expiresAt: number;
}

interface RefreshAnswer {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly token_type: 'Bearer';
  readonly expires_in: number;
  readonly expiresAt: string;
}

type Refresh = (refreshToken: string, call: Pick<Call, 'head' | 'reply'>) => Promise<RefreshAnswer>;

type RefreshParts = AccountsCore & { readonly opening: SessionOpening };

/**
 * Rotates refresh tokens and detects reuse. A used token returns its pair again for ten seconds, because a response may be
 * lost. An older one ends the whole family, because it or its successor was stolen.
 */
export function createRefresh(parts: RefreshParts): Refresh {
  const { database, sessions, users, secretBox, audit, clock, randomness } = parts;

  async function isAllowed(found: FoundRefreshToken, head: RequestHead): Promise<boolean> {
    if (found.expires_at <= clock.now() || found.family_expires_at <= clock.now()) return false;
    const user = await users.byId(found.user_id);
    if (user === undefined || user.active !== 1 || user.access_epoch !== found.session_epoch) return false;
    // A request that also has a session must have the session of this token, so that a token does not move to another client.
    const byHeader = head.headers.authorization !== undefined;
    const brought = byHeader ? bearerToken(head) : readCookie(head, SESSION_COOKIE);
    const session = await parts.checkSession(brought, byHeader ? 'bearer' : 'cookie');
    return session === undefined || session.session_id === found.session_id;
  }

  async function revoke(found: FoundRefreshToken, head: RequestHead): Promise<never> {
    const { session_id: id, user_id: userId } = found;
    const reused = audit.statement({ event: 'refresh.reused', subject: userId, head, details: { session: id } });
    await database.write([sessions.end({ id, userId }), reused]);
    throw new AppError('INVALID_REFRESH_TOKEN');
  }

  async function rotate(found: FoundRefreshToken, usedHash: string): Promise<TokenPair | undefined> {
    const now = clock.now();
    const { token_lifetime: lifetime } = parts.settings().sessions;
    const pair: TokenPair = {
      token: createToken(randomness),
      refreshToken: createToken(randomness),
      expiresAt: Math.min(now + lifetime, found.family_expires_at),
    };
    const { session_id: sessionId, generation } = found;
    try {
      await database.write(
        sessions.rotate({
          sessionId,
          generation,
          usedHash,
          tokenHash: tokenKey(pair.token),
          refreshHash: tokenKey(pair.refreshToken),
          accessExpiresAt: pair.expiresAt,
          cookieExpiresAt: found.family_expires_at,
          refreshExpiresAt: Math.min(now + REFRESH_LIFETIME_MS, found.family_expires_at),
          oldTokensEndAt: now + REPLAY_MS,
          replacement: secretBox.seal(JSON.stringify(pair), replacementContext(found)),
          now,
        }),
      );
      return pair;
    } catch (error) {
      if (errorCode(error) === 'STORAGE_CONFLICT') return undefined;
      throw error;
    }
  }

  async function pairFor(refreshToken: string, head: RequestHead): Promise<TokenPair> {
    const hash = tokenKey(refreshToken);
    const found = await sessions.byRefreshToken(hash);
    if (found === undefined || !(await isAllowed(found, head))) throw new AppError('INVALID_REFRESH_TOKEN');
    if (found.generation === found.current_generation) {
      // Another request has just used the same token: it is a used one now, and gets the pair of that request.
      return (await rotate(found, hash)) ?? pairFor(refreshToken, head);
    }
    const isPrevious = found.generation === found.current_generation - 1;
    // The absolute difference, so that a clock that was set back by an hour does not turn ten seconds into an hour.
    const isFresh = found.used_at !== null && Math.abs(clock.now() - found.used_at) <= REPLAY_MS;
    if (!isPrevious || !isFresh || found.replacement === null) return revoke(found, head);
    const text = Buffer.from(secretBox.open(found.replacement, replacementContext(found))).toString('utf8');
    return JSON.parse(text) as TokenPair;
  }

  return async (refreshToken, call) => {
    const pair = await pairFor(refreshToken, call.head);
    parts.opening.setSessionCookie(call, pair.token);
    return {
      access_token: pair.token,
      refresh_token: pair.refreshToken,
      token_type: 'Bearer',
      expires_in: Math.max(0, Math.floor((pair.expiresAt - clock.now()) / 1000)),
      expiresAt: timeText(pair.expiresAt),
    };
  };
}

function replacementContext({ session_id, generation }: FoundRefreshToken): string {
  return `refresh:${session_id}:${generation}`;
}

interface CurrentSession {
  readonly user: User;
  readonly session: { readonly id: string; readonly createdAt: string; readonly expiresAt: string };
}

type OwnSessionsParts = BasePort & PeoplePort & SessionsPort & PostPort;

export type OwnSessions = ReturnType<typeof createOwnSessions>;

/** The caller's own login sessions: shows the current one, logs out, lists the others and ends them. */
export function createOwnSessions(parts: OwnSessionsParts) {
  const { sessions, settings, database, audit, userObjects, clock } = parts;

  const clearCookie = ({ head, reply }: Pick<Call, 'head' | 'reply'>): void => {
    const options = { secure: parts.cookiesAreSecure(head), maxAgeSeconds: 0 };
    reply.header('set-cookie', cookieText(SESSION_COOKIE, '', options));
  };
  /** Responses for sessions in memory. */
  const answers = new WeakMap<FoundSession, CurrentSession>();
  function timesOf({ session_id: id, access_expires_at: tokenEnds, session_created_at: since }: FoundSession) {
    // A cookie lasts longer than the token would by itself.
    const ends = tokenEnds > clock.now() ? tokenEnds : since + settings().sessions.cookie_lifetime;
    return { id, createdAt: timeText(since), expiresAt: timeText(ends) };
  }
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
    /** Returns without a promise if nothing has to be read, because this is the most frequent call. */
    current(user: FoundSession): CurrentSession | Promise<CurrentSession> {
      const described = userObjects.describe(user);
      if (described instanceof Promise) return described.then((one) => ({ user: one, session: timesOf(user) }));
      const known = answers.get(user);
      if (known?.user === described && user.access_expires_at > clock.now()) return known;
      const answer = { user: described, session: timesOf(user) };
      answers.set(user, answer);
      return answer;
    },
    async list(user: FoundSession): Promise<OwnSession[]> {
      const now = clock.now();
      return (await sessions.ofUser(user.id, user.access_epoch, now)).map((row) => ({
        id: row.id,
        current: row.id === user.session_id,
        createdAt: timeText(row.created_at),
        lastSeenAt: timeText(row.last_seen_at),
        // A session without a valid access token can still be refreshed.
        expiresAt: timeText(row.access_expires_at > now ? row.access_expires_at : row.expires_at),
        address: row.address,
        userAgent: row.user_agent,
      }));
    },
    async logOut(call: UserCall): Promise<void> {
      await endOne(call.caller.user.session_id, 'logout', call).catch((error) => {
        // Another request has ended it first, and recorded it.
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
