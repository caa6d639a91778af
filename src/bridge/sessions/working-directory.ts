import { statSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, realpath, rename, rm, stat } from 'node:fs/promises';
import { isAbsolute, join, sep } from 'node:path';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { fileShelf, fileShelves, identityOf } from '../agents/agent-fence.ts';
import { ATTACHMENT_FOLDER } from '../attachments/given-files.ts';
import { isOperators, MAIN, personOf } from '../principal.ts';
import {
  type HeldFolder,
  holdFolder,
  type Identity,
  identityKey,
  isSame,
  lineageOf,
  type PrivatePlaces,
} from './private-places.ts';

/** Where agents work. */
export interface WorkingDirectories {
  /**
   * Returns the real path of a requested folder. Throws WORKING_DIRECTORY_REFUSED unless the folder exists inside the
   * owner's roots now and neither is nor contains a private place: call it right before the folder is used, because links
   * can change. Folders are compared by what they are, not by how a path spells them.
   */
  check(requested: string, owner?: string): Promise<string>;
  /** The same for a folder that `check` or `scratch` gave: returns what it is now, as `device:inode`. */
  identify(folder: string, owner?: string): Promise<string>;
  /** The private folder of a session that named none; it is made when it is not there. */
  scratch(sessionKey: string): Promise<string>;
  /** Puts the private folder out of the way: the next session of that name finds none. What is returned removes it. */
  setScratchAside(sessionKey: string): Promise<() => Promise<void>>;
  /** Where the files of a session's prompts are, in its private folder; it may not be there. */
  filesOf(sessionKey: string): string;
  /** Where programs in the sandbox find the files of a session's prompts. Undefined: they are not in one, or see the private folder. */
  shelfOf(sessionKey: string, owner: string, folder: string): string | undefined;
  /** Whether a path, as `scratch` gave it, is a private folder of a session. */
  isScratch(path: string): boolean;
}

interface WorkingDirectoryOptions {
  readonly roots: OwnerRoots;
  /** A real path. Scratch folders are made in it. */
  readonly dataDirectory: string;
  /** The data directory, and whatever else is ours. */
  readonly places: PrivatePlaces;
  /** Whether programs see their working directory only. */
  readonly isFenced?: boolean;
}

const MAX_PATH = 4096;

export function createWorkingDirectories(options: WorkingDirectoryOptions): WorkingDirectories {
  const { roots, dataDirectory, places } = options;
  const allScratch = join(dataDirectory, 'scratch');
  const scratchOf = (sessionKey: string) => join(allScratch, sessionKey);
  const shelves = fileShelves(dataDirectory);

  async function checkHeld(folder: HeldFolder, owner: string): Promise<void> {
    if (folder.holdsProcesses) throw refused('it holds processes, not files; use a folder of files');
    const rootIdentities = await identitiesOf(await roots.of(owner));
    const closed = await identitiesOf(roots.closedTo(owner));
    const isPrivate = await places.look();
    let isInsideRoot = false;
    for await (const level of lineageOf(folder)) {
      if (isPrivate.has(level)) throw refused('it belongs to the bridge itself; use another folder');
      if (closed.some((one) => isSame(one, level))) throw refused('it belongs to people; use another folder');
      isInsideRoot ||= rootIdentities.some((root) => isSame(root, level));
    }
    if (!isInsideRoot) {
      throw refused(`it is outside of ${namesOf(await roots.of(owner), roots.listed)}`);
    }
    const isListed = (await identitiesOf(roots.listed)).some((root) => isSame(root, folder));
    if (!isListed && (await places.isAbove(folder))) {
      throw refused(
        'it contains the data directory of the bridge; use a folder below it, or list exactly this folder in bridge.workspace_roots',
      );
    }
  }

  /** Runs `use` with a folder that is allowed, and cannot be replaced until `use` has ended. */
  async function withChecked<Result>(
    requested: string,
    owner: string,
    use: (folder: HeldFolder, real: string) => Result,
  ) {
    if (requested.length > MAX_PATH || requested.includes('\0') || !isAbsolute(requested)) {
      throw refused('it must be an absolute path');
    }
    // A person's own folder is made by the first look at it.
    await roots.of(owner);
    const real = await realpath(requested).catch(() => undefined);
    if (real === undefined) throw refused('there is no such folder');
    const folder = await holdFolder(real, real).catch(notOpened);
    try {
      await checkHeld(folder, owner);
      const where = await folder.whereabouts();
      if (where !== undefined && where !== real) throw refused('it was moved or replaced; try again');
      return use(folder, real);
    } finally {
      await folder.close();
    }
  }

  return {
    check: (requested, owner = MAIN.id) => withChecked(requested, owner, (_folder, real) => real),
    async identify(folder, owner = MAIN.id) {
      if (isInside(folder, allScratch)) return identityOf(folder);
      return withChecked(folder, owner, identityKey);
    },
    async scratch(sessionKey) {
      const folder = scratchOf(sessionKey);
      // Once for each turn, and all but the first find it: looking here takes a twentieth of what the thread pool takes.
      if (statSync(folder, { throwIfNoEntry: false })?.isDirectory() === true) return folder;
      await mkdir(folder, { recursive: true, mode: 0o700 });
      return folder;
    },
    async setScratchAside(sessionKey) {
      await mkdir(allScratch, { recursive: true, mode: 0o700 });
      const aside = await mkdtemp(join(allScratch, 'closed-'));
      const hidden = [scratchOf(sessionKey)];
      for (const shelf of await readdir(shelves).catch(() => [])) hidden.push(join(shelves, shelf, sessionKey));
      for (const [index, path] of hidden.entries()) {
        await rename(path, join(aside, String(index))).catch((error) => {
          // A session that worked elsewhere has none.
          if (errorCode(error) !== 'ENOENT') throw error;
        });
      }
      return () => rm(aside, { recursive: true, force: true });
    },
    filesOf: (sessionKey) => join(scratchOf(sessionKey), ATTACHMENT_FOLDER),
    shelfOf: (sessionKey, owner, folder) =>
      options.isFenced !== true || isInside(folder, allScratch)
        ? undefined
        : join(fileShelf(dataDirectory, owner, folder), sessionKey),
    isScratch: (path) => isInside(path, allScratch),
  };
}

