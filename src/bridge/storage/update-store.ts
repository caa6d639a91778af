import type { Kysely } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { Statement } from '../../platform/database/statement.ts';
import type { BridgeSchema, SessionRow, UpdateChunkRow } from './bridge-schema.ts';

/** Updates with consecutive numbers of one session. */
export type UpdateChunk = Omit<UpdateChunkRow, 'version'>;

export interface UpdateStore {
  /** As few statements as it takes: each stores many chunks. Storing a chunk again, or a longer one, does no harm. */
  insert(chunks: readonly UpdateChunk[]): readonly Statement[];
  /** The next chunks that have something after `afterSeq`, in order. */
  readAfter(sessionKey: string, afterSeq: number): Promise<readonly UpdateChunkRow[]>;
  /** As `readAfter`, without the chunks in whose text the word does not stand: the database looks for it. */
  readNaming(sessionKey: string, afterSeq: number, word: string): Promise<readonly UpdateChunkRow[]>;
  /** The number of the last one that is stored; 0 when there is none. */
  lastSeq(sessionKey: string): Promise<number>;
  /**
   * As `readAfter`, for reading very many of them. On SQLite the connection that writes reads them: a reading one maps the file
   * into memory, and all that it has read would count as memory of this process.
   */
  readManyAfter(sessionKey: string, afterSeq: number): Promise<readonly UpdateChunkRow[]>;
}

/** Of the form of the stored updates. 1: each line is an update as it is sent. 2: the text of a delta stands in it once. */
const VERSION = 2;
/** Statements for these numbers of rows are compiled ahead: building one costs more than running it. */
const SIZES = [64, 8, 1] as const;
/** Chunks read at a time; what a client that is behind has no room for is read again. */
const PAGE = 8;

export function createUpdateStore(database: Database<BridgeSchema>): UpdateStore {
  const inserts = SIZES.map((size) => ({ size, make: compileInsert(database, size) }));
  const after = (query: Kysely<BridgeSchema>, given: { sessionKey: string; afterSeq: number }) =>
    query
      .selectFrom('session_updates')
      .selectAll()
      .where('session_key', '=', given.sessionKey)
      // Chunks follow upon each other: the one that holds the number begins at or before it, and all others after it.
      .where('first_seq', '>=', (query) =>
        query
          .selectFrom('session_updates')
          .select((select) => select.fn.coalesce(select.fn.max('first_seq'), select.lit(0)).as('first'))
          .where('session_key', '=', given.sessionKey)
          .where('first_seq', '<=', given.afterSeq),
      )
      .where('last_seq', '>', given.afterSeq)
      .orderBy('first_seq')
      .limit(PAGE);
  const readAfter = database.statement(after);
  const readNaming = database.statement((query, given: { sessionKey: string; afterSeq: number; pattern: string }) =>
    after(query, given).where('updates', 'like', given.pattern),
  );
  const lastSeq = database.statement((query, given: { sessionKey: string }) =>
    query
      .selectFrom('session_updates')
      .select('last_seq')
      .where('session_key', '=', given.sessionKey)
      .orderBy('first_seq', 'desc')
      .limit(1),
  );
  return {
    insert(chunks) {
      const statements: Statement[] = [];
      let at = 0;
      for (const { size, make } of inserts) {
        for (; chunks.length - at >= size; at += size) statements.push(make(toParameters(chunks, at, size)));
      }
      return statements;
    },
    readAfter: (sessionKey, afterSeq) => database.readKeyed(readAfter({ sessionKey, afterSeq })),
    // The text of the whole session is searched: that is not work for the thread of the requests.
    readNaming: (sessionKey, afterSeq, word) =>
      database.read(readNaming({ sessionKey, afterSeq, pattern: `%"${word}"%` })),
    lastSeq: async (sessionKey) => (await database.readKeyed(lastSeq({ sessionKey })))[0]?.last_seq ?? 0,
    readManyAfter: (sessionKey, afterSeq) =>
      database.transaction(async ({ run }) => (await run(readAfter({ sessionKey, afterSeq }))).rows),
  };
}

type ChunkParameters = Readonly<Record<string, string | number>>;

function compileInsert(database: Database<BridgeSchema>, size: number) {
  return database.statement((query, given: ChunkParameters) =>
    query
      .insertInto('session_updates')
      .values(
        Array.from({ length: size }, (_, index) => ({
          session_key: given[`key${index}`] as string,
          first_seq: given[`first${index}`] as number,
          last_seq: given[`last${index}`] as number,
          version: VERSION,
          at: given[`at${index}`] as number,
          updates: given[`updates${index}`] as string,
        })),
      )
      .onConflict((conflict) =>
        conflict.columns(['session_key', 'first_seq']).doUpdateSet((row) => ({
          last_seq: row.ref('excluded.last_seq'),
          updates: row.ref('excluded.updates'),
        })),
      ),
  );
}

function toParameters(chunks: readonly UpdateChunk[], from: number, size: number): ChunkParameters {
  const parameters: Record<string, string | number> = {};
  for (let index = 0; index < size; index += 1) {
    const chunk = chunks[from + index] as UpdateChunk;
    parameters[`key${index}`] = chunk.session_key;
    parameters[`first${index}`] = chunk.first_seq;
    parameters[`last${index}`] = chunk.last_seq;
    parameters[`at${index}`] = chunk.at;
    parameters[`updates${index}`] = chunk.updates;
  }
  return parameters;
}

/** Finds and deletes what is older than a moment, a few rows at a time; what deletes answers how many it deleted. */
export interface RetentionStore {
  deleteUpdates(before: number, limit: number): Promise<number>;
  /** Ended turns, and with them the history of their sessions. */
  deleteTurns(before: number, limit: number): Promise<number>;
  deleteAuditRecords(before: number, limit: number): Promise<number>;
  /** Sessions, open or closed, that nobody has used since, and in which nothing runs; the longest unused first. */
  unusedSessions(before: number, limit: number): Promise<readonly UnusedSession[]>;
}

type UnusedSession = Pick<SessionRow, 'owner' | 'session_id'>;

export function createRetentionStore(database: Database<BridgeSchema>): RetentionStore {
  const { query } = database;
  return {
    unusedSessions: (before, limit) =>
      database.read(
        query
          .selectFrom('sessions')
          .select(['owner', 'session_id'])
          .where('instance', '=', '')
          .where('updated_at', '<', before)
          .orderBy('updated_at')
          .limit(limit)
          .compile(),
      ),
    async deleteUpdates(before, limit) {
      const old = query
        .selectFrom('session_updates')
        .select(['session_key', 'first_seq'])
        .where('at', '<', before)
        .orderBy('at')
        .limit(limit);
      const statement = query
        .deleteFrom('session_updates')
        .where(({ eb, refTuple }) =>
          eb(refTuple('session_key', 'first_seq'), 'in', old.$asTuple('session_key', 'first_seq')),
        );
      return (await database.write([statement.compile()]))[0].changes;
    },
    async deleteTurns(before, limit) {
      const old = query
        .selectFrom('turns')
        .select('id')
        .where('ended_at', '<', before)
        .orderBy('ended_at')
        .limit(limit);
      return (await database.write([query.deleteFrom('turns').where('id', 'in', old).compile()]))[0].changes;
    },
    async deleteAuditRecords(before, limit) {
      const old = query.selectFrom('audit_records').select('id').where('at', '<', before).orderBy('at').limit(limit);
      return (await database.write([query.deleteFrom('audit_records').where('id', 'in', old).compile()]))[0].changes;
    },
  };
}
