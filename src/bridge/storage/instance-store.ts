import type { Database } from '../../platform/database/database.ts';
import type { BridgeSchema, InstanceRow } from './bridge-schema.ts';

export interface InstanceStore {
  add(instance: InstanceRow): Promise<void>;
  /** Inserts it again if another instance has deleted it as ended. */
  beat(instance: InstanceRow): Promise<void>;
  remove(id: string): Promise<void>;
  /** The oldest first. */
  list(): Promise<readonly InstanceRow[]>;
  /** Deletes the other instances without a heartbeat since then. */
  removeOthers(own: string, aliveSince: number): Promise<void>;
}

const MAX_LISTED = 200;

export function createInstanceStore(database: Database<BridgeSchema>): InstanceStore {
  const { query } = database;
  return {
    async add(instance) {
      await database.write([query.insertInto('instances').values(instance).compile()]);
    },
    async beat(instance) {
      const { heartbeat_at } = instance;
      const row = query.insertInto('instances').values(instance);
      const beat = row.onConflict((conflict) => conflict.column('id').doUpdateSet({ heartbeat_at }));
      await database.write([beat.compile()]);
    },
    async remove(id) {
      await database.write([query.deleteFrom('instances').where('id', '=', id).compile()]);
    },
    list: () => database.read(query.selectFrom('instances').selectAll().orderBy('id').limit(MAX_LISTED).compile()),
    async removeOthers(own, aliveSince) {
      const others = query.deleteFrom('instances').where('id', '!=', own).where('heartbeat_at', '<', aliveSince);
      await database.write([others.compile()]);
    },
  };
}
