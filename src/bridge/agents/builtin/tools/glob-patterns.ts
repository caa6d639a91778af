/** A pattern for paths with "/" between their names. */
export type PathPattern = (path: string) => boolean;

const MAX_PATTERN = 500;
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
    const start = next.indexOf('{');
    const end = next.indexOf('}');
    const inside = start === -1 ? '' : next.slice(start + 1, Math.max(start + 1, end));
    if (!inside.includes(',') || inside.includes('{')) done.push(next);
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
