import type { DatabaseLocation } from '../platform/database/database.ts';
import type { DatabaseDefinition } from '../platform/database/migration.ts';
import type { DataFiles } from './data-directory.ts';
import { serviceTable } from './service-table.ts';
import type { ServiceName } from './settings.ts';

/** One file per service, or one schema per service of a PostgreSQL database. */
export function storeLocation(databaseUrl: string, files: DataFiles, service: string): DatabaseLocation {
  if (databaseUrl === '') return { engine: 'sqlite', file: files.database(service) };
  return { engine: 'postgres', url: databaseUrl, schema: service };
}

/** The databases of these services: those that have a schema. */
export function storeDefinitions(
  names: readonly ServiceName[],
): readonly (DatabaseDefinition & { readonly name: ServiceName })[] {
  return names.flatMap((name) => {
    const { migrations } = serviceTable[name];
    return migrations.length === 0 ? [] : [{ name, migrations }];
  });
}
