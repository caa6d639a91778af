import type { Database } from '../../platform/database/database.ts';
import type { CompletionsSchema, UsageContentRow, UsageRecordRow } from './completions-schema.ts';

/** How far each export has come. One instance at a time works on an export. */
export interface ExportStore {
  /**
   * Takes the export until a moment, and returns the id of the last call that was exported; undefined while another instance has it.
   * `firstId`: where an export begins that was not there before.
   */
  claim(name: string, claim: { now: number; until: number; firstId: string }): Promise<string | undefined>;
  /** Calls after one and before another, the earliest first. */
  after(lastId: string, beforeId: string, limit: number): Promise<readonly UsageRecordRow[]>;
  contents(ids: readonly string[]): Promise<readonly UsageContentRow[]>;
  /** Notes how far the export has come, and keeps it until `next`; false when another instance has taken it since. */
  advance(name: string, lastId: string, claim: { until: number; next: number }): Promise<boolean>;
}

export function createExportStore(database: Database<CompletionsSchema>): ExportStore {
  const { query } = database;
  return {
    async claim(name, { now, until, firstId }) {
      const [, taken] = await database.write([
        query
          .insertInto('export_cursors')
          .values({ name, last_id: firstId, busy_until: 0 })
          .onConflict((conflict) => conflict.column('name').doNothing())
          .compile(),
        query
          .updateTable('export_cursors')
          .set({ busy_until: until })
          .where('name', '=', name)
          .where('busy_until', '<=', now)
          .compile(),
      ]);
      if (taken.changes === 0) return undefined;
      const [row] = await database.readKeyed(
        query.selectFrom('export_cursors').select('last_id').where('name', '=', name).compile(),
      );
      return row?.last_id;
    },
    after: (lastId, beforeId, limit) =>
      database.read(
        query
          .selectFrom('usage_records')
          .selectAll()
          .where('id', '>', lastId)
          .where('id', '<', beforeId)
          .orderBy('id')
          .limit(limit)
          .compile(),
      ),
    contents: (ids) =>
      database.read(query.selectFrom('usage_contents').selectAll().where('record_id', 'in', ids).compile()),
    async advance(name, lastId, { until, next }) {
      const [moved] = await database.write([
        query
          .updateTable('export_cursors')
          .set({ last_id: lastId, busy_until: next })
          .where('name', '=', name)
          .where('busy_until', '=', until)
          .compile(),
      ]);
      return moved.changes > 0;
    },
  };
}
