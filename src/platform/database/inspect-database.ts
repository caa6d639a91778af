import { stat } from 'node:fs/promises';
import type { DatabaseLocation, SqlConnection } from './database.ts';
import { hasTable, readFact, SECRET_KEY_FACT } from './database-facts.ts';
import { type DatabaseDefinition, refuseNewerSchema } from './migrations.ts';
import { openEngine } from './open-engine.ts';
import { useSqliteFile } from './sqlite/sqlite-file.ts';
import { MIGRATIONS_TABLE } from './tables.ts';

export interface DatabaseState {
  /** False until the first start creates it. */
  readonly exists: boolean;
  /** The fingerprint of the secret key that its secrets are encrypted with, once one is stored. */
  readonly secretKey?: string | undefined;
}

const NEW: DatabaseState = { exists: false };

/**
 * Inspects a database without changing it: whether it exists, answers, and has a schema that this program knows. Throws
 * what a start would throw.
 */
export async function inspectDatabase(
  definition: DatabaseDefinition,
  location: DatabaseLocation,
): Promise<DatabaseState> {
  if (location.engine === 'sqlite') {
    const found = await stat(location.file).catch(() => undefined);
    if (found === undefined || found.size === 0) return NEW;
    return useSqliteFile(location.file, 'read', (connection) => inspect(connection, definition));
  }
  const engine = await openEngine(location);
  try {
    return await engine.snapshot((connection) => inspect(connection, definition));
  } finally {
    await engine.close();
  }
}

async function inspect(connection: SqlConnection, definition: DatabaseDefinition): Promise<DatabaseState> {
  if (!(await hasTable(connection, MIGRATIONS_TABLE))) return NEW;
  await refuseNewerSchema(connection, definition);
  return { exists: true, secretKey: await readFact(connection, SECRET_KEY_FACT) };
}

/** Counts the rows of a table that have a value in a column, without changing anything; 0 while there is no such column. */
export async function countRows(
  location: DatabaseLocation,
  { table, column, value }: { readonly table: string; readonly column: string; readonly value: string },
): Promise<number> {
  const quote = (name: string) => `"${name.replaceAll('"', '""')}"`;
  const count = async (connection: SqlConnection): Promise<number> => {
    const found = await connection.execute({ sql: FIND_COLUMN[connection.engine], parameters: [table, column] });
    if (found.rows.length === 0) return 0;
    const mark = connection.engine === 'sqlite' ? '?' : '$1';
    const sql = `SELECT count(*) AS count FROM ${quote(table)} WHERE ${quote(column)} = ${mark}`;
    const { rows } = await connection.execute({ sql, parameters: [value] });
    return Number((rows[0] as { count?: unknown } | undefined)?.count ?? 0);
  };
  if (location.engine === 'sqlite') return useSqliteFile(location.file, 'read', count);
  const engine = await openEngine(location);
  try {
    return await engine.snapshot(count);
  } finally {
    await engine.close();
  }
}

const FIND_COLUMN = {
  sqlite: 'SELECT 1 FROM pragma_table_info(?) WHERE name = ?',
  postgres:
    'SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1 AND column_name = $2',
};
