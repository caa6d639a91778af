import { constants, existsSync } from 'node:fs';
import { type FileHandle, mkdir, open, realpath } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { errorCode } from '../../../../platform/errors/app-error.ts';
import { refuse } from './tool.ts';

const LONGEST_PATH_BYTES = 4096;
const LONGEST_NAME_BYTES = 255;

/**
 * On Linux a folder that is open can be entered through its descriptor: whoever swaps a folder of the path for a link
 * meanwhile changes nothing about where we are. Elsewhere the path is used, as it was when it was checked.
 */
const HAS_DESCRIPTOR_PATHS = existsSync('/proc/self/fd');

/** A folder inside the working directory that was reached without following a link. */
export interface ConfinedFolder {
  /** Its real path, for people. */
  readonly path: string;
  /** The path by which an entry of it is opened. */
  entry(name: string): string;
  /** One level down; a link there is refused. */
  enter(name: string): Promise<ConfinedFolder>;
  close(): Promise<void>;
}

/**
 * The names that lead from the root to what a path means: links are resolved, and whatever lies outside is refused, also
 * when it does not exist yet. Between this and the use anything may happen, so the names are then walked one by one.
 */
export async function locate(root: string, path: string): Promise<readonly string[]> {
  if (path.includes('\0')) refuse('A path must not hold a NUL character.');
  if (Buffer.byteLength(path) > LONGEST_PATH_BYTES)
    refuse(`A path must not be longer than ${LONGEST_PATH_BYTES} bytes.`);
  if ((await realpath(root)) !== root) refuse('The working directory was moved or replaced.');
  const real = await realPathOf(resolve(root, path));
  const inside = relative(root, real);
  if (inside === '') return [];
  if (inside === '..' || inside.startsWith(`..${sep}`) || isAbsolute(inside)) {
    refuse(`"${shown(path)}" lies outside the working directory; use paths inside it.`);
  }
  const names = inside.split(sep);
  if (names.some((name) => Buffer.byteLength(name) > LONGEST_NAME_BYTES)) refuse('A name in the path is too long.');
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

/** Walks down from the root; with `create`, folders that are missing are made. Close what you get. */
export async function openFolder(
  root: string,
  names: readonly string[],
  { create = false }: { readonly create?: boolean } = {},
): Promise<ConfinedFolder> {
  let folder = await openAt(root, root);
  try {
    for (const name of names) {
      if (create) await makeFolder(folder.entry(name));
      const next = await folder.enter(name);
      await folder.close();
      folder = next;
    }
    return folder;
  } catch (error) {
    await folder.close();
    throw error;
  }
}

async function openAt(place: string, path: string): Promise<ConfinedFolder> {
  const handle = await open(place, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  const entry = (name: string): string => (HAS_DESCRIPTOR_PATHS ? descriptorPath(handle, name) : join(path, name));
  return {
    path,
    entry,
    enter: (name) => openAt(entry(name), join(path, name)),
    close: () => handle.close(),
  };
}

function descriptorPath(handle: FileHandle, name: string): string {
  return `/proc/self/fd/${handle.fd}/${name}`;
}

async function makeFolder(place: string): Promise<void> {
  try {
    await mkdir(place);
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
  }
}

/** A path of the model, short enough to be told back. */
export function shown(path: string): string {
  return path.length > 200 ? `${path.slice(0, 200)}...` : path;
}
