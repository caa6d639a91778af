import { access, constants } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, errorCode } from '../platform/errors/app-error.ts';
import { makeFolder } from '../platform/files/make-folder.ts';

/** Everything that lies in the data directory, by name. */
export interface DataFiles {
  readonly folder: string;
  readonly secretKey: string;
  /** Running child processes are noted here, so that a start after a crash finds what is left of them. */
  readonly processes: string;
  database(service: string): string;
  controlSocket(service: string): string;
}

export function dataFiles(folder: string): DataFiles {
  return {
    folder,
    secretKey: join(folder, 'secret.key'),
    processes: join(folder, 'processes'),
    database: (service) => join(folder, `${service}.db`),
    controlSocket: (service) => join(folder, `${service}.sock`),
  };
}

/** Makes the folder (for its owner only) when it is not there, and checks that files can be made in it. */
export async function prepareDataDirectory(folder: string): Promise<DataFiles> {
  try {
    await makeFolder(folder);
    await access(folder, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new AppError('DATA_DIRECTORY_UNUSABLE', { folder, reason: errorCode(error) }, { cause: error });
  }
  return dataFiles(folder);
}
