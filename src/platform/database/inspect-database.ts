import { stat } from 'node:fs/promises';
import { hasTable, readFact, SECRET_KEY_FACT } from './database-facts.ts';
import type { DatabaseLocation, SqlConnection } from './engine.ts';
import type { DatabaseDefinition } from './migration.ts';
import { openEngine } from './open-engine.ts';
import { refuseNewerSchema } from './run-migrations.ts';
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
