import { isUtf8 } from 'node:buffer';
import { constants } from 'node:fs';
import { lstat, open, opendir, realpath, stat } from 'node:fs/promises';
import { isAbsolute, join, resolve } from 'node:path';
import { type Clock, deadline } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { type Confine, withFile } from '../agents/builtin/tools/confinement.ts';
import type { FileView, FolderPage } from '../contract/files.ts';
import {
  type HeldFolder,
  holdFolder,
  type Identity,
  isSame,
  lineageOf,
  type PrivatePlaces,
} from '../sessions/private-places.ts';
import { identitiesOf, type OwnerRoots, type WorkingDirectories } from '../sessions/working-directory.ts';
import type { DirtyCheck } from '../worktrees/worktree-files.ts';

/** The folders in which agents may work, for people who choose one. */
export interface FolderList {
  /** The folders inside of one, by name alone. Throws FOLDER_REFUSED outside of the roots and in private places. */
  list(path: string | undefined, owner: string): Promise<FolderPage>;
}

const MAX_ENTRIES = 500;
/** The maximum number of entries that are read of one folder. */
const MAX_LOOKED_AT = 20_000;
const MAX_FILE_BYTES = 1024 * 1024;
const MAX_HEAD_BYTES = 1024;
/** Git checks at most so many repositories of a folder, for at most so long. */
const MAX_REPOSITORIES = 40;
const MAX_LOOK_MS = 1000;
const REPOSITORIES_AT_A_TIME = 4;

export function createFolderList(
  ownerRoots: OwnerRoots,
  places: PrivatePlaces,
  isDirty: DirtyCheck,
  clock: Pick<Clock, 'after'>,
): FolderList {
  /** Notes for the first repositories whether they are dirty, as far as git says so in time. */
  async function noteDirty(entries: readonly Pick<FolderPage['entries'][number], 'path' | 'git'>[]): Promise<void> {
    const waiting = entries.filter(({ git }) => git !== undefined).slice(0, MAX_REPOSITORIES);
    const { signal, release } = deadline(clock, MAX_LOOK_MS);
    const look = async () => {
      for (let entry = waiting.shift(); entry?.git !== undefined && !signal.aborted; entry = waiting.shift()) {
        const dirty = await isDirty(entry.path, signal);
        if (dirty !== undefined) entry.git.dirty = dirty;
      }
    };
    await Promise.all(Array.from({ length: REPOSITORIES_AT_A_TIME }, look)).finally(release);
  }

  async function check(
    folder: HeldFolder,
    roots: readonly string[],
    closed: readonly string[],
  ): Promise<(name: string) => Promise<boolean>> {
    if (folder.holdsProcesses) throw refused('it holds processes, not files');
    const identities = await identitiesOf(roots);
    const others = await identitiesOf(closed);
    const isClosed = (identity: Identity) => others.some((other) => isSame(other, identity));
    const isPrivate = await places.look();
    let isInside = false;
    for await (const level of lineageOf(folder)) {
      if (isPrivate.has(level)) throw refused('it belongs to the bridge itself');
      if (isClosed(level)) throw refused('it belongs to people');
      isInside ||= identities.some((root) => isSame(root, level));
    }
    if (!isInside) throw refused('it is outside the folders of bridge.workspace_roots; choose one inside of them');
    return async (name) => {
      const found = await lstat(folder.entry(name), { bigint: true });
      return isPrivate.has(found) || isClosed(found);
    };
  }

  return {
    async list(path, owner) {
      const roots = await ownerRoots.of(owner);
      if (path === undefined) return { roots: [...roots], entries: [], truncated: false };
      if (!isAbsolute(path) || path.includes('\0')) throw refused('its path must be absolute');
      const real = await realpath(path).catch(notFound);
      const folder = await holdFolder(real, real).catch(notFound);
      try {
        const isPrivate = await check(folder, roots, ownerRoots.closedTo(owner));
        const { names, isCut } = await folderNames(folder);
        const entries: FolderPage['entries'] = [];
        for (const name of names) {
          // The folder may have been removed since it was listed.
          if (await isPrivate(name).catch(() => true)) continue;
          const git = await gitOf(folder.entry(name));
          entries.push({ name, path: join(real, name), ...(git && { git }) });
        }
        const git = await gitOf(folder.entry('.'));
        const itself = { path: real, ...(git && { git }) };
        await noteDirty([itself, ...entries]);
        return { roots: [...roots], ...(git && { git }), entries, truncated: isCut };
      } finally {
        await folder.close();
      }
    },
  };
}

