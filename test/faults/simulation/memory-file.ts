import { DatabaseSync, type SQLInputValue, type StatementSync } from 'node:sqlite';
import { type DatabaseDefinition, planMigrations } from '../../../src/platform/database/migrations.ts';
import { fromFailure, toFailure, UnexpectedChanges } from '../../../src/platform/database/sqlite/sqlite-connection.ts';
import {
  checkedValue,
  type Runnable,
  type Statement,
  type StatementResult,
} from '../../../src/platform/database/statement.ts';

/** A SQLite database in memory, used in this very thread. */
export interface MemoryFile {
  execute(statement: Runnable): StatementResult;
  /** All or nothing. */
  executeAll(statements: readonly Runnable[]): StatementResult[];
  look<Row>(sql: string): Row[];
  /** What PostgreSQL would say to `clock_timestamp()`. */
  tellTime(now: () => number): void;
}

interface KeptFile extends MemoryFile {
  empty(): void;
}

/** The time of the database in milliseconds, as instances that share one ask for it. */
const POSTGRES_TIME = '(extract(epoch from clock_timestamp()) * 1000)::bigint';

const files = new WeakMap<DatabaseDefinition['migrations'], KeptFile>();

/** Without any rows. There is one for each schema, used by one run after the other: to prepare statements takes longest. */
export function emptyMemoryFile({ migrations }: DatabaseDefinition): MemoryFile {
  const file = files.get(migrations) ?? createMemoryFile(migrations);
  files.set(migrations, file);
  file.empty();
  return file;
}

function createMemoryFile(migrations: DatabaseDefinition['migrations']): KeptFile {
  const file = new DatabaseSync(':memory:');
  for (const { statements } of planMigrations('sqlite', migrations)) {
    for (const { sql, parameters } of statements) file.prepare(sql).run(...(parameters as SQLInputValue[]));
  }
  let time = () => 0;
  file.function('database_ms', () => time());
  const look = <Row>(sql: string) => file.prepare(sql).all() as Row[];
  const tables = look<{ name: string }>("SELECT name FROM sqlite_schema WHERE type = 'table'");
  const deletions = tables.map(({ name }) => `DELETE FROM "${name}";`).join('');
  const prepared = new Map<string, { readonly statement: StatementSync; readonly givesRows: boolean }>();

  function prepare(sql: string) {
    const known = prepared.get(sql);
    if (known !== undefined) return known;
    const statement = file.prepare(sql.replaceAll(POSTGRES_TIME, 'database_ms()'));
    const made = { statement, givesRows: statement.columns().length > 0 };
    prepared.set(sql, made);
    return made;
  }

  function execute(given: Runnable): StatementResult {
    const { expectedChanges }: Partial<Statement> = given;
    const { statement, givesRows } = prepare(given.sql);
    const values = given.parameters.map((value) => checkedValue(value) as SQLInputValue);
    const rows = givesRows ? statement.all(...values).map((row) => ({ ...row })) : [];
    const changes = givesRows ? rows.length : Number(statement.run(...values).changes);
    if (expectedChanges !== undefined && changes !== expectedChanges) {
      throw new UnexpectedChanges({ statement: 0, expected: expectedChanges, changes });
    }
    return { rows, changes };
  }

  return {
    execute,
    executeAll(statements) {
      file.exec('BEGIN');
      try {
        const results = statements.map(execute);
        file.exec('COMMIT');
        return results;
      } catch (error) {
        if (file.isTransaction) file.exec('ROLLBACK');
        throw fromFailure(toFailure(error));
      }
    },
    look,
    tellTime(now) {
      time = now;
    },
    empty: () => file.exec(`BEGIN; PRAGMA defer_foreign_keys = ON; ${deletions} COMMIT`),
  };
}
