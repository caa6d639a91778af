import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, DeviceLoginRow } from './accounts-schema.ts';

/** Logins of devices that a person may still approve, or that wait for their token. What has expired is never found. */
export interface DeviceLoginStore {
  add(login: DeviceLoginRow): Runnable;
  byCode(codeHash: string, now: number): Promise<DeviceLoginRow | undefined>;
  /** Only those that nobody has decided about. */
  byUserCode(userCodeHash: string, now: number): Promise<DeviceLoginRow | undefined>;
  /** Undoes the batch when there is nothing to decide about, or somebody else was first. */
  decide(decision: {
    readonly userCodeHash: string;
    readonly userId: string;
    readonly epoch: number;
    readonly state: 'approved' | 'denied';
    readonly now: number;
  }): Runnable;
  notePoll(poll: { readonly codeHash: string; readonly now: number; readonly interval: number }): Runnable;
  /**
   * Ends an approved one, for the caller who is first: undoes the batch of any other, and of one whose logins were all ended
   * after the approval, such as by a new password.
   */
  take(codeHash: string, now: number): Runnable;
}

export function createDeviceLoginStore(database: Database<AccountsSchema>): DeviceLoginStore {
  const { query } = database;
  const byCode = database.statement((select, given: { hash: string; now: number }) =>
    select
      .selectFrom('device_logins')
      .selectAll()
      .where('code_hash', '=', given.hash)
      .where('expires_at', '>', given.now),
  );
  const byUserCode = database.statement((select, given: { hash: string; now: number }) =>
    select
      .selectFrom('device_logins')
      .selectAll()
      .where('user_code_hash', '=', given.hash)
      .where('expires_at', '>', given.now),
  );
  return {
    add: (login) => query.insertInto('device_logins').values(login).compile(),
    byCode: async (hash, now) => (await database.readKeyed(byCode({ hash, now })))[0],
    async byUserCode(hash, now) {
      const [row] = await database.readKeyed(byUserCode({ hash, now }));
      return row?.state === 'pending' ? row : undefined;
    },
    decide: ({ userCodeHash, userId, epoch, state, now }) =>
      expectChanges(
        query
          .updateTable('device_logins')
          .set({ state, user_id: userId, epoch })
          .where('user_code_hash', '=', userCodeHash)
          .where('state', '=', 'pending')
          .where('expires_at', '>', now)
          .compile(),
        1,
      ),
    notePoll: ({ codeHash, now, interval }) =>
      query
        .updateTable('device_logins')
        .set({ polled_at: now, interval_ms: interval })
        .where('code_hash', '=', codeHash)
        .compile(),
    take: (codeHash, now) =>
      expectChanges(
        query
          .deleteFrom('device_logins')
          .where('code_hash', '=', codeHash)
          .where('state', '=', 'approved')
          .where('expires_at', '>', now)
          .where(({ exists, selectFrom }) =>
            exists(
              selectFrom('users')
                .select('users.id')
                .whereRef('users.id', '=', 'device_logins.user_id')
                .whereRef('users.access_epoch', '=', 'device_logins.epoch')
                .where('users.active', '=', 1),
            ),
          )
          .compile(),
        1,
      ),
  };
}
