import { constants } from 'node:fs';
import { lstat, open, readdir, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { type ConfinedFolder, type ConfinedRoot, openEntry, openFolder } from '../agents/builtin/tools/confinement.ts';

/** A repository of a caller. Its files are read and written here; git never runs with its settings, hooks and references. */
export interface Repository {
  readonly root: ConfinedRoot;
  /** The folder with its objects, and its index. */
  readonly objects: string;
  readonly index: string;
  /** The branch that is checked out, and its commit. The branch is empty where a commit is checked out without one. */
  head(): Promise<{ readonly branch: string; readonly commit: string }>;
  /** Returns the object id of a branch, a tag, `HEAD` or a full commit id; undefined if it does not exist. */
  resolve(name: string): Promise<string | undefined>;
  /** Whether another git process is changing the index now. */
  isLocked(): Promise<boolean>;
  /** Moves a branch to another commit. False when the branch is no longer at `from`, or another git process is changing it. */
  moveBranch(branch: string, from: string, to: string): Promise<boolean>;
}

const OID = /^[0-9a-f]{40}$/;
const MAX_REF_BYTES = 1024;
const MAX_PACKED_BYTES = 32 * 1024 * 1024;
/** The maximum number of loose objects that are checked; `git gc` packs them. */
const MAX_LOOSE_FILES = 200_000;

/** Throws WORKTREE_REFUSED where the folder is not a repository that can be used without its settings. */
export async function openRepository(root: ConfinedRoot): Promise<Repository> {
  const inGit = async <Result>(names: readonly string[], use: (folder: ConfinedFolder) => Promise<Result>) => {
    const folder = await openFolder(root, ['.git', ...names]);
    try {
      return await use(folder);
    } finally {
      await folder.close();
    }
  };

  async function readText(names: readonly string[], maxBytes: number): Promise<string | undefined> {
    try {
      return await inGit(names.slice(0, -1), async (folder) => {
        const { handle, size } = await openEntry(folder, names.at(-1) ?? '');
        try {
          return size > maxBytes ? undefined : (await handle.readFile('utf8')).trim();
        } finally {
          await handle.close();
        }
      });
    } catch (error) {
      if (isAbsent(error)) return undefined;
      throw error;
    }
  }

  async function readRef(ref: string): Promise<string | undefined> {
    if (!isRefName(ref)) return undefined;
    const loose = await readText(ref.split('/'), MAX_REF_BYTES);
    if (loose !== undefined) return OID.test(loose) ? loose : undefined;
    const packed = (await readText(['packed-refs'], MAX_PACKED_BYTES)) ?? '';
    const line = packed.split('\n').find((one) => one.endsWith(` ${ref}`));
    const oid = line?.slice(0, 40) ?? '';
    return OID.test(oid) ? oid : undefined;
  }

  async function head() {
    const text = (await readText(['HEAD'], MAX_REF_BYTES)) ?? '';
    if (OID.test(text)) return { branch: '', commit: text };
    const branch = /^ref: refs\/heads\/(.+)$/.exec(text)?.[1] ?? '';
    const commit = branch === '' ? undefined : await readRef(`refs/heads/${branch}`);
    if (commit === undefined) throw refused('it has no commit yet; commit something first');
    return { branch, commit };
  }

  const stats = await lstat(join(root.path, '.git')).catch(() => undefined);
  if (stats === undefined) throw refused('it is not a git repository; use the top folder of one');
  if (!stats.isDirectory()) {
    throw refused('it is a worktree or a submodule itself; use the folder of the repository that it belongs to');
  }
  await inGit([], requirePlain).catch(toRefusal);
  return {
    root,
    objects: join(root.path, '.git', 'objects'),
    index: join(root.path, '.git', 'index'),
    head,
    async resolve(name) {
      if (name === 'HEAD') return (await head()).commit;
      if (OID.test(name)) return name;
      for (const kind of ['heads', 'tags', 'remotes']) {
        const found = await readRef(`refs/${kind}/${name}`);
        if (found !== undefined) return found;
      }
      return undefined;
    },
    isLocked: () => inGit([], (folder) => exists(folder.entry('index.lock'))),
    async moveBranch(branch, from, to) {
      const names = `refs/heads/${branch}`.split('/');
      const name = names.at(-1) ?? '';
      const folder = await openFolder(root, ['.git', ...names.slice(0, -1)], { create: true });
      try {
        const lock = folder.entry(`${name}.lock`);
        const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
        const handle = await open(lock, flags, 0o644).catch(() => undefined);
        if (handle === undefined) return false;
        try {
          const isUnmoved = (await readRef(`refs/heads/${branch}`)) === from;
          if (isUnmoved) {
            await handle.writeFile(`${to}\n`);
            await handle.sync();
            await rename(lock, folder.entry(name));
          } else await unlink(lock);
          return isUnmoved;
        } catch (error) {
          await unlink(lock).catch(() => undefined);
          throw error;
        } finally {
          await handle.close();
        }
      } finally {
        await folder.close();
      }
    },
  };
}

/**
 * Refuses repositories that use files outside of themselves, or cannot be read without their settings. A link among the objects would
 * let the owner read the objects of somebody else.
 */
async function requirePlain(folder: ConfinedFolder): Promise<void> {
  for (const name of ['objects/info/alternates', 'objects/info/http-alternates', 'commondir', 'reftable']) {
    if (await exists(folder.entry(name))) {
      throw refused(`it shares its objects or references with another place (.git/${name})`);
    }
  }
  const objects = await folder.enter('objects');
  try {
    let files = 0;
    for (const top of await readdir(objects.entry('.'), { withFileTypes: true })) {
      const { name } = top;
      if (top.isFile()) continue;
      const inside = await objects.enter(name);
      try {
        const entries = await readdir(inside.entry('.'), { withFileTypes: true });
        files += entries.length;
        const odd = entries.find((entry) => !entry.isFile() && !(name === 'info' && entry.isDirectory()));
        if (odd !== undefined) throw refused(`.git/objects/${name}/${odd.name} is not a file`);
        if (files > MAX_LOOSE_FILES) throw refused('it has too many objects; run `git gc` in it');
      } finally {
        await inside.close();
      }
    }
  } finally {
    await objects.close();
  }
}

/** Whether git accepts a reference name, as far as it matters for its path. */
function isRefName(ref: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: names of files must not have them
  if (/[\u0000-\u001f\u007f\\]/.test(ref) || ref.length > MAX_REF_BYTES) return false;
  return ref.split('/').every((name) => name !== '' && !name.startsWith('.') && !name.endsWith('.lock'));
}

function isAbsent(error: unknown): boolean {
  return (
    ['ENOENT', 'ENOTDIR', 'EISDIR', 'ELOOP'].includes(errorCode(error)) || errorCode(error) === 'TOOL_CALL_REFUSED'
  );
}

function toRefusal(error: unknown): never {
  if (errorCode(error) === 'WORKTREE_REFUSED') throw error;
  throw refused('its folder .git has links in it, or cannot be read');
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => undefined)) !== undefined;
}

export function refused(reason: string): AppError {
  return new AppError('WORKTREE_REFUSED', { reason });
}
