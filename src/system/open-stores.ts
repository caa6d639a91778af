import type { Clock } from '../platform/clock/clock.ts';
import { serveControlSocket } from '../platform/control-socket/serve-control-socket.ts';
import type { Database } from '../platform/database/database.ts';
import { platformErrors } from '../platform/errors/platform-errors.ts';
import type { MakeId } from '../platform/ids/sortable-id.ts';
import { createDispatch } from '../platform/json-rpc/method-table.ts';
import type { Logger } from '../platform/log/logger.ts';
import { controlMethods } from './control-methods.ts';
import type { DataFiles } from './data-directory.ts';
import { openStore } from './open-store.ts';
import type { ServiceName, Settings } from './settings.ts';
import { storeDefinitions, storeLocation } from './store-location.ts';

/** The databases of the running services, each owned by this process and reachable for commands through its socket. */
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
  readonly makeId: MakeId;
  readonly logger: Logger;
}

export async function openStores(options: OpenStoresOptions): Promise<Stores> {
  const { settings, names, files, clock, makeId, logger } = options;
  await using opened = new AsyncDisposableStack();
  const databases = new Map<ServiceName, Database<never>>();
  for (const definition of storeDefinitions(names)) {
    const location = storeLocation(settings.database.url, files, definition.name);
    const database = await openStore(definition, location, clock, opened);
    databases.set(definition.name, database);
    // On PostgreSQL several instances may share a machine: a socket would belong to one of them at random.
    if (location.engine === 'sqlite') {
      const socket = await serveControlSocket({
        file: files.controlSocket(definition.name),
        dispatch: createDispatch({ rows: controlMethods(database) }),
        errors: platformErrors,
        clock,
        makeRequestId: () => makeId('req_'),
        onUnexpectedError: (error, requestId) => logger.error({ err: error, requestId }, 'control call failed'),
      });
      opened.defer(() => socket.close());
    }
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
