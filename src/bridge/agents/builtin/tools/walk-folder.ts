import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode } from '../../../../platform/errors/app-error.ts';
import type { ConfinedFolder } from './confined-folder.ts';

export interface WalkedEntry {
  readonly folder: ConfinedFolder;
  readonly name: string;
  /** From the folder where the walk began. */
  readonly relativePath: string;
  readonly kind: 'file' | 'folder' | 'other';
}

export interface WalkOptions {
  readonly maxDepth: number;
  /** Entries that are looked at; then the walk ends and says so. */
  readonly maxEntries: number;
  readonly signal: AbortSignal;
}

/** Folders that hold what was made by machines; they are entered only when they are asked for by name. */
const NOT_ENTERED: ReadonlySet<string> = new Set(['.git', '.hg', '.svn', 'node_modules']);

/** All entries below a folder, in the order of their names. Links are named but not followed, private folders are left out. Returns false when cut short. */
export async function* walkFolder(start: ConfinedFolder, options: WalkOptions): AsyncGenerator<WalkedEntry, boolean> {
  let left = options.maxEntries;

  async function* walk(folder: ConfinedFolder, path: string, depth: number): AsyncGenerator<WalkedEntry, boolean> {
    const entries = await readdir(folder.entry('.'), { withFileTypes: true });
    entries.sort((a, b) => (a.name < b.name ? -1 : 1));
    for (const entry of entries) {
      if (left === 0 || options.signal.aborted) return false;
      left -= 1;
      const relativePath = join(path, entry.name);
      const kind = entry.isDirectory() ? 'folder' : entry.isFile() ? 'file' : 'other';
      // A private folder is not even named.
      if (kind === 'folder' && (await isHidden(folder, entry.name))) continue;
      yield { folder, name: entry.name, relativePath, kind };
      if (kind !== 'folder' || depth >= options.maxDepth || NOT_ENTERED.has(entry.name)) continue;
      const inner = await enterIfStillThere(folder, entry.name);
      if (inner === undefined) continue;
      try {
        if (!(yield* walk(inner, relativePath, depth + 1))) return false;
      } finally {
        await inner.close();
      }
    }
    return true;
  }

  return yield* walk(start, '', 1);
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
