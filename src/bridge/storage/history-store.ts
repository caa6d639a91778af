import type { Database } from '../../platform/database/database.ts';
import type { AuditRow, BridgeSchema, TurnRow, UpdateChunkRow } from './bridge-schema.ts';

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

export interface AuditScan {
  readonly owner: string | undefined;
  readonly from: number | undefined;
  readonly to: number | undefined;
  /** Only entries that come after this one, newest first. */
  readonly after: { readonly at: number; readonly id: string } | undefined;
  readonly limit: number;
}

/** What has happened in sessions, for people who read it later. */
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
