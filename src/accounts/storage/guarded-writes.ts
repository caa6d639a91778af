import { type SelectQueryBuilder, sql } from 'kysely';
import type { Database, Transaction } from '../../platform/database/database.ts';
import { expectChanges, type Runnable, type StatementResult } from '../../platform/database/statement.ts';
import type { AccountsSchema } from './accounts-schema.ts';

/** The ids that a change named; `all` for a change that may concern everyone. */
export type ChangedIds = ReadonlySet<unknown> | 'all';

/** Tables that decide whether a login or a token counts, how far, and what is known of its user. */
const DECIDING = /\b(?:users|sessions|session_tokens|access_tokens|service_accounts|team_members|credentials)\b/;
/** New rows cannot change a decision about a row that was read before, except those of a second factor. */
const NEW_ROW = /^insert(?! into "credentials")/;
const FOR_EVERYONE = '"permission_matrix"';

/**
 * Calls `changed` after every change of a table that decides whether a login or a token counts, before the writer goes on.
 * It inspects the statements instead of relying on their callers, so that no module can forget to report a change. A failed
 * change counts too, because it may have been stored.
 */
export function watchWrites(
  database: Database<AccountsSchema>,
  changed: (ids: ChangedIds) => void,
): Database<AccountsSchema> {
  function tell(statements: readonly Runnable[]): void {
    const ids = new Set<unknown>();
    for (const { sql, parameters } of statements) {
      if (sql.startsWith('select')) continue;
      if (sql.includes(FOR_EVERYONE)) {
        changed('all');
        return;
      }
      if (NEW_ROW.test(sql) || !DECIDING.test(sql)) continue;
      for (const value of parameters) if (typeof value === 'string') ids.add(value);
    }
    if (ids.size > 0) changed(ids);
  }

  const write = async (...[statements, refusals]: Parameters<typeof database.write>): Promise<StatementResult[]> => {
    try {
      return await database.write(statements, refusals);
    } finally {
      tell(statements);
    }
  };
  return {
    ...database,
    write: write as Database['write'],
    async transaction(work, options) {
      const ran: Runnable[] = [];
      const noting = ({ query, run }: Transaction<AccountsSchema>): Transaction<AccountsSchema> => ({
        query,
        run(statement) {
          ran.push(statement);
          return run(statement);
        },
      });
      try {
        return await database.transaction((transaction) => work(noting(transaction)), options);
      } finally {
        tell(ran);
      }
    },
  };
}

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
