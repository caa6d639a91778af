import { Type } from 'typebox';
import {
  type ConfinedFolder,
  type ConfinedRoot,
  deniedBelow,
  enterFolders,
  locate,
  openEntry,
  openFolder,
  refuse,
} from './confinement.ts';
import { isBinary, readLines } from './file-tools.ts';
import { createLineMatcher, filesByRipgrep, type LineMatcher } from './text-search.ts';
import { defineTool, type ToolContext } from './tool.ts';
import { type PathPattern, readGlob, unreadable, walkFolder } from './walk-folder.ts';

const MAX_LISTED = 1000;
const MAX_DEPTH = 32;
const MAX_SEARCHED = 100_000;

const folderPath = Type.Optional(
  Type.String({ description: 'Folder inside the working directory. Default: all of it.' }),
);
const withIgnored = Type.Optional(
  Type.Boolean({ description: 'Also what .gitignore files leave out. Default false.' }),
);

/** Counts what permission rules keep from being read below a folder. Throws TOOL_CALL_REFUSED where they deny the folder itself. */
async function countDenied(root: ConfinedRoot, path: string, names: readonly string[]) {
  const denies = await deniedBelow(root, path, names);
  let count = 0;
  return {
    denied: denies && {
      denies,
      leftOut() {
        count += 1;
      },
    },
    /** The line that says so. */
    told: () =>
      count === 0 ? [] : [`[${count} left out: permission rules deny reading ${count === 1 ? 'it' : 'them'}]`],
  };
}

/** Names what is in a folder. */
export const listFilesTool = defineTool({
  name: 'list_files',
  description: `Lists a folder, folders with "/" at the end; at most ${MAX_LISTED} entries. node_modules and .git are named but not entered. A recursive list leaves out what .gitignore files leave out.`,
  parameters: Type.Object({
    path: folderPath,
    recursive: Type.Optional(Type.Boolean({ description: 'Also list what is in its folders. Default false.' })),
    include_ignored: withIgnored,
  }),
  toolKind: 'read',
  needsPermission: false,
  title: ({ path = '.' }) => `List ${path}`,
  async run({ path = '.', recursive = false, include_ignored: isAll = !recursive }, { root, signal }) {
    const start = await locate(root, path);
    const { denied, told } = await countDenied(root, path, start);
    const options = { maxDepth: recursive ? MAX_DEPTH : 1, maxEntries: MAX_LISTED, signal, isIgnoring: !isAll, denied };
    const names: string[] = [];
    const walk = walkFolder(root, start, options);
    let step = await walk.next();
    for (; step.done !== true; step = await walk.next()) {
      const { relativePath, kind } = step.value;
      names.push(kind === 'folder' ? `${relativePath}/` : relativePath);
    }
    if (!step.value) names.push(`[cut after ${MAX_LISTED} entries: list a folder further down]`);
    const locations = [{ path: [root.path, ...start].join('/') }];
    const lines = [...names, ...told()];
    return { text: lines.length === 0 ? '[the folder is empty]' : lines.join('\n'), locations };
  },
});

const globText = Type.String({ minLength: 1, maxLength: 500 });
const GLOB_WORDS = 'such as "*.ts" for names, or "src/**/*.{ts,tsx}" for paths from the folder that is searched';

