import { readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { errorCode } from '../../../../platform/errors/app-error.ts';
import { type ConfinedFolder, type ConfinedRoot, openEntry } from './confinement.ts';
import { type IgnoreRule, isIgnored, readIgnoreRules } from './glob-patterns.ts';

interface WalkedEntry {
  readonly folder: ConfinedFolder;
  readonly name: string;
  /** From the folder where the walk began. */
  readonly relativePath: string;
  readonly kind: 'file' | 'folder' | 'other';
}

interface WalkOptions {
  readonly maxDepth: number;
  /** Entries that are looked at; then the walk ends and says so. */
  readonly maxEntries: number;
  readonly signal: AbortSignal;
  /** Leaves out what the `.gitignore` files of the working directory leave out. */
  readonly isIgnoring: boolean;
}

/** Folders that hold what was made by machines; they are entered only when they are asked for by name. */
export const NOT_ENTERED: ReadonlySet<string> = new Set(['.git', '.hg', '.svn', 'node_modules']);
const MAX_IGNORE_BYTES = 64 * 1024;

/** The rules of one `.gitignore`, for paths below its folder. */
interface IgnoreLevel {
  readonly folder: string;
  readonly rules: readonly IgnoreRule[];
}

/**
 * All entries below a folder that was reached by `names` from the root, in the order of their names. Links are named but not
 * followed, private folders are left out. Returns false when cut short.
 */
export async function* walkFolder(
  root: ConfinedRoot,
  names: readonly string[],
  options: WalkOptions,
): AsyncGenerator<WalkedEntry, boolean> {
  let left = options.maxEntries;

  async function* walk(
    folder: ConfinedFolder,
    path: string,
    depth: number,
    above: readonly IgnoreLevel[],
  ): AsyncGenerator<WalkedEntry, boolean> {
    const levels = options.isIgnoring ? await withRulesOf(folder, above) : above;
    const entries = await readdir(folder.entry('.'), { withFileTypes: true });
    entries.sort((a, b) => (a.name < b.name ? -1 : 1));
    for (const entry of entries) {
      if (left === 0 || options.signal.aborted) return false;
      left -= 1;
      const relativePath = join(path, entry.name);
      const kind = entry.isDirectory() ? 'folder' : entry.isFile() ? 'file' : 'other';
      if (isLeftOut(levels, join(folder.path, entry.name), kind === 'folder')) continue;
      // A private folder is not even named.
      if (kind === 'folder' && (await isHidden(folder, entry.name))) continue;
      yield { folder, name: entry.name, relativePath, kind };
      if (kind !== 'folder' || depth >= options.maxDepth || NOT_ENTERED.has(entry.name)) continue;
      const inner = await enterIfStillThere(folder, entry.name);
      if (inner === undefined) continue;
      try {
        if (!(yield* walk(inner, relativePath, depth + 1, levels))) return false;
      } finally {
        await inner.close();
      }
    }
    return true;
  }

  let start = await root.open();
  try {
    let above: readonly IgnoreLevel[] = [];
    for (const name of names) {
      if (options.isIgnoring) above = await withRulesOf(start, above);
      const next = await start.enter(name);
      // Someone who names a folder that is left out wants what is in it.
      if (isLeftOut(above, next.path, true)) above = [];
      await start.close();
      start = next;
    }
    return yield* walk(start, '', 1, above);
  } finally {
    await start.close();
  }
}

async function withRulesOf(folder: ConfinedFolder, above: readonly IgnoreLevel[]): Promise<readonly IgnoreLevel[]> {
  const file = await openEntry(folder, '.gitignore').catch(unreadable);
  if (file === undefined) return above;
  try {
    const { buffer, bytesRead } = await file.handle.read(Buffer.alloc(MAX_IGNORE_BYTES), 0, MAX_IGNORE_BYTES, 0);
    return [...above, { folder: folder.path, rules: readIgnoreRules(buffer.toString('utf8', 0, bytesRead)) }];
  } finally {
    await file.handle.close();
  }
}

/** The file nearest to a path decides, if one of its lines fits. */
function isLeftOut(levels: readonly IgnoreLevel[], path: string, isFolder: boolean): boolean {
  for (const { folder, rules } of levels.toReversed()) {
    const decided = isIgnored(rules, relative(folder, path), isFolder);
    if (decided !== undefined) return decided;
  }
  return false;
}

async function isHidden(folder: ConfinedFolder, name: string): Promise<boolean> {
  try {
    return await folder.hides(name);
  } catch (error) {
    if (['ENOENT', 'EACCES'].includes(errorCode(error))) return true;
    throw error;
  }
}

/** Undefined for a folder that is gone, became a link, is private, or may not be read. */
async function enterIfStillThere(folder: ConfinedFolder, name: string): Promise<ConfinedFolder | undefined> {
  try {
    return await folder.enter(name);
  } catch (error) {
    if (['ENOENT', 'ELOOP', 'ENOTDIR', 'EACCES', 'EPERM', 'TOOL_CALL_REFUSED'].includes(errorCode(error)))
      return undefined;
    throw error;
  }
}

/** A file that went away, or may not be read, is not what a walk is about. */
export function unreadable(error: unknown): undefined {
  if (['ENOENT', 'ENOTDIR', 'ELOOP', 'EACCES', 'EPERM', 'ENXIO', 'TOOL_CALL_REFUSED'].includes(errorCode(error)))
    return undefined;
  throw error;
}
