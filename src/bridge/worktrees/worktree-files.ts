import { isUtf8 } from 'node:buffer';
import { constants } from 'node:fs';
import { copyFile, mkdir, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { type Confine, type ConfinedRoot, openEntry, openFolder } from '../agents/builtin/tools/confinement.ts';
import { createFolderState } from '../checkpoints/folder-state.ts';
import { restoreFiles } from '../checkpoints/restore-files.ts';
import { GIT_SETTINGS, type Git } from '../checkpoints/run-git.ts';
import type { MergeResult } from '../contract/files.ts';
import { openRepository, type Repository, refused } from './repository.ts';

/** A git folder of our own, which is used to read a repository and its worktrees. */
export interface Workshop {
  readonly git: Git;
  readonly gitFolder: string;
  readonly signal: AbortSignal;
}

export interface NewWorktree {
  /** A new and empty folder. */
  readonly folder: ConfinedRoot;
  readonly branch: string;
  readonly commit: string;
}

const MAX_FILES = 200_000;
const MAX_BYTES = 4 * 1024 ** 3;
const MAX_INDEX_BYTES = 256 * 1024 * 1024;
const MAX_NAMED = 5;
/** The git settings in a worktree, where its agent works. */
const AGENT_SETTINGS = '[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n';

/** Creates the git folder. It uses the objects of the repository, and neither its settings nor its references. */
export async function makeWorkshop(gitFolder: string, { objects }: Repository): Promise<void> {
  if (objects.includes('\n')) throw refused('its path has a line break in it; use another folder');
  await rm(gitFolder, { recursive: true, force: true });
  for (const name of ['objects/info', 'objects/pack', 'refs', 'info']) {
    await mkdir(join(gitFolder, name), { recursive: true, mode: 0o700 });
  }
  await writeFile(join(gitFolder, 'HEAD'), 'ref: refs/heads/none\n');
  await writeFile(join(gitFolder, 'config'), GIT_SETTINGS);
  await writeFile(join(gitFolder, 'objects', 'info', 'alternates'), `${objects}\n`);
}

/** Returns the commit that a worktree starts from. Throws WORKTREE_REFUSED if there is none. */
export async function findBase(workshop: Workshop, repository: Repository, base: string | undefined): Promise<string> {
  const { git, gitFolder, signal } = workshop;
  const run = (...args: string[]) => git.run(args, { gitFolder, workTree: repository.root, signal });
  const found = await repository.resolve(base ?? 'HEAD');
  const unknown = () => refused(`routing.worktree.base names no branch, tag or commit of it: ${base?.slice(0, 100)}`);
  if (found === undefined) throw unknown();
  const commit = await run('rev-parse', '--verify', '--quiet', `${found}^{commit}`).catch((error: unknown) => {
    throw base === undefined ? error : unknown();
  });
  return commit.toString().trim();
}

/** Throws WORKTREE_REFUSED when the checkout has changes that a worktree of its last commit would lack. */
export async function requireClean(workshop: Workshop, repository: Repository, commit: string): Promise<void> {
  const dirty = await changedFiles(workshop, repository, commit);
  if (dirty.length === 0) return;
  const named = dirty.slice(0, MAX_NAMED).join(', ');
  const more = dirty.length > MAX_NAMED ? ` and ${dirty.length - MAX_NAMED} more` : '';
  throw refused(
    `it has changes that are not committed (${named}${more}), and the worktree would lack them; commit or stash them, or set routing.worktree.base to "HEAD" to begin without them`,
  );
}

/** Returns the tracked files that differ from the commit. */
async function changedFiles(workshop: Workshop, repository: Repository, commit: string): Promise<readonly string[]> {
  const { git, gitFolder, signal } = workshop;
  const { root: workTree } = repository;
  await copyIndex(repository, join(gitFolder, 'index'));
  const run = (...args: string[]) => git.run(args, { gitFolder, workTree, signal });
  const staged = namesIn(await run('diff-index', '--cached', '-z', '--name-only', commit));
  const changed = namesIn(await run('ls-files', '-z', '-m', '-d'));
  return [...new Set([...staged, ...changed])];
}

interface DirtyCheckOptions {
  /** In the data directory; emptied when it is first used. */
  readonly folder: string;
  readonly git: Git;
  readonly confine: Confine;
  makeId(prefix: string): string;
}

/** Whether a repository has files that differ from its last commit; undefined where that cannot be found out. */
export type DirtyCheck = (repository: string, signal: AbortSignal) => Promise<boolean | undefined>;

export function createDirtyCheck({ folder, git, confine, makeId }: DirtyCheckOptions): DirtyCheck {
  let emptied: Promise<void> | undefined;
  return async (path, signal) => {
    emptied ??= rm(folder, { recursive: true, force: true });
    const gitFolder = join(folder, makeId(''));
    try {
      await emptied;
      const repository = await openRepository(confine(path));
      const { commit } = await repository.head();
      await makeWorkshop(gitFolder, repository);
      return (await changedFiles({ git, gitFolder, signal }, repository, commit)).length > 0;
    } catch {
      return undefined;
    } finally {
      await rm(gitFolder, { recursive: true, force: true });
    }
  };
}

/**
 * Writes the files of a commit into a folder, with a repository of its own that has this one commit. Nothing is registered in the
 * repository that it was made of, and neither needs the other afterwards.
 */
export async function fillWorktree(workshop: Workshop, { folder, branch, commit }: NewWorktree): Promise<void> {
  const { git, gitFolder, signal } = workshop;
  const run = (args: readonly string[], input = '') => git.run(args, { gitFolder, workTree: folder, signal, input });
  await requireModest(await run(['ls-tree', '-r', '-l', '-z', commit]));
  await rm(join(gitFolder, 'index'), { force: true });
  await run(['read-tree', commit]);
  await run(['checkout-index', '--all', '--index', '--force', '--quiet']);
  const marked = await run(['ls-files', '-z', '--', ':(exclude,attr:!filter)']);
  const values = namesIn(await run(['check-attr', '-z', '--stdin', 'filter'], marked.toString()));
  const filtered = values.filter((_, at) => at % 3 === 0 && values[at + 2] !== 'unset');
  if (filtered.length > 0) {
    throw refused(
      `git changes files with a filter when it checks them out (${filtered.slice(0, MAX_NAMED).join(', ')}), as git-lfs does, and we run no programs that a repository names; work in the folder itself`,
    );
  }
  const objects = (await run(['rev-list', '--objects', '--no-walk', commit])).toString();
  const packed = join(gitFolder, 'packed');
  await mkdir(packed, { recursive: true, mode: 0o700 });
  await run(['pack-objects', '--quiet', '--window=0', join(packed, 'pack')], objects);
  for (const name of await readdir(packed)) {
    await addFile(folder, ['objects', 'pack', name], (place) => copyFile(join(packed, name), place, NEW_FILE));
  }
  await rm(packed, { recursive: true });
  const write = (names: readonly string[], text: string) =>
    addFile(folder, names, (place) => writeFile(place, text, { flag: 'wx' }));
  await (await openFolder(folder, ['.git', 'objects', 'info'], { create: true })).close();
  await (await openFolder(folder, ['.git', 'info'], { create: true })).close();
  await write(['config'], AGENT_SETTINGS);
  await write(['shallow'], `${commit}\n`);
  await write(['refs', 'heads', ...branch.split('/')], `${commit}\n`);
  await addFile(folder, ['index'], (place) => copyFile(join(gitFolder, 'index'), place, NEW_FILE));
  await write(['HEAD'], `ref: refs/heads/${branch}\n`);
}

const NEW_FILE = constants.COPYFILE_EXCL;

/** Writes a new file into `.git`. No link on the way is followed, because agents of the same owner may work beside the worktree. */
async function addFile(root: ConfinedRoot, names: readonly string[], write: (place: string) => Promise<void>) {
  const folder = await openFolder(root, ['.git', ...names.slice(0, -1)], { create: true });
  try {
    await write(folder.entry(names.at(-1) ?? ''));
  } finally {
    await folder.close();
  }
}

/** Saves the files of a worktree as they are now, as a tree. What git ignores, and repositories inside, are left out. */
export async function saveWorktree(workshop: Workshop, folder: ConfinedRoot, objectFolder: string): Promise<string> {
  const { git, gitFolder, signal } = workshop;
  const common = { gitFolder, workTree: folder, signal, objectFolder };
  await rm(join(gitFolder, 'index.lock'), { force: true });
  const printed = await git.run(['ls-files', '-z', '-m', '-d', '-o', '--exclude-standard'], common);
  const paths = new Set(namesIn(printed).filter((path) => !path.endsWith('/')));
  if (paths.size > MAX_FILES) throw refused(`more than ${MAX_FILES} files have changed`);
  const input = [...paths].map((path) => `${path}\0`).join('');
  if (paths.size > 0) {
    await git.run([...SAFE_WRITE, 'update-index', '-z', '--add', '--remove', '--replace', '--stdin'], {
      ...common,
      input,
    });
  }
  return (await git.run([...SAFE_WRITE, 'write-tree'], common)).toString().trim();
}

/** The changes of a worktree since a commit, as a patch for `git apply`; empty where there are none. */
export async function diffWorktree(workshop: Workshop, folder: ConfinedRoot, commit: string): Promise<Buffer> {
  const { git, gitFolder, signal } = workshop;
  const tree = await saveWorktree(workshop, folder, join(gitFolder, 'objects'));
  const args = ['diff-tree', '-p', '--binary', '--full-index', '--no-ext-diff', '--no-textconv', '--no-renames'];
  return git.run([...args, commit, tree], { gitFolder, workTree: folder, signal });
}

/** Makes git flush what it writes into the repository of a person, so that it survives a power failure. */
export const SAFE_WRITE = ['-c', 'core.fsync=committed'];

/** Parses names that git prints with `-z`. Throws WORKTREE_REFUSED for a name that is not UTF-8. */
export function namesIn(printed: Buffer): readonly string[] {
  if (!isUtf8(printed)) throw refused('it has names of files that are not UTF-8');
  return printed.toString().split('\0').filter(Boolean);
}

function requireModest(listed: Buffer): void {
  let [files, bytes] = [0, 0];
  for (const entry of listed.toString('latin1').split('\0')) {
    if (entry === '') continue;
    files += 1;
    bytes += Number(/^\d+ blob [0-9a-f]+ +(\d+)\t/.exec(entry)?.[1] ?? 0);
  }
  if (files > MAX_FILES || bytes > MAX_BYTES) {
    throw refused(`it is too large for a worktree: ${files} files with ${bytes} bytes`);
  }
}

/** Copies the index of the repository. Without one, every file counts as removed from it. */
async function copyIndex({ root }: Repository, target: string): Promise<void> {
  await rm(target, { force: true });
  const folder = await openFolder(root, ['.git']);
  try {
    const { handle, size } = await openEntry(folder, 'index');
    try {
      if (size > MAX_INDEX_BYTES) throw refused('its index is too large');
      const { atimeMs, mtimeMs } = await handle.stat();
      await writeFile(target, await handle.readFile());
      // Git compares files with the time of the index: a younger copy would hide changes of the same moment.
      await utimes(target, Math.floor(atimeMs) / 1000, Math.floor(mtimeMs) / 1000);
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (error instanceof AppError || errorCode(error) !== 'ENOENT') throw error;
  } finally {
    await folder.close();
  }
}

interface MergeOptions extends Workshop {
  readonly repository: Repository;
  /** The worktree, and the commit that its files come from. */
  readonly folder: ConfinedRoot;
  readonly base: string;
  readonly branch: string;
  makeTemporaryName(): string;
}

interface Merged extends MergeResult {
  /** The commit with the files of the worktree, which later merges compare the worktree with. */
  readonly worktreeCommit: string;
}

const MAX_LISTED = 1000;

/**
 * Puts the changes of a worktree into the branch that is checked out, with its files and its index. Throws MERGE_REFUSED before
 * anything is changed where that branch, or files that are not committed, stand in the way. A merge that was interrupted leaves files that
 * another one finds as it would write them.
 */
export async function mergeWorktree(options: MergeOptions): Promise<Merged> {
  const { git, gitFolder, signal, repository, base, branch } = options;
  const { objects: objectFolder, index: indexFile, root } = repository;
  const run = async (args: readonly string[], more: { indexFile?: string; input?: string; otherCode?: number } = {}) =>
    git.run(args, { gitFolder, workTree: root, signal, objectFolder, ...more });
  const oidOf = async (args: readonly string[]) => (await run([...SAFE_WRITE, ...args])).toString().trim();

  const head = await repository.head();
  if (head.branch === '') throw mergeRefused('no branch is checked out in the repository; check one out');
  if (await repository.isLocked())
    throw mergeRefused('another git is at work in the repository; try again when it is done');
  const tree = await saveWorktree(options, options.folder, objectFolder);
  const target = { branch: head.branch, commit: head.commit };
  if (tree === (await oidOf(['rev-parse', `${base}^{tree}`]))) {
    return { ...target, files: [], worktreeCommit: base };
  }
  const commit = await oidOf(['commit-tree', tree, '-p', base, '-m', `Work of ${branch}`]);
  const isAhead = head.commit === base;
  const mergedTree = isAhead ? tree : await joinTrees(head.commit, commit);
  const result = isAhead
    ? commit
    : await oidOf(['commit-tree', mergedTree, '-p', head.commit, '-p', commit, '-m', `Merge ${branch}`]);

  const state = createFolderState({ git, root, gitFolder, maxFiles: 0, maxBytes: 0 });
  const changes = await state.compare(head.commit, result, signal);
  const paths = changes.map(({ path }) => path);
  await requireUnstaged();
  // Swapped, because the state after the merge is to be written.
  const files = changes.map((change) => ({ ...change, before: change.after, after: change.before }));
  await restoreFiles({ ...options, root, state, files }).catch(toRefusal);
  const input = paths.map((path) => `${path}\0`).join('');
  const update = ['update-index', '-z', '--add', '--remove', '--replace', '--stdin'];
  if (paths.length > 0) await run([...SAFE_WRITE, ...update], { indexFile, input });
  if (!(await repository.moveBranch(head.branch, head.commit, result))) {
    throw mergeRefused(`the branch ${head.branch} has moved since; the files are written, merge again to commit them`);
  }
  return { branch: head.branch, commit: result, files: paths.slice(0, MAX_LISTED), worktreeCommit: commit };

  async function joinTrees(ours: string, theirs: string): Promise<string> {
    const merge = ['merge-tree', '--write-tree', '--name-only', '--no-messages', '-z', ours, theirs];
    const [oid = '', ...conflicts] = namesIn(await run([...SAFE_WRITE, ...merge], { otherCode: 1 }));
    if (conflicts.length === 0) return oid;
    const reason = `the branch ${head.branch} and the worktree have changed the same lines; \`details.files\` lists the files. Bring the worktree up to date with the branch, or change one of them`;
    throw mergeRefused(reason, conflicts);
  }

  /** What is staged would become part of the commit, or be lost. */
  async function requireUnstaged(): Promise<void> {
    const staged = async (from: string) =>
      namesIn(await run(['diff-index', '--cached', '-z', '--name-only', from], { indexFile }));
    const [sinceHead, sinceResult] = [await staged(head.commit), new Set(await staged(result))];
    const merged = new Set(paths);
    const inTheWay = sinceHead.filter((path) => merged.has(path) && sinceResult.has(path));
    if (inTheWay.length > 0) throw mergeRefused(NOT_COMMITTED, inTheWay);
  }
}

const NOT_COMMITTED =
  'files that the merge would change have changes that are not committed; `details.files` lists them. Commit or stash them';

function toRefusal(error: unknown): never {
  if (errorCode(error) === 'FILES_CHANGED' && error instanceof AppError) {
    throw mergeRefused(NOT_COMMITTED, error.details.files as readonly string[]);
  }
  if (error instanceof AppError && ['TOOL_CALL_REFUSED', 'UNDO_UNAVAILABLE'].includes(error.code)) {
    throw mergeRefused(String(error.details.reason));
  }
  throw error;
}

export function mergeRefused(reason: string, files: readonly string[] = []): AppError {
  return new AppError('MERGE_REFUSED', { reason, ...(files.length > 0 && { files: files.slice(0, MAX_LISTED) }) });
}
