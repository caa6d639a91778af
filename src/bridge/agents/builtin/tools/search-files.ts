import { Type } from 'typebox';
import { errorCode } from '../../../../platform/errors/app-error.ts';
import { openEntry } from './confined-file.ts';
import { type ConfinedFolder, locate, openFolder } from './confined-folder.ts';
import { isBinary, readLines } from './read-lines.ts';
import { defineTool, type ToolContext } from './tool.ts';
import { walkFolder } from './walk-folder.ts';

const MAX_MATCHES = 200;
const MAX_ENTRIES = 20_000;
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_FILE_BYTES = 8 * 1024 * 1024;
const MAX_LINE_CHARACTERS = 64 * 1024;
const SHOWN_CHARACTERS = 300;
const DEEPEST = 32;

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
  const walk = walkFolder(search.folder, { maxDepth: DEEPEST, maxEntries: MAX_ENTRIES, signal });
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