/** A person has one folder, whose name is theirs to know; the shared ones are a setting. */
function namesOf(roots: readonly string[], listed: readonly string[]): string {
  const [first = ''] = roots;
  return roots.length === 1 && !listed.includes(first)
    ? `your own folder, ${first}; use that folder or one inside of it`
    : 'the folders of bridge.workspace_roots; use a folder inside them, or list it there';
}

function isInside(path: string, root: string): boolean {
  return path === root || path.startsWith(root.endsWith(sep) ? root : root + sep);
}

/** The identities of those that are there. */
export async function identitiesOf(paths: readonly string[]): Promise<readonly Identity[]> {
  const found = await Promise.all(paths.map((path) => stat(path, { bigint: true }).catch(() => undefined)));
  return found.filter((identity) => identity !== undefined);
}

function notOpened(error: unknown): never {
  const code = errorCode(error);
  if (code === 'ENOTDIR') throw refused('it is not a folder');
  if (code === 'EACCES' || code === 'EPERM') throw refused('the bridge may not read it; change its permissions');
  throw refused('it was moved or replaced; try again');
}

function refused(reason: string): AppError {
  return new AppError('WORKING_DIRECTORY_REFUSED', { reason });
}

/** The folders in which agents may work, by owner of the work. */
export interface OwnerRoots {
  /** Those of an owner. The own folder of a person or a team is made when it is not there. */
  of(owner: string): Promise<readonly string[]>;
  /** What an owner must not enter although it is inside of its folders: the folders of people, for other static tokens and nodes. */
  closedTo(owner: string): readonly string[];
  /** Folders that the operator has listed: one of them may contain a private place, because the operator wants it so. */
  readonly listed: readonly string[];
}

interface OwnerRootsOptions {
  readonly listed: readonly string[];
  /** Used when the operator has listed none. */
  readonly fallback?: readonly string[];
  /** The folder of each person and team, with `{user}` for the id. Undefined: people have the folders of everyone. */
  readonly personal?: string | undefined;
}

/** Owners that are people, service accounts or teams. */
const PLACEHOLDER = /\{(?:user|team)\}/;

export function createOwnerRoots({ listed, fallback = [], personal }: OwnerRootsOptions): OwnerRoots {
  const shared = listed.length === 0 ? fallback : listed;
  const folderOfAll = personal?.slice(0, Math.max(personal.search(PLACEHOLDER), 0)).replace(/\/[^/]*$/, '');
  return {
    listed,
    async of(owner) {
      const id = personOf(owner);
      if (personal === undefined || id === undefined) return shared;
      const folder = personal.replaceAll(/\{(?:user|team)\}/g, id);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      return [folder];
    },
    closedTo: (owner) =>
      folderOfAll === undefined || folderOfAll === '' || isOperators(owner) || personOf(owner) !== undefined
        ? []
        : [folderOfAll],
  };
}