/** A pattern without a slash is for names, wherever they are. */
function readFileGlob(glob: string): PathPattern {
  return (
    readGlob(glob.includes('/') ? glob.replace(/^\.?\//, '') : `**/${glob}`) ??
    refuse('The pattern of file names has too many alternatives; use a simpler one.')
  );
}

/** Finds files by their names. */
export const findFilesTool = defineTool({
  name: 'find_files',
  description: `Finds files by a pattern of their names, ${GLOB_WORDS}; at most ${MAX_LISTED}. Leaves out node_modules, .git, and what .gitignore files leave out.`,
  parameters: Type.Object({
    pattern: Type.String({ ...globText, description: `The pattern, ${GLOB_WORDS}.` }),
    path: folderPath,
    include_ignored: withIgnored,
  }),
  toolKind: 'search',
  needsPermission: false,
  title: ({ pattern }) => `Find ${pattern.slice(0, 80)}`,
  async run({ pattern, path = '.', include_ignored: isAll = false }, { root, signal }) {
    const fits = readFileGlob(pattern);
    const names = await locate(root, path);
    const { denied, told } = await countDenied(root, path, names);
    const options = { maxDepth: MAX_DEPTH, maxEntries: MAX_SEARCHED, signal, isIgnoring: !isAll, denied };
    const walk = walkFolder(root, names, options);
    const found: string[] = [];
    let step = await walk.next();
    for (; step.done !== true && found.length <= MAX_LISTED; step = await walk.next()) {
      if (step.value.kind === 'file' && fits(step.value.relativePath)) found.push(step.value.relativePath);
    }
    await walk.return(false);
    const isCut = found.length > MAX_LISTED || step.value === false;
    const lines = found.slice(0, MAX_LISTED);
    if (isCut) lines.push('[cut: there may be more; use another pattern, or a folder further down]');
    return { text: [lines.length === 0 ? '[nothing found]' : lines.join('\n'), ...told()].join('\n') };
  },
});

const MAX_MATCHES = 200;
const MAX_BYTES = 256 * 1024 * 1024;
const MAX_FILE_BYTES = 8 * 1024 * 1024;
const MAX_LINE_CHARACTERS = 64 * 1024;
const SHOWN_CHARACTERS = 300;
/** Lines that are matched together. */
const BATCH_CHARACTERS = 1024 * 1024;
const BATCH_LINES = 10_000;
/** Programs do not agree about upper and lower case beyond these. */
const ASCII = /^[ -~\t]*$/;

/** Finds lines that hold a text, or that a regular expression matches. */
export const searchFilesTool = defineTool({
  name: 'search_files',
  description: `Finds the lines that contain a text or match a regular expression, as path:line: text; at most ${MAX_MATCHES}. Skips binary files, node_modules, .git, and what .gitignore files leave out.`,
  parameters: Type.Object({
    text: Type.Optional(
      Type.String({ minLength: 1, maxLength: 1000, description: 'The text to look for, within one line.' }),
    ),
    pattern: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 1000,
        description: 'Instead of a text: a regular expression of JavaScript, for one line.',
      }),
    ),
    path: folderPath,
    files: Type.Optional(Type.String({ ...globText, description: `Only files that fit a pattern, ${GLOB_WORDS}.` })),
    ignore_case: Type.Optional(Type.Boolean({ description: 'Default false.' })),
    include_ignored: withIgnored,
  }),
  toolKind: 'search',
  needsPermission: false,
  title: ({ text, pattern = '' }) =>
    `Search for ${text === undefined ? `/${pattern.slice(0, 80)}/` : `"${text.slice(0, 80)}"`}`,
  async run(
    { text, pattern, path = '.', files = '*', ignore_case: ignoreCase = false, include_ignored: isAll = false },
    context,
  ) {
    if ((text === undefined) === (pattern === undefined)) refuse('Give either text or pattern.');
    const { root, signal, commands } = context;
    const fits = readFileGlob(files);
    const names = await locate(root, path);
    const { denied, told } = await countDenied(root, path, names);
    const matcher = createLineMatcher({ text, pattern, ignoreCase, clock: commands.clock, signal });
    try {
      const search = { names, fits, matcher, isIgnoring: !isAll, denied };
      const isFast = text !== undefined && names.length === 0 && (!ignoreCase || ASCII.test(text));
      const wanted = { text: text ?? '', ignoreCase, isIgnoring: !isAll, maxDepth: MAX_DEPTH };
      const named = isFast ? await filesByRipgrep(wanted, context) : undefined;
      const found = named === undefined ? searchFolder(search, context) : searchNamed(named, search, context);
      const { matches, isCut } = await found;
      const lines = matches.map(({ relativePath, line, text: shown }) => `${relativePath}:${line}: ${shown}`);
      if (isCut) lines.push('[cut: there may be more; search for something more special, or in a folder further down]');
      const locations = matches.slice(0, 20).map((match) => ({ path: match.path, line: match.line }));
      return { text: [lines.length === 0 ? '[nothing found]' : lines.join('\n'), ...told()].join('\n'), locations };
    } finally {
      await matcher.end();
    }
  },
});

interface Search {
  readonly names: readonly string[];
  readonly fits: PathPattern;
  readonly matcher: LineMatcher;
  readonly isIgnoring: boolean;
  readonly denied: Awaited<ReturnType<typeof countDenied>>['denied'];
}

interface Match {
  readonly path: string;
  readonly relativePath: string;
  readonly line: number;
  readonly text: string;
}

