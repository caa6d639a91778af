import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, DeviceLoginRow, FlowRow } from './accounts-schema.ts';

interface FlowKey {
  readonly kind: string;
  readonly key: string;
}

/** Flows that can still be finished. Expired ones are never found, whether or not they are deleted yet. */
export interface FlowStore {
  find(flow: FlowKey, now: number): Promise<FlowRow | undefined>;
  add(flow: FlowRow): Runnable;
  /** Ends it: undoes the batch of every caller but the first. */
  take(flow: FlowKey, now: number): Runnable;
  /** Counts a try before it is made, so that concurrent tries share `limit`; undefined when none is left. */
  reserveTry(flow: FlowKey, limit: number, now: number): Promise<FlowRow | undefined>;
  /** Returns a successful try to the budget. */
  returnTry(flow: FlowKey): Promise<void>;
  /** Stores `flow` unless a usable one exists, and returns the valid one. */
  putUnlessLive(flow: FlowRow, triesLimit: number): Promise<FlowRow>;
  /** Ends all of a user, or those of some kinds. */
  removeOfUser(userId: string, kinds?: readonly string[]): Runnable;
  /** Ends all that belong to an e-mail address, of some kinds. */
  removeOfEmail(email: string, kinds: readonly string[]): Runnable;
}

export function createFlowStore(database: Database<AccountsSchema>): FlowStore {
  const { query } = database;
  const find = database.statement((select, given: FlowKey & { now: number }) =>
    select
      .selectFrom('flows')
      .selectAll()
      .where('kind', '=', given.kind)
      .where('key', '=', given.key)
      .where('expires_at', '>', given.now),
  );
  const take = database.statement((remove, given: FlowKey & { now: number }) =>
    remove
      .deleteFrom('flows')
      .where('kind', '=', given.kind)
      .where('key', '=', given.key)
      .where('expires_at', '>', given.now),
  );
  const findFlow = async (flow: FlowKey, now: number) => (await database.readKeyed(find({ ...flow, now })))[0];

  return {
    find: findFlow,
    add: (flow) => query.insertInto('flows').values(flow).compile(),
    take: ({ kind, key }, now) => expectChanges(take({ kind, key, now }), 1),
    async reserveTry({ kind, key }, limit, now) {
      const reserve = query
        .updateTable('flows')
        .set({ attempts: sql<number>`attempts + 1` })
        .where('kind', '=', kind)
        .where('key', '=', key)
        .where('expires_at', '>', now)
        .where('attempts', '<', limit)
        .returningAll();
      const [{ rows }] = await database.write([reserve.compile()]);
      return rows[0];
    },
    async returnTry({ kind, key }) {
      const giveBack = query
        .updateTable('flows')
        .set({ attempts: sql<number>`attempts - 1` })
        .where('kind', '=', kind)
        .where('key', '=', key)
        .where('attempts', '>', 0);
      await database.write([giveBack.compile()]);
    },
    async putUnlessLive(flow, triesLimit) {
      const { user_id, email, data, attempts, created_at, expires_at } = flow;
      const put = query
        .insertInto('flows')
        .values(flow)
        .onConflict((conflict) =>
          conflict
            .columns(['kind', 'key'])
            .doUpdateSet({ user_id, email, data, attempts, created_at, expires_at })
            .where((build) =>
              build.or([build('flows.expires_at', '<=', created_at), build('flows.attempts', '>=', triesLimit)]),
            ),
        )
        .returningAll();
      const [{ rows }] = await database.write([put.compile()]);
      // Nothing was stored if a usable one exists. If that one expires at this moment, the new one is returned.
      return rows[0] ?? (await findFlow(flow, created_at)) ?? flow;
    },
    removeOfUser(userId, kinds) {
      const remove = query.deleteFrom('flows').where('user_id', '=', userId);
      return (kinds === undefined ? remove : remove.where('kind', 'in', kinds)).compile();
    },
    removeOfEmail: (email, kinds) =>
      query.deleteFrom('flows').where('email', '=', email).where('kind', 'in', kinds).compile(),
  };
}

/** Device logins that wait for approval, or for their token. Expired ones are never found. */
interface DeviceLoginStore {
  add(login: DeviceLoginRow): Runnable;
  byCode(codeHash: string, now: number): Promise<DeviceLoginRow | undefined>;
  /** Returns only a login that is still pending. */
  byUserCode(userCodeHash: string, now: number): Promise<DeviceLoginRow | undefined>;
  /** Undoes the batch if there is no pending login, such as when someone else has decided first. */
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

/** What is swept: rows whose time lies `keptMs` back. */
export interface SweptTable {
  readonly table: keyof AccountsSchema;
  readonly key: readonly string[];
  readonly time: string;
  readonly keptMs: number;
}

export interface SweepStore {
  /** Removes at most `limit` rows; answers with how many there were. */
  remove(swept: SweptTable, now: number, limit: number): Promise<number>;
}

export function createSweepStore(database: Database<AccountsSchema>): SweepStore {
  return {
    async remove({ table, key, time, keptMs }, now, limit) {
      const columns = sql.join(key.map((column) => sql.ref(column)));
      const old = sql`select ${columns} from ${sql.table(table)} where ${sql.ref(time)} <= ${now - keptMs} limit ${limit}`;
      const remove = sql`delete from ${sql.table(table)} where (${columns}) in (${old})`;
      const [{ changes }] = await database.write([remove.compile(database.query)]);
      return changes;
    },
  };
}
