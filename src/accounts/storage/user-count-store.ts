import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, UserCountRow, UserRow } from './accounts-schema.ts';

export const DAY_MS = 24 * 3_600_000;

/** What of a user is counted. */
export type CountedUser = Pick<UserRow, 'created_at' | 'role' | 'active' | 'subscribed'>;

export type UserCounts = Pick<UserCountRow, 'total' | 'active' | 'subscribed'>;

/**
 * Numbers of users that cost the same however many there are. Whoever adds, changes or removes a user counts it in the
 * same batch; nothing counts by itself.
 */
export interface UserCountStore {
  /** `by`: 1 for a user who is there now, -1 for one who is no more, or who is no more as given. */
  change(user: CountedUser, by: 1 | -1): Runnable;
  /** Of all users, or of those with a role. */
  totals(role?: string): Promise<UserCounts>;
  /** By day of registration, from a day on. */
  byDay(from: number): Promise<(UserCounts & { readonly day: number })[]>;
  registeredSince(moment: number): Promise<number>;
}

export function createUserCountStore(database: Database<AccountsSchema>): UserCountStore {
  const { query } = database;
  const sums = () => [sumOf('total').as('total'), sumOf('active').as('active'), sumOf('subscribed').as('subscribed')];
  return {
    change({ created_at, role, active, subscribed }, by) {
      const counted = { total: by, active: by * active, subscribed: by * subscribed };
      return query
        .insertInto('user_counts')
        .values({ day: dayOf(created_at), role, ...counted })
        .onConflict((conflict) =>
          conflict.columns(['day', 'role']).doUpdateSet({
            total: sql<number>`user_counts.total + ${counted.total}`,
            active: sql<number>`user_counts.active + ${counted.active}`,
            subscribed: sql<number>`user_counts.subscribed + ${counted.subscribed}`,
          }),
        )
        .compile();
    },
    async totals(role) {
      const select = query.selectFrom('user_counts').select(sums());
      const [row] = await database.readKeyed((role === undefined ? select : select.where('role', '=', role)).compile());
      return { total: row?.total ?? 0, active: row?.active ?? 0, subscribed: row?.subscribed ?? 0 };
    },
    byDay: (from) =>
      database.readKeyed(
        query
          .selectFrom('user_counts')
          .select(['day', ...sums()])
          .where('day', '>=', from)
          .groupBy('day')
          .compile(),
      ),
    async registeredSince(moment) {
      const count = query
        .selectFrom('users')
        .select((build) => build.fn.countAll<number>().as('count'))
        .where('created_at', '>', moment);
      const [row] = await database.read(count.compile());
      return row?.count ?? 0;
    },
  };
}

/** Days since 1970 (UTC). */
export function dayOf(moment: number): number {
  return Math.floor(moment / DAY_MS);
}

/** PostgreSQL gives the sum of whole numbers as a decimal one. */
function sumOf(column: string) {
  return sql<number>`cast(sum(${sql.ref(column)}) as bigint)`;
}