/** The branch of a folder that is a repository. */
async function gitOf(folder: string): Promise<FolderPage['git']> {
  const branch = await branchOf(folder);
  const isGit = branch !== '' || (await stat(join(folder, '.git')).catch(() => undefined)) !== undefined;
  return isGit ? { branch } : undefined;
}

async function folderNames(folder: HeldFolder): Promise<{ names: readonly string[]; isCut: boolean }> {
  const names: string[] = [];
  let looked = 0;
  let isCut = false;
  for await (const entry of await opendir(folder.entry('.')).catch(notFound)) {
    looked += 1;
    if (looked > MAX_LOOKED_AT) isCut = true;
    if (isCut) break;
    if (!entry.isDirectory() || entry.name.startsWith('.')) continue;
    if (names.length === MAX_ENTRIES) isCut = true;
    else names.push(entry.name);
  }
  return { names: names.toSorted(), isCut };
}

/** Reads a file of a session's working directory, by the rules of the built-in tools. */
export function createFileReader(directories: Pick<WorkingDirectories, 'check' | 'scratch'>, confine: Confine) {
  return async (
    session: { key: string; owner: string; working_directory: string },
    path: string,
  ): Promise<FileView> => {
    const { key, owner, working_directory: folder } = session;
    try {
      const real = folder === '' ? await directories.scratch(key) : await directories.check(folder, owner);
      return await withFile(confine(real), path, async ({ handle, size, path: found }) => {
        const buffer = Buffer.alloc(Math.min(size, MAX_FILE_BYTES));
        const { bytesRead } = await handle.read(buffer, 0, buffer.length, 0);
        return {
          path: found,
          sizeBytes: size,
          ...contentOf(buffer.subarray(0, bytesRead)),
          truncated: size > bytesRead,
        };
      });
    } catch (error) {
      if (error instanceof AppError) throw new AppError('FILE_REFUSED', { reason: String(error.details.reason) });
      if (['ENOENT', 'ENOTDIR'].includes(errorCode(error)))
        throw new AppError('FILE_NOT_FOUND', { path: path.slice(0, 200) });
      if (['EACCES', 'EPERM', 'ELOOP'].includes(errorCode(error))) {
        throw new AppError('FILE_REFUSED', { reason: 'the bridge may not open it.' });
      }
      throw error;
    }
  };
}

export type ReadFile = ReturnType<typeof createFileReader>;

/** As text where it is text; a character that is cut in two at the end is left out. */
function contentOf(bytes: Buffer): Pick<FileView, 'encoding' | 'content'> {
  for (let left = 0; left < 4; left += 1) {
    const whole = bytes.subarray(0, bytes.length - left);
    if (isUtf8(whole)) return { encoding: 'utf8', content: whole.toString() };
  }
  return { encoding: 'base64', content: bytes.toString('base64') };
}

function notFound(error: unknown): never {
  if (['EACCES', 'EPERM'].includes(errorCode(error))) throw refused('the bridge may not read it');
  throw refused('there is no such folder');
}

function refused(reason: string): AppError {
  return new AppError('FOLDER_REFUSED', { reason });
}

/**
 * The branch of git that a folder is on; empty without one. The file of git is read, and git is never run: a folder that an
 * agent writes to may name programs that git would start.
 */
export async function branchOf(folder: string): Promise<string> {
  try {
    const place = join(folder, '.git');
    const isFolder = (await stat(place)).isDirectory();
    // A worktree has a file there that names its folder.
    const gitFolder = isFolder ? place : resolve(folder, (await readHead(place)).replace(/^gitdir: */, ''));
    return /^ref: refs\/heads\/(.+)$/.exec(await readHead(join(gitFolder, 'HEAD')))?.[1] ?? '';
  } catch {
    return '';
  }
}

/**
 * The content of a small file; empty for anything else. What is opened is looked at, not what had the path before: an agent may put a
 * pipe there at any moment, and opening a pipe would hold a thread of this program until something is written to it.
 */
async function readHead(file: string): Promise<string> {
  const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const found = await handle.stat();
    if (!found.isFile() || found.size > MAX_HEAD_BYTES) return '';
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(MAX_HEAD_BYTES), 0, MAX_HEAD_BYTES, 0);
    return buffer.toString('utf8', 0, bytesRead).trim();
  } finally {
    await handle.close();
  }
}
