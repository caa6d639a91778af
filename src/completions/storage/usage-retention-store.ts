import type { Database } from '../../platform/database/database.ts';
import type { CompletionsSchema } from './completions-schema.ts';

/** Removes what is too old, in steps that no other writer has to wait for. Each says how many rows it removed. */
export interface UsageRetentionStore {
  removeRecords(beforeId: string, limit: number): Promise<number>;
  removeTotals(beforeDay: string, limit: number): Promise<number>;
  removeFlushes(beforeId: string, limit: number): Promise<number>;
}

export function createUsageRetentionStore(database: Database<CompletionsSchema>): UsageRetentionStore {
  const { query } = database;
  return {
    async removeRecords(beforeId, limit) {
      const old = query.selectFrom('usage_records').select('id').where('id', '<', beforeId).orderBy('id').limit(limit);
      const [, removed] = await database.write([
        query.deleteFrom('usage_contents').where('record_id', 'in', old).compile(),
        query.deleteFrom('usage_records').where('id', 'in', old).compile(),
      ]);
      return removed.changes;
    },
    async removeTotals(beforeDay, limit) {
      const [totals, spending] = await database.write([
        query
          .deleteFrom('usage_totals')
          .where(({ eb, refTuple }) =>
            eb(
              refTuple('scope', 'dimension', 'day', 'value'),
              'in',
              query
                .selectFrom('usage_totals')
                .select(['scope', 'dimension', 'day', 'value'])
                .where('day', '<', beforeDay)
                .limit(limit)
                .$asTuple('scope', 'dimension', 'day', 'value'),
            ),
          )
          .compile(),
        // What a key spent in all counts for as long as the key is there.
        query.deleteFrom('key_spending').where('period', '<', beforeDay).where('period', '!=', 'total').compile(),
      ]);
      return totals.changes + spending.changes;
    },
    async removeFlushes(beforeId, limit) {
      const old = query.selectFrom('usage_flushes').select('id').where('id', '<', beforeId).orderBy('id').limit(limit);
      const [removed] = await database.write([query.deleteFrom('usage_flushes').where('id', 'in', old).compile()]);
      return removed.changes;
    },
  };
}
