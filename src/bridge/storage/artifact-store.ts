import type { Database } from '../../platform/database/database.ts';
import type { ArtifactRow, BridgeSchema } from './bridge-schema.ts';

/** What is known of the files that turns produced. */
export interface ArtifactStore {
  insert(row: ArtifactRow): Promise<void>;
  find(id: string): Promise<ArtifactRow | undefined>;
  /** Ids of what the turns of a session have produced. */
  ofSession(sessionKey: string): Promise<readonly string[]>;
  /** How many bytes each owner has. */
  bytesByOwner(): Promise<ReadonlyMap<string, number>>;
  /** The oldest ones of an owner. */
  oldest(owner: string, limit: number): Promise<readonly Pick<ArtifactRow, 'id' | 'size_bytes'>[]>;
  remove(ids: readonly string[]): Promise<void>;
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
    async ofSession(sessionKey) {
      const ids = database.query.selectFrom('artifacts').select('id').where('session_key', '=', sessionKey);
      return (await database.read(ids.compile())).map(({ id }) => id);
    },
    async bytesByOwner() {
      const sums = database.query
        .selectFrom('artifacts')
        .select(({ fn }) => ['owner', fn.sum<number>('size_bytes').as('bytes')])
        .groupBy('owner');
      return new Map((await database.read(sums.compile())).map(({ owner, bytes }) => [owner, Number(bytes)]));
    },
    oldest: (owner, limit) =>
      database.read(
        database.query
          .selectFrom('artifacts')
          .select(['id', 'size_bytes'])
          .where('owner', '=', owner)
          .orderBy('created_at')
          .limit(limit)
          .compile(),
      ),
    async remove(ids) {
      if (ids.length === 0) return;
      await database.write([
        database.query
          .deleteFrom('artifacts')
          .where('id', 'in', [...ids])
          .compile(),
      ]);
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
