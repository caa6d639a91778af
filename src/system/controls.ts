import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Static, type TSchema, Type } from 'typebox';
import type { accountsControlResults } from '../accounts/control-methods.ts';
import type { runnerControlResults } from '../bridge/contract/surface.ts';
import type { nodeControlResults } from '../bridge/forwarding/node-health.ts';
import type { completionsControlResults } from '../completions/control-methods.ts';
import { pause, wakefulClock } from '../platform/clock/clock.ts';
import {
  type ControlSocket,
  callControlSocket,
  serveControlSocket,
} from '../platform/control-socket/control-socket.ts';
import type { AnyDatabase } from '../platform/database/database.ts';
import { parseOwner } from '../platform/database/sqlite/sqlite-file.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError, isExpected, platformErrors } from '../platform/errors/error-table.ts';
import { RemoteError } from '../platform/json-rpc/envelope.ts';
import { createDispatch, defineMethod, type MethodRow } from '../platform/json-rpc/method-table.ts';
import type { Logger } from '../platform/log/logger.ts';
import type { Runtime } from '../platform/runtime/runtime.ts';
import { type DataFiles, dataFiles } from './data-directory.ts';
import { PROGRAM_VERSION } from './environment.ts';
import { prepareServiceParts, type RunningService, startServices } from './service-wiring.ts';
import type { ServiceName } from './settings.ts';
import {
  dataFilesOf,
  existingDataFiles,
  hasData,
  openStores,
  placesOf,
  type StoreAccessOptions,
  sayWhenSlow,
  throughServer,
  waitText,
} from './stores.ts';

interface ServeControlsOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  /** Where the server listens; empty until it does. */
  url(): string;
  readonly file: string;
  readonly service: RunningService;
  readonly database: AnyDatabase;
}

/**
 * Opens a running service to commands on this machine. Only with SQLite: on PostgreSQL several instances may share a
 * machine, a socket would belong to one of them at random, and commands can open the database beside them.
 */
export function serveControls(options: ServeControlsOptions): Promise<ControlSocket> {
  const { file, service, database, url, clock, makeId, logger } = options;
  return serveControlSocket({
    file,
    dispatch: createDispatch({ rows: [...controlMethods(database, url), ...service.controls] }),
    errors: { ...platformErrors, ...service.surface.errors },
    clock,
    makeRequestId: () => makeId('req_'),
    onUnexpectedError: (error, requestId) => logger.error({ err: error, requestId }, 'control call failed'),
  });
}

/** What commands may ask of the server that owns a database. */
function controlMethods(database: AnyDatabase, url: () => string): readonly MethodRow<undefined>[] {
  return [
    defineMethod({
      name: 'status',
      summary: 'Which process runs here.',
      params: Type.Object({}),
      result: Type.Object({
        pid: Type.Integer(),
        version: Type.String(),
        database: Type.String(),
        url: Type.String({ description: 'Where it listens; empty until it does.' }),
      }),
      handle: () => ({ pid: process.pid, version: PROGRAM_VERSION, database: database.name, url: url() }),
    }),
    defineMethod({
      name: 'backup',
      summary: 'Writes a copy of the database, of one moment, into a new file.',
      params: Type.Object({ file: Type.String({ minLength: 1 }) }),
      result: Type.Object({}),
      async handle({ file }) {
        await database.backupTo(file);
        return {};
      },
    }),
  ];
}

/** A server and the credential for its bridge. */
export interface ServerAccess {
  readonly url: string;
  /** Empty: none is needed. */
  readonly token: string;
}

/** The server that runs on this data directory; undefined when none does. A server that is starting is waited for. */
export async function findServer(options: StoreAccessOptions): Promise<ServerAccess | undefined> {
  const { settings } = options;
  const files = placesOf(options);
  if (settings.database.url !== '' || !existsSync(files.folder)) return undefined;
  const asked = askForAccess(files.controlSocket('bridge')).catch((error) => throwSilent(error, files, 'bridge'));
  return sayWhenSlow(asked, () => options.say?.(waitText(files, ['bridge'])));
}

/** Names the server that has not answered in time; throws any other error as it is. */
function throwSilent(error: unknown, files: DataFiles, name: ServiceName): never {
  if (!(error instanceof AppError) || error.code !== 'CALL_TIMEOUT') throw error;
  const { folder, database } = files;
  const pid = parseOwner(`${database(name)}.pid`)?.pid;
  const owner = pid === undefined ? '' : ` (pid ${pid})`;
  throw new AppError(
    'SERVER_SILENT',
    { folder, owner, pid: pid ?? '<pid>', seconds: TIMEOUT_MS / 1000 },
    { cause: error },
  );
}

