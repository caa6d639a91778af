import type { Database } from '../../platform/database/database.ts';
import type { ArtifactRow, AttachmentRow, BridgeSchema, NewRow } from './bridge-schema.ts';

/** What is known of the files that turns produced. */
export interface ArtifactStore {
  insert(row: NewRow<ArtifactRow>): Promise<void>;
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

/** What is known of files that were uploaded for prompts. */
interface AttachmentStore {
  insert(row: NewRow<AttachmentRow>): Promise<void>;
  find(ids: readonly string[]): Promise<readonly AttachmentRow[]>;
  /** How many bytes the files of an owner take. */
  bytesOf(owner: string): Promise<number>;
  /** The oldest of an owner that was used and is not kept beyond a moment, as for a job. */
  oldestUsed(owner: string, keptUntil: number): Promise<AttachmentRow | undefined>;
  /** Notes that they were used. */
  use(ids: readonly string[], now: number): Promise<void>;
  /** Keeps them until then, if that is later. */
  keep(ids: readonly string[], until: number): Promise<void>;
  /** Ids of some that expired before a moment. */
  expired(before: number, limit: number): Promise<readonly string[]>;
  remove(ids: readonly string[]): Promise<void>;
}

export function createAttachmentStore(database: Database<BridgeSchema>): AttachmentStore {
  const { query } = database;
  return {
    async insert(row) {
      await database.write([query.insertInto('attachments').values(row).compile()]);
    },
    find: (ids) =>
      database.readKeyed(
        query
          .selectFrom('attachments')
          .selectAll()
          .where('id', 'in', [...ids])
          .compile(),
      ),
    async bytesOf(owner) {
      const sum = query
        .selectFrom('attachments')
        .select(({ fn }) => fn.sum<number>('size_bytes').as('bytes'))
        .where('owner', '=', owner);
      return Number((await database.read(sum.compile()))[0]?.bytes ?? 0);
    },
    async oldestUsed(owner, keptUntil) {
      const used = query
        .selectFrom('attachments')
        .selectAll()
        .where('owner', '=', owner)
        .where('used_at', 'is not', null)
        .where('expires_at', '<=', keptUntil)
        .orderBy('id')
        .limit(1);
      return (await database.read(used.compile()))[0];
    },
    async use(ids, now) {
      if (ids.length === 0) return;
      const used = query
        .updateTable('attachments')
        .set({ used_at: now })
        .where('id', 'in', [...ids]);
      await database.write([used.compile()]);
    },
    async keep(ids, until) {
      if (ids.length === 0) return;
      const kept = query
        .updateTable('attachments')
        .set({ expires_at: until })
        .where('id', 'in', [...ids])
        .where('expires_at', '<', until);
      await database.write([kept.compile()]);
    },
    async expired(before, limit) {
      const old = query.selectFrom('attachments').select('id').where('expires_at', '<', before).orderBy('expires_at');
      return (await database.read(old.limit(limit).compile())).map(({ id }) => id);
    },
    async remove(ids) {
      if (ids.length === 0) return;
      const gone = query.deleteFrom('attachments').where('id', 'in', [...ids]);
      await database.write([gone.compile()]);
    },
  };
}
