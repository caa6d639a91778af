import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, FlowRow } from './accounts-schema.ts';

export interface FlowKey {
  readonly kind: string;
  readonly key: string;
}

/** Flows that someone may still finish. What has expired is never found, swept or not. */
export interface FlowStore {
  find(flow: FlowKey, now: number): Promise<FlowRow | undefined>;
  add(flow: FlowRow): Runnable;
  /** Ends it, for the one caller who is first: the batch is undone for any other. */
  take(flow: FlowKey, now: number): Runnable;
  /** Counts a try ahead of it, so that many at the same time get no more than `limit` between them; undefined when none is left. */
  reserveTry(flow: FlowKey, limit: number, now: number): Promise<FlowRow | undefined>;
  /** Gives a try back that was right. */
  returnTry(flow: FlowKey): Promise<void>;
  /** Stores `flow` unless one is there that can still be used; answers with the one that counts. */
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
      // Nothing was stored: one is there that counts. Should it end in this very moment, the new one is what was asked for.
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
