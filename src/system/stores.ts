import { existsSync } from 'node:fs';
import { accountsMigrations } from '../accounts/storage/accounts-migrations.ts';
import type { AccountsSchema } from '../accounts/storage/accounts-schema.ts';
import { bridgeMigrations } from '../bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../bridge/storage/bridge-schema.ts';
import { completionsMigrations } from '../completions/storage/completions-migrations.ts';
import type { CompletionsSchema } from '../completions/storage/completions-schema.ts';
import { type Clock, pause, systemClock, wakefulClock } from '../platform/clock/clock.ts';
import { callControlSocket } from '../platform/control-socket/control-socket.ts';
import type { AnyDatabase, Database, DatabaseLocation } from '../platform/database/database.ts';
import { inspectDatabase } from '../platform/database/inspect-database.ts';
import type { DatabaseDefinition, Migration } from '../platform/database/migrations.ts';
import { openDatabase } from '../platform/database/open-database.ts';
import type { ConnectionPool } from '../platform/database/postgres/connection-pool.ts';
import { type OwnerKind, ownSqliteFile, parseOwner } from '../platform/database/sqlite/sqlite-file.ts';
import { AppError } from '../platform/errors/app-error.ts';
import type { FigureSource } from '../platform/http/http-metrics.ts';
import { checkAddress, refusalToListen } from '../platform/http/listen-address.ts';
import { RemoteError } from '../platform/json-rpc/envelope.ts';
import type { Environment } from '../platform/runtime/runtime.ts';
import { type DataFiles, dataFiles, prepareDataDirectory } from './data-directory.ts';
import { dataDirectory, listenAddress, SERVICE_NAMES, type ServiceName, type Settings } from './settings.ts';

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
  /** A command has the databases for a short time, a server while it runs. */
  readonly owner: OwnerKind;
  /** Shows one line to the person who waits. */
  say?(text: string): void;
}

