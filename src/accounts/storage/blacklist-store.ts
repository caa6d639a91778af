import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, BlacklistRow } from './accounts-schema.ts';

/** Addresses that may neither register nor log in. */
export interface BlacklistStore {
  has(email: string): Promise<boolean>;
  /** Nothing happens when it is there already. */
  put(entry: BlacklistRow): Runnable;
  remove(email: string): Runnable;
  /** By address; `after` is the last one of the page before. */
  list(after: string, limit: number): Promise<BlacklistRow[]>;
}

export function createBlacklistStore(database: Database<AccountsSchema>): BlacklistStore {
  const { query } = database;
  const find = database.statement((select, given: { email: string }) =>
    select.selectFrom('blacklist').select('email').where('email', '=', given.email),
  );
  return {
    has: async (email) => (await database.readKeyed(find({ email }))).length > 0,
    put: (entry) =>
      query
        .insertInto('blacklist')
        .values(entry)
        .onConflict((conflict) => conflict.column('email').doNothing())
        .compile(),
    remove: (email) => query.deleteFrom('blacklist').where('email', '=', email).compile(),
    list: (after, limit) =>
      database.readKeyed(
        query.selectFrom('blacklist').selectAll().where('email', '>', after).orderBy('email').limit(limit).compile(),
      ),
  };
}
