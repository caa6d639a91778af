import { type BigIntStats, constants } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, realpath, rename, unlink } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { AppError, errorCode } from '../../../../platform/errors/app-error.ts';
import {
  type HeldFolder,
  holdFolder,
  type Identity,
  lineageOf,
  type PrivateIdentities,
  type PrivatePlaces,
} from '../../../sessions/private-places.ts';

const MAX_PATH_BYTES = 4096;
const MAX_NAME_BYTES = 255;

/**
 * A working directory, and the only way for a tool to open anything in it: code without such a root opens nothing for a
 * caller.
 */
export interface ConfinedRoot {
  /** A real path. */
  readonly path: string;
  /** The paths that permission rules keep from being read; undefined where there are none. Absent: no rules count. */
  readonly denials?: () => Promise<DeniesPath | undefined>;
  /** Opens the folder and checks that it is the one that was meant, and not a private one. Close what you get. */
  open(): Promise<ConfinedFolder>;
}

type DeniesPath = (path: string) => boolean;

/** A folder inside the working directory that was reached without following a link and without entering a private place. */
export interface ConfinedFolder {
  /** Its real path, for people. */
  readonly path: string;
  /** The path by which an entry of it is opened. */
  entry(name: string): string;
  /** One level down; a link or a private folder there is refused. */
  enter(name: string): Promise<ConfinedFolder>;
  /** Whether something is private to the bridge, by what it is. */
  isPrivate(identity: Identity): boolean;
  /** The same for an entry that was not opened. */
  hides(name: string): Promise<boolean>;
  close(): Promise<void>;
}

interface ConfinementOptions {
  readonly places: PrivatePlaces;
  /** Whether a path is the private folder of a session: those lie inside the data directory. */
  isScratch(path: string): boolean;
}

/** Makes roots out of the real paths of working directories. */
export type Confine = (path: string) => ConfinedRoot;

export function createConfinement({ places, isScratch }: ConfinementOptions): Confine {
  return (path) => ({
    path,
    async open() {
      const isPrivate = await places.look();
      const folder = await holdFolder(path, path);
      try {
        const where = await folder.whereabouts();
        if (where !== undefined && where !== path) refuse('The working directory was moved or replaced.');
        // Scratch folders lie in a private place, but their paths are made here and by nobody else.
        for await (const level of isScratch(path) ? [folder] : lineageOf(folder)) {
          if (isPrivate.has(level)) refuse('The working directory belongs to the bridge itself.');
        }
        return confinedFolder(folder, path, isPrivate);
      } catch (error) {
        await folder.close();
        throw error;
      }
    },
  });
}

function confinedFolder(folder: HeldFolder, path: string, isPrivate: PrivateIdentities): ConfinedFolder {
  if (folder.holdsProcesses) refuse(`"${shown(path)}" holds processes, not files; use another folder.`);
  const { entry } = folder;
  return {
    path,
    entry,
    isPrivate: isPrivate.has,
    hides: async (name) => isPrivate.has(await lstat(entry(name), { bigint: true })),
    async enter(name) {
      const next = await holdFolder(entry(name), join(path, name), folder);
      try {
        if (isPrivate.has(next)) refuse(belongsToBridge(name));
        return confinedFolder(next, join(path, name), isPrivate);
      } catch (error) {
        await next.close();
        throw error;
      }
    },
    close: folder.close,
  };
}

/**
 * The names that lead from the root to what a path means: links are resolved, and whatever lies outside is refused, also
 * when it does not exist yet. Between this and the use anything may happen, so the names are then walked one by one.
 */
export async function locate({ path: root }: ConfinedRoot, path: string): Promise<readonly string[]> {
  if (path.includes('\0')) refuse('A path must not hold a NUL character.');
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) refuse(`A path must not be longer than ${MAX_PATH_BYTES} bytes.`);
  if ((await realpath(root)) !== root) refuse('The working directory was moved or replaced.');
  const real = await realPathOf(resolve(root, path));
  const inside = relative(root, real);
  if (inside === '') return [];
  if (inside === '..' || inside.startsWith(`..${sep}`) || isAbsolute(inside)) {
    refuse(`"${shown(path)}" lies outside the working directory; use paths inside it.`);
  }
  const names = inside.split(sep);
  if (names.some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES)) refuse('A name in the path is too long.');
  return names;
}

/** The real path of what exists of a path, and the rest as it stands. */
async function realPathOf(path: string): Promise<string> {
  const missing: string[] = [];
  for (let at = path; ; at = dirname(at)) {
    try {
      return join(await realpath(at), ...missing);
    } catch (error) {
      if (errorCode(error) !== 'ENOENT' || at === dirname(at)) throw error;
      missing.unshift(basename(at));
    }
  }
}

/**
 * Which paths below something permission rules deny, counted from it; undefined where they deny none. It was asked for as `path` and
 * lies at `names`: rules count for both. Throws TOOL_CALL_REFUSED where they deny it, or a folder between it and the root.
 */
export async function deniedBelow(
  root: ConfinedRoot,
  path: string,
  names: readonly string[],
): Promise<DeniesPath | undefined> {
  const denies = await root.denials?.();
  if (denies === undefined) return undefined;
  const bases = [...new Set([join(root.path, ...names), resolve(root.path, path)])];
  if (bases.some((base) => isDeniedWithin(denies, base, root.path))) {
    refuse(`a permission rule denies reading "${shown(path)}"; do without it and tell the user.`);
  }
  return (inside) => bases.some((base) => isDeniedWithin(denies, join(base, inside), base));
}

/** Whether a path is denied, or a folder between it and the folder `top`, in which `path` may lie. */
function isDeniedWithin(denies: DeniesPath, path: string, top: string): boolean {
  if (denies(path)) return true;
  const above = dirname(path);
  return path !== top && above !== top && above !== path && isDeniedWithin(denies, above, top);
}

/** Walks down from the root; with `create`, folders that are missing are made. Close what you get. */
export async function openFolder(
  root: ConfinedRoot,
  names: readonly string[],
  { create = false }: { readonly create?: boolean } = {},
): Promise<ConfinedFolder> {
  const top = await root.open();
  const before = create ? (folder: ConfinedFolder, name: string) => makeFolder(folder.entry(name)) : undefined;
  try {
    const folder = await enterFolders(top, names, before);
    if (folder !== top) await top.close();
    return folder;
  } catch (error) {
    await top.close();
    throw error;
  }
}

/** Walks down from a folder, which stays open; without names, that folder is the result. Close any other that you get. */
export async function enterFolders(
  top: ConfinedFolder,
  names: readonly string[],
  before?: (folder: ConfinedFolder, name: string) => Promise<void>,
): Promise<ConfinedFolder> {
  let folder = top;
  try {
    for (const name of names) {
      await before?.(folder, name);
      const next = await folder.enter(name);
      if (folder !== top) await folder.close();
      folder = next;
    }
    return folder;
  } catch (error) {
    if (folder !== top) await folder.close();
    throw error;
  }
}

async function makeFolder(place: string): Promise<void> {
  try {
    await mkdir(place);
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
  }
}

/** A path of the model, cut to a length that can be sent back. */
function shown(path: string): string {
  return path.length > 200 ? `${path.slice(0, 200)}...` : path;
}

function belongsToBridge(name: string): string {
  return `"${shown(name)}" belongs to the bridge itself; use other files.`;
}

/** Refuses something that the model asked for; the reason tells the model what to do instead. */
export function refuse(reason: string): never {
  throw new AppError('TOOL_CALL_REFUSED', { reason });
}

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
  await deniedBelow(root, path, names);
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

interface WrittenFile {
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
