import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Statement } from '../../platform/database/statement.ts';
import type {
  AuditRow,
  BridgeSchema,
  PermissionRow,
  PermissionRuleRow,
  TurnRow,
  UpdateChunkRow,
} from './bridge-schema.ts';

/** The beginning of a turn's long texts, and how long they are. */
export interface StoredTurn
  extends Pick<
    TurnRow,
    | 'id'
    | 'method'
    | 'prompt'
    | 'attachments'
    | 'status'
    | 'outcome'
    | 'first_seq'
    | 'last_seq'
    | 'created_at'
    | 'ended_at'
  > {
  readonly prompt_length: number;
  readonly outcome_length: number;
}

interface AuditScan {
  readonly owner: string | undefined;
  readonly from: number | undefined;
  readonly to: number | undefined;
  /** Only entries that come after this one, newest first. */
  readonly after: { readonly at: number; readonly id: string } | undefined;
  readonly limit: number;
}

/** Reads the history of sessions. */
export interface HistoryStore {
  /** Turns of a session, newest first; of prompt and outcome only so many characters. */
  turns(sessionKey: string, before: string | undefined, limit: number, length: number): Promise<readonly StoredTurn[]>;
  /** Turns of a session in order, oldest first. */
  turnsAfter(sessionKey: string, after: string, limit: number, length: number): Promise<readonly StoredTurn[]>;
  /** The number of the first update of a turn; undefined when the session has no such turn. */
  firstSeq(sessionKey: string, turnId: string): Promise<number | undefined>;
  /** The whole outcome of one turn. */
  outcome(turnId: string): Promise<string | undefined>;
  /** Chunks that hold numbers below that one, the last ones first. */
  chunksBefore(sessionKey: string, beforeSeq: number, limit: number): Promise<readonly UpdateChunkRow[]>;
  /** The first and the last number that is stored; undefined when there is none. */
  bounds(sessionKey: string): Promise<{ readonly first: number; readonly last: number } | undefined>;
  audit(scan: AuditScan): Promise<readonly AuditRow[]>;
}

export function createHistoryStore(database: Database<BridgeSchema>): HistoryStore {
  const { query } = database;
  const turnsOf = (sessionKey: string, length: number) =>
    query
      .selectFrom('turns')
      .select(['id', 'method', 'status', 'first_seq', 'last_seq', 'created_at', 'ended_at', 'attachments'])
      .select(({ fn, val }) => [
        fn<string>('substr', ['prompt', val(1), val(length)]).as('prompt'),
        fn<number>('length', ['prompt']).as('prompt_length'),
        fn<string>('substr', ['outcome', val(1), val(length)]).as('outcome'),
        fn<number>('length', ['outcome']).as('outcome_length'),
      ])
      .where('session_key', '=', sessionKey);
  const edge = (sessionKey: string, order: 'asc' | 'desc') =>
    query
      .selectFrom('session_updates')
      .select(['first_seq', 'last_seq'])
      .where('session_key', '=', sessionKey)
      .orderBy('first_seq', order)
      .limit(1);
  return {
    turns(sessionKey, before, limit, length) {
      const all = turnsOf(sessionKey, length);
      const earlier = before === undefined ? all : all.where('id', '<', before);
      return database.read(earlier.orderBy('id', 'desc').limit(limit).compile());
    },
    turnsAfter: (sessionKey, after, limit, length) =>
      database.read(turnsOf(sessionKey, length).where('id', '>', after).orderBy('id').limit(limit).compile()),
    async firstSeq(sessionKey, turnId) {
      const found = query.selectFrom('turns').select('first_seq').where('id', '=', turnId);
      return (await database.readKeyed(found.where('session_key', '=', sessionKey).compile()))[0]?.first_seq;
    },
    async outcome(turnId) {
      const found = query.selectFrom('turns').select('outcome').where('id', '=', turnId);
      return (await database.read(found.compile()))[0]?.outcome;
    },
    chunksBefore: (sessionKey, beforeSeq, limit) =>
      database.read(
        query
          .selectFrom('session_updates')
          .selectAll()
          .where('session_key', '=', sessionKey)
          .where('first_seq', '<', beforeSeq)
          .orderBy('first_seq', 'desc')
          .limit(limit)
          .compile(),
      ),
    async bounds(sessionKey) {
      const [[first], [last]] = await Promise.all([
        database.readKeyed(edge(sessionKey, 'asc').compile()),
        database.readKeyed(edge(sessionKey, 'desc').compile()),
      ]);
      return first === undefined || last === undefined ? undefined : { first: first.first_seq, last: last.last_seq };
    },
    audit({ owner, from, to, after, limit }) {
      let rows = query.selectFrom('audit_records').selectAll();
      if (owner !== undefined) rows = rows.where('owner', '=', owner);
      if (from !== undefined) rows = rows.where('at', '>=', from);
      if (to !== undefined) rows = rows.where('at', '<=', to);
      if (after !== undefined) {
        rows = rows
          .where('at', '<=', after.at)
          .where(({ eb, refTuple, tuple }) => eb(refTuple('at', 'id'), '<', tuple(after.at, after.id)));
      }
      return database.read(rows.orderBy('at', 'desc').orderBy('id', 'desc').limit(limit).compile());
    },
  };
}

