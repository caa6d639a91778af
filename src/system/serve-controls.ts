import type { Clock } from '../platform/clock/clock.ts';
import { type ControlSocket, serveControlSocket } from '../platform/control-socket/control-socket.ts';
import type { Database } from '../platform/database/database.ts';
import { platformErrors } from '../platform/errors/error-table.ts';
import type { MakeId } from '../platform/ids/sortable-id.ts';
import { createDispatch } from '../platform/json-rpc/method-table.ts';
import type { Logger } from '../platform/log/logger.ts';
import { controlMethods } from './control-methods.ts';
import type { RunningService } from './service-table.ts';

export interface ServeControlsOptions {
  readonly file: string;
  readonly service: RunningService;
  readonly database: Database<never>;
  readonly clock: Clock;
  readonly makeId: MakeId;
  readonly logger: Logger;
}

/**
 * Opens a running service to commands on this machine. Only with SQLite: on PostgreSQL several instances may share a
 * machine, a socket would belong to one of them at random, and commands can open the database beside them.
 */
export function serveControls(options: ServeControlsOptions): Promise<ControlSocket> {
  const { file, service, database, clock, makeId, logger } = options;
  return serveControlSocket({
    file,
    dispatch: createDispatch({ rows: [...controlMethods(database), ...(service.controls ?? [])] }),
    errors: { ...platformErrors, ...service.surface?.errors },
    clock,
    makeRequestId: () => makeId('req_'),
    onUnexpectedError: (error, requestId) => logger.error({ err: error, requestId }, 'control call failed'),
  });
}
