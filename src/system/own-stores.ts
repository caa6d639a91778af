import type { Clock } from '../platform/clock/clock.ts';
import { callControlSocket } from '../platform/control-socket/call-control-socket.ts';
import type { Database } from '../platform/database/database.ts';
import { openDatabase } from '../platform/database/open-database.ts';
import { ownSqliteFile } from '../platform/database/sqlite/own-sqlite-file.ts';
import { type DataFiles, prepareDataDirectory } from './data-directory.ts';
import { dataDirectory, SERVICE_NAMES, type Settings } from './settings.ts';
import { storeDefinitions, storeLocation } from './store-location.ts';

export interface StoreAccessOptions {
  readonly settings: Settings;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly homeDirectory: string;
  readonly clock: Clock;
}

/** A database that a command may copy, whoever has it open. */
export type CopyableDatabase = Pick<Database, 'name' | 'engine' | 'backupTo'>;

const BACKUP_TIMEOUT_MS = 6 * 60 * 60 * 1000;

export function dataFilesOf({ settings, environment, homeDirectory }: StoreAccessOptions): Promise<DataFiles> {
  return prepareDataDirectory(dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME));
}

/** Opens all databases for a command that works while no server runs: a running one is refused, with its process id. */
export async function openStoresAlone(
  options: StoreAccessOptions,
  opened: AsyncDisposableStack,
): Promise<readonly Database<never>[]> {
  const files = await dataFilesOf(options);
  const databases: Database<never>[] = [];
  for (const definition of storeDefinitions(SERVICE_NAMES)) {
    const location = storeLocation(options.settings.database.url, files, definition.name);
    if (location.engine === 'sqlite') {
      const ownership = await ownSqliteFile(location.file);
      opened.defer(() => ownership.release());
    }
    const database = await openDatabase<never>({ ...definition, location, clock: options.clock });
    opened.defer(() => database.close());
    databases.push(database);
  }
  return databases;
}

/** The databases as they are now: those of a running server through its socket, otherwise opened here. */
export async function copyableStores(
  options: StoreAccessOptions,
  opened: AsyncDisposableStack,
): Promise<readonly CopyableDatabase[]> {
  const files = await dataFilesOf(options);
  const served: CopyableDatabase[] = [];
  if (options.settings.database.url === '') {
    for (const { name } of storeDefinitions(SERVICE_NAMES)) {
      const socket = files.controlSocket(name);
      if ((await callControlSocket(socket, 'status', {}, 5000)) === undefined) continue;
      served.push({
        name,
        engine: 'sqlite',
        backupTo: async (file) => void (await callControlSocket(socket, 'backup', { file }, BACKUP_TIMEOUT_MS)),
      });
    }
  }
  return served.length > 0 ? served : openStoresAlone(options, opened);
}
