import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { createFolderState } from '../checkpoints/folder-state.ts';
import { restoreFiles } from '../checkpoints/restore-files.ts';
import type { MergeResult } from '../contract/files.ts';
import type { Repository } from './repository.ts';
import { namesIn, SAFE_WRITE, saveWorktree, type Workshop } from './worktree-files.ts';

interface MergeOptions extends Workshop {
  readonly repository: Repository;
  /** The worktree, and the commit that its files come from. */
  readonly folder: string;
  readonly base: string;
  readonly branch: string;
  makeTemporaryName(): string;
}

interface Merged extends MergeResult {
  /** The commit with the files of the worktree: what the worktree is compared with from now on. */
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
    git.run(args, { gitFolder, workTree: root.path, signal, objectFolder, ...more });
  const oidOf = async (args: readonly string[]) => (await run([...SAFE_WRITE, ...args])).toString().trim();

  const head = await repository.head();
  if (head.branch === '') throw refused('no branch is checked out in the repository; check one out');
  if (await repository.isLocked()) throw refused('another git is at work in the repository; try again when it is done');
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
  // What is written is the state after the merge, in the place of that before it.
  const files = changes.map((change) => ({ ...change, before: change.after, after: change.before }));
  await restoreFiles({ ...options, root, state, files }).catch(toRefusal);
  const input = paths.map((path) => `${path}\0`).join('');
  const update = ['update-index', '-z', '--add', '--remove', '--replace', '--stdin'];
  if (paths.length > 0) await run([...SAFE_WRITE, ...update], { indexFile, input });
  if (!(await repository.moveBranch(head.branch, head.commit, result))) {
    throw refused(`the branch ${head.branch} has moved since; the files are written, merge again to commit them`);
  }
  return { branch: head.branch, commit: result, files: paths.slice(0, MAX_LISTED), worktreeCommit: commit };

  async function joinTrees(ours: string, theirs: string): Promise<string> {
    const merge = ['merge-tree', '--write-tree', '--name-only', '--no-messages', '-z', ours, theirs];
    const [oid = '', ...conflicts] = namesIn(await run([...SAFE_WRITE, ...merge], { otherCode: 1 }));
    if (conflicts.length === 0) return oid;
    const reason = `the branch ${head.branch} and the worktree have changed the same lines; \`details.files\` lists the files. Bring the worktree up to date with the branch, or change one of them`;
    throw refused(reason, conflicts);
  }

  /** What is staged would become part of the commit, or be lost. */
  async function requireUnstaged(): Promise<void> {
    const staged = async (from: string) =>
      namesIn(await run(['diff-index', '--cached', '-z', '--name-only', from], { indexFile }));
    const [sinceHead, sinceResult] = [await staged(head.commit), new Set(await staged(result))];
    const merged = new Set(paths);
    const inTheWay = sinceHead.filter((path) => merged.has(path) && sinceResult.has(path));
    if (inTheWay.length > 0) throw refused(NOT_COMMITTED, inTheWay);
  }
}

const NOT_COMMITTED =
  'files that the merge would change have changes that are not committed; `details.files` lists them. Commit or stash them';

function toRefusal(error: unknown): never {
  if (errorCode(error) === 'FILES_CHANGED' && error instanceof AppError) {
    throw refused(NOT_COMMITTED, error.details.files as readonly string[]);
  }
  if (error instanceof AppError && ['TOOL_CALL_REFUSED', 'UNDO_UNAVAILABLE'].includes(error.code)) {
    throw refused(String(error.details.reason));
  }
  throw error;
}

export function refused(reason: string, files: readonly string[] = []): AppError {
  return new AppError('MERGE_REFUSED', { reason, ...(files.length > 0 && { files: files.slice(0, MAX_LISTED) }) });
}
