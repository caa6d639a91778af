import type { Environment } from '../runtime/runtime.ts';
import { parseYaml } from './parse-yaml.ts';
import { nearestName } from './problem.ts';
import {
  type CollectionSetting,
  type Folders,
  type GroupSetting,
  joinPath,
  type LeafSetting,
  type RawValue,
  type Setting,
  type SettingEntry,
  secretsOfUrl,
} from './setting-declaration.ts';

/** The source of values, and the function that reports problems. */
export interface ReadingContext extends Folders {
  /** Reports what is wrong with the value at a path, or with its key. */
  refuse(path: string, wrong: string, right: string, part?: 'key'): typeof UNREADABLE;
  /** Given for files: `${env:NAME}` is replaced from it. */
  readonly environment?: Environment;
  /** Variables and flags: numbers and booleans come as strings. */
  readonly textual?: boolean;
  /** What is read came through a `${env:NAME}`, so that no part of it is shown in a problem. */
  readonly concealed?: boolean;
  /** Given for files. */
  readonly notes?: ReadingNotes;
}

/** What reading the values shows besides the values. */
export interface ReadingNotes {
  /** Paths of secrets that stand in the text itself. */
  readonly clearSecrets: string[];
  /** The variables that are not set and leave a value empty, by the path of the value. */
  readonly unset: Map<string, string>;
}

/** Replaces a value that could not be read, and whose problem was reported. */
export const UNREADABLE = Symbol('unreadable');

type Mapping = Readonly<Record<string, unknown>>;
type AnySetting = Setting<unknown> | SettingEntry['setting'];

/** Reads a configured value by its setting. */
export function readSetting(setting: AnySetting, raw: unknown, path: string, context: ReadingContext): unknown {
  if (setting.shape === 'leaf') return readLeaf(setting, raw, path, context);
  if (setting.shape === 'group') return readGroup(setting, raw, path, context);
  const read = setting.shape === 'list' ? readList : readRecord;
  if (typeof raw !== 'string') return read(setting, raw, path, context);
  const isEmptyByDefault = Object.keys(setting.fallback ?? { given: true }).length === 0;
  const expanded = expandScalar(raw, path, context, isEmptyByDefault);
  if (expanded === UNREADABLE) return UNREADABLE;
  if (!expanded.references) return read(setting, raw, path, context);
  if (expanded.raw === '' && isEmptyByDefault) return setting.fallback;
  // Problems name the place of the reference, and do not show the text.
  const refuse: ReadingContext['refuse'] = (_path, wrong, right) => context.refuse(path, wrong, right);
  return readText(setting, String(expanded.raw), path, { ...context, concealed: true, refuse });
}

/** Reads the text of a variable: lists of single values are comma separated, whatever has more structure is YAML. */
export function readText(setting: AnySetting, text: string, path: string, context: ReadingContext): unknown {
  const { environment: _environment, notes: _notes, ...plain } = context;
  if (setting.shape === 'leaf') return readLeaf(setting, text, path, { ...plain, textual: true });
  if (setting.shape === 'list' && setting.member.shape === 'leaf') {
    const given = text.split(',').flatMap((part) => part.trim() || []);
    return readList(setting, given, path, { ...plain, textual: true });
  }
  const { value = '', faults } = parseYaml(text);
  for (const { wrong, right } of faults) context.refuse(path, wrong, right);
  return faults.length > 0 ? UNREADABLE : readSetting(setting, value, path, { ...plain, textual: false });
}

/** Reads the members of a group, each by `read`. Reports keys that no setting has; `everywhere` are full paths that such a key may have meant. */
export function readGroup(
  { members }: GroupSetting,
  raw: unknown,
  path: string,
  context: ReadingContext,
  read: (member: Setting<unknown>, given: unknown, path: string) => unknown = readGiven(context),
  everywhere: readonly string[] = [],
): unknown {
  const known = Object.keys(members);
  // A group without a value after its key has its defaults.
  const mapping = asMapping(raw ?? {}, known.slice(0, 12).join(', '), path, context);
  if (mapping === UNREADABLE) return UNREADABLE;
  for (const key of Object.keys(mapping)) {
    if (Object.hasOwn(members, key)) continue;
    const near = nearestName(key, known) ?? everywhere.find((other) => other.endsWith(`.${key}`));
    const right = near === undefined ? `possible here: ${known.join(', ')}` : `did you mean "${near}"?`;
    context.refuse(joinPath(path, key), 'there is no such setting', right, 'key');
  }
  const own = new Map(Object.entries(mapping));
  return mapMembers(members, (member, key) => read(member, own.get(key), joinPath(path, key)));
}

function readGiven(context: ReadingContext) {
  return (member: Setting<unknown>, given: unknown, path: string): unknown => {
    if (!isAbsent(given)) return readSetting(member, given, path, context);
    const value = defaultOf(member, context);
    if (value !== UNREADABLE) return value;
    return context.refuse(path, 'this is required', `add "${path.slice(path.lastIndexOf('.') + 1)}"`);
  };
}

function readList(setting: CollectionSetting, raw: unknown, path: string, context: ReadingContext): unknown {
  const { type, minimum, member } = setting;
  if (!Array.isArray(raw)) {
    return context.refuse(path, `there is a ${kindOf(raw)} where a list belongs`, `expected a ${type}, in brackets`);
  }
  if (raw.length < minimum) {
    return context.refuse(path, 'the list is too short', `expected at least ${minimum} in a ${type}`);
  }
  const items = raw.map((item, index) => readSetting(member, item, joinPath(path, index), context));
  return items.includes(UNREADABLE) ? UNREADABLE : items;
}

