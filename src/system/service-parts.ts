import type { Clock } from '../platform/clock/clock.ts';
import { systemRandomness } from '../platform/clock/randomness.ts';
import type { Database } from '../platform/database/database.ts';
import { createSortableIds } from '../platform/ids/sortable-id.ts';
import type { Logger } from '../platform/log/logger.ts';
import { createSecretBox } from '../platform/secrets/secret-box.ts';
import { deriveKeys } from '../platform/secrets/secret-keys.ts';
import type { DataFiles } from './data-directory.ts';
import { readBuildFacts } from './release.ts';
import { openSecretKeys } from './secret-key.ts';
import type { ServiceParts } from './service-table.ts';
import { listenAddress, type ServiceName, type Settings } from './settings.ts';

export interface ServicePartsOptions {
  readonly settings: Settings;
  /** The services to run; with one of them, its own default port is taken. */
  readonly services: readonly ServiceName[];
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly homeDirectory: string;
  readonly files: DataFiles;
  readonly privatePaths: ServiceParts['privatePaths'];
  /** Open; the secret key must be the one that their secrets are encrypted with. */
  readonly databases: readonly Database<never>[];
  readonly clock: Clock;
  readonly logger: Logger;
}

/** What all services are handed alike; each gets its own database and log besides. */
export type SharedParts = Omit<ServiceParts, 'database'>;

export async function prepareServiceParts(options: ServicePartsOptions): Promise<SharedParts> {
  const { settings, services, environment, homeDirectory, files, databases, clock, logger } = options;
  const randomness = systemRandomness;
  const keys = await openSecretKeys(databases, { file: files.secretKey, given: settings.secret_key, randomness });
  const address = listenAddress(settings, services.length === 1 ? services[0] : undefined);
  return {
    settings,
    environment,
    homeDirectory,
    dataDirectory: files.folder,
    privatePaths: options.privatePaths,
    processJournal: files.processes,
    address: `${address.host}:${address.port}`,
    build: readBuildFacts(environment),
    secretBox: createSecretBox(keys, randomness),
    linkKeys: deriveKeys(keys, 'signed-links v1'),
    randomness,
    clock,
    makeId: createSortableIds(clock, randomness),
    logger,
  };
}
