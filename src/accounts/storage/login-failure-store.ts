import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, LoginFailureRow } from './accounts-schema.ts';

/** Stands for every address. */
const ANYWHERE = '*';

export interface PairRule {
  /** How long a failure locks, by its number: the last one counts for all that follow. */
  readonly lockMs: readonly number[];
  /** After this long without a failure or a lock the counting starts anew. */
  readonly forgetMs: number;
}

export interface AccountRule {
  readonly limit: number;
  readonly windowMs: number;
  readonly lockMs: number;
}

export interface LoginFailureStore {
  find(account: string, address: string, now: number): Promise<{ pair?: LoginFailureRow; account?: LoginFailureRow }>;
  /** Counts a failure on an account from an address. */
  countForPair(failure: { account: string; address: string }, rule: PairRule, now: number): Runnable<LoginFailureRow>;
  /** Counts it for the account, wherever it comes from. */
  countForAccount(account: string, rule: AccountRule, now: number): Runnable<LoginFailureRow>;
  /** Forgets the failures of a pair. */
  forget(account: string, address: string): Runnable;
}

export function createLoginFailureStore(database: Database<AccountsSchema>): LoginFailureStore {
  const { query } = database;
  const find = database.statement((select, given: { account: string; address: string; now: number }) =>
    select
      .selectFrom('login_failures')
      .selectAll()
      .where('account', '=', given.account)
      .where('address', 'in', [given.address, ANYWHERE])
      .where('expires_at', '>', given.now),
  );
  const forget = database.statement((remove, given: { account: string; address: string }) =>
    remove.deleteFrom('login_failures').where('account', '=', given.account).where('address', '=', given.address),
  );

  return {
    async find(account, address, now) {
      const rows = await database.readKeyed(find({ account, address, now }));
      const pair = rows.find((row) => row.address !== ANYWHERE);
      const anywhere = rows.find((row) => row.address === ANYWHERE);
      return { ...(pair && { pair }), ...(anywhere && { account: anywhere }) };
    },
    countForPair({ account, address }, { lockMs, forgetMs }, now) {
      const first = lockMs[0] ?? 0;
      const isOver = sql<boolean>`login_failures.expires_at <= ${now}`;
      const failures = sql<number>`case when ${isOver} then 1 else login_failures.failures + 1 end`;
      const steps = lockMs.map((ms, index) => sql`when ${failures} <= ${index + 1} then cast(${ms} as bigint)`);
      const lock = sql<number>`case ${sql.join(steps, sql` `)} else cast(${lockMs.at(-1) ?? 0} as bigint) end`;
      return query
        .insertInto('login_failures')
        .values({
          account,
          address,
          failures: 1,
          window_started_at: now,
          locked_until: first === 0 ? 0 : now + first,
          expires_at: now + first + forgetMs,
        })
        .onConflict((conflict) =>
          conflict.columns(['account', 'address']).doUpdateSet({
            failures,
            locked_until: sql<number>`case when ${lock} = 0 then 0 else ${now} + ${lock} end`,
            expires_at: sql<number>`cast(${now + forgetMs} as bigint) + ${lock}`,
          }),
        )
        .returningAll()
        .compile();
    },
    countForAccount(account, { limit, windowMs, lockMs }, now) {
      const isOver = sql<boolean>`login_failures.expires_at <= ${now}`;
      const locks = sql<boolean>`login_failures.failures + 1 >= ${limit} and login_failures.locked_until = 0`;
      const choose = (over: number, locked: number, otherwise: string) =>
        sql<number>`case when ${isOver} then cast(${over} as bigint) when ${locks} then cast(${locked} as bigint)
          else ${sql.ref(`login_failures.${otherwise}`)} end`;
      return query
        .insertInto('login_failures')
        .values({
          account,
          address: ANYWHERE,
          failures: 1,
          window_started_at: now,
          locked_until: 0,
          expires_at: now + windowMs,
        })
        .onConflict((conflict) =>
          conflict.columns(['account', 'address']).doUpdateSet({
            failures: sql<number>`case when ${isOver} then 1 else login_failures.failures + 1 end`,
            window_started_at: choose(now, now, 'window_started_at'),
            locked_until: choose(0, now + lockMs, 'locked_until'),
            expires_at: choose(now + windowMs, now + lockMs, 'expires_at'),
          }),
        )
        .returningAll()
        .compile();
    },
    forget: (account, address) => forget({ account, address }),
  };
}
