import { callControlSocket } from '../platform/control-socket/control-socket.ts';
import { AppError } from '../platform/errors/app-error.ts';
import { describeError, isExpected } from '../platform/errors/error-table.ts';
import { RemoteError } from '../platform/json-rpc/envelope.ts';
import { createDispatch } from '../platform/json-rpc/method-table.ts';
import type { Logger } from '../platform/log/logger.ts';
import type { DataFiles } from './data-directory.ts';
import { openStores } from './open-stores.ts';
import { dataFilesOf, type StoreAccessOptions, throughServer } from './own-stores.ts';
import { prepareServiceParts } from './service-parts.ts';
import { type RunningService, serviceTable } from './service-table.ts';
import type { ServiceName } from './settings.ts';

export interface CallControlOptions extends StoreAccessOptions {
  readonly logger: Logger;
}

const TIMEOUT_MS = 60_000;

/**
 * Calls one of a service's `controls` for a command: of the server that has its database open, otherwise of the service
 * made here for this one call. What the service refuses is thrown as COMMAND_REFUSED, in its own words.
 */
export async function callControl(
  options: CallControlOptions,
  name: ServiceName,
  method: string,
  params: Readonly<Record<string, unknown>>,
): Promise<unknown> {
  const files = await dataFilesOf(options);
  const askServer = async () =>
    options.settings.database.url === ''
      ? callControlSocket(files.controlSocket(name), method, params, TIMEOUT_MS).catch(refusedThere)
      : undefined;
  const { result } = await throughServer(askServer, async () => ({
    result: await callInProcess(options, files, name, method, params),
  }));
  return result;
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
  const { databases } = stores;
  // No turn runs for a command, so nothing has to be hidden from one.
  const privatePaths = { folders: [], files: [] };
  const parts = await prepareServiceParts({ ...options, services: [name], files, privatePaths, databases });
  const service = await serviceTable[name].create({ ...parts, database: stores.database(name) });
  opened.defer(async () => service.stop?.());
  return await callHere(service, method, params);
}

async function callHere(service: RunningService, method: string, params: unknown): Promise<unknown> {
  const dispatch = createDispatch({ rows: service.controls ?? [] });
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const nobodyListens = () => undefined;
  const call = { method, params, id: method, caller: undefined, signal, requestId: 'command' };
  try {
    return await dispatch({ ...call, notify: nobodyListens, accept: nobodyListens });
  } catch (error) {
    const errors = service.surface?.errors ?? {};
    if (!isExpected(errors, error)) throw error;
    throw new AppError('COMMAND_REFUSED', { reason: describeError(errors, error).message }, { cause: error });
  }
}

function refusedThere(error: unknown): never {
  if (!(error instanceof RemoteError)) throw error;
  throw new AppError('COMMAND_REFUSED', { reason: error.remoteMessage }, { cause: error });
}
