import { stat } from 'node:fs/promises';
import { AppError } from '../errors/app-error.ts';
import type { DatabaseLocation, SqlConnection } from './database.ts';
import { type DatabaseDefinition, refuseNewerSchema } from './migrations.ts';
import { openEngine } from './open-engine.ts';
import { refuseUnfinished, useSqliteFile } from './sqlite/sqlite-file.ts';
import { hasColumn, hasTable, holdsRows, MIGRATIONS_TABLE, readFact, SECRET_KEY_FACT } from './tables.ts';

export interface DatabaseState {
  /** False until the first start creates it. */
  readonly exists: boolean;
  /** How many migrations of this program it has. */
  readonly migrations: number;
  /** The fingerprint of the secret key that its secrets are encrypted with, once one is stored. */
  readonly secretKey?: string | undefined;
}

const NEW: DatabaseState = { exists: false, migrations: 0 };

/**
 * Inspects a database without changing it: whether it exists, answers, and has a schema that this program knows. Throws
 * what a start would throw; to `copy`, it also throws for a newer schema that this program could serve.
 */
export async function inspectDatabase(
  definition: DatabaseDefinition,
  location: DatabaseLocation,
  purpose: 'serve' | 'copy' = 'serve',
): Promise<DatabaseState> {
  if (location.engine === 'sqlite') {
    await refuseUnfinished(location.file, definition.name);
    const found = await stat(location.file).catch(() => undefined);
    if (found === undefined || found.size === 0) return NEW;
  }
  return look(location, async (connection) => {
    if (!(await hasTable(connection, MIGRATIONS_TABLE))) return NEW;
    const migrations = await refuseNewerSchema(connection, definition, purpose);
    return { exists: true, migrations, secretKey: await readFact(connection, SECRET_KEY_FACT) };
  });
}

/**
 * Checks, without changing it, a database that a copy is to fill: throws for a schema that this program does not know, and
 * STORAGE_NOT_EMPTY for one that holds rows unless they may be replaced.
 */
export async function inspectCopyTarget(
  definition: DatabaseDefinition,
  location: DatabaseLocation,
  replace: boolean,
): Promise<void> {
  await inspectDatabase(definition, location, 'copy');
  if (replace || !(await look(location, holdsRows))) return;
  throw new AppError('STORAGE_NOT_EMPTY', { name: definition.name });
}

const quote = (name: string) => `"${name.replaceAll('"', '""')}"`;

/** Runs something that only reads. */
async function look<Result>(
  location: DatabaseLocation,
  read: (connection: SqlConnection) => Promise<Result>,
): Promise<Result> {
  if (location.engine === 'sqlite') return useSqliteFile(location.file, 'read', read);
  const engine = await openEngine(location);
  try {
    return await engine.snapshot(read);
  } finally {
    await engine.close();
  }
}

/** Counts the rows of a table that have a value in a column, without changing anything; 0 while there is no such column. */
export function countRows(
  location: DatabaseLocation,
  { table, column, value }: { readonly table: string; readonly column: string; readonly value: string },
): Promise<number> {
  return look(location, async (connection) => {
    if (!(await hasColumn(connection, table, column))) return 0;
    const mark = connection.engine === 'sqlite' ? '?' : '$1';
    const sql = `SELECT count(*) AS count FROM ${quote(table)} WHERE ${quote(column)} = ${mark}`;
    const { rows } = await connection.execute({ sql, parameters: [value] });
    return Number((rows[0] as { count?: unknown } | undefined)?.count ?? 0);
  });
}

/** The time by the clock of the database; undefined on SQLite, which has none of its own. */
export async function readDatabaseTime(location: DatabaseLocation): Promise<number | undefined> {
  if (location.engine === 'sqlite') return undefined;
  const sql = 'SELECT cast(extract(epoch from clock_timestamp()) * 1000 as bigint) AS time';
  return look(location, async (connection) => {
    const { rows } = await connection.execute({ sql, parameters: [] });
    return Number((rows[0] as { time?: unknown } | undefined)?.time);
  });
}

const MAX_ROWS = 100;

interface WantedRows {
  readonly table: string;
  readonly column: string;
  readonly order: string;
  readonly direction?: 'ASC' | 'DESC';
}

/** Reads rows of a small table in which a column is not null, without changing anything; none while there is no such column. */
export function readRows(
  location: DatabaseLocation,
  { table, column, order, direction = 'ASC' }: WantedRows,
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  return look(location, async (connection) => {
    if (!(await hasColumn(connection, table, column))) return [];
    const where = `${quote(column)} IS NOT NULL ORDER BY ${quote(order)} ${direction} LIMIT ${MAX_ROWS}`;
    const { rows } = await connection.execute({ sql: `SELECT * FROM ${quote(table)} WHERE ${where}`, parameters: [] });
    return rows as readonly Readonly<Record<string, unknown>>[];
  });
}
