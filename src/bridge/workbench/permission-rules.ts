import { lstat, readlink, realpath } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, isAbsolute, join, normalize, relative, resolve } from 'node:path';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { PermissionQuestion } from '../agents/agent-provider.ts';
import { MAX_PATTERN, type PathPattern, readGlob } from '../agents/builtin/tools/walk-folder.ts';
import { COMMAND_MEMBERS, FOLDER_MEMBERS, PATH_MEMBERS, pathsIn } from '../agents/file-changes.ts';

/** Decides about what it matches. Every condition that is given must hold; a rule without conditions matches all. */
export interface PermissionRule {
  /** The kind of the tool: execute, edit, delete, read and so on. */
  readonly kind?: string;
  /** The first words of a command; all of its words when `isExact`. */
  readonly command?: readonly string[];
  /** A pattern for paths, such as `.env` in any folder; one path when `isExact`. */
  readonly path?: string;
  readonly isExact?: boolean;
  readonly decision: 'allow' | 'deny';
}

/** The parts of a question that rules check. */
export interface PermissionSubject {
  readonly kind: string;
  /** The words of a command in which a shell would interpret nothing. Undefined for all other commands. */
  readonly command: readonly string[] | undefined;
  /** Every word of a command, whatever stands between the words. */
  readonly words: readonly string[];
  /** The same words without quotes and backslashes: `r"m"` is `rm`. */
  readonly bareWords: readonly string[];
  /** Absolute paths, as they were asked for. */
  readonly paths: readonly string[];
  /** Where each of them leads when links are followed. Undefined: that is not known. */
  readonly realPaths: readonly (string | undefined)[];
  readonly folder: string;
  /** Where `folder` leads. */
  readonly realFolder: string;
  /** The folders other than `folder` in which a command runs. */
  readonly commandFolders: readonly string[];
}

/** What the call asked for; undefined when it said nothing. */
export type PermissionSetting = 'ask' | 'allow' | 'deny' | undefined;

/**
 * The order in which rules and settings count: a deny of any of them wins; then an allow of a rule decides; then what the
 * call asked for; then the default of the bridge, which is to allow (where it is `deny`, agents are not asked at all).
 */
export function decide(
  subject: PermissionSubject,
  rules: readonly PermissionRule[],
  setting: PermissionSetting,
): 'ask' | 'allow' | 'deny' {
  const denied = rules.some(deniesOf(subject));
  if (setting === 'deny' || denied) return 'deny';
  return isAllowed(subject, rules) ? 'allow' : (setting ?? 'allow');
}

/**
 * The paths that denies of rules keep from being read, for a tool that is all of these kinds; undefined where there are none. Only rules
 * without a command count, because reading runs none.
 */
export function deniedPaths(
  rules: readonly PermissionRule[],
  kinds: readonly string[],
  folder: string,
): PathPattern | undefined {
  const denies = rules.filter(
    ({ decision, command, kind }) =>
      decision === 'deny' && command === undefined && (kind === undefined || kinds.includes(kind)),
  );
  if (denies.length === 0) return undefined;
  const patterns = denies.map((rule) => (rule.path === undefined ? () => true : pathsOf(rule, folder)));
  return (path) => patterns.some((fits) => fits(path));
}

/** Returns the rule that a decision follows from. Several may allow the paths of a question together: then it is that of the first. */
export function ruleBehind<Rule extends PermissionRule>(
  subject: PermissionSubject,
  rules: readonly Rule[],
  decision: 'allow' | 'deny',
): Rule | undefined {
  if (decision === 'deny') return rules.find(deniesOf(subject));
  if (!isAllowed(subject, rules)) return undefined;
  const [first, real] = [subject.paths.slice(0, 1), subject.realPaths.slice(0, 1)];
  const allowing = (one: PermissionSubject) => rules.find((rule) => isAllowed(one, [rule]));
  return allowing(subject) ?? allowing({ ...subject, paths: first, realPaths: real });
}

/** What a rule matches, for people. */
export function ruleText({ kind, command, path }: PermissionRule): string {
  const conditions = [command?.join(' '), path].filter((one) => one !== undefined);
  return conditions.length > 0 ? conditions.join(' ') : (kind ?? 'everything');
}

/** An allow must be certain: the whole command is understood, and every path fits a rule, also where links lead. */
function isAllowed(subject: PermissionSubject, rules: readonly PermissionRule[]): boolean {
  const { paths, realPaths, folder } = subject;
  const fitting = rules.filter((rule) => rule.decision === 'allow' && fitsKindAndCommand(rule, subject));
  if (fitting.some(({ path }) => path === undefined)) return true;
  const patterns = fitting.map((rule) => ({ fits: pathsOf(rule, folder), isExact: rule.isExact === true }));
  return (
    paths.length > 0 &&
    paths.every((path, index) => {
      const real = realPaths[index];
      return patterns.some(
        ({ fits, isExact }) => fits(path) && (real === path || (real !== undefined && !isExact && fits(real))),
      );
    })
  );
}

