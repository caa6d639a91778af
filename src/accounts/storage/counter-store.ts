import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, CounterRow } from './accounts-schema.ts';

export interface CounterLimit {
  readonly kind: string;
  readonly key: string;
  readonly limit: number;
  readonly windowMs: number;
}

/** Counts in windows that begin with the first of them, for all instances together. */
export interface CounterStore {
  find(counter: { kind: string; key: string }, now: number): Promise<CounterRow | undefined>;
  /** Counts one; the batch is undone when `limit` was reached before. */
  countWithin(counter: CounterLimit, now: number): Runnable;
  /** Counts one, however many there are. */
  count(counter: Omit<CounterLimit, 'limit'>, now: number): Runnable<CounterRow>;
}

export function createCounterStore(database: Database<AccountsSchema>): CounterStore {
  const find = database.statement((query, given: { kind: string; key: string; now: number }) =>
    query
      .selectFrom('counters')
      .selectAll()
      .where('kind', '=', given.kind)
      .where('key', '=', given.key)
      .where('expires_at', '>', given.now),
  );
  const upsert = ({ kind, key, windowMs }: Omit<CounterLimit, 'limit'>, now: number, limit: number) =>
    database.query
      .insertInto('counters')
      .values({ kind, key, count: 1, window_started_at: now, expires_at: now + windowMs })
      .onConflict((conflict) =>
        conflict
          .columns(['kind', 'key'])
          .doUpdateSet({
            count: sql<number>`case when counters.expires_at <= ${now} then 1 else counters.count + 1 end`,
            window_started_at: sql<number>`case when counters.expires_at <= ${now} then ${now}
              else counters.window_started_at end`,
            expires_at: sql<number>`case when counters.expires_at <= ${now} then ${now + windowMs}
              else counters.expires_at end`,
          })
          .where((build) => build.or([build('counters.expires_at', '<=', now), build('counters.count', '<', limit)])),
      )
      .returningAll()
      .compile();

  return {
    find: async (counter, now) => (await database.readKeyed(find({ ...counter, now })))[0],
    countWithin: (counter, now) => expectChanges(upsert(counter, now, counter.limit), 1),
    count: (counter, now) => upsert(counter, now, Number.MAX_SAFE_INTEGER),
  };
}