async function searchFolder({ names, fits, matcher, isIgnoring, denied }: Search, { root, signal }: ToolContext) {
  const matches: Match[] = [];
  let bytesLeft = MAX_BYTES;
  const walk = walkFolder(root, names, { maxDepth: MAX_DEPTH, maxEntries: MAX_SEARCHED, signal, isIgnoring, denied });
  try {
    let step = await walk.next();
    for (; step.done !== true; step = await walk.next()) {
      const { folder, name, relativePath, kind } = step.value;
      if (kind !== 'file' || !fits(relativePath)) continue;
      bytesLeft -= await searchFile(matcher, folder, name, relativePath, matches);
      if (matches.length >= MAX_MATCHES || bytesLeft <= 0) {
        return { matches: matches.slice(0, MAX_MATCHES), isCut: true };
      }
    }
    return { matches, isCut: !step.value };
  } finally {
    await walk.return(false);
  }
}

/** Files that are read at the same time: each waits for the disk several times. */
const READ_AT_ONCE = 16;

/** Searches files that were named: the text may be in them. What is found comes in the order of the names. */
async function searchNamed(paths: readonly string[], search: Search, context: ToolContext) {
  const { fits, matcher, denied } = search;
  const { root, signal } = context;
  const matches: Match[] = [];
  let bytesLeft = MAX_BYTES;
  const wanted = paths.filter((path) => fits(path) && denied?.denies(path) !== true);
  if (denied !== undefined) await walkNames(search, context);
  // Opened once, as a walk does: opening it looks at every folder above it.
  const top = await openFolder(root, []);
  try {
    for (let at = 0; at < wanted.length; at += READ_AT_ONCE) {
      signal.throwIfAborted();
      const batch = wanted.slice(at, at + READ_AT_ONCE).map((path) => searchPath(matcher, top, path));
      // Every file is closed again before one that failed ends the search.
      await Promise.allSettled(batch);
      for (const { found, bytes } of await Promise.all(batch)) {
        matches.push(...found);
        bytesLeft -= bytes;
      }
      if (matches.length >= MAX_MATCHES || bytesLeft <= 0) {
        return { matches: matches.slice(0, MAX_MATCHES), isCut: true };
      }
    }
    return { matches, isCut: false };
  } finally {
    await top.close();
  }
}

/** Counts what is denied by names alone: a count of the denied files that contain a text would tell what they contain. */
async function walkNames({ names, isIgnoring, denied }: Search, { root, signal }: ToolContext): Promise<void> {
  const walk = walkFolder(root, names, { maxDepth: MAX_DEPTH, maxEntries: MAX_SEARCHED, signal, isIgnoring, denied });
  while ((await walk.next()).done !== true);
}

async function searchPath(matcher: LineMatcher, top: ConfinedFolder, path: string) {
  const names = path.split('/');
  const name = names.pop() ?? '';
  const found: Match[] = [];
  const folder = await enterFolders(top, names).catch(unreadable);
  if (folder === undefined) return { found, bytes: 0 };
  try {
    return { found, bytes: await searchFile(matcher, folder, name, path, found) };
  } finally {
    if (folder !== top) await folder.close();
  }
}

/** Adds what it finds, and returns how many bytes that took. */
async function searchFile(
  matcher: LineMatcher,
  folder: ConfinedFolder,
  name: string,
  relativePath: string,
  matches: Match[],
): Promise<number> {
  const file = await openEntry(folder, name).catch(unreadable);
  if (file === undefined) return 0;
  let batch: string[] = [];
  let characters = 0;
  let before = 0;
  const matchBatch = async (): Promise<void> => {
    for (const index of await matcher.match(batch)) {
      const text = (batch[index] ?? '').trim().slice(0, SHOWN_CHARACTERS);
      matches.push({ path: file.path, relativePath, line: before + index + 1, text });
    }
    before += batch.length;
    batch = [];
    characters = 0;
  };
  try {
    if (await isBinary(file.handle)) return 0;
    const options = { maxLineCharacters: MAX_LINE_CHARACTERS, maxBytes: MAX_FILE_BYTES };
    for await (const { text } of readLines(file.handle, options)) {
      batch.push(text);
      characters += text.length;
      if (batch.length < BATCH_LINES && characters < BATCH_CHARACTERS) continue;
      await matchBatch();
      if (matches.length >= MAX_MATCHES) break;
    }
    if (batch.length > 0) await matchBatch();
    return Math.min(file.size, MAX_FILE_BYTES);
  } finally {
    await file.handle.close();
  }
}
