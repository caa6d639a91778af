import { basename, isAbsolute, matchesGlob, resolve } from 'node:path';
import type { PermissionOption, PermissionQuestion } from '../agents/agent-provider.ts';

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
  /** Absolute paths. */
  readonly paths: readonly string[];
  readonly folder: string;
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
  if (setting === 'deny' || rules.some((rule) => rule.decision === 'deny' && denies(rule, subject))) return 'deny';
  if (rules.some((rule) => rule.decision === 'allow' && allows(rule, subject))) return 'allow';
  return setting ?? 'allow';
}

/** An allow must be certain: the whole command is understood, and every path fits. */
function allows({ kind, command, path, isExact = false }: PermissionRule, subject: PermissionSubject): boolean {
  if (kind !== undefined && kind !== subject.kind) return false;
  if (command !== undefined) {
    const { command: given } = subject;
    if (given === undefined || command.some((word, index) => word !== given[index])) return false;
    if (isExact && given.length !== command.length) return false;
  }
  if (path === undefined) return true;
  const { paths, folder } = subject;
  return paths.length > 0 && paths.every((one) => matchesPath(path, one, folder, isExact));
}

/** A deny is broad: the words may be anywhere in the command, also after another program or inside a script. */
function denies({ kind, command, path, isExact = false }: PermissionRule, subject: PermissionSubject): boolean {
  if (kind !== undefined && kind !== subject.kind) return false;
  if (command !== undefined && !holds(subject.words, command)) return false;
  if (path === undefined) return true;
  const { paths, words, folder } = subject;
  const named = [...paths, ...words.map((word) => resolve(folder, word))];
  return named.some((one) => matchesPath(path, one, folder, isExact));
}

function holds(words: readonly string[], wanted: readonly string[]): boolean {
  return words.some((_, at) =>
    wanted.every((word, index) => {
      const given = words[at + index];
      return given === word || (index === 0 && given !== undefined && basename(given) === word);
    }),
  );
}

function matchesPath(pattern: string, path: string, folder: string, isExact: boolean): boolean {
  if (isExact) return resolve(folder, pattern) === path;
  return matchesGlob(path, isAbsolute(pattern) || pattern.startsWith('**') ? pattern : resolve(folder, pattern));
}

type Fields = Readonly<Record<string, unknown>>;

const PATH_MEMBERS = ['path', 'file_path', 'filePath', 'file', 'abs_path', 'notebook_path', 'from', 'to', 'grantRoot'];
const SHELLS: ReadonlySet<string> = new Set(['sh', 'bash', 'zsh', 'dash']);
const SHELL_FLAG = /^-l?c$/;
/** Plain words and simple quotes. Everything else may mean something to a shell. */
const PLAIN_COMMAND = /^(?:[\w@%+=:,./ -]|'[^'\n]*'|"[^"$`\\!\n]*")+$/;
const PLAIN_WORD = /(?:[\w@%+=:,./-]+|'[^']*'|"[^"]*")+/g;
const ASSIGNMENT = /^\w+=/;
const BETWEEN_WORDS = /[\s;&|<>()`$'"{}\\]+/;
const MAX_COMMAND_LENGTH = 32 * 1024;

/** Reads commands and paths from the input of a question. Agents use different members for them. */
export function subjectOf({ toolKind, title, input }: PermissionQuestion, folder: string): PermissionSubject {
  const fields: Fields = typeof input === 'object' && input !== null && !Array.isArray(input) ? (input as Fields) : {};
  const paths = PATH_MEMBERS.flatMap((name) => textsOf(fields[name])).concat(textsOf(fields.paths));
  const command = commandOf(fields) ?? (toolKind === 'execute' ? title : undefined);
  return {
    kind: toolKind,
    command: command === undefined ? undefined : plainWords(command),
    words:
      command === undefined
        ? []
        : [command]
            .flat()
            .flatMap((part) => part.split(BETWEEN_WORDS))
            .filter(Boolean),
    paths: paths.map((path) => resolve(folder, path)),
    folder,
  };
}

function commandOf({ command, cmd, args }: Fields): string | readonly string[] | undefined {
  const given = command ?? cmd;
  if (typeof given === 'string') return Array.isArray(args) ? [given, ...textsOf(args)] : given;
  return Array.isArray(given) && given.every((word) => typeof word === 'string') ? given : undefined;
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
  const isPlain = words.length > 0 && !ASSIGNMENT.test(words[0] ?? '') && !SHELLS.has(basename(words[0] ?? ''));
  return isPlain ? words : undefined;
}

function textsOf(value: unknown): readonly string[] {
  return [value].flat().filter((one): one is string => typeof one === 'string' && one !== '');
}

const WANTED = { allow: ['allow_once', 'allow_always'], deny: ['reject_once', 'reject_always'] } as const;

/** Returns the option of a question for a decision: `once` before `always`, because the next question may be a different one. */
export function optionFor(
  decision: 'allow' | 'deny',
  options: readonly PermissionOption[],
): PermissionOption | undefined {
  return WANTED[decision].flatMap((kind) => options.find((option) => option.kind === kind) ?? [])[0];
}

/** Returns the rules that remember an answer: for exactly this command, or exactly these paths. Empty if there is neither. */
export function rulesFrom(subject: PermissionSubject, decision: 'allow' | 'deny'): readonly PermissionRule[] {
  const { kind, command, words, paths } = subject;
  const exact = { kind, isExact: true, decision };
  if (command !== undefined) return [{ ...exact, command }];
  // What a shell interprets is never allowed by a rule, but it can be denied.
  if (words.length > 0) return decision === 'deny' ? [{ ...exact, command: words }] : [];
  return paths.map((path) => ({ ...exact, path }));
}
