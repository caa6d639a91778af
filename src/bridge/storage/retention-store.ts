import type { Database } from '../../platform/database/database.ts';
import type { BridgeSchema, SessionRow } from './bridge-schema.ts';

/** Finds and deletes what is older than a moment, a few rows at a time; what deletes answers how many it deleted. */
export interface RetentionStore {
  deleteUpdates(before: number, limit: number): Promise<number>;
  /** Ended turns, and with them the history of their sessions. */
  deleteTurns(before: number, limit: number): Promise<number>;
  deleteAuditRecords(before: number, limit: number): Promise<number>;
  /** Sessions, open or closed, that nobody has used since, and in which nothing runs; the longest unused first. */
  unusedSessions(before: number, limit: number): Promise<readonly UnusedSession[]>;
}

export type UnusedSession = Pick<SessionRow, 'owner' | 'session_id'>;

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
