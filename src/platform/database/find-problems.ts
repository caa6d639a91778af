import type { SqlConnection } from './engine.ts';
import { compareDigests, digestTables, type TableDigest } from './table-digest.ts';

/** Looks a database over: is it sound in itself, and does it hold what it should? An empty list says yes. */
export async function findProblems(connection: SqlConnection, expected?: readonly TableDigest[]): Promise<string[]> {
  const problems = connection.engine === 'sqlite' ? await findDamage(connection) : [];
  if (problems.length > 0) return problems;
  const found = await digestTables(connection);
  return expected === undefined ? [] : compareDigests(expected, found);
}

/** PostgreSQL keeps its references itself; in a SQLite file they may have been broken by someone else's tool. */
async function findDamage(connection: SqlConnection): Promise<string[]> {
  const integrity = await connection.execute<{ integrity_check: string }>({
    sql: 'PRAGMA integrity_check',
    parameters: [],
  });
  const references = await connection.execute<{ table: string }>({ sql: 'PRAGMA foreign_key_check', parameters: [] });
  return [
    ...integrity.rows.map((row) => row.integrity_check).filter((line) => line !== 'ok'),
    ...references.rows.map((row) => `a row of table ${row.table} refers to nothing`),
  ];
}
