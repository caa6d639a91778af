import { lstat, mkdir, readdir, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { type Clock, deadline } from '../../platform/clock/clock.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { type Confine, type ConfinedFolder, openFolder } from '../agents/builtin/tools/confinement.ts';
import type { Git } from '../checkpoints/run-git.ts';
import type { MergeResult } from '../contract/files.ts';
import { createSessionOrder, type LiveSession, type LiveTurn } from '../sessions/live-session.ts';
import type { OwnerRoots, WorkingDirectories } from '../sessions/working-directory.ts';
import { openRepository, refused } from './repository.ts';
import {
  diffWorktree,
  fillWorktree,
  findBase,
  makeWorkshop,
  mergeRefused,
  mergeWorktree,
  requireClean,
} from './worktree-files.ts';

/** Creates separate folders for sessions from a repository. Changes in them reach the repository only by a merge. */
export interface Worktrees {
  /** Creates the worktrees of a session, and removes those that it had. Throws WORKTREE_REFUSED with a reason. */
  create(request: WorktreeRequest, signal: AbortSignal): Promise<WorktreePlaces>;
  /** Undefined: the session has no worktree. */
  placesOf(sessionKey: string): Promise<WorktreePlaces | undefined>;
  /** Notes which step of a run has won: its worktree is the one to merge. */
  noteWinner(sessionKey: string, step: number): Promise<void>;
  /** Merges the worktree of a session, or of one step of its run; those of the other steps are removed then. */
  merge(session: { readonly key: string; readonly owner: string }, step: number | undefined): Promise<MergeResult>;
  /** Removes everything of a session. Changes that were not merged stay behind as patches. */
  remove(sessionKey: string): Promise<void>;
  /** Removes the worktrees of sessions that are no longer open, for instance because the bridge has crashed. */
  sweep(ownerOf: (sessionKey: string) => Promise<string | undefined>, signal: AbortSignal): Promise<void>;
}

export interface WorktreeRequest {
  readonly sessionKey: string;
  readonly sessionId: string;
  readonly owner: string;
  /** The top folder of a repository; a real path that was just checked. */
  readonly folder: string;
  /** A branch, a tag or a commit. Undefined: the last commit of the checkout, which must have no other changes. */
  readonly base: string | undefined;
  /** How many steps have a worktree each. 0: the session has one. */
  readonly steps: number;
}

export interface WorktreePlaces {
  /** Where the session works; of a run, the folder that has those of its steps. */
  readonly folder: string;
  /** By step; empty for one that was removed. Undefined: the session has one worktree. */
  readonly steps: readonly string[] | undefined;
}

interface WorktreesOptions {
  /** In the data directory: has one folder for each session, named by its key. */
  readonly folder: string;
  readonly git: Git;
  readonly roots: OwnerRoots;
  readonly directories: Pick<WorkingDirectories, 'check'>;
  readonly confine: Confine;
  readonly clock: Clock;
  makeId(prefix: string): string;
}

/** One worktree of a session. */
interface WorktreeRecord {
  /** Of the worktree, from `root`. */
  readonly names: readonly string[];
  readonly branch: string;
  /** The commit that its files come from. */
  readonly base: string;
  readonly isRemoved: boolean;
}

interface SessionRecord {
  readonly owner: string;
  readonly repository: string;
  /** The folder of the owner in which the worktrees are. */
  readonly root: string;
  readonly isRun: boolean;
  readonly winner?: number;
  readonly worktrees: readonly WorktreeRecord[];
}

/** In the folder of an owner. */
const PLACE = ['.trestle', 'worktrees'];
/** In the same folder: changes that were not merged before their worktree was removed. */
const UNMERGED = ['.trestle', 'unmerged'];
const MAX_UNMERGED = 100;
const MAX_OF_OWNER = 100;
const MAX_NAME = 60;
const CREATE_MS = 5 * 60_000;
const MERGE_MS = 5 * 60_000;
const KEEP_MS = 60_000;

export function createWorktrees(options: WorktreesOptions): Worktrees {
  const { folder: top, git, roots, directories, confine, clock, makeId } = options;
  const inOrder = createSessionOrder();
  /** Sessions that are about to begin and are not stored yet. */
  const beginning = new Set<string>();
  const placeOf = (sessionKey: string, ...names: string[]) => join(top, sessionKey, ...names);
  const folderOf = (record: SessionRecord, { names }: WorktreeRecord) => join(record.root, ...names);
  const gitFolderOf = (sessionKey: string, step: number) => placeOf(sessionKey, `git-${step}`);

  async function read(sessionKey: string): Promise<SessionRecord | undefined> {
    try {
      return JSON.parse(await readFile(placeOf(sessionKey, 'record.json'), 'utf8')) as SessionRecord;
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return undefined;
      throw error;
    }
  }

  /** Writes a draft and renames it, so that a crash leaves the old file or the new one. */
  async function write(sessionKey: string, record: SessionRecord): Promise<void> {
    await mkdir(placeOf(sessionKey), { recursive: true, mode: 0o700 });
    const file = placeOf(sessionKey, 'record.json');
    await writeFile(`${file}.new`, JSON.stringify(record), { mode: 0o600 });
    await rename(`${file}.new`, file);
  }

  const keys = () => readdir(top).catch((): string[] => []);

  async function requireRoom(owner: string, wanted: number): Promise<void> {
    const records = await Promise.all((await keys()).map((key) => read(key)));
    const own = records.filter((record) => record?.owner === owner);
    const count = own.reduce((sum, record) => sum + (record?.worktrees.length ?? 0), 0);
    if (count + wanted <= MAX_OF_OWNER) return;
    throw refused(`your sessions have ${count} worktrees, and at most ${MAX_OF_OWNER} are kept; close some of them`);
  }

  /** Returns the owner's folder that contains the repository; the innermost one if there are several. */
  async function rootOf(owner: string, repository: string): Promise<string> {
    const real = await Promise.all((await roots.of(owner)).map((root) => realpath(root).catch(() => '')));
    const around = real.filter((root) => root !== '' && `${repository}${sep}`.startsWith(withSeparator(root)));
    const [inner] = around.toSorted((one, other) => other.length - one.length);
    if (inner === undefined) throw refused('it is outside of your folders');
    return inner;
  }

  async function makeFolder(root: string, names: readonly string[]): Promise<void> {
    const place = await openFolder(confine(root), names, { create: true });
    await place.close();
    const above = await openFolder(confine(root), PLACE.slice(0, 1));
    try {
      // The folder may be inside a checkout, whose git then does not see it.
      await writeFile(above.entry('.gitignore'), '*\n', { flag: 'wx' });
    } catch (error) {
      if (errorCode(error) !== 'EEXIST') throw error;
    } finally {
      await above.close();
    }
  }

  async function removeFolder(root: string, names: readonly string[]): Promise<void> {
    const above = await openFolder(confine(root), names.slice(0, -1)).catch((error: unknown) => {
      // The folder does not exist, or was replaced by something that does not belong to us.
      if (error instanceof AppError || ['ENOENT', 'ENOTDIR', 'ELOOP'].includes(errorCode(error))) return undefined;
      throw error;
    });
    if (above === undefined) return;
    try {
      await rm(above.entry(names.at(-1) ?? ''), { recursive: true, force: true });
    } finally {
      await above.close();
    }
  }

  /** Writes the unmerged changes of a worktree as a patch. A worktree that git cannot read is moved as it is. */
  async function keepUnmerged(sessionKey: string, record: SessionRecord, step: number): Promise<void> {
    const worktree = record.worktrees[step];
    if (worktree === undefined || worktree.isRemoved) return;
    const folder = folderOf(record, worktree);
    // A folder that does not exist, or was replaced, has no changes of the session.
    const place = await directories.check(folder, record.owner).catch(() => undefined);
    if (place !== folder) return;
    const { signal, release } = deadline(clock, KEEP_MS);
    const workshop = { git, gitFolder: gitFolderOf(sessionKey, step), signal };
    const patch = await diffWorktree(workshop, confine(folder), worktree.base)
      .catch(() => undefined)
      .finally(release);
    if (patch?.length === 0) return;
    const name = worktree.branch.replace('/', '-');
    const kept = await openFolder(confine(record.root), UNMERGED, { create: true });
    try {
      if (patch !== undefined)
        await writeFile(kept.entry(`${makeId(`${name}-`)}.patch`), patch, { mode: 0o600, flag: 'wx' });
      else await moveInto(kept.entry(makeId(`${name}-`)), record.root, worktree.names);
      await dropOldest(kept);
    } finally {
      await kept.close();
    }
  }

  async function moveInto(target: string, root: string, names: readonly string[]): Promise<void> {
    const above = await openFolder(confine(root), names.slice(0, -1));
    try {
      await rename(above.entry(names.at(-1) ?? ''), target);
    } finally {
      await above.close();
    }
  }

  async function removeAll(sessionKey: string): Promise<void> {
    const record = await read(sessionKey);
    if (record !== undefined) {
      for (const step of record.worktrees.keys()) await keepUnmerged(sessionKey, record, step);
      await removeFolder(record.root, [...PLACE, sessionKey]);
    }
    await rm(placeOf(sessionKey), { recursive: true, force: true });
  }

  async function make(request: WorktreeRequest, signal: AbortSignal): Promise<SessionRecord> {
    const { sessionKey, sessionId, owner, folder, base, steps } = request;
    await removeAll(sessionKey);
    await requireRoom(owner, Math.max(steps, 1));
    const repository = await openRepository(confine(folder));
    const root = await rootOf(owner, folder);
    const first = { git, gitFolder: gitFolderOf(sessionKey, 0), signal };
    await makeWorkshop(first.gitFolder, repository);
    const commit = await findBase(first, repository, base);
    if (base === undefined) await requireClean(first, repository, commit);
    const name = branchName(sessionId, sessionKey);
    const worktrees = Array.from({ length: Math.max(steps, 1) }, (_, step): WorktreeRecord => {
      const own = steps === 0 ? [] : [String(step)];
      const branch = ['trestle', [name, ...own].join('-')].join('/');
      return { names: [...PLACE, sessionKey, ...own], branch, base: commit, isRemoved: false };
    });
    const record = { owner, repository: folder, root, isRun: steps > 0, worktrees };
    // Written before the first folder is created, so that a sweep finds the folders after a crash.
    await write(sessionKey, record);
    for (const [step, worktree] of worktrees.entries()) {
      const gitFolder = gitFolderOf(sessionKey, step);
      if (step > 0) await makeWorkshop(gitFolder, repository);
      await makeFolder(root, worktree.names);
      const place = { folder: confine(folderOf(record, worktree)), branch: worktree.branch, commit };
      await fillWorktree({ git, gitFolder, signal }, place);
    }
    return record;
  }

  function placesIn(sessionKey: string, record: SessionRecord): WorktreePlaces {
    const steps = record.worktrees.map((one) => (one.isRemoved ? '' : folderOf(record, one)));
    return { folder: join(record.root, ...PLACE, sessionKey), steps: record.isRun ? steps : undefined };
  }

  async function mergeOne(sessionKey: string, owner: string, given: number | undefined): Promise<MergeResult> {
    const record = await read(sessionKey);
    if (record === undefined) throw mergeRefused('the session has no worktree; start one with routing.worktree');
    const step = given ?? (record.isRun ? record.winner : 0);
    const worktree = step === undefined ? undefined : record.worktrees[step];
    if (step === undefined) throw mergeRefused('its run has a worktree for each step; name one in `step`');
    if (worktree === undefined || worktree.isRemoved) throw mergeRefused(`there is no worktree of step ${step}`);
    const folder = folderOf(record, worktree);
    for (const place of [record.repository, folder]) {
      if ((await directories.check(place, owner)) !== place) throw mergeRefused('a folder on its way was replaced');
    }
    const repository = await openRepository(confine(record.repository));
    const { signal, release } = deadline(clock, MERGE_MS);
    const gitFolder = gitFolderOf(sessionKey, step);
    const makeTemporaryName = () => makeId('.trestle-');
    const { base, branch } = worktree;
    try {
      const { worktreeCommit, ...result } = await inOrder(`repository ${record.repository}`, () =>
        mergeWorktree({ git, gitFolder, signal, repository, folder: confine(folder), base, branch, makeTemporaryName }),
      );
      const worktrees = record.worktrees.map((one, index) =>
        index === step ? { ...one, base: worktreeCommit } : { ...one, isRemoved: true },
      );
      await write(sessionKey, { ...record, worktrees });
      for (const [index, one] of worktrees.entries()) {
        if (!one.isRemoved) continue;
        await removeFolder(record.root, one.names);
        await rm(gitFolderOf(sessionKey, index), { recursive: true, force: true });
      }
      return result;
    } finally {
      release();
    }
  }

  return {
    async create(request, outer) {
      const { sessionKey } = request;
      const { signal, release } = deadline(clock, CREATE_MS, [outer]);
      beginning.add(sessionKey);
      try {
        return await inOrder(sessionKey, async () => placesIn(sessionKey, await make(request, signal)));
      } catch (error) {
        await inOrder(sessionKey, () => removeAll(sessionKey));
        beginning.delete(sessionKey);
        throw error;
      } finally {
        release();
      }
    },
    async placesOf(sessionKey) {
      const record = await read(sessionKey);
      return record === undefined ? undefined : placesIn(sessionKey, record);
    },
    noteWinner: (sessionKey, winner) =>
      inOrder(sessionKey, async () => {
        const record = await read(sessionKey);
        if (record !== undefined) await write(sessionKey, { ...record, winner });
      }),
    merge: ({ key, owner }, step) => inOrder(key, () => mergeOne(key, owner, step)),
    async remove(sessionKey) {
      await inOrder(sessionKey, () => removeAll(sessionKey));
      beginning.delete(sessionKey);
    },
    async sweep(ownerOf, signal) {
      for (const key of await keys()) {
        if (signal.aborted) return;
        const isKnown = (await ownerOf(key)) !== undefined;
        if (isKnown) beginning.delete(key);
        else if (!beginning.has(key)) await inOrder(key, () => removeAll(key));
      }
    },
  };
}

/** Removes the oldest patches beyond the limit. */
async function dropOldest(kept: ConfinedFolder): Promise<void> {
  const names = await readdir(kept.entry('.'));
  if (names.length <= MAX_UNMERGED) return;
  const times = await Promise.all(names.map(async (name) => ({ name, at: (await lstat(kept.entry(name))).mtimeMs })));
  const oldest = times.toSorted((one, other) => one.at - other.at).slice(0, names.length - MAX_UNMERGED);
  for (const { name } of oldest) await rm(kept.entry(name), { recursive: true, force: true });
}

/** Returns the worktrees of a turn. A start creates those that it asks for, and removes those that the session had. */
export async function placesForTurn(
  worktrees: Pick<Worktrees, 'create' | 'placesOf' | 'remove'>,
  session: Pick<LiveSession, 'key' | 'id' | 'owner' | 'workingDirectory'>,
  { request, stopping }: Pick<LiveTurn, 'request' | 'stopping'>,
  folder: string,
): Promise<WorktreePlaces | undefined> {
  const { method, routing, plan } = request;
  const { key: sessionKey, id: sessionId, owner } = session;
  if (method === 'session.message') {
    return isWorktreeOf(sessionKey, folder) ? worktrees.placesOf(sessionKey) : undefined;
  }
  const { worktree = false } = routing;
  if (worktree === false) {
    if (isWorktreeOf(sessionKey, session.workingDirectory)) await worktrees.remove(sessionKey);
    return undefined;
  }
  const base = worktree === true ? undefined : worktree.base;
  const steps = plan?.mode === 'parallel' || plan?.mode === 'race' ? (plan.steps?.length ?? 0) : 0;
  return worktrees.create({ sessionKey, sessionId, owner, folder, base, steps }, stopping.signal);
}

/** Whether a working directory is what `create` made for the session. */
export function isWorktreeOf(sessionKey: string, folder: string): boolean {
  return folder.endsWith(`/${[...PLACE, sessionKey].join('/')}`);
}

function withSeparator(path: string): string {
  return path.endsWith(sep) ? path : path + sep;
}

/** Turns the name of a session into a part of a branch name. Sessions may get the same name, because their folders differ. */
function branchName(sessionId: string, sessionKey: string): string {
  const plain = sessionId
    .replaceAll(/[^A-Za-z0-9_-]+/g, '-')
    .slice(0, MAX_NAME)
    .split('-')
    .filter((part) => part !== '')
    .join('-');
  return plain === '' ? sessionKey : plain;
}
