import type { Database } from '../../platform/database/database.ts';

export interface InstanceRow {
  readonly id: string;
  readonly version: string;
  readonly address: string;
  readonly started_at: number;
  readonly heartbeat_at: number;
}

export interface BridgeSchema {
  instances: InstanceRow;
}

export interface InstanceStore {
  add(instance: InstanceRow): Promise<void>;
  beat(id: string, now: number): Promise<void>;
  remove(id: string): Promise<void>;
}

export function createInstanceStore(database: Database<BridgeSchema>): InstanceStore {
  const { query } = database;
  return {
    async add(instance) {
      await database.write([query.insertInto('instances').values(instance).compile()]);
    },
    async beat(id, now) {
      await database.write([query.updateTable('instances').set({ heartbeat_at: now }).where('id', '=', id).compile()]);
    },
    async remove(id) {
      await database.write([query.deleteFrom('instances').where('id', '=', id).compile()]);
    },
  };
}