function readRecord(setting: CollectionSetting, raw: unknown, path: string, context: ReadingContext): unknown {
  const { keyPattern, keyExpects, member } = setting;
  const mapping = asMapping(raw, keyExpects, path, context);
  if (mapping === UNREADABLE) return UNREADABLE;
  return mapMembers(mapping, (given, key) => {
    const value = readSetting(member, given, joinPath(path, key), context);
    if (keyPattern.test(key)) return value;
    return context.refuse(joinPath(path, key), 'the key does not have the right form', `expected ${keyExpects}`, 'key');
  });
}

/** `UNREADABLE` when one of the members is. */
function mapMembers<T>(members: Readonly<Record<string, T>>, read: (member: T, key: string) => unknown): unknown {
  const entries = Object.entries(members).map(([key, member]) => [key, read(member, key)] as const);
  return entries.some(([, value]) => value === UNREADABLE) ? UNREADABLE : Object.fromEntries(entries);
}

/** A key with nothing after it counts as not written. */
export const isAbsent = (raw: unknown): boolean => raw === undefined || raw === null;

function asMapping(raw: unknown, expected: string, path: string, context: ReadingContext): Mapping | typeof UNREADABLE {
  if (kindOf(raw) === 'mapping') return raw as Mapping;
  return context.refuse(path, `there is a ${kindOf(raw)} where keys belong`, `expected keys under it: ${expected}`);
}

function kindOf(raw: unknown): 'list' | 'mapping' | 'single value' {
  if (Array.isArray(raw)) return 'list';
  return typeof raw === 'object' && raw !== null ? 'mapping' : 'single value';
}

function readLeaf(setting: LeafSetting, given: unknown, path: string, context: ReadingContext): unknown {
  const { secrecy, fallback } = setting;
  const expected = `expected ${setting.expects}`;
  const kind = kindOf(given);
  if (kind !== 'single value') return context.refuse(path, `there is a ${kind} where one value belongs`, expected);
  const expanded = expandScalar((given ?? '') as RawValue, path, context, fallback === '');
  if (expanded === UNREADABLE) return UNREADABLE;
  const { raw, references } = expanded;
  if (raw === '' && fallback === '') return raw;
  const textual = context.textual === true || references;
  const reading = raw === '' ? { wrong: 'is empty' } : setting.decode(raw, textual, context);
  if ('value' in reading) {
    const isSecret = secrecy === 'secret' || (secrecy === 'url' && secretsOfUrl(String(reading.value)).length > 0);
    if (isSecret && !references) context.notes?.clearSecrets.push(path);
    return reading.value;
  }
  const hidden = secrecy !== 'open' || context.concealed === true;
  const fix = hidden || references ? undefined : reading.fix;
  return context.refuse(path, `${hidden ? 'the value' : shown(given)} ${reading.wrong}`, fix ?? expected);
}

/** A value as it was written (a reference as a reference), short enough for one line. */
function shown(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 56)}..."` : text;
}

/**
 * Replaces `${env:NAME}`; `references` says that the text came, wholly or in part, from the environment.
 * A variable that is not set counts as empty where empty is the default and nothing else is written.
 */
function expandScalar(raw: RawValue, path: string, context: ReadingContext, emptyByDefault: boolean) {
  if (typeof raw !== 'string' || context.environment === undefined) return { raw, references: false };
  const { text, references, missing, whole, malformed } = expandReferences(raw, context.environment);
  if (malformed) {
    const right = `write \${env:NAME}, or $\${env:NAME} for the text itself`;
    return context.refuse(path, 'a reference to the environment is not complete', right);
  }
  const unset = whole && emptyByDefault;
  for (const name of missing) {
    if (unset) context.notes?.unset.set(path, name);
    else context.refuse(path, ...variableNotSet(name));
  }
  return missing.length > 0 && !unset ? UNREADABLE : { raw: text, references };
}

export function variableNotSet(name: string): readonly [wrong: string, right: string] {
  return [`the environment variable ${name} is not set`, `set ${name}, or write the value`];
}

export const WHOLE_REFERENCE = /^\$\{env:(\w+)\}$/;

/**
 * Replaces every `${env:NAME}`; `$${env:NAME}` stands for the text itself. The result is not searched again. `whole`: the text was one
 * reference and nothing else. `malformed`: a `${env:` is not closed, or does not name a possible variable.
 */
export function expandReferences(written: string, environment: Environment) {
  const missing: string[] = [];
  let references = false;
  let malformed = false;
  const text = written.replaceAll(/\$?\$\{env:([^}]*)(\}?)/g, (match: string, name: string, end: string) => {
    if (match.startsWith('$$')) return match.slice(1);
    if (end === '' || !/^[A-Za-z_]\w*$/.test(name)) malformed = true;
    references = true;
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    if (value === undefined) missing.push(name);
    return value ?? '';
  });
  return { text, references, missing, whole: WHOLE_REFERENCE.test(written), malformed };
}

/** The value of a setting that nobody set, by its default; `UNREADABLE` when it has to be given. */
export function defaultOf(setting: AnySetting, folders: Folders, given?: unknown): unknown {
  if (setting.shape === 'group') {
    return mapMembers(setting.members, (member, key) =>
      defaultOf(member, folders, (given as Mapping | undefined)?.[key]),
    );
  }
  const fallback = given ?? setting.fallback;
  if (fallback === undefined) return UNREADABLE;
  if (setting.shape === 'record' || fallback === '') return fallback;
  if (setting.shape === 'list') {
    return (fallback as readonly unknown[]).map((value) => defaultOf(setting.member, folders, value));
  }
  const reading = setting.decode(fallback as RawValue, false, folders);
  if ('value' in reading) return reading.value;
  throw new TypeError(`the default ${JSON.stringify(fallback)} ${reading.wrong}`);
}
