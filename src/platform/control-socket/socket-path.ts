import { closeSync, openSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { AppError } from '../errors/app-error.ts';

/** The address of a Unix socket holds about a hundred bytes; this fits every system. */
const MAX_PATH_BYTES = 100;

/**
 * Calls `use` with a path that the operating system takes for `file`. A path that is too long is reached through an
 * open descriptor of its folder, which Linux shows as a short path.
 */
export async function withSocketPath<T>(file: string, use: (path: string) => Promise<T>): Promise<T> {
  if (Buffer.byteLength(file) <= MAX_PATH_BYTES) return use(file);
  if (process.platform !== 'linux') throw new AppError('SOCKET_PATH_TOO_LONG', { file, limit: MAX_PATH_BYTES });
  const folder = openSync(dirname(file), 'r');
  try {
    return await use(`/proc/self/fd/${folder}/${basename(file)}`);
  } finally {
    closeSync(folder);
  }
}
