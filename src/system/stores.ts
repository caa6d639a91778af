import { accountsMigrations } from '../accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../accounts/storage/accounts-schema.ts';
import { bridgeMigrations } from '../bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../bridge/storage/bridge-schema.ts';
import { completionsMigrations } from '../completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../completions/storage/completions-schema.ts';
import { type Clock, pause, repeat, systemClock, wakefulClock } from '../platform/clock/clock.ts';
import { callControlSocket } from '../platform/control-socket/control-socket.ts';
import type { AnyDatabase, Database, DatabaseLocation } from '../platform/database/database.ts';
import type { DatabaseDefinition, Migration } from '../platform/database/migrations.ts';
import { openDatabase } from '../platform/database/open-database.ts';
import type { ConnectionPool } from '../platform/database/postgres/connection-pool.ts';
import type { ClusterSchema } from '../platform/database/postgres/limit-buckets.ts';
import { type OwnerKind, ownSqliteFile } from '../platform/database/sqlite/sqlite-file.ts';
import { AppError } from '../platform/errors/app-error.ts';
import type { FigureSource } from '../platform/http/http-metrics.ts';
import { createSharedBuckets, createStoreWatch, type SharedLimits } from '../platform/limits/shared-buckets.ts';
import type { Environment, Runtime } from '../platform/runtime/runtime.ts';
import { type DataFiles, prepareDataDirectory } from './data-directory.ts';
import { dataDirectory, SERVICE_NAMES, type ServiceName, type Settings } from './settings.ts';

/** What each service stores. */
interface ServiceSchemas {
  readonly bridge: BridgeSchema;
  readonly completions: CompletionsSchema;
  readonly accounts: AccountsSchema;
}

const MIGRATIONS: Readonly<Record<ServiceName, readonly Migration[]>> = {
  bridge: bridgeMigrations,
  completions: completionsMigrations,
  accounts: accountsMigrations,
};

/** The open databases, by service. */
export type ServiceDatabases = { readonly [Name in ServiceName]?: Database<ServiceSchemas[Name]> | undefined };