async function askForAccess(socket: string): Promise<ServerAccess | undefined> {
  for (let tries = 0; tries < STARTING_TRIES; tries += 1) {
    const answer = await callControlSocket(socket, 'status', {}, TIMEOUT_MS);
    if (answer === undefined) return undefined;
    const { url } = answer.result as { readonly url?: string };
    const given = await callControlSocket(socket, 'token', {}, TIMEOUT_MS);
    if (url && given !== undefined) return { url, token: (given.result as { readonly token: string }).token };
    await pause(wakefulClock, STARTING_PAUSE_MS);
  }
  return undefined;
}

const STARTING_TRIES = 100;
const STARTING_PAUSE_MS = 100;

interface CallControlOptions extends StoreAccessOptions {
  readonly logger: Logger;
}

const TIMEOUT_MS = 60_000;
/** What may be the first call on a new data directory. */
const MAKES_DATA = /\.create$|^models\.update$/;
/** What the settings alone tell, before there is any data. All other calls need data. */
const NEEDS_NO_DATA = /^(?:models|nodes)\./;

/** The schemas of what the methods for commands return. */
interface ControlSchemas {
  readonly accounts: typeof accountsControlResults;
  readonly bridge: typeof nodeControlResults & typeof runnerControlResults;
  readonly completions: typeof completionsControlResults;
}

export type ControlMethod<Name extends ServiceName> = keyof ControlSchemas[Name] & string;

export type ControlResult<Name extends ServiceName, Method extends ControlMethod<Name>> = Static<
  ControlSchemas[Name][Method] & TSchema
>;

/**
 * Calls one of a service's `controls` for a command: of the server that has its database open, otherwise of the service
 * made here for this one call. What the service refuses is thrown as COMMAND_REFUSED, in its own words.
 */
export async function callControl<Name extends ServiceName, Method extends ControlMethod<Name>>(
  options: CallControlOptions,
  name: Name,
  method: Method,
  params: Readonly<Record<string, unknown>>,
): Promise<ControlResult<Name, Method>> {
  await using opened = new AsyncDisposableStack();
  const files = await filesForCall(options, method, opened);
  const askServer = async () =>
    options.settings.database.url === ''
      ? callControlSocket(files.controlSocket(name), method, params, TIMEOUT_MS)
          .catch((error) => throwSilent(error, files, name))
          .catch(refusedThere)
      : undefined;
  const { result } = await throughServer(
    askServer,
    async () => ({ result: await callInProcess(options, files, name, method, params) }),
    () => options.say?.(waitText(files, [name])),
  );
  return result as ControlResult<Name, Method>;
}

/** Where a call finds its data; without any, what needs none works in a temporary folder. */
async function filesForCall(
  options: StoreAccessOptions,
  method: string,
  opened: AsyncDisposableStack,
): Promise<DataFiles> {
  if (MAKES_DATA.test(method)) return dataFilesOf(options);
  if (!NEEDS_NO_DATA.test(method)) return existingDataFiles(options);
  if (hasData(options)) return dataFilesOf(options);
  const folder = await mkdtemp(join(tmpdir(), 'trestle-'));
  opened.defer(() => rm(folder, { recursive: true }));
  return dataFiles(folder);
}

async function callInProcess(
  options: CallControlOptions,
  files: DataFiles,
  name: ServiceName,
  method: string,
  params: Readonly<Record<string, unknown>>,
): Promise<unknown> {
  await using opened = new AsyncDisposableStack();
  const stores = opened.use(await openStores({ ...options, names: [name], files, owner: 'command' }));
  // No turn runs for a command, so nothing has to be hidden from one.
  const privatePaths = { folders: [], files: [] };
  const parts = await prepareServiceParts({ ...options, services: [name], files, privatePaths, databases: stores.all });
  const { [name]: service } = await startServices({ parts, databases: stores.databases, opened });
  if (service === undefined) throw new Error(`the service ${name} did not start`);
  return await callHere(service, method, params);
}

async function callHere(service: RunningService, method: string, params: unknown): Promise<unknown> {
  const dispatch = createDispatch({ rows: service.controls });
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const nobodyListens = () => undefined;
  const call = { method, params, id: method, caller: undefined, signal, requestId: 'command' };
  try {
    return await dispatch({ ...call, notify: nobodyListens, accept: nobodyListens });
  } catch (error) {
    const errors = service.surface.errors;
    if (!isExpected(errors, error)) throw error;
    const { code, message: reason } = describeError(errors, error);
    throw new AppError('COMMAND_REFUSED', { reason, code }, { cause: error });
  }
}

function refusedThere(error: unknown): never {
  if (!(error instanceof RemoteError)) throw error;
  const { code } = Object(error.data) as { readonly code?: unknown };
  const reason = error.remoteMessage;
  throw new AppError('COMMAND_REFUSED', { reason, ...(typeof code === 'string' && { code }) }, { cause: error });
}
