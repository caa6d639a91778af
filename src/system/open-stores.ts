import type { Clock } from '../platform/clock/clock.ts';
import type { Database } from '../platform/database/database.ts';
import type { OwnerKind } from '../platform/database/sqlite/sqlite-file.ts';
import type { DataFiles } from './data-directory.ts';
import { openStore } from './open-store.ts';
import type { ServiceName, Settings } from './settings.ts';
import { storeDefinitions, storeLocation } from './store-location.ts';

/** The databases of the running services, each owned by this process. */
export interface Stores extends AsyncDisposable {
  readonly databases: readonly Database<never>[];
  database(name: ServiceName): Database<never> | undefined;
  /** Rejects unless every database answers. */
  check(): Promise<void>;
}

export interface OpenStoresOptions {
  readonly settings: Settings;
  readonly names: readonly ServiceName[];
  readonly files: DataFiles;
  readonly clock: Clock;
  /** A command has the databases for a moment; a server, for as long as it runs. */
  readonly owner: OwnerKind;
}

export async function openStores(options: OpenStoresOptions): Promise<Stores> {
  const { settings, names, files, clock, owner } = options;
  await using opened = new AsyncDisposableStack();
  const databases = new Map<ServiceName, Database<never>>();
  for (const definition of storeDefinitions(names)) {
    const location = storeLocation(settings.database.url, files, definition.name);
    databases.set(definition.name, await openStore(definition, location, clock, owner, opened));
  }
  const owned = opened.move();
  return {
    databases: [...databases.values()],
    database: (name) => databases.get(name),
    async check() {
      await Promise.all([...databases.values()].map((database) => database.check()));
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
