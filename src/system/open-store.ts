import type { Clock } from '../platform/clock/clock.ts';
import type { Database, DatabaseLocation } from '../platform/database/database.ts';
import type { DatabaseDefinition } from '../platform/database/migration.ts';
import { openDatabase } from '../platform/database/open-database.ts';
import { type OwnerKind, ownSqliteFile } from '../platform/database/sqlite/sqlite-file.ts';

/** Opens a service's database, and claims it for this process where it is a file; `opened` closes and releases it. */
export async function openStore(
  definition: DatabaseDefinition,
  location: DatabaseLocation,
  clock: Clock,
  owner: OwnerKind,
  opened: AsyncDisposableStack,
): Promise<Database<never>> {
  if (location.engine === 'sqlite') {
    const ownership = await ownSqliteFile(location.file, owner);
    opened.defer(() => ownership.release());
  }
  const database = await openDatabase<never>({ ...definition, location, clock });
  opened.defer(() => database.close());
  return database;
}
