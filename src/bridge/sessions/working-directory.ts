import { mkdir, mkdtemp, realpath, rename, rm, stat } from 'node:fs/promises';
import { isAbsolute, join, sep } from 'node:path';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';

/** Where agents work. */
export interface WorkingDirectories {
  /**
   * The real path of a folder that was asked for. Throws WORKING_DIRECTORY_REFUSED unless it exists inside the allowed
   * roots at this very moment: call it right before the folder is used, since links can change.
   */
  check(requested: string): Promise<string>;
  /** The private folder of a session that named none; it is made when it is not there. */
  scratch(sessionKey: string): Promise<string>;
  /** Puts the private folder out of the way: the next session of that name finds none. What is returned removes it. */
  setScratchAside(sessionKey: string): Promise<() => Promise<void>>;
  /** Whether a path, as `scratch` gave it, is a private folder of a session. */
  isScratch(path: string): boolean;
}

export interface WorkingDirectoryOptions {
  readonly roots: readonly string[];
  /** A real path. It holds our own secrets: no agent is sent there, scratch folders apart. */
  readonly dataDirectory: string;
}

const LONGEST_PATH = 4096;

export function createWorkingDirectories({ roots, dataDirectory }: WorkingDirectoryOptions): WorkingDirectories {
  const allScratch = join(dataDirectory, 'scratch');
  const scratchOf = (sessionKey: string) => join(allScratch, sessionKey);
  return {
    async check(requested) {
      if (requested.length > LONGEST_PATH || requested.includes('\0') || !isAbsolute(requested)) {
        throw refused('it must be an absolute path');
      }
      const real = await realpath(requested).catch(() => undefined);
      if (real === undefined) throw refused('there is no such folder');
      if (!(await stat(real)).isDirectory()) throw refused('it is not a folder');
      const realRoots = await Promise.all(roots.map((root) => realpath(root).catch(() => undefined)));
      if (!realRoots.some((root) => root !== undefined && isInside(real, root))) {
        throw refused('it is outside the folders of bridge.workspace_roots');
      }
      if (isInside(real, dataDirectory)) throw refused('it belongs to the bridge itself');
      return real;
    },
    async scratch(sessionKey) {
      const folder = scratchOf(sessionKey);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      return folder;
    },
    async setScratchAside(sessionKey) {
      await mkdir(allScratch, { recursive: true, mode: 0o700 });
      const aside = await mkdtemp(join(allScratch, 'closed-'));
      await rename(scratchOf(sessionKey), join(aside, sessionKey)).catch((error) => {
        // A session that worked elsewhere has none.
        if (errorCode(error) !== 'ENOENT') throw error;
      });
      return () => rm(aside, { recursive: true, force: true });
    },
    isScratch: (path) => isInside(path, allScratch),
  };
}

function isInside(path: string, root: string): boolean {
  return path === root || path.startsWith(root.endsWith(sep) ? root : root + sep);
}

function refused(reason: string): AppError {
  return new AppError('WORKING_DIRECTORY_REFUSED', { reason });
}
