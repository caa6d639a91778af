import { type BigIntStats, constants } from 'node:fs';
import { type FileHandle, lstat, open, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode } from '../../../../platform/errors/app-error.ts';
import {
  belongsToBridge,
  type ConfinedFolder,
  type ConfinedRoot,
  locate,
  openFolder,
  refuse,
  shown,
} from './confined-folder.ts';

export interface OpenFile {
  /** Its real path, for people. */
  readonly path: string;
  readonly handle: FileHandle;
  readonly size: number;
}

/** Opens a file of the working directory for reading, and gives it to `use`. Only regular files: a pipe would never end. */
export async function withFile<Result>(
  root: ConfinedRoot,
  path: string,
  use: (file: OpenFile) => Promise<Result>,
): Promise<Result> {
  const names = await locate(root, path);
  const name = names.at(-1) ?? refuse(`"${shown(path)}" is the working directory; name a file in it.`);
  const folder = await openFolder(root, names.slice(0, -1));
  const file = await openEntry(folder, name).finally(folder.close);
  try {
    return await use(file);
  } finally {
    await file.handle.close();
  }
}

/** Opens a regular file. Anything else is refused: a link, and a file that is private to the bridge under any name. */
export async function openEntry(folder: ConfinedFolder, name: string): Promise<OpenFile> {
  // Not blocking, because a named pipe would wait for its writer.
  const handle = await open(folder.entry(name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stats = await handle.stat({ bigint: true });
    if (!stats.isFile()) refuse(notAFile(name, stats));
    if (folder.isPrivate(stats)) refuse(belongsToBridge(name));
    return { path: join(folder.path, name), handle, size: Number(stats.size) };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

export interface WrittenFile {
  readonly path: string;
  readonly isNew: boolean;
}

/**
 * Puts a whole new content in the place of a file, or makes the file and the folders to it. It is written beside and
 * renamed, so that no crash leaves half of it, and a link or a second name of the old file is not written through.
 */
export async function replaceFile(
  root: ConfinedRoot,
  path: string,
  content: string,
  temporaryName: string,
): Promise<WrittenFile> {
  const names = await locate(root, path);
  const name = names.at(-1) ?? refuse(`"${shown(path)}" is the working directory; name a file in it.`);
  const folder = await openFolder(root, names.slice(0, -1), { create: true });
  try {
    const before = await statsOf(folder.entry(name));
    if (before !== undefined && !before.isFile()) refuse(notAFile(name, before));
    if (before !== undefined && folder.isPrivate(before)) refuse(belongsToBridge(name));
    await writeBeside(folder, temporaryName, content, before);
    await rename(folder.entry(temporaryName), folder.entry(name));
    return { path: join(folder.path, name), isNew: before === undefined };
  } catch (error) {
    await unlink(folder.entry(temporaryName)).catch(() => undefined);
    throw error;
  } finally {
    await folder.close();
  }
}

async function writeBeside(folder: ConfinedFolder, name: string, content: string, before: BigIntStats | undefined) {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const handle = await open(folder.entry(name), flags, 0o666);
  try {
    if (before !== undefined) await handle.chmod(Number(before.mode) & 0o777);
    await handle.writeFile(content);
  } finally {
    await handle.close();
  }
}

async function statsOf(place: string): Promise<BigIntStats | undefined> {
  try {
    return await lstat(place, { bigint: true });
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function notAFile(name: string, stats: BigIntStats): string {
  if (stats.isDirectory()) return `"${shown(name)}" is a folder; use list_files to see what is in it.`;
  return `"${shown(name)}" is not a regular file.`;
}