function fitsKindAndCommand({ kind, command, isExact = false }: PermissionRule, subject: PermissionSubject): boolean {
  if (kind !== undefined && kind !== subject.kind) return false;
  if (command === undefined) return true;
  const { command: given } = subject;
  if (given === undefined || command.some((word, index) => word !== given[index])) return false;
  return !isExact || given.length === command.length;
}

/**
 * A deny is broad: the words may be anywhere in the command, also after another program or inside a script, and what it says of a folder
 * counts for everything inside.
 */
function deniesOf(subject: PermissionSubject): (rule: PermissionRule) => boolean {
  const { paths, words, bareWords, folder } = subject;
  let touched: ReturnType<typeof touchedPaths> | undefined;
  return (rule) => {
    const { kind, command, path, isExact = false, decision } = rule;
    if (decision !== 'deny' || (kind !== undefined && kind !== subject.kind)) return false;
    const isHeld = (one: readonly string[]) => command === undefined || holds(one, command, isExact);
    // A remembered command has its quoted words whole, and its folder or input at its end.
    if (!isHeld(words) && !isHeld(bareWords) && !isHeld(subject.command ?? [])) return false;
    if (path === undefined || areTooMany(paths)) return true;
    const fits = pathsOf(rule, folder);
    touched ??= touchedPaths(subject);
    return touched.named.some(fits) || (!isExact && touched.above.some(fits));
  };
}

/** The paths that a question is about, in its command too, and the folders that they lie in. */
function touchedPaths(subject: PermissionSubject) {
  const { paths, realPaths, words, bareWords, folder, realFolder, commandFolders } = subject;
  const named = new Set([...paths, ...realPaths.filter((one) => one !== undefined), ...commandFolders]);
  for (const word of [...words, ...bareWords].flatMap(pathsOfWord)) {
    for (const base of [folder, ...commandFolders]) named.add(fromHome(word) ?? resolve(base, word));
  }
  const above = new Set<string>();
  for (const path of named) {
    for (let at = path; at !== folder && at !== realFolder && at !== dirname(at) && !above.has(dirname(at)); ) {
      at = dirname(at);
      above.add(at);
    }
  }
  // A rule for the folder of the session says nothing about what is inside.
  for (const own of [folder, realFolder]) above.delete(own);
  return { named: [...named], above: [...above] };
}

/** What a shell makes of `~/.ssh`. Agents write home folders like this, and rules have their whole paths. */
function fromHome(path: string): string | undefined {
  const [, rest] = /^~(?:\/(.*))?$/s.exec(path) ?? [path];
  return path === '~' || rest !== undefined ? join(homedir(), rest ?? '') : undefined;
}

/** Paths stand in arguments such as `--file=.env` and `@.env`, too. */
function pathsOfWord(word: string): readonly string[] {
  const pieces = word.split(/[=:@,]/).filter(Boolean);
  return pieces.length === 1 && pieces[0] === word ? pieces : [word, ...pieces];
}

function holds(words: readonly string[], wanted: readonly string[], isExact: boolean): boolean {
  return words.some((first, at) => {
    if (first !== wanted[0] && basename(first) !== wanted[0]) return wanted.length === 0;
    let place = at;
    return wanted.slice(1).every((word) => {
      place = isExact ? place + 1 : skipOptions(words, place + 1, word);
      return words[place] === word;
    });
  });
}

/** Options between the words of a rule that are skipped, so that no command takes long. */
const MAX_SKIPPED = 16;

/** Finds the next word of a rule behind options and their values: `git -C /elsewhere push`. */
function skipOptions(words: readonly string[], from: number, wanted: string): number {
  let at = from;
  for (let count = 0; count < MAX_SKIPPED && words[at] !== wanted && isOption(words[at]); count += 1) {
    at += 1;
    const value = words[at];
    if (value !== wanted && value !== undefined && !isOption(value)) at += 1;
  }
  return at;
}

function isOption(word: string | undefined): boolean {
  return word?.startsWith('-') === true;
}

