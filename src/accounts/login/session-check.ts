import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { FRESH_LOGIN_MS } from '../../platform/identity/principal.ts';
import type { Batcher } from '../../platform/queue/batcher.ts';
import { tokenKey } from '../flows.ts';
import type { AccountsSettings } from '../settings.ts';
import type { FoundSession, SessionStore } from '../storage/session-store.ts';

/**
 * Whose session a token is. Asked for every request: one keyed read, and so a revocation counts immediately. In a cookie
 * it lasts as long as the browser keeps using it; as a bearer token, which a script can read, it ends after a day.
 */
export type SessionCheck = (token: string, as: 'bearer' | 'cookie') => Promise<FoundSession | undefined>;

export interface SessionCheckOptions {
  readonly store: Pick<SessionStore, 'byToken'>;
  settings(): Pick<AccountsSettings, 'sessions'>;
  readonly clock: Pick<Clock, 'now'>;
  /** Takes note of sessions that were used; what it loses only makes a session look idle a little longer. */
  readonly seen: Pick<Batcher<SeenSession>, 'add'>;
}

export interface SeenSession {
  readonly id: string;
  readonly now: number;
  /** The session is kept at least until then. */
  readonly until: number;
}

/** A use is noted again after this time: a session in use costs a read per request, and a write per minute. */
const NOTED_EVERY_MS = 60_000;
/** Longer than any token of ours: not worth a digest. */
const MAX_TOKEN = 128;

export function createSessionCheck({ store, settings, clock, seen }: SessionCheckOptions): SessionCheck {
  return async (token, as) => {
    if (token === '' || token.length > MAX_TOKEN) return undefined;
    const found = await store.byToken(tokenKey(token));
    if (found === undefined) return undefined;
    const now = clock.now();
    const { sessions } = settings();
    const { idle } = sessions;
    const ended =
      tokenEnd(found, as, sessions) <= now ||
      found.session_last_seen_at + idle <= now ||
      found.session_epoch !== found.access_epoch ||
      found.active !== 1;
    if (ended) return undefined;
    if (now - found.session_last_seen_at >= NOTED_EVERY_MS) seen.add({ id: found.session_id, now, until: now + idle });
    return found;
  };
}

/** When a token ends, however much it is used. */
export function tokenEnd(
  found: FoundSession,
  as: 'bearer' | 'cookie',
  { cookie_lifetime: longest }: Pick<AccountsSettings['sessions'], 'cookie_lifetime'>,
): number {
  const end = as === 'bearer' ? found.bearer_until : found.session_created_at + longest;
  return Math.min(found.token_expires_at, end);
}

export function isFreshLogin({ session_created_at: since }: FoundSession, now: number): boolean {
  return now - since <= FRESH_LOGIN_MS;
}

/** Throws REAUTHENTICATION_REQUIRED unless the session was opened by a login in the last five minutes. */
export function requireFreshLogin(user: FoundSession, clock: Pick<Clock, 'now'>): void {
  if (isFreshLogin(user, clock.now())) return;
  throw new AppError('REAUTHENTICATION_REQUIRED', { fields: 'a login from the last five minutes' });
}
