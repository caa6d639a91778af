import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Statement } from '../../platform/database/statement.ts';
import type { AuditRow, BridgeSchema, SessionRow } from './bridge-schema.ts';

/** What changes about a session when a turn of it begins. */
type SessionClaim = Omit<NewSessionRow, 'session_id' | 'owner' | 'tenant' | 'created_at' | 'closed_at'> & {
  readonly expectedSeq: number;
};

type NewSessionRow = Omit<SessionRow, 'choices' | 'epoch'>;

/** The instance that has a session, and the epoch of the session. */
export type SessionHolder = Pick<SessionRow, 'instance' | 'epoch'>;

/** Sessions. A function that is named after a change returns a statement, for batches of several changes. */
export interface SessionStore {
  /** Whether other bridges may change the same rows. */
  readonly isShared: boolean;
  find(sessionId: string, owner: string): Promise<SessionRow | undefined>;
  /** The open session of that name that was used last, of these owners or of any. */
  findSeen(sessionId: string, owners: readonly string[] | undefined): Promise<SessionRow | undefined>;
  /** Open sessions of a thread, of these owners or of any. */
  findByThread(threadId: string, owners: readonly string[] | undefined): Promise<readonly SessionRow[]>;
  byKey(key: string): Promise<SessionRow | undefined>;
  /** The owner of an open session. */
  ownerOf(key: string): Promise<string | undefined>;
  holderOf(key: string): Promise<SessionHolder | undefined>;
  /** Nothing is chosen for it yet. */
  insert(row: NewSessionRow): Statement;
  /** Fails with STORAGE_CONFLICT when the session was taken, or its turns were ended, since that epoch. Changes nothing. */
  fence(key: string, epoch: number): Statement;
  /**
   * Takes the session for an instance, or keeps it; fails with STORAGE_CONFLICT when another one was faster. Where the
   * store is shared it answers with the new epoch, as `insert` does.
   */
  claim(claim: SessionClaim): Statement;
  /** Takes a claim back, if it was stored together with the beginning of that turn: the session is as it was before. */
  unclaim(key: string, turnId: string, before: SessionBefore, instance: string): Statement;
  reserve(key: string, upTo: number): Statement;
  /** With an epoch: only where nobody has taken the session since. */
  setReference(key: string, providerId: string, reference: string, epoch?: number): Statement;
  setChoices(key: string, choices: string): Statement;
  /** A turn of this instance has ended; `holder` is the instance again while its next turn follows, otherwise empty. */
  endTurn(key: string, instance: string, holder: string, lastSeq: number, now: number): Statement;
  /** Leaves nothing at all, for a session that never began. With a holder: only while that instance has it. */
  discard(key: string, holder?: string): readonly Statement[];
  /** Removes a closed session, unless it was started again since it had that epoch. */
  forget(key: string, epoch: number): Statement;
  /** Leaves nothing but the names and the number up to which numbers are reserved. With a holder as `discard`. */
  close(key: string, now: number, holder?: string): readonly Statement[];
}

/** The tables with rows that are deleted with their session. */
const PARTS = ['turns', 'session_updates', 'session_summaries', 'permissions', 'permission_rules'] as const;

