import type { Clock } from '../../platform/clock/clock.ts';
import { ownersSought, ownFirst, type Principal, sees } from '../../platform/identity/principal.ts';
import type { SessionRow } from '../storage/bridge-schema.ts';
import type { SessionStore } from '../storage/session-store.ts';
import { isBusy, type LiveSession } from './live-session.ts';
import { newSession, type SessionStates } from './session-state.ts';
import type { UpdateStream } from './update-stream.ts';

/** The sessions in memory: those that work, and some that did lately. All others are in the store. */
export interface SessionTable {
  /** The owner's session of that name, be it closed. */
  loadOwn(owner: string, sessionId: string): Promise<LiveSession | undefined>;
  /** The session of that name which the principal means: its own, else one of another owner that it sees. */
  load(principal: Principal, sessionId: string): Promise<LiveSession | undefined>;
  /** The open sessions of a thread that the principal means: its own, else those of other owners that it sees. */
  loadThread(principal: Principal, threadId: string): Promise<readonly LiveSession[]>;
  /** A session that is not in the store; the one that was made for another call just before, if there is one. */
  create(owner: string, sessionId: string): LiveSession;
  /** The session of that name, if it is in memory. */
  peek(owner: string, sessionId: string): LiveSession | undefined;
  remove(session: LiveSession): void;
  all(): Iterable<LiveSession>;
}

export interface SessionTableOptions {
  readonly store: Pick<SessionStore, 'isShared' | 'find' | 'findSeen' | 'findByThread'>;
  readonly clock: Pick<Clock, 'monotonic'>;
  readonly change: SessionStates['change'];
  makeKey(): string;
  createStream(sessionKey: string, lastSeq: number): UpdateStream;
}

/** Sessions with nothing to do stay while there are fewer than this. */
const MAX_IDLE = 1000;
/** So long they stay in any case: a call may be about to use them. */
const IDLE_MS = 60_000;

export function createSessionTable(options: SessionTableOptions): SessionTable {
  const { store, clock, change, makeKey, createStream } = options;
  const sessions = new Map<string, LiveSession>();
  const nameOf = (owner: string, sessionId: string) => `${owner}\n${sessionId}`;

  function use(session: LiveSession): LiveSession {
    session.usedAt = clock.monotonic();
    const name = nameOf(session.owner, session.id);
    sessions.delete(name);
    sessions.set(name, session);
    return session;
  }

  function make(key: string, id: string, owner: string, lastSeq: number): LiveSession {
    dropIdle();
    return use({
      ...newSession(key, id, owner),
      stream: createStream(key, lastSeq),
      turns: [],
      running: undefined,
      closing: undefined,
      held: undefined,
      usedAt: 0,
    });
  }

  /** The least recently used come first in the map. */
  function dropIdle(): void {
    const limit = clock.monotonic() - IDLE_MS;
    for (const [name, session] of sessions) {
      if (sessions.size < MAX_IDLE || session.usedAt > limit) return;
      if (!isBusy(session)) sessions.delete(name);
      else use(session);
    }
  }

  /** What memory knows is newer than the row, unless another bridge could have changed it since. */
  function adopt(row: SessionRow): LiveSession {
    const known = sessions.get(nameOf(row.owner, row.session_id));
    if (known !== undefined && (isBusy(known) || !store.isShared)) return use(known);
    const session = known ?? make(row.key, row.session_id, row.owner, row.reserved_seq);
    session.stream.restart(row.reserved_seq);
    change(session, { kind: 'found', row });
    return use(session);
  }

  async function loadOwn(owner: string, sessionId: string): Promise<LiveSession | undefined> {
    const known = sessions.get(nameOf(owner, sessionId));
    if (known !== undefined && (isBusy(known) || !store.isShared)) return use(known);
    const row = await store.find(sessionId, owner);
    if (row !== undefined) return adopt(row);
    // Another call may have made it since then.
    return sessions.get(nameOf(owner, sessionId));
  }

  return {
    loadOwn,
    async load(principal, sessionId) {
      const own = await loadOwn(principal.id, sessionId);
      const owners = ownersSought(principal);
      if (own?.stored === 'open' || (own !== undefined && isBusy(own)) || owners?.length === 1) return own;
      const row = await store.findSeen(sessionId, owners);
      if (row !== undefined) return adopt(row);
      // One of a team that is only about to begin is not in the store.
      const starting = (owners ?? []).map((owner) => sessions.get(nameOf(owner, sessionId)));
      return own ?? starting.find((one) => one !== undefined && isBusy(one));
    },
    async loadThread(principal, threadId) {
      const rows = await store.findByThread(threadId, ownersSought(principal));
      const found = new Set(rows.map(adopt));
      for (const session of sessions.values()) {
        if (sees(principal, session.owner) && isBusy(session)) found.add(session);
      }
      const ofThread = [...found].filter((session) => threadsOf(session).includes(threadId));
      return ownFirst(principal, ofThread);
    },
    create: (owner, sessionId) => sessions.get(nameOf(owner, sessionId)) ?? make(makeKey(), sessionId, owner, 0),
    peek: (owner, sessionId) => sessions.get(nameOf(owner, sessionId)),
    remove: (session) => void sessions.delete(nameOf(session.owner, session.id)),
    all: () => sessions.values(),
  };
}

/** A session that is only about to begin has no thread yet but the one that was asked for. */
function threadsOf({ threadId, turns, id, stored }: LiveSession): string[] {
  return [stored === 'open' ? threadId : '', ...turns.map(({ request }) => request.threadId || id)];
}
