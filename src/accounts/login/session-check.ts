import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { isFreshLogin } from '../../platform/identity/principal.ts';
import type { Batcher } from '../../platform/queue/batcher.ts';
import { tokenKey } from '../flows.ts';
import type { AccountsSettings } from '../settings.ts';
import type { ChangedIds } from '../storage/guarded-writes.ts';
import type { FoundSession, SessionStore } from '../storage/session-store.ts';

/**
 * Returns the session of a token. Every request calls it: it costs one keyed read, or none if the session is in memory.
 * Every change of the session or its user removes it from memory, so a revocation applies immediately. A cookie lasts as
 * long as the browser keeps using it; a bearer token, which a script can read, ends after a day.
 */
export type SessionCheck = (
  token: string,
  as: 'bearer' | 'cookie',
) => FoundSession | undefined | Promise<FoundSession | undefined>;

export interface SessionCheckOptions {
  readonly store: Pick<SessionStore, 'byToken'>;
  /** Sessions in memory. Undefined: each check reads the store, because others write to it too. */
  readonly known?: KnownSessions | undefined;
  settings(): Pick<AccountsSettings, 'sessions'>;
  readonly clock: Pick<Clock, 'now'>;
  /** Records the use of sessions. A lost record only makes a session look idle a little longer. */
  readonly seen: Pick<Batcher<SeenSession>, 'add'>;
}

export interface SeenSession {
  readonly id: string;
  readonly now: number;
  /** The session is kept at least until then. */
  readonly until: number;
}

/** A use is recorded at most this often, so that a session in use costs one write per minute. */
const NOTED_EVERY_MS = 60_000;
/** Longer text cannot be a token, so no digest is computed for it. */
const MAX_TOKEN = 128;

export function createSessionCheck({ store, known, settings, clock, seen }: SessionCheckOptions): SessionCheck {
  const reading = new Map<string, { readonly before: number; readonly found: Promise<FoundSession | undefined> }>();

  /** Returns the session if it is still valid, and records its use now and then. */
  function live(token: string, as: 'bearer' | 'cookie', found: FoundSession): FoundSession | undefined {
    const now = clock.now();
    const { sessions } = settings();
    const { idle } = sessions;
    const ended =
      tokenEnd(found, as, sessions) <= now ||
      found.session_last_seen_at + idle <= now ||
      found.session_epoch !== found.access_epoch ||
      found.active !== 1;
    if (ended) return undefined;
    if (now - found.session_last_seen_at >= NOTED_EVERY_MS) {
      seen.add({ id: found.session_id, now, until: now + idle });
      known?.seen(token, now);
    }
    return found;
  }

  async function read(token: string, as: 'bearer' | 'cookie'): Promise<FoundSession | undefined> {
    const found = await (known === undefined ? store.byToken(tokenKey(token)) : readKnown(token, known));
    return found === undefined ? undefined : live(token, as, found);
  }

  /** Concurrent requests share one read, unless something has changed since it began. */
  function readKnown(token: string, sessions: KnownSessions): Promise<FoundSession | undefined> {
    const before = sessions.changes();
    const shared = reading.get(token);
    if (shared?.before === before) return shared.found;
    const found = store.byToken(tokenKey(token)).then((row) => {
      // A row that was read during a change may be older than the change.
      if (row !== undefined && before === sessions.changes()) sessions.keep(token, row);
      return row;
    });
    const own = { before, found };
    reading.set(token, own);
    const forget = () => {
      if (reading.get(token) === own) reading.delete(token);
    };
    found.then(forget, forget);
    return found;
  }

  return (token, as) => {
    if (token === '' || token.length > MAX_TOKEN) return undefined;
    const found = known?.get(token);
    return found === undefined ? read(token, as) : live(token, as, found);
  };
}

/** The sessions that were read last, by their token, for an instance that is the only one to write to the store. */
export interface KnownSessions {
  get(token: string): FoundSession | undefined;
  keep(token: string, found: FoundSession): void;
  seen(token: string, now: number): void;
  /** Forgets the sessions that a change concerns, because they were read before it. */
  changed(ids: ChangedIds): void;
  /** How often something changed. */
  changes(): number;
}

/** A session is read again after this time, in case something else wrote to the store. */
export const READ_AGAIN_MS = 15_000;

export function createKnownSessions(clock: Pick<Clock, 'monotonic'>): KnownSessions {
  const held = createHeldCredentials<{ found: FoundSession; readonly names: readonly string[]; readAt: number }>();
  let changes = 0;
  return {
    get(token) {
      const known = held.get(token);
      return known !== undefined && clock.monotonic() - known.readAt < READ_AGAIN_MS ? known.found : undefined;
    },
    keep: (token, found) => held.keep(token, { found, names: [found.session_id, found.id], readAt: clock.monotonic() }),
    seen(token, now) {
      const known = held.get(token);
      if (known !== undefined) known.found = { ...known.found, session_last_seen_at: now };
    },
    changed(ids) {
      changes += 1;
      held.changed(ids);
    },
    changes: () => changes,
  };
}

const MAX_HELD = 10_000;

/**
 * A cache of credentials, from which a change removes those that depend on it. Its key is the credential itself, because a
 * digest costs more than all other checks together.
 */
export function createHeldCredentials<Kind extends { readonly names: readonly string[] }>() {
  /** The oldest comes first. */
  const held = new Map<string, Kind>();
  /** By the ids that a credential depends on, the credentials to forget when those change. */
  const byName = new Map<string, Set<string>>();

  function forget(credential: string): void {
    const known = held.get(credential);
    if (known === undefined) return;
    held.delete(credential);
    for (const name of known.names) {
      const named = byName.get(name);
      if (named?.delete(credential) && named.size === 0) byName.delete(name);
    }
  }

  return {
    get: (credential: string) => held.get(credential),
    forget,
    keep(credential: string, found: Kind): void {
      forget(credential);
      held.set(credential, found);
      for (const name of found.names) byName.set(name, (byName.get(name) ?? new Set<string>()).add(credential));
      const [oldest] = held.keys();
      if (held.size > MAX_HELD && oldest !== undefined) forget(oldest);
    },
    changed(ids: ChangedIds): void {
      if (ids === 'all') {
        held.clear();
        byName.clear();
      } else {
        for (const id of ids) for (const credential of [...(byName.get(String(id)) ?? [])]) forget(credential);
      }
    },
  };
}
/** Returns when a token ends, even if it is used. */
export function tokenEnd(
  found: FoundSession,
  as: 'bearer' | 'cookie',
  { cookie_lifetime: longest }: Pick<AccountsSettings['sessions'], 'cookie_lifetime'>,
): number {
  const end = as === 'bearer' ? found.bearer_until : found.session_created_at + longest;
  return Math.min(found.token_expires_at, end);
}

/** Throws REAUTHENTICATION_REQUIRED unless the session was opened by a login in the last five minutes. */
export function requireFreshLogin(user: FoundSession, clock: Pick<Clock, 'now'>): void {
  if (isFreshLogin(user.session_created_at, clock.now())) return;
  throw new AppError('REAUTHENTICATION_REQUIRED', { fields: 'a login from the last five minutes' });
}
