import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Type } from 'typebox';
import { errorCode } from '../../../../platform/errors/app-error.ts';
import { type ConfinedFolder, locate, openEntry, openFolder } from './confinement.ts';
import { isBinary, readLines } from './file-tools.ts';
import { defineTool, type ToolContext } from './tool.ts';

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
}

/** Folders that hold what was made by machines; they are entered only when they are asked for by name. */
const NOT_ENTERED: ReadonlySet<string> = new Set(['.git', '.hg', '.svn', 'node_modules']);

/** All entries below a folder, in the order of their names. Links are named but not followed, private folders are left out. Returns false when cut short. */
async function* walkFolder(start: ConfinedFolder, options: WalkOptions): AsyncGenerator<WalkedEntry, boolean> {
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

const MAX_LISTED = 1000;
const MAX_DEPTH = 32;

/** Names what is in a folder. */
export const listFilesTool = defineTool({
  name: 'list_files',
  description: `Lists a folder, folders with "/" at the end; at most ${MAX_LISTED} entries. node_modules and .git are named but not entered.`,
  parameters: Type.Object({
    path: Type.Optional(Type.String({ description: 'Folder inside the working directory. Default: all of it.' })),
    recursive: Type.Optional(Type.Boolean({ description: 'Also list what is in its folders. Default false.' })),
  }),
  toolKind: 'read',
  needsPermission: false,
  title: ({ path = '.' }) => `List ${path}`,
  async run({ path = '.', recursive = false }, { root, signal }) {
    const folder = await openFolder(root, await locate(root, path));
    try {
      const names: string[] = [];
      const walk = walkFolder(folder, { maxDepth: recursive ? MAX_DEPTH : 1, maxEntries: MAX_LISTED, signal });
      let step = await walk.next();
      for (; step.done !== true; step = await walk.next()) {
        const { relativePath, kind } = step.value;
        names.push(kind === 'folder' ? `${relativePath}/` : relativePath);
      }
      if (!step.value) names.push(`[cut after ${MAX_LISTED} entries: list a folder further down]`);
      return {
        text: names.length === 0 ? '[the folder is empty]' : names.join('\n'),
        locations: [{ path: folder.path }],
      };
    } finally {
      await folder.close();
    }
  },
});

const MAX_MATCHES = 200;
const MAX_SEARCHED = 20_000;
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_FILE_BYTES = 8 * 1024 * 1024;
const MAX_LINE_CHARACTERS = 64 * 1024;
const SHOWN_CHARACTERS = 300;

/** Finds lines that hold a text. No pattern language: a pattern from outside could be made to run for hours. */
export const searchFilesTool = defineTool({
  name: 'search_files',
  description: `Finds the lines that contain a text (plain text, no patterns), as path:line: text; at most ${MAX_MATCHES}. Skips binary files, node_modules and .git.`,
  parameters: Type.Object({
    text: Type.String({ minLength: 1, maxLength: 1000, description: 'The text to look for, within one line.' }),
    path: Type.Optional(Type.String({ description: 'Folder to search. Default: the whole working directory.' })),
    file_suffix: Type.Optional(Type.String({ description: 'Only files whose name ends so, such as ".ts".' })),
    ignore_case: Type.Optional(Type.Boolean({ description: 'Default false.' })),
  }),
  toolKind: 'search',
  needsPermission: false,
  title: ({ text }) => `Search for "${text.slice(0, 80)}"`,
  async run({ text, path = '.', file_suffix: suffix = '', ignore_case: ignoreCase = false }, context) {
    const folder = await openFolder(context.root, await locate(context.root, path));
    try {
      const fold = ignoreCase ? (line: string) => line.toLowerCase() : (line: string) => line;
      const search = { folder, suffix, wanted: fold(text), fold };
      const { matches, isCut } = await searchFolder(search, context);
      const lines = matches.map(({ relativePath, line, text: found }) => `${relativePath}:${line}: ${found}`);
      if (isCut) lines.push('[cut: there may be more; search for something more special, or in a folder further down]');
      const locations = matches.slice(0, 20).map((match) => ({ path: match.path, line: match.line }));
      return { text: lines.length === 0 ? '[nothing found]' : lines.join('\n'), locations };
    } finally {
      await folder.close();
    }
  },
});

interface Search {
  readonly folder: ConfinedFolder;
  readonly suffix: string;
  readonly wanted: string;
  fold(line: string): string;
}

interface Match {
  readonly path: string;
  readonly relativePath: string;
  readonly line: number;
  readonly text: string;
}

async function searchFolder(search: Search, { signal }: ToolContext) {
  const matches: Match[] = [];
  let bytesLeft = MAX_BYTES;
  const walk = walkFolder(search.folder, { maxDepth: MAX_DEPTH, maxEntries: MAX_SEARCHED, signal });
  let step = await walk.next();
  for (; step.done !== true; step = await walk.next()) {
    const { folder, name, relativePath, kind } = step.value;
    if (kind !== 'file' || !name.endsWith(search.suffix)) continue;
    bytesLeft -= await searchFile(search, folder, name, relativePath, matches);
    if (matches.length >= MAX_MATCHES || bytesLeft <= 0) {
      await walk.return(false);
      return { matches: matches.slice(0, MAX_MATCHES), isCut: true };
    }
  }
  return { matches, isCut: !step.value };
}

/** Adds what it finds, and returns how many bytes that took. */
async function searchFile(
  { wanted, fold }: Search,
  folder: ConfinedFolder,
  name: string,
  relativePath: string,
  matches: Match[],
): Promise<number> {
  const file = await openEntry(folder, name).catch(unreadable);
  if (file === undefined) return 0;
  try {
    if (await isBinary(file.handle)) return 0;
    let number = 0;
    const options = { maxLineCharacters: MAX_LINE_CHARACTERS, maxBytes: MAX_FILE_BYTES };
    for await (const { text } of readLines(file.handle, options)) {
      number += 1;
      if (!fold(text).includes(wanted)) continue;
      matches.push({ path: file.path, relativePath, line: number, text: text.trim().slice(0, SHOWN_CHARACTERS) });
      if (matches.length >= MAX_MATCHES) break;
    }
    return Math.min(file.size, MAX_FILE_BYTES);
  } finally {
    await file.handle.close();
  }
}

/** A file that went away, or may not be read, is not what a search is about. */
function unreadable(error: unknown): undefined {
  if (['ENOENT', 'ELOOP', 'EACCES', 'EPERM', 'ENXIO', 'TOOL_CALL_REFUSED'].includes(errorCode(error))) return undefined;
  throw error;
}
