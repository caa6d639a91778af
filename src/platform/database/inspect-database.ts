import { stat } from 'node:fs/promises';
import type { DatabaseLocation, SqlConnection } from './engine.ts';
import type { DatabaseDefinition } from './migration.ts';
import { openEngine } from './open-engine.ts';
import { refuseNewerSchema } from './run-migrations.ts';
import { useSqliteFile } from './sqlite/sqlite-file.ts';
import { MIGRATIONS_TABLE } from './tables.ts';

/**
 * Looks at a database without changing it: `new` when the first start has yet to make it, otherwise whether it answers
 * and this program knows its schema. Throws what a start would throw.
 */
export async function inspectDatabase(
  definition: DatabaseDefinition,
  location: DatabaseLocation,
): Promise<'new' | 'ready'> {
  if (location.engine === 'sqlite') {
    const found = await stat(location.file).catch(() => undefined);
    if (found === undefined || found.size === 0) return 'new';
    return useSqliteFile(location.file, 'read', (connection) => inspect(connection, definition));
  }
  const engine = await openEngine(location);
  try {
    await engine.ping();
    return await engine.snapshot((connection) => inspect(connection, definition));
  } finally {
    await engine.close();
  }
}

const FIND_TABLE = {
  sqlite: `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '${MIGRATIONS_TABLE}'`,
  postgres: `SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = '${MIGRATIONS_TABLE}'`,
};

async function inspect(connection: SqlConnection, definition: DatabaseDefinition): Promise<'new' | 'ready'> {
  const { rows } = await connection.execute({ sql: FIND_TABLE[connection.engine], parameters: [] });
  if (rows.length === 0) return 'new';
  await refuseNewerSchema(connection, definition);
  return 'ready';
}
