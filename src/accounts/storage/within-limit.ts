import { type SelectQueryBuilder, sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema } from './accounts-schema.ts';

interface Limit<Table extends keyof AccountsSchema> {
  /** Batches with the same name run one after another. */
  readonly name: string;
  /** Selects the rows that count. */
  readonly rows: SelectQueryBuilder<AccountsSchema, Table, object>;
  readonly most: number;
}

/**
 * An insert for a batch, which is undone when there are more than `most` rows afterwards. A check before the write is
 * not enough: calls that come together all see the same number. The lock is for PostgreSQL, where transactions do not
 * see each other's rows; SQLite stores one batch after another anyway.
 */
export function insertWithin<Table extends keyof AccountsSchema, Row>(
  database: Database<AccountsSchema>,
  insert: Runnable<Row>,
  { name, rows, most }: Limit<Table>,
): readonly Runnable[] {
  const { query, engine } = database;
  const lock = sql`select pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || ${name}, 0))`;
  const count = rows.select(({ fn }) => fn.countAll<number>().as('count'));
  const check = query.selectNoFrom(sql<number>`1`.as('kept')).where(count, '<=', most);
  return [...(engine === 'postgres' ? [lock.compile(query)] : []), insert, expectChanges(check.compile(), 1)];
}