/** What the path of a rule fits. A deny fits names in any case, because there are file systems on which they are the same. */
function pathsOf({ path = '', isExact = false, decision }: PermissionRule, folder: string): PathPattern {
  if (isExact) {
    const exact = resolve(folder, path);
    return (one) => one === exact;
  }
  const isDeny = decision === 'deny';
  const spelled = isDeny ? (text: string) => text.normalize('NFC').toLowerCase() : (text: string) => text;
  const { base, pattern } = patternFrom(path, folder);
  // What may be done inside of a folder may not be done to the folder itself. What may not, may not.
  const glob = isDeny ? pattern : pattern.replace(/(^|\/)\*\*$/, '$1**/*');
  const fits = readGlob(spelled(glob)) ?? (() => isDeny);
  if (base === undefined) return (one) => fits(spelled(one));
  return (one) => {
    const inside = relative(base, one);
    return inside !== '..' && !inside.startsWith('../') && fits(spelled(inside));
  };
}

/** A pattern, and the folder from which it counts; undefined where it counts from the root. */
function patternFrom(path: string, folder: string): { readonly base: string | undefined; readonly pattern: string } {
  let end = path.length;
  while (path[end - 1] === '/') end -= 1;
  const whole = end === path.length ? path : `${path.slice(0, end)}/**`;
  if (isAbsolute(whole) || whole.startsWith('**')) return { base: undefined, pattern: whole };
  let base = folder;
  let pattern = normalize(whole);
  for (; pattern === '..' || pattern.startsWith('../'); pattern = pattern.slice(3)) base = dirname(base);
  return { base, pattern: pattern === '.' ? '' : pattern };
}

type Fields = Readonly<Record<string, unknown>>;