export type PermissionEnd = Pick<
  PermissionRow,
  'state' | 'option_id' | 'scope' | 'reason' | 'given' | 'answered_by' | 'answered_at'
>;

interface PermissionStore {
  insert(row: PermissionRow): Statement;
  /** Ends an open request; fails with STORAGE_CONFLICT when it has ended already. */
  end(id: string, end: PermissionEnd): Statement;
  find(id: string): Promise<PermissionRow | undefined>;
  /** Open requests, oldest first; of one owner or all, of one session or all. */
  open(owner: string | undefined, sessionKey: string | undefined, limit: number): Promise<readonly PermissionRow[]>;
  /** Requests of an owner in any state, newest first. */
  latest(owner: string | undefined, sessionKey: string | undefined, limit: number): Promise<readonly PermissionRow[]>;
  findAll(ids: readonly string[]): Promise<readonly PermissionRow[]>;
  /** Removes the values of an answer, because the agent has received them. */
  taken(id: string): Promise<void>;
  /** Cancels open requests and removes values that no turn waits for: their bridge is dead, or their turn has ended. */
  cancelOrphans(own: string, now: number): Promise<void>;
  addRule(row: PermissionRuleRow): Statement;
  /** The rules for a question: of this session, and of the owner in this folder. */
  rulesFor(owner: string, sessionKey: string, folder: string, now: number): Promise<readonly PermissionRuleRow[]>;
  rules(owner: string | undefined, now: number, limit: number): Promise<readonly PermissionRuleRow[]>;
  findRule(id: string): Promise<PermissionRuleRow | undefined>;
  removeRule(id: string): Promise<void>;
  removeOldRules(now: number): Promise<void>;
}

export function createPermissionStore(database: Database<BridgeSchema>): PermissionStore {
  const { query } = database;
  const scoped = (owner: string | undefined, sessionKey: string | undefined) => {
    let rows = query.selectFrom('permissions').selectAll();
    if (owner !== undefined) rows = rows.where('owner', '=', owner);
    if (sessionKey !== undefined) rows = rows.where('session_key', '=', sessionKey);
    return rows;
  };
  return {
    insert: (row) => query.insertInto('permissions').values(row).compile(),
    end: (id, end) =>
      expectChanges(
        query.updateTable('permissions').set(end).where('id', '=', id).where('state', '=', 'open').compile(),
        1,
      ),
    find: async (id) =>
      (await database.readKeyed(query.selectFrom('permissions').selectAll().where('id', '=', id).compile()))[0],
    open: (owner, sessionKey, limit) =>
      database.read(
        scoped(owner, sessionKey).where('state', '=', sql.lit('open')).orderBy('id').limit(limit).compile(),
      ),
    latest: (owner, sessionKey, limit) =>
      database.read(scoped(owner, sessionKey).orderBy('id', 'desc').limit(limit).compile()),
    async findAll(ids) {
      if (ids.length === 0) return [];
      return database.readKeyed(query.selectFrom('permissions').selectAll().where('id', 'in', ids).compile());
    },
    async taken(id) {
      await database.write([query.updateTable('permissions').set({ given: '' }).where('id', '=', id).compile()]);
    },
    async cancelOrphans(own, now) {
      const running = query.selectFrom('turns').select('id').where('ended_at', 'is', null);
      // Where the store is ours alone, other bridges are dead, and their turns are ended later.
      const orphans = query
        .updateTable('permissions')
        .where((where) =>
          database.engine === 'postgres' ? where('turn_id', 'not in', running) : where('instance', '!=', own),
        );
      await database.write([
        orphans.set({ state: 'cancelled', answered_at: now }).where('state', '=', sql.lit('open')).compile(),
        orphans.set({ given: '' }).where('given', '!=', sql.lit('')).compile(),
      ]);
    },
    addRule: (row) => query.insertInto('permission_rules').values(row).compile(),
    rulesFor: (owner, sessionKey, folder, now) =>
      database.read(
        query
          .selectFrom('permission_rules')
          .selectAll()
          .where('owner', '=', owner)
          .where('expires_at', '>', now)
          .where((where) =>
            where.or([
              where('session_key', '=', sessionKey),
              where.and([where('session_key', '=', ''), where('folder', '=', folder)]),
            ]),
          )
          .compile(),
      ),
    rules(owner, now, limit) {
      const rows = query.selectFrom('permission_rules').selectAll().where('expires_at', '>', now);
      const ofOwner = owner === undefined ? rows : rows.where('owner', '=', owner);
      return database.read(ofOwner.orderBy('id', 'desc').limit(limit).compile());
    },
    findRule: async (id) =>
      (await database.readKeyed(query.selectFrom('permission_rules').selectAll().where('id', '=', id).compile()))[0],
    async removeRule(id) {
      await database.write([query.deleteFrom('permission_rules').where('id', '=', id).compile()]);
    },
    async removeOldRules(now) {
      await database.write([query.deleteFrom('permission_rules').where('expires_at', '<=', now).compile()]);
    },
  };
}
