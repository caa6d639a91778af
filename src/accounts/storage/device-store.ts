import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema } from './accounts-schema.ts';

export interface DeviceStore {
  has(userId: string, deviceHash: string): Promise<boolean>;
  remember(device: { userId: string; deviceHash: string; now: number }): Runnable;
  forgetAllOf(userId: string): Runnable;
}

export function createDeviceStore(database: Database<AccountsSchema>): DeviceStore {
  const { query } = database;
  const find = database.statement((select, given: { userId: string; deviceHash: string }) =>
    select
      .selectFrom('devices')
      .select('user_id')
      .where('user_id', '=', given.userId)
      .where('device_hash', '=', given.deviceHash),
  );
  return {
    has: async (userId, deviceHash) => (await database.readKeyed(find({ userId, deviceHash }))).length > 0,
    remember: ({ userId, deviceHash, now }) =>
      query
        .insertInto('devices')
        .values({ user_id: userId, device_hash: deviceHash, created_at: now, last_seen_at: now })
        .onConflict((conflict) => conflict.columns(['user_id', 'device_hash']).doUpdateSet({ last_seen_at: now }))
        .compile(),
    forgetAllOf: (userId) => query.deleteFrom('devices').where('user_id', '=', userId).compile(),
  };
}