/** The databases of the running services, each owned by this process. */
export interface Stores extends AsyncDisposable {
  readonly databases: ServiceDatabases;
  readonly all: readonly AnyDatabase[];
  /** The connections of all of them; undefined on SQLite. */
  readonly pool: ConnectionPool | undefined;
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

export async function openStores({ settings, names, files, clock, owner }: OpenStoresOptions): Promise<Stores> {
  await using opened = new AsyncDisposableStack();
  const pool = await openPool(settings.database);
  if (pool !== undefined) opened.defer(() => pool.close());
  async function open<Name extends ServiceName>(name: Name): Promise<Database<ServiceSchemas[Name]> | undefined> {
    if (!names.includes(name)) return undefined;
    const location = storeLocation(settings.database, files, name, pool);
    return openStore<ServiceSchemas[Name]>(storeDefinition(name), location, clock, owner, opened);
  }
  const databases: ServiceDatabases = {
    bridge: await open('bridge'),
    completions: await open('completions'),
    accounts: await open('accounts'),
  };
  const all: readonly AnyDatabase[] = Object.values(databases).filter((database) => database !== undefined);
  const owned = opened.move();
  return {
    databases,
    all,
    pool,
    async check() {
      await Promise.all(all.map((database) => database.check()));
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/**
 * Opens the databases for a server. Where another one has them, ALREADY_RUNNING says which; one that is starting is waited
 * for, because it cannot say yet where it listens.
 */
export function openServerStores(options: Omit<OpenStoresOptions, 'owner'>): Promise<Stores> {
  return throughServer(
    () => refuseSecondServer(options),
    () => openStores({ ...options, owner: 'server' }),
  );
}

/** Throws ALREADY_RUNNING when a server that listens has one of these databases. Makes no file. */
export async function refuseSecondServer({
  settings,
  names,
  files,
}: Pick<OpenStoresOptions, 'settings' | 'names' | 'files'>): Promise<undefined> {
  if (settings.database.url !== '') return;
  for (const name of names) {
    const asked = callControlSocket(files.controlSocket(name), 'status', {}, STATUS_TIMEOUT_MS);
    // A server that does not answer keeps its files: the lock of the file refuses this start.
    const { pid, url } = ((await asked.catch(() => undefined))?.result ?? {}) as Partial<RunningServer>;
    if (url) throw new AppError('ALREADY_RUNNING', { folder: files.folder, url, pid });
  }
}

interface RunningServer {
  readonly pid: number;
  readonly url: string;
}

const FIGURES = ['batches', 'commits', 'reads', 'queued'] as const;

/** What each database counts, for `/metrics`. */
export function databaseFigures({ all }: Stores): readonly FigureSource[] {
  return FIGURES.map((figure) => ({
    type: 'gauge',
    name: `database_${figure}`,
    help: `Database ${figure}${figure === 'queued' ? ' now' : ' since the start'}.`,
    read: () => all.map(({ name, statistics }) => ({ value: statistics()[figure], labels: { database: name } })),
  }));
}

export interface StoreAccessOptions {
  readonly settings: Settings;
  readonly environment: Environment;
  readonly homeDirectory: string;
  readonly clock: Clock;
}

/** A database that a command may copy while another process has it open. */
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
): Promise<readonly AnyDatabase[]> {
  const files = await dataFilesOf(options);
  return opened.use(await openStores({ ...options, names: SERVICE_NAMES, files, owner: 'command' })).all;
}

/** The databases as they are now: each through the socket of the server that has it open, otherwise opened here. */
export async function copyableStores(
  options: StoreAccessOptions,
  opened: AsyncDisposableStack,
): Promise<readonly CopyableDatabase[]> {
  const files = await dataFilesOf(options);
  const stores: CopyableDatabase[] = [];
  for (const name of SERVICE_NAMES) {
    const location = storeLocation(options.settings.database, files, name);
    const store = await throughServer(
      async () => (location.engine === 'sqlite' ? servedStore(name, files.controlSocket(name)) : undefined),
      () => openStore(storeDefinition(name), location, options.clock, 'command', opened),
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
  const deadline = systemClock.monotonic() + SERVER_START_WAIT_MS;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    try {
      return await doHere();
    } catch (error) {
      const isTaken = error instanceof AppError && error.code === 'STORAGE_IN_USE';
      if (!isTaken || systemClock.monotonic() > deadline) throw error;
      await pause(wakefulClock, PAUSE_MS);
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
async function openStore<Schema>(
  definition: DatabaseDefinition,
  location: DatabaseLocation,
  clock: Clock,
  owner: OwnerKind,
  opened: AsyncDisposableStack,
): Promise<Database<Schema>> {
  if (location.engine === 'sqlite') {
    const ownership = await ownSqliteFile(location.file, owner);
    opened.defer(() => ownership.release());
  }
  const database = await openDatabase<Schema>({ ...definition, location, clock });
  opened.defer(() => database.close());
  return database;
}

async function openPool({ url, listen_url: directUrl, connections: size }: Settings['database']) {
  if (url === '') return undefined;
  const { openConnectionPool } = await import('../platform/database/postgres/connection-pool.ts');
  return openConnectionPool(url, { isPooled: directUrl !== '', size });
}

const SWEEP_MS = 10 * 60_000;

/** Limits that all instances of a PostgreSQL database count together; undefined on SQLite, where there is one. */
export async function openSharedLimits(
  { database: { url, listen_url: directUrl }, cluster }: Settings,
  pool: ConnectionPool | undefined,
  { clock, logger }: Pick<Runtime, 'clock' | 'logger'>,
  opened: AsyncDisposableStack,
): Promise<SharedLimits | undefined> {
  if (pool === undefined) return undefined;
  const { clusterMigrations, createBucketStore } = await import('../platform/database/postgres/limit-buckets.ts');
  const location = postgresLocation({ url, directUrl, schema: 'cluster', pool });
  const database = await openDatabase<ClusterSchema>({
    name: 'cluster',
    migrations: clusterMigrations,
    location,
    clock,
  });
  opened.defer(() => database.close());
  const store = createBucketStore(database);
  const onAway = (error: unknown) =>
    logger.warn({ err: error, calls: cluster.limits_without_database }, 'limits cannot be counted: no database');
  const watch = createStoreWatch({ clock, onAway });
  const passWhenAway = cluster.limits_without_database === 'pass';
  const buckets = createSharedBuckets({ store, clock, watch, passWhenAway });
  opened.defer(() => buckets.stop());
  const onError = (error: unknown) => logger.warn({ err: error }, 'old limits not removed');
  const sweeping = repeat({ clock, pauseMs: SWEEP_MS, work: store.sweep, onError });
  opened.defer(() => sweeping.stop());
  return { buckets, watch, passWhenAway };
}

/** One file per service, or one schema per service of a PostgreSQL database. */
export function storeLocation(
  { url, listen_url: directUrl }: Settings['database'],
  files: DataFiles,
  service: string,
  pool?: ConnectionPool,
): DatabaseLocation {
  if (url === '') return { engine: 'sqlite', file: files.database(service) };
  return postgresLocation({ url, directUrl, schema: service, pool });
}

interface PostgresPlace {
  readonly url: string;
  readonly directUrl: string;
  readonly schema: string;
  readonly pool: ConnectionPool | undefined;
}

function postgresLocation({ url, directUrl, schema, pool }: PostgresPlace): DatabaseLocation {
  return {
    engine: 'postgres',
    url,
    schema,
    ...(directUrl !== '' && { directUrl }),
    ...(pool !== undefined && { pool }),
  };
}

/** How the database of a service is made. */
export function storeDefinition(name: ServiceName): DatabaseDefinition & { readonly name: ServiceName } {
  return { name, migrations: MIGRATIONS[name] };
}
