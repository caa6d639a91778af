import type { Database } from '../../platform/database/database.ts';
import type { ArtifactRow, BridgeSchema } from './bridge-schema.ts';

/** What is known of the files that turns produced. */
export interface ArtifactStore {
  insert(row: ArtifactRow): Promise<void>;
  find(id: string): Promise<ArtifactRow | undefined>;
  /** Some of those that expired before a moment; answers how many. */
  deleteExpired(before: number, limit: number): Promise<number>;
}

export function createArtifactStore(database: Database<BridgeSchema>): ArtifactStore {
  const find = database.statement((query, given: { id: string }) =>
    query.selectFrom('artifacts').selectAll().where('id', '=', given.id),
  );
  return {
    async insert(row) {
      await database.write([database.query.insertInto('artifacts').values(row).compile()]);
    },
    find: async (id) => (await database.readKeyed(find({ id })))[0],
    async deleteExpired(before, limit) {
      const { query } = database;
      const old = query
        .selectFrom('artifacts')
        .select('id')
        .where('expires_at', '<', before)
        .orderBy('expires_at')
        .limit(limit);
      return (await database.write([query.deleteFrom('artifacts').where('id', 'in', old).compile()]))[0].changes;
    },
  };
}