export function createSessionStore(database: Database<BridgeSchema>): SessionStore {
  const find = database.statement((query, given: { sessionId: string; owner: string }) =>
    query.selectFrom('sessions').selectAll().where('session_id', '=', given.sessionId).where('owner', '=', given.owner),
  );
  const byKey = database.statement((query, given: { key: string }) =>
    query.selectFrom('sessions').selectAll().where('key', '=', given.key),
  );
  const ownerOf = database.statement((query, given: { key: string }) =>
    query.selectFrom('sessions').select('owner').where('key', '=', given.key).where('closed_at', 'is', null),
  );
  const findAnyOwner = database.statement((query, given: { sessionId: string }) =>
    query
      .selectFrom('sessions')
      .selectAll()
      .where('session_id', '=', given.sessionId)
      .where('closed_at', 'is', null)
      .orderBy('updated_at', 'desc')
      .limit(1),
  );
  const isShared = database.engine === 'postgres';
  const holderOf = database.statement((query, given: { key: string }) =>
    query.selectFrom('sessions').select(['instance', 'epoch']).where('key', '=', given.key),
  );
  const fence = database.statement((query, given: { key: string; epoch: number }) =>
    query
      .updateTable('sessions')
      .set({ epoch: given.epoch })
      .where('key', '=', given.key)
      .where('epoch', '=', given.epoch),
  );
  const insert = database.statement((query, given: NewSessionRow) => {
    const inserted = query.insertInto('sessions').values({ ...given });
    return isShared ? inserted.returning('epoch') : inserted;
  });
  const claim = database.statement((query, given: SessionClaim) => {
    const claimed = query
      .updateTable('sessions')
      .set({
        epoch: sql<number>`epoch + 1`,
        thread_id: given.thread_id,
        instance: given.instance,
        home: given.home,
        provider_id: given.provider_id,
        reference: given.reference,
        working_directory: given.working_directory,
        mcp_servers: given.mcp_servers,
        reserved_seq: atLeast(given.reserved_seq),
        updated_at: given.updated_at,
        closed_at: null,
      })
      .where('key', '=', given.key)
      // The bridge that has it may have reserved more since then; no other can have.
      .where((where) =>
        where.or([
          where('instance', '=', given.instance),
          where.and([where('instance', '=', ''), where('reserved_seq', '=', given.expectedSeq)]),
        ]),
      );
    return isShared ? claimed.returning('epoch') : claimed;
  });
  const unclaim = database.statement((query, given: Unclaim) => {
    const unclaimed = query
      .updateTable('sessions')
      .set({
        instance: '',
        ...(isShared && { epoch: given.epoch }),
        thread_id: given.threadId,
        provider_id: given.providerId,
        reference: given.reference,
        working_directory: given.workingDirectory,
        mcp_servers: given.mcpServers,
      })
      .where('key', '=', given.key)
      .where((where) =>
        where.exists(
          query
            .selectFrom('turns')
            .select('id')
            .where('id', '=', given.turnId)
            .where('status', '=', 'running')
            .where('ended_at', 'is', null),
        ),
      );
    // The log stores what it could not be sure of once more, and another bridge may have the session by then.
    const isOwn = unclaimed.where('instance', '=', given.from).where('epoch', '=', given.claimed);
    return isShared ? isOwn : unclaimed;
  });
  const reserve = database.statement((query, given: { key: string; upTo: number }) =>
    query
      .updateTable('sessions')
      .set({ reserved_seq: atLeast(given.upTo) })
      .where('key', '=', given.key),
  );
  const refer = database.statement((query, given: { key: string; providerId: string; reference: string }) =>
    query
      .updateTable('sessions')
      .set({ provider_id: given.providerId, reference: given.reference })
      .where('key', '=', given.key),
  );
  const referUntaken = database.statement(
    (query, given: { key: string; providerId: string; reference: string; epoch: number }) =>
      query
        .updateTable('sessions')
        .set({ provider_id: given.providerId, reference: given.reference })
        .where('key', '=', given.key)
        .where('epoch', '=', given.epoch),
  );
  const setChoices = database.statement((query, given: { key: string; choices: string }) =>
    query.updateTable('sessions').set({ choices: given.choices }).where('key', '=', given.key),
  );
  const endTurn = database.statement((query, given: TurnEnd) =>
    query
      .updateTable('sessions')
      .set({ instance: given.holder, reserved_seq: atLeast(given.lastSeq), updated_at: given.now })
      .where('key', '=', given.key)
      .where('instance', 'in', ['', given.instance]),
  );
  const closed = (now: number) => ({
    thread_id: '',
    instance: '',
    home: '',
    provider_id: '',
    reference: '',
    working_directory: '',
    mcp_servers: '',
    choices: '',
    updated_at: now,
    closed_at: now,
  });
  const close = database.statement((query, given: { key: string; now: number }) =>
    query.updateTable('sessions').set(closed(given.now)).where('key', '=', given.key),
  );
  const closeHeld = database.statement((query, given: { key: string; now: number; holder: string }) =>
    query
      .updateTable('sessions')
      .set(closed(given.now))
      .where('key', '=', given.key)
      .where('instance', '=', given.holder),
  );
  const remove = database.statement((query, given: { key: string }) =>
    query.deleteFrom('sessions').where('key', '=', given.key),
  );
  const removeHeld = database.statement((query, given: { key: string; holder: string }) =>
    query.deleteFrom('sessions').where('key', '=', given.key).where('instance', '=', given.holder),
  );
  const forget = database.statement((query, given: { key: string; epoch: number }) =>
    query
      .deleteFrom('sessions')
      .where('key', '=', given.key)
      .where('epoch', '=', given.epoch)
      .where('closed_at', 'is not', null),
  );
  const forgets = PARTS.map((table) =>
    database.statement((query, given: { key: string }) => query.deleteFrom(table).where('session_key', '=', given.key)),
  );
  const forgetsHeld = PARTS.map((table) =>
    database.statement((query, given: { key: string; holder: string }) =>
      query
        .deleteFrom(table)
        .where('session_key', '=', given.key)
        .where((where) =>
          where.exists(
            query
              .selectFrom('sessions')
              .select('key')
              .where('key', '=', given.key)
              .where('instance', '=', given.holder),
          ),
        ),
    ),
  );
  /** First: they ask who has the session. Where the store is not shared, nobody else can. */
  const forgetAll = (key: string, holder: string | undefined) =>
    holder === undefined || !isShared
      ? forgets.map((deleteAll) => deleteAll({ key }))
      : forgetsHeld.map((deleteHeld) => deleteHeld({ key, holder }));
  return {
    isShared,
    holderOf: async (key) => (await database.readKeyed(holderOf({ key })))[0],
    fence: (key, epoch) => expectChanges(fence({ key, epoch }), 1),
    byKey: async (key) => (await database.readKeyed(byKey({ key })))[0],
    ownerOf: async (key) => (await database.readKeyed(ownerOf({ key })))[0]?.owner,
    find: async (sessionId, owner) => (await database.readKeyed(find({ sessionId, owner })))[0],
    async findSeen(sessionId, owners) {
      if (owners === undefined) return (await database.readKeyed(findAnyOwner({ sessionId })))[0];
      const found = database.query.selectFrom('sessions').selectAll().where('session_id', '=', sessionId);
      const open = found.where('owner', 'in', owners).where('closed_at', 'is', null);
      return (await database.readKeyed(open.orderBy('updated_at', 'desc').limit(1).compile()))[0];
    },
    findByThread(threadId, owners) {
      const all = database.query
        .selectFrom('sessions')
        .selectAll()
        .where('thread_id', '=', threadId)
        .where('closed_at', 'is', null);
      return database.read((owners === undefined ? all : all.where('owner', 'in', owners)).compile());
    },
    insert,
    claim: (given) => expectChanges(claim(given), 1),
    unclaim: (key, turnId, before, from) => unclaim({ ...before, key, turnId, from, claimed: before.epoch + 1 }),
    reserve: (key, upTo) => reserve({ key, upTo }),
    setReference: (key, providerId, reference, epoch) =>
      epoch === undefined || !isShared
        ? refer({ key, providerId, reference })
        : referUntaken({ key, providerId, reference, epoch }),
    setChoices: (key, choices) => setChoices({ key, choices }),
    endTurn: (key, instance, holder, lastSeq, now) => endTurn({ key, instance, holder, lastSeq, now }),
    discard: (key, holder) => [
      ...forgetAll(key, holder),
      holder === undefined || !isShared ? remove({ key }) : removeHeld({ key, holder }),
    ],
    forget: (key, epoch) => forget({ key, epoch }),
    close: (key, now, holder) => [
      ...forgetAll(key, holder),
      holder === undefined || !isShared ? close({ key, now }) : closeHeld({ key, now, holder }),
    ],
  };
}

/** What a turn changes about its session when it begins. */
export interface SessionPlace {
  readonly threadId: string;
  readonly providerId: string;
  readonly reference: string;
  readonly workingDirectory: string;
  /** Sealed; empty: it has none. */
  readonly mcpServers: string;
}

/** What a session was before a turn of it began. */
export interface SessionBefore extends SessionPlace {
  readonly epoch: number;
}

interface Unclaim extends SessionBefore {
  readonly key: string;
  readonly turnId: string;
  readonly from: string;
  /** The epoch that the claim has made. */
  readonly claimed: number;
}

interface TurnEnd {
  readonly key: string;
  readonly instance: string;
  readonly holder: string;
  readonly lastSeq: number;
  readonly now: number;
}

/** Reservations that are under way are never undercut. */
function atLeast(seq: number) {
  return sql<number>`case when reserved_seq < ${seq} then ${seq} else reserved_seq end`;
}

export interface AuditStore {
  record(row: AuditRow): Statement;
}

export function createAuditStore(database: Database<BridgeSchema>): AuditStore {
  return {
    record: database.statement((query, given: AuditRow) =>
      query
        .insertInto('audit_records')
        .values({ ...given })
        .onConflict((conflict) => conflict.column('id').doNothing()),
    ),
  };
}
