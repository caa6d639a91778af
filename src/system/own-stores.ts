import type { Clock } from '../platform/clock/clock.ts';
import { callControlSocket } from '../platform/control-socket/call-control-socket.ts';
import type { Database } from '../platform/database/database.ts';
import { type DataFiles, prepareDataDirectory } from './data-directory.ts';
import { openStore } from './open-store.ts';
import { dataDirectory, SERVICE_NAMES, type ServiceName, type Settings } from './settings.ts';
import { storeDefinitions, storeLocation } from './store-location.ts';

export interface StoreAccessOptions {
  readonly settings: Settings;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly homeDirectory: string;
  readonly clock: Clock;
}

/** A database that a command may copy, whoever has it open. */
export type CopyableDatabase = Pick<Database, 'name' | 'engine' | 'backupTo'>;

const STATUS_TIMEOUT_MS = 5000;
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
    databases.push(await openStore(definition, location, options.clock, opened));
  }
  return databases;
}

/** The databases as they are now: each through the socket of the server that has it open, otherwise opened here. */
export async function copyableStores(
  options: StoreAccessOptions,
  opened: AsyncDisposableStack,
): Promise<readonly CopyableDatabase[]> {
  const files = await dataFilesOf(options);
  const stores: CopyableDatabase[] = [];
  for (const definition of storeDefinitions(SERVICE_NAMES)) {
    const { name } = definition;
    const location = storeLocation(options.settings.database.url, files, name);
    const served = location.engine === 'sqlite' ? await servedStore(name, files.controlSocket(name)) : undefined;
    stores.push(served ?? (await openStore(definition, location, options.clock, opened)));
  }
  return stores;
}

async function servedStore(name: ServiceName, socket: string): Promise<CopyableDatabase | undefined> {
  if ((await callControlSocket(socket, 'status', {}, STATUS_TIMEOUT_MS)) === undefined) return undefined;
  return {
    name,
    engine: 'sqlite',
    backupTo: async (file) => void (await callControlSocket(socket, 'backup', { file }, BACKUP_TIMEOUT_MS)),
  };
}
