import { readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { errorCode } from '../../../../platform/errors/app-error.ts';
import { type ConfinedFolder, type ConfinedRoot, openEntry } from './confinement.ts';

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
  readonly denied?: DeniedEntries | undefined;
}

/** What a walk leaves out because permission rules deny reading it. */
interface DeniedEntries {
  /** The path counts from the folder where the walk begins. */
  denies(relativePath: string): boolean;
  /** Called for each file, and for each folder that is therefore not entered. */
  leftOut(): void;
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
      if (options.denied?.denies(relativePath) === true) {
        options.denied.leftOut();
        continue;
      }
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

/** A pattern for paths with "/" between their names. */
export type PathPattern = (path: string) => boolean;

export const MAX_PATTERN = 500;
const MAX_ALTERNATIVES = 64;

type Token = 'any' | 'star' | { readonly characters: string; readonly isNegated: boolean };

/**
 * Reads a glob: `*` and `?` within a name, `[a-z]`, `{a,b}`, and `**` for any number of folders. It is matched without
 * backtracking, so that no pattern takes long. Undefined: the pattern is too long, or has too many alternatives.
 */
export function readGlob(glob: string): PathPattern | undefined {
  const alternatives = glob.length > MAX_PATTERN ? undefined : expandBraces(glob);
  const patterns = alternatives?.map(readPath);
  return patterns === undefined ? undefined : (path) => patterns.some((matches) => matches(path));
}

function readPath(pattern: string): PathPattern {
  const segments = pattern.split('/').map((segment) => (segment === '**' ? '**' : readSegment(segment)));
  return (path) => matchSegments(segments, path.split('/'));
}

/** `a{b,c}d` stands for `abd` and `acd`. A brace without its partner is a character. */
function expandBraces(glob: string): readonly string[] | undefined {
  const done: string[] = [];
  const open = [glob];
  while (open.length > 0) {
    if (open.length + done.length > MAX_ALTERNATIVES) return undefined;
    const next = open.pop() ?? '';
    const end = next.indexOf('}');
    // The innermost first: `{a,{b,c}}` becomes `{a,b}` and `{a,c}`.
    const start = end === -1 ? -1 : next.lastIndexOf('{', end);
    const inside = start === -1 ? '' : next.slice(start + 1, end);
    if (!inside.includes(',')) done.push(next);
    else for (const part of inside.split(',')) open.push(next.slice(0, start) + part + next.slice(end + 1));
  }
  return done;
}

function readSegment(segment: string): readonly Token[] {
  const tokens: Token[] = [];
  for (let at = 0; at < segment.length; at += 1) {
    const character = segment[at] ?? '';
    const end = character === '[' ? segment.indexOf(']', at + 2) : -1;
    if (character === '*') {
      if (tokens.at(-1) !== 'star') tokens.push('star');
    } else if (character === '?') tokens.push('any');
    else if (end > 0) {
      const inside = segment.slice(at + 1, end);
      const isNegated = inside.startsWith('!') || inside.startsWith('^');
      tokens.push({ characters: charactersOf(isNegated ? inside.slice(1) : inside), isNegated });
      at = end;
    } else {
      const isEscape = character === '\\' && at + 1 < segment.length;
      if (isEscape) at += 1;
      tokens.push({ characters: segment[at] ?? '', isNegated: false });
    }
  }
  return tokens;
}

/** The characters of a class: `a-c` stands for `abc`. */
function charactersOf(text: string): string {
  return text.replaceAll(/(.)-(.)/gs, (_range, from: string, to: string) => {
    let all = '';
    for (let code = from.charCodeAt(0); code <= to.charCodeAt(0) && all.length < 256; code += 1)
      all += String.fromCharCode(code);
    return all;
  });
}

function matchSegments(segments: readonly ('**' | readonly Token[])[], names: readonly string[]): boolean {
  // Which numbers of names, counted from the first, the segments so far can stand for.
  let reached = new Set([0]);
  for (const segment of segments) {
    const next = new Set<number>();
    for (const count of reached) {
      if (segment === '**') for (let end = count; end <= names.length; end += 1) next.add(end);
      else if (count < names.length && matchName(segment, names[count] ?? '')) next.add(count + 1);
    }
    reached = next;
  }
  return reached.has(names.length);
}

/** A star takes as little as it can; what follows is tried again one character later, from the last star only. */
function matchName(tokens: readonly Token[], name: string): boolean {
  let token = 0;
  let at = 0;
  let star = -1;
  let starAt = 0;
  while (at < name.length) {
    const expected = tokens[token];
    if (expected === 'star') {
      star = token;
      starAt = at;
      token += 1;
    } else if (expected !== undefined && fits(expected, name[at] ?? '')) {
      token += 1;
      at += 1;
    } else if (star >= 0) {
      starAt += 1;
      at = starAt;
      token = star + 1;
    } else return false;
  }
  return tokens.slice(token).every((rest) => rest === 'star');
}

function fits(token: Exclude<Token, 'star'>, character: string): boolean {
  return token === 'any' || token.characters.includes(character) !== token.isNegated;
}

export interface IgnoreRule {
  readonly matches: PathPattern;
  /** `!pattern`: what an earlier line leaves out comes back. */
  readonly isNegated: boolean;
  readonly isForFolders: boolean;
}

const MAX_RULES = 1000;

/** Reads the lines of a `.gitignore`. Paths are matched from the folder that the file is in. */
export function readIgnoreRules(text: string): readonly IgnoreRule[] {
  const lines = text.split(/\r?\n/).slice(0, MAX_RULES);
  return lines.flatMap((line): IgnoreRule[] => {
    const trimmed = withoutSpaces(line);
    if (trimmed === '' || trimmed.startsWith('#')) return [];
    const isNegated = trimmed.startsWith('!');
    const pattern = isNegated ? trimmed.slice(1) : trimmed;
    const isForFolders = pattern.endsWith('/');
    const path = isForFolders ? pattern.slice(0, -1) : pattern;
    // Without a slash in it, a pattern is for names in all folders below.
    const matches = readPath(path.includes('/') ? path.replace(/^\//, '') : `**/${path}`);
    return path.length > MAX_PATTERN ? [] : [{ matches, isNegated, isForFolders }];
  });
}

/** Without the spaces at its end; one after a backslash stays. */
function withoutSpaces(line: string): string {
  let end = line.length;
  while (line[end - 1] === ' ') end -= 1;
  return line.slice(0, line[end - 1] === '\\' ? end + 1 : end);
}

/** Whether the last rule that fits leaves a path out. Undefined: no rule fits. */
export function isIgnored(rules: readonly IgnoreRule[], path: string, isFolder: boolean): boolean | undefined {
  const rule = rules.findLast(({ matches, isForFolders }) => (isFolder || !isForFolders) && matches(path));
  return rule === undefined ? undefined : !rule.isNegated;
}
