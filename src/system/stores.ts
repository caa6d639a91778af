import { setTimeout as delay } from 'node:timers/promises';
import type { Clock } from '../platform/clock/clock.ts';
import { callControlSocket } from '../platform/control-socket/control-socket.ts';
import type { Database, DatabaseLocation } from '../platform/database/database.ts';
import type { DatabaseDefinition } from '../platform/database/migration.ts';
import { openDatabase } from '../platform/database/open-database.ts';
import { type OwnerKind, ownSqliteFile } from '../platform/database/sqlite/sqlite-file.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { type DataFiles, prepareDataDirectory } from './data-directory.ts';
import { serviceTable } from './service-table.ts';
import { dataDirectory, SERVICE_NAMES, type ServiceName, type Settings } from './settings.ts';

/** The databases of the running services, each owned by this process. */
export interface Stores extends AsyncDisposable {
  readonly databases: readonly Database<never>[];
  database(name: ServiceName): Database<never> | undefined;
  /** Rejects unless every database answers. */
  check(): Promise<void>;
}

interface OpenStoresOptions {
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

export interface StoreAccessOptions {
  readonly settings: Settings;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly homeDirectory: string;
  readonly clock: Clock;
}

/** A database that a command may copy, whoever has it open. */
type CopyableDatabase = Pick<Database, 'name' | 'engine' | 'backupTo'>;

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
    databases.push(await openStore(definition, location, options.clock, 'command', opened));
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
    const store = await throughServer(
      async () => (location.engine === 'sqlite' ? servedStore(name, files.controlSocket(name)) : undefined),
      () => openStore(definition, location, options.clock, 'command', opened),
    );
    stores.push(store);
  }
  return stores;
}

const SERVER_START_WAIT_MS = 30_000;
const PAUSE_MS = 50;

/**
 * Asks the running server, or else does it here. A server that has just taken the files and does not answer yet is
 * waited for.
 */
export async function throughServer<T>(ask: () => Promise<T | undefined>, doHere: () => Promise<T>): Promise<T> {
  const deadline = performance.now() + SERVER_START_WAIT_MS;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    try {
      return await doHere();
    } catch (error) {
      const isTaken = error instanceof AppError && error.code === 'STORAGE_IN_USE';
      if (!isTaken || performance.now() > deadline) throw error;
      await delay(PAUSE_MS);
    }
  }
}

async function servedStore(name: ServiceName, socket: string): Promise<CopyableDatabase | undefined> {
  if ((await callControlSocket(socket, 'status', {}, STATUS_TIMEOUT_MS)) === undefined) return undefined;
  return {
    name,
    engine: 'sqlite',
    backupTo: async (file) => void (await callControlSocket(socket, 'backup', { file }, BACKUP_TIMEOUT_MS)),
  };
}

/** Opens a service's database, and claims it for this process where it is a file; `opened` closes and releases it. */
async function openStore(
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