export async function openStores(options: OpenStoresOptions): Promise<Stores> {
  const { settings, names, files, clock, owner, say } = options;
  await using opened = new AsyncDisposableStack();
  const pool = await openPool(settings.database);
  if (pool !== undefined) opened.defer(() => pool.close());
  async function open<Name extends ServiceName>(name: Name): Promise<Database<ServiceSchemas[Name]> | undefined> {
    if (!names.includes(name)) return undefined;
    const location = storeLocation(settings.database, files, name, pool);
    const onWait = () => say?.(waitText(files, [name]));
    return openStore<ServiceSchemas[Name]>(storeDefinition(name), location, { clock, owner, opened, onWait });
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

type StartOptions = Pick<OpenStoresOptions, 'settings' | 'names' | 'files'> & Required<Pick<OpenStoresOptions, 'say'>>;

/** Checks the conditions of a start before any file is created, so that a failed start leaves no files. */
export async function checkStart(options: StartOptions): Promise<void> {
  const { settings, names, files, say } = options;
  const address = listenAddress(settings, names.length === 1 ? names[0] : undefined);
  const surfaces = names.flatMap((name) => protectionOf(settings, name) ?? []);
  const reason = refusalToListen({ host: address.host, insecure: settings.insecure, surfaces });
  if (reason !== undefined) throw new AppError('LISTEN_REFUSED', { reason });
  await sayWhenSlow(refuseSecondServer(options), () => say(waitText(files, names)));
  await checkAddress(address);
}

/** What protects a service, as its surface says it too once it runs; undefined where nothing has to be set. */
function protectionOf({ bridge, completions }: Settings, name: ServiceName) {
  if (name === 'bridge') {
    const isOpen = () => bridge.auth_token === '' && bridge.review_auth_token === '';
    return { title: 'Bridge', credentialSetting: 'BRIDGE_AUTH_TOKEN', isOpen };
  }
  if (name === 'accounts') return undefined;
  const isOpen = () => completions.master_key === '';
  return { title: 'Completions', credentialSetting: 'COMPLETIONS_MASTER_KEY', isOpen };
}

/**
 * Opens the databases for a server. Where another one has them, ALREADY_RUNNING says which; one that is starting is waited
 * for, because it cannot say yet where it listens.
 */
export function openServerStores(options: Omit<OpenStoresOptions, 'owner'> & StartOptions): Promise<Stores> {
  return throughServer(
    () => refuseSecondServer(options),
    () => openStores({ ...options, owner: 'server' }),
    () => options.say(waitText(options.files, options.names)),
  );
}

/** Throws ALREADY_RUNNING when a server that listens has one of these databases. Makes no file. */
async function refuseSecondServer({ settings, names, files }: StartOptions): Promise<undefined> {
  if (settings.database.url !== '') return;
  const asked = names.map(async (name) => {
    const answer = callControlSocket(files.controlSocket(name), 'status', {}, STATUS_TIMEOUT_MS);
    // A server that does not respond still has its files: their lock refuses this start.
    return ((await answer.catch(() => undefined))?.result ?? {}) as Partial<RunningServer>;
  });
  const running = (await Promise.all(asked)).find(({ url }) => url);
  if (running === undefined) return;
  const { url, pid } = running;
  throw new AppError('ALREADY_RUNNING', { folder: files.folder, url, pid });
}

/** After this time, a person who waits sees the reason. */
const SILENT_MS = 1000;

/** Calls `say` once when the work takes longer than a moment. */
export async function sayWhenSlow<T>(work: Promise<T>, say: () => void): Promise<T> {
  const cancel = wakefulClock.after(SILENT_MS, say);
  try {
    return await work;
  } finally {
    cancel();
  }
}

/** Passes on each line once. */
export function withoutRepeats(say: (text: string) => void): (text: string) => void {
  const said = new Set<string>();
  return (text) => {
    if (said.has(text)) return;
    said.add(text);
    say(text);
  };
}

/** Names the process that blocks the start: a command, or a server that is starting, busy or frozen. */
export function waitText({ folder, database }: DataFiles, names: readonly ServiceName[]): string {
  const owner = names.map((name) => parseOwner(`${database(name)}.pid`)).find((found) => found !== undefined);
  if (owner?.kind === 'command')
    return `waiting for a command (pid ${owner.pid}) that uses the data directory ${folder}`;
  const pid = owner === undefined ? '' : ` (pid ${owner.pid})`;
  return `waiting for the server${pid} of the data directory ${folder}, which does not answer yet`;
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
  /** Takes one line for the person who waits. */
  say?(text: string): void;
}

/** A database that a command may copy while another process has it open. */
type CopyableDatabase = Pick<Database, 'name' | 'engine' | 'backupTo'>;

const STATUS_TIMEOUT_MS = 5000;
const BACKUP_TIMEOUT_MS = 6 * 60 * 60 * 1000;

export function dataFilesOf(options: StoreAccessOptions): Promise<DataFiles> {
  return prepareDataDirectory(placesOf(options).folder);
}

/** As `dataFilesOf`, for commands that need data. Throws NO_DATA, so that a mistyped folder or URL does not become an empty installation. */
export async function existingDataFiles(options: StoreAccessOptions): Promise<DataFiles> {
  const { database } = options.settings;
  if (database.url === '' ? hasData(options) : await hasSchema(options)) return dataFilesOf(options);
  if (database.url !== '')
    throw new AppError('NO_DATA', { folder: `the database of ${URL.parse(database.url)?.host}` });
  const { folder } = placesOf(options);
  // A folder that this user may not read looks empty.
  if (existsSync(folder)) await prepareDataDirectory(folder);
  throw new AppError('NO_DATA', { folder });
}

/** Whether a server or a command has made a database. */
export function hasData(options: StoreAccessOptions): boolean {
  const { database } = placesOf(options);
  return options.settings.database.url !== '' || SERVICE_NAMES.some((name) => existsSync(database(name)));
}

/** Whether a service has stored anything in the PostgreSQL database. Changes nothing. */
async function hasSchema(options: StoreAccessOptions): Promise<boolean> {
  for (const name of SERVICE_NAMES) {
    const location = storeLocation(options.settings.database, placesOf(options), name);
    if ((await inspectDatabase(storeDefinition(name), location)).exists) return true;
  }
  return false;
}

/** Returns the paths of the data, whether or not they exist. */
export function placesOf({ settings, environment, homeDirectory }: StoreAccessOptions): DataFiles {
  return dataFiles(dataDirectory(settings, homeDirectory, environment.XDG_DATA_HOME));
}

/**
 * Opens all databases for a command that works while no server runs: a running one is refused, with its process id. A schema that
 * cannot be opened is found before another one is brought up to date.
 */
export async function openStoresAlone(
  options: StoreAccessOptions,
  opened: AsyncDisposableStack,
): Promise<readonly AnyDatabase[]> {
  const files = await existingDataFiles(options);
  const { database } = options.settings;
  if (database.url !== '') {
    for (const name of SERVICE_NAMES)
      await inspectDatabase(storeDefinition(name), storeLocation(database, files, name));
  }
  return opened.use(await openStores({ ...options, names: SERVICE_NAMES, files, owner: 'command' })).all;
}

/**
 * The databases as they are now: each through the socket of the server that has it open, otherwise opened here. A schema of an
 * older version stays as it is, so that a backup before an upgrade can be restored with that version.
 */
export async function copyableStores(
  options: StoreAccessOptions,
  opened: AsyncDisposableStack,
): Promise<readonly CopyableDatabase[]> {
  const files = await existingDataFiles(options);
  const opening = { clock: options.clock, owner: 'command', opened, keepsSchema: true } as const;
  const stores: CopyableDatabase[] = [];
  for (const name of SERVICE_NAMES) {
    const location = storeLocation(options.settings.database, files, name);
    const onWait = () => options.say?.(waitText(files, [name]));
    const store = await throughServer(
      async () => (location.engine === 'sqlite' ? servedStore(name, files.controlSocket(name)) : undefined),
      () => openStore(storeDefinition(name), location, { ...opening, onWait }),
      onWait,
    );
    stores.push(store);
  }
  return stores;
}

const SERVER_START_WAIT_MS = 30_000;
const PAUSE_MS = 50;

/**
 * Asks the running server, or else does it here. A server that has just taken the files and does not answer yet is
 * waited for; `onWait` is called once when that, or an answer, takes longer than a moment.
 */
export async function throughServer<T>(
  ask: () => Promise<T | undefined>,
  doHere: () => Promise<T>,
  onWait: () => void,
): Promise<T> {
  const began = systemClock.monotonic();
  let hasSaid = false;
  const sayOnce = () => {
    if (!hasSaid) onWait();
    hasSaid = true;
  };
  for (;;) {
    const answer = await sayWhenSlow(ask(), sayOnce);
    if (answer !== undefined) return answer;
    try {
      return await doHere();
    } catch (error) {
      const isTaken = error instanceof AppError && error.code === 'STORAGE_IN_USE';
      const waitedMs = systemClock.monotonic() - began;
      if (!isTaken || waitedMs > SERVER_START_WAIT_MS) throw error;
      if (waitedMs > SILENT_MS) sayOnce();
      await pause(wakefulClock, PAUSE_MS);
    }
  }
}

async function servedStore(name: ServiceName, socket: string): Promise<CopyableDatabase | undefined> {
  if ((await callControlSocket(socket, 'status', {}, STATUS_TIMEOUT_MS)) === undefined) return undefined;
  return {
    name,
    engine: 'sqlite',
    backupTo: async (file) =>
      void (await callControlSocket(socket, 'backup', { file }, BACKUP_TIMEOUT_MS).catch(throwServers)),
  };
}

/** The server writes the copy: its words say why it could not. */
function throwServers(cause: unknown): never {
  if (!(cause instanceof RemoteError)) throw cause;
  const { code } = Object(cause.data) as { readonly code?: unknown };
  if (code === 'STORAGE_FULL') throw new AppError(code, {}, { cause });
  throw new AppError('BACKUP_FAILED', { reason: `the running server says: ${cause.remoteMessage}` }, { cause });
}

interface OpenStoreOptions extends Pick<OpenStoresOptions, 'clock' | 'owner'> {
  readonly opened: AsyncDisposableStack;
  /** Leaves out the migrations that an existing database does not have yet. */
  readonly keepsSchema?: boolean;
  /** Called when another process has the file for longer than a moment. */
  onWait(): void;
}

/** Opens a service's database, and claims it for this process where it is a file; `opened` closes and releases it. */
async function openStore<Schema>(
  definition: DatabaseDefinition,
  location: DatabaseLocation,
  { clock, owner, opened, keepsSchema = false, onWait }: OpenStoreOptions,
): Promise<Database<Schema>> {
  if (location.engine === 'sqlite') {
    const ownership = await sayWhenSlow(ownSqliteFile(location.file, owner), onWait);
    opened.defer(() => ownership.release());
  }
  const wanted = keepsSchema ? await asStored(definition, location) : definition;
  const database = await openDatabase<Schema>({ ...wanted, location, clock });
  opened.defer(() => database.close());
  return database;
}

async function asStored(definition: DatabaseDefinition, location: DatabaseLocation): Promise<DatabaseDefinition> {
  // A file is copied as it is; a schema is copied into one of this program.
  const purpose = location.engine === 'postgres' ? 'copy' : 'serve';
  const { exists, migrations } = await inspectDatabase(definition, location, purpose);
  return exists ? { ...definition, migrations: definition.migrations.slice(0, migrations) } : definition;
}

async function openPool({ url, listen_url: directUrl, connections: size }: Settings['database']) {
  if (url === '') return undefined;
  const { openConnectionPool } = await import('../platform/database/postgres/connection-pool.ts');
  return openConnectionPool(url, { isPooled: directUrl !== '', size });
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

export function postgresLocation({ url, directUrl, schema, pool }: PostgresPlace): DatabaseLocation {
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
