import { constants, existsSync } from 'node:fs';
import { open, readdir, readlink, stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errorCode } from '../../platform/errors/app-error.ts';

/** What a file or folder is, whatever path leads to it: links, second names, bind mounts and other case share it. */
export interface Identity {
  readonly dev: bigint;
  readonly ino: bigint;
}

/** What is private to the bridge at one moment. */
export interface PrivateIdentities {
  has(identity: Identity): boolean;
}

/** Files and folders of the program itself that no caller and no tool may reach. */
export interface PrivatePlaces {
  /**
   * Reads the identities of the private folders, of everything directly inside them, and of the private files. Call it for
   * each operation: files appear and are replaced while the program runs.
   */
  look(): Promise<PrivateIdentities>;
  /** Whether a folder contains a private one, however deep. */
  isAbove(folder: Identity): Promise<boolean>;
  /** Whether a real path is that of a private file or folder, for what does not exist any more. */
  covers(path: string): boolean;
}

/**
 * On Linux an open folder can be used through its descriptor: swapping a folder of its path for a link does not change
 * where the descriptor leads. Elsewhere the path is used.
 */
const HAS_DESCRIPTOR_PATHS = existsSync('/proc/self/fd');

const PROC_FILE_SYSTEM = 0x9fa0;
/** More levels than any path that the system accepts can have. */
const MAX_LEVELS = 4096;

/** Real paths. What does not exist now may exist later. */
export interface PrivatePaths {
  /** The data directory, and for programs that have one inside another, both. */
  readonly folders: readonly string[];
  /** Single files elsewhere, such as the configuration. The folders that contain them are not private. */
  readonly files: readonly string[];
}

export function createPrivatePlaces({ folders, files }: PrivatePaths): PrivatePlaces {
  return {
    async look() {
      const found = new Set<string>();
      const add = async (path: string): Promise<void> => {
        const identity = await identityOf(path);
        if (identity !== undefined) found.add(identityKey(identity));
      };
      for (const path of [...folders, ...files]) await add(path);
      for (const path of folders) for (const name of await readdir(path).catch(noEntries)) await add(join(path, name));
      return { has: (identity) => found.has(identityKey(identity)) };
    },
    async isAbove(folder) {
      for (const path of folders) {
        for (let at = dirname(path); ; at = dirname(at)) {
          const identity = await identityOf(at);
          if (identity !== undefined && isSame(identity, folder)) return true;
          if (at === dirname(at)) break;
        }
      }
      return false;
    },
    covers: (path) =>
      files.includes(path) || folders.some((folder) => path === folder || path.startsWith(`${folder}/`)),
  };
}

/** A folder that is held open, so that it stays the same folder whatever happens to its path. */
export interface HeldFolder extends Identity {
  /** True inside `/proc`: entries there lead to the environment, the memory and the open files of this program. */
  readonly holdsProcesses: boolean;
  /** The path by which the folder (`.`) or an entry of it is opened. */
  entry(name: string): string;
  /** Where the folder is now; undefined where the system does not say. */
  whereabouts(): Promise<string | undefined>;
  close(): Promise<void>;
}

/** Opens a folder without following a link at its end. `above`: the checked folder that it was reached from. */
export async function holdFolder(place: string, path: string, above?: HeldFolder): Promise<HeldFolder> {
  const handle = await open(place, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
  try {
    const { dev, ino } = await handle.stat({ bigint: true });
    const base = HAS_DESCRIPTOR_PATHS ? `/proc/self/fd/${handle.fd}` : path;
    // A file system of another kind begins only where the device changes.
    const holdsProcesses =
      dev === above?.dev ? above.holdsProcesses : (await statfs(`${base}/.`)).type === PROC_FILE_SYSTEM;
    return {
      dev,
      ino,
      holdsProcesses,
      entry: (name) => `${base}/${name}`,
      whereabouts: async () => (HAS_DESCRIPTOR_PATHS ? readlink(base) : undefined),
      close: () => handle.close(),
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** The identities of a folder and of all folders above it, as the system sees them and not as a path spells them. */
export async function* lineageOf(folder: HeldFolder): AsyncGenerator<Identity> {
  yield folder;
  let last: Identity = folder;
  for (let level = 1, up = '..'; level < MAX_LEVELS; level += 1, up += '/..') {
    const above = await stat(folder.entry(up), { bigint: true });
    if (isSame(above, last)) return;
    yield above;
    last = above;
  }
}

export function isSame(one: Identity, other: Identity): boolean {
  return one.ino === other.ino && one.dev === other.dev;
}

/** `device:inode`. */
export function identityKey({ dev, ino }: Identity): string {
  return `${dev}:${ino}`;
}

async function identityOf(path: string): Promise<Identity | undefined> {
  try {
    return await stat(path, { bigint: true });
  } catch (error) {
    if (['ENOENT', 'ENOTDIR', 'ELOOP', 'EACCES'].includes(errorCode(error))) return undefined;
    throw error;
  }
}

function noEntries(error: unknown): readonly string[] {
  if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(errorCode(error))) return [];
  throw error;
}