/** What rules read of an input. */
export const RULE_MEMBERS: readonly string[] = [...PATH_MEMBERS, ...COMMAND_MEMBERS];
const SHELLS: ReadonlySet<string> = new Set(['sh', 'bash', 'zsh', 'dash']);
const SHELL_FLAG = /^-l?c$/;
/** Plain words and simple quotes. Everything else may mean something to a shell. */
const PLAIN_COMMAND = /^(?:[\w@%+=:,./ -]|'[^'\n]*'|"[^"$`\\!\n]*")+$/;
const PLAIN_WORD = /(?:[\w@%+=:,./-]+|'[^']*'|"[^"]*")+/g;
const ASSIGNMENT = /^\w+=/;
const HOME_VARIABLE = /\$(?:HOME\b|\{HOME\})/g;
const BETWEEN_WORDS = /[\s;&|<>()`$'"{}\\]+/;
const MAX_COMMAND_LENGTH = 32 * 1024;

/** Reads commands and paths from the input of a question. Agents use different members for them. */
export function subjectOf({ toolKind, title, input }: PermissionQuestion, folder: string): PermissionSubject {
  const fields: Fields = typeof input === 'object' && input !== null && !Array.isArray(input) ? (input as Fields) : {};
  const named = pathsIn(fields).flatMap((path) => [resolve(folder, path), fromHome(path) ?? []].flat());
  const paths = [...new Set(named)];
  const given = commandOf(fields);
  const command = given ?? (toolKind === 'execute' ? title : undefined);
  const parts = command === undefined ? [] : [command].flat().map((part) => part.replaceAll(HOME_VARIABLE, '~'));
  const plain = command === undefined ? undefined : plainWords(command);
  // Where the title stands for a tool, such as one of an MCP server, or a tool has commands of its own, what it is called with
  // belongs to the command.
  const hasOwn = given === undefined || (toolKind !== 'execute' && paths.length === 0);
  const isTool = hasOwn && Object.keys(fields).length > 0;
  const commandFolders = foldersNamedIn(fields, folder);
  // The same words are another command in another folder.
  const rest = isTool ? [JSON.stringify(fields)] : commandFolders.map((path) => `(in ${path})`);
  return {
    kind: toolKind,
    command: plain && [...plain, ...rest],
    words: wordsOf(parts),
    bareWords: wordsOf(parts.map((part) => part.replaceAll(/['"\\]/g, ''))),
    paths,
    realPaths: paths,
    folder,
    realFolder: folder,
    commandFolders,
  };
}

function foldersNamedIn(fields: Fields, folder: string): readonly string[] {
  const named = FOLDER_MEMBERS.flatMap((name) => textsOf(fields[name]));
  return named.map((path) => resolve(folder, path)).filter((path) => path !== folder);
}

function wordsOf(parts: readonly string[]): readonly string[] {
  return parts.flatMap((part) => part.split(BETWEEN_WORDS)).filter(Boolean);
}

/** More paths than this are not looked at one by one: then no rule can allow them, and each that denies a path denies them. */
const MAX_FOLLOWED_PATHS = 10_000;
const FOLLOWED_AT_ONCE = 256;
const MAX_LINKS = 40;

function areTooMany(paths: readonly string[]): boolean {
  return paths.length > MAX_FOLLOWED_PATHS;
}

/** Finds out where the paths of a subject lead. */
export async function followLinks(subject: PermissionSubject): Promise<PermissionSubject> {
  const { paths } = subject;
  if (areTooMany(paths)) return { ...subject, realPaths: paths.map(() => undefined) };
  const realPaths: (string | undefined)[] = [];
  for (let at = 0; at < paths.length; at += FOLLOWED_AT_ONCE) {
    const some = paths.slice(at, at + FOLLOWED_AT_ONCE);
    realPaths.push(...(await Promise.all(some.map((path) => realPathOf(path)))));
  }
  return { ...subject, realPaths, realFolder: (await realPathOf(subject.folder)) ?? subject.folder };
}

/** A deny counts also for where the folder that it names leads: `/var/run/docker.sock` is `/run/docker.sock`. */
export async function withRealFolders<Rule extends PermissionRule>(
  rules: readonly Rule[],
  folder: string,
): Promise<readonly Rule[]> {
  const followed = rules.map(async (rule) => {
    if (rule.decision !== 'deny' || rule.path === undefined || rule.isExact === true) return [rule];
    const { base, pattern } = patternFrom(rule.path, folder);
    const names = pattern.split('/');
    const first = names.findIndex((name) => name.search(GLOB_CHARACTERS) !== -1);
    const plain = first === -1 ? names : names.slice(0, first);
    const named = join(base ?? '/', ...plain);
    const real = (await realPathOf(named)) ?? named;
    const path = [real.replaceAll(GLOB_CHARACTERS, '?'), ...names.slice(plain.length)].join('/');
    return real === named || path.length > MAX_PATTERN ? [rule] : [rule, { ...rule, path }];
  });
  return (await Promise.all(followed)).flat();
}

const GLOB_CHARACTERS = /[*?[\]{}\\]/g;

/** The real path of what exists of a path, and the rest as it stands. Undefined: it cannot be found out. */
async function realPathOf(path: string, links = 0): Promise<string | undefined> {
  const missing: string[] = [];
  for (let at = path; ; at = dirname(at)) {
    try {
      return join(await realpath(at), ...missing);
    } catch (error) {
      if (errorCode(error) !== 'ENOENT' || at === dirname(at) || links > MAX_LINKS) return undefined;
      const isLink = (await lstat(at).catch(() => undefined))?.isSymbolicLink() === true;
      // A link to what is not there yet: a file that is written through it is made where it leads.
      const target = isLink ? await readlink(at).catch(() => undefined) : undefined;
      const above = target === undefined ? undefined : await realpath(dirname(at)).catch(() => undefined);
      if (target !== undefined && above !== undefined)
        return realPathOf(join(resolve(above, target), ...missing), links + 1);
      if (isLink) return undefined;
      missing.unshift(basename(at));
    }
  }
}

/** A command with all of its arguments: with others, it would be another one. */
function commandOf({ command, cmd, args }: Fields): string | readonly string[] | undefined {
  const given = command ?? cmd;
  if (typeof given !== 'string' && !Array.isArray(given)) return undefined;
  if (args === undefined || args === null) return typeof given === 'string' ? given : given.map(wordOf);
  if (typeof given === 'string' && typeof args === 'string') return `${given} ${args}`;
  return [given, args].flat().map(wordOf);
}

function wordOf(word: unknown): string {
  return typeof word === 'string' ? word : JSON.stringify(word);
}

/** The words of a command that no shell would interpret; undefined when one might. */
function plainWords(command: string | readonly string[]): readonly string[] | undefined {
  if (typeof command !== 'string') {
    const [program = '', flag = '', script] = command;
    if (!SHELLS.has(basename(program))) return command;
    return command.length === 3 && SHELL_FLAG.test(flag) && script !== undefined ? plainWords(script) : undefined;
  }
  if (command.length > MAX_COMMAND_LENGTH || !PLAIN_COMMAND.test(command)) return undefined;
  const words = (command.match(PLAIN_WORD) ?? []).map((word) => word.replaceAll(/'([^']*)'|"([^"]*)"/g, '$1$2'));
  const [first = ''] = words;
  if (first === '' || ASSIGNMENT.test(first)) return undefined;
  // As Codex writes all of its commands: `/bin/bash -lc 'git status'`.
  return SHELLS.has(basename(first)) ? plainWords(words) : words;
}

function textsOf(value: unknown): readonly string[] {
  return [value].flat().filter((one): one is string => typeof one === 'string' && one !== '');
}
