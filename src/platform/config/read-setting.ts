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

/** Where values come from, and what to call about them. */
export interface ReadingContext extends Folders {
  /** Reports what is wrong with the value at a path, or with its key. */
  refuse(path: string, wrong: string, right: string, part?: 'key'): typeof UNREADABLE;
  /** Given for files: `${env:NAME}` is replaced from it. */
  readonly environment?: Environment;
  /** Variables and flags: numbers and booleans come as strings. */
  readonly textual?: boolean;
  /** What is read came through a `${env:NAME}`, so that no part of it is shown in a problem. */
  readonly concealed?: boolean;
  readonly notes: ReadingNotes;
}

/** What reading the values shows besides the values. */
export interface ReadingNotes {
  /** Paths of secrets that stand in the text itself. */
  readonly clearSecrets: string[];
  /** The variables that are not set and leave a value empty, by the path of the value. */
  readonly unset: Map<string, string>;
}

export function emptyNotes(): ReadingNotes {
  return { clearSecrets: [], unset: new Map() };
}

/** Stands for a value that could not be read; what was wrong has been reported. */
export const UNREADABLE = Symbol('unreadable');

type Mapping = Readonly<Record<string, unknown>>;

type AnySetting = Setting<unknown> | SettingEntry['setting'];

/** Reads a value that somebody wrote, by its setting. */
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
  // Problems name the place of the reference, and show nothing of the text.
  const refuse: ReadingContext['refuse'] = (_path, wrong, right) => context.refuse(path, wrong, right);
  return readText(setting, String(expanded.raw), path, { ...context, concealed: true, refuse, notes: emptyNotes() });
}

/** Reads the text of a variable: lists of single values are comma separated, whatever has more structure is YAML. */
export function readText(setting: AnySetting, text: string, path: string, context: ReadingContext): unknown {
  const { environment: _, ...plain } = context;
  if (setting.shape === 'leaf') return readLeaf(setting, text, path, { ...plain, textual: true });
  if (setting.shape === 'list' && setting.member.shape === 'leaf') {
    const items = text.split(',').map((part) => part.trim());
    const given = items.filter((item) => item !== '');
    return readList(setting, given, path, { ...plain, textual: true });
  }
  const { value = '', faults } = parseYaml(text);
  for (const { wrong, right } of faults) context.refuse(path, wrong, right);
  return faults.length > 0 ? UNREADABLE : readSetting(setting, value, path, { ...plain, textual: false });
}

function readGroup(setting: GroupSetting, raw: unknown, path: string, context: ReadingContext): unknown {
  const mapping = readKeys(setting, raw, path, context);
  if (mapping === undefined) return UNREADABLE;
  return collect(
    Object.entries(setting.members).map(([key, member]) => {
      const memberPath = joinPath(path, key);
      const given = own(mapping, key);
      if (!isAbsent(given)) return [key, readSetting(member, given, memberPath, context)];
      const value = defaultOf(member, context);
      if (value === UNREADABLE) context.refuse(memberPath, 'this has to be given', `add "${key}"`);
      return [key, value];
    }),
  );
}

function readList(setting: CollectionSetting, raw: unknown, path: string, context: ReadingContext): unknown {
  const { type, minimum, member } = setting;
  if (!Array.isArray(raw)) {
    return context.refuse(path, `there is a ${kindOf(raw)} where a list belongs`, `expected a ${type}, in brackets`);
  }
  if (raw.length < minimum) {
    return context.refuse(path, 'the list is too short', `expected at least ${minimum} in a ${type}`);
  }
  const items = raw.map((item, index) => readMember(member, item, joinPath(path, index), context));
  return items.includes(UNREADABLE) ? UNREADABLE : items;
}

function readRecord(setting: CollectionSetting, raw: unknown, path: string, context: ReadingContext): unknown {
  const { keyPattern, keyExpects, member } = setting;
  const mapping = asMapping(raw, keyExpects, path, context);
  if (mapping === undefined) return UNREADABLE;
  return collect(
    Object.entries(mapping).map(([key, given]) => {
      const memberPath = joinPath(path, key);
      const value = readMember(member, given, memberPath, context);
      if (keyPattern.test(key)) return [key, value];
      return [key, context.refuse(memberPath, 'the key does not have the right form', `expected ${keyExpects}`, 'key')];
    }),
  );
}

function collect(members: readonly (readonly [key: string, value: unknown])[]): unknown {
  return members.some(([, value]) => value === UNREADABLE) ? UNREADABLE : Object.fromEntries(members);
}

/** In a list or record a group that is left empty is a group all of whose members have their defaults. */
function readMember(setting: Setting<unknown>, raw: unknown, path: string, context: ReadingContext): unknown {
  return readSetting(setting, isAbsent(raw) && setting.shape === 'group' ? {} : raw, path, context);
}

/** A key with nothing after it counts as not written. */
export function isAbsent(raw: unknown): boolean {
  return raw === undefined || raw === null;
}

/** A member that a file has: what every object has by nature does not count. */
export function own(mapping: Mapping, key: string): unknown {
  return Object.hasOwn(mapping, key) ? mapping[key] : undefined;
}

/** The keys of a group. Reports those that no setting has, with the nearest name; `everywhere` are full paths that a key may have meant. */
export function readKeys(
  { members }: GroupSetting,
  raw: unknown,
  path: string,
  context: ReadingContext,
  everywhere: readonly string[] = [],
): Mapping | undefined {
  const known = Object.keys(members);
  const mapping = asMapping(raw, known.slice(0, 12).join(', '), path, context);
  for (const key of Object.keys(mapping ?? {})) {
    if (Object.hasOwn(members, key)) continue;
    const near = nearestName(key, known) ?? everywhere.find((other) => other.endsWith(`.${key}`));
    const right = near === undefined ? `possible here: ${known.join(', ')}` : `did you mean "${near}"?`;
    context.refuse(joinPath(path, key), 'there is no such setting', right, 'key');
  }
  return mapping;
}

function asMapping(raw: unknown, expected: string, path: string, context: ReadingContext): Mapping | undefined {
  if (kindOf(raw) === 'mapping') return raw as Mapping;
  context.refuse(path, `there is a ${kindOf(raw)} where keys belong`, `expected keys under it: ${expected}`);
  return undefined;
}

function kindOf(raw: unknown): 'list' | 'mapping' | 'single value' {
  if (Array.isArray(raw)) return 'list';
  return typeof raw === 'object' && raw !== null ? 'mapping' : 'single value';
}

function readLeaf(setting: LeafSetting, given: unknown, path: string, context: ReadingContext): unknown {
  const expected = `expected ${setting.expects}`;
  const kind = kindOf(given);
  if (kind !== 'single value') return context.refuse(path, `there is a ${kind} where one value belongs`, expected);
  const expanded = expandScalar((given ?? '') as RawValue, path, context, setting.fallback === '');
  if (expanded === UNREADABLE) return UNREADABLE;
  const { raw, references } = expanded;
  if (raw === '' && setting.fallback === '') return raw;
  const textual = context.textual === true || references;
  const reading = raw === '' ? { wrong: 'is empty' } : setting.decode(raw, textual, context);
  if ('value' in reading) {
    if (!references && holdsSecret(setting, reading.value)) context.notes.clearSecrets.push(path);
    return reading.value;
  }
  const hidden = setting.secrecy !== 'open' || context.concealed === true;
  const fix = hidden || references ? undefined : reading.fix;
  return context.refuse(path, `${hidden ? 'the value' : shown(given)} ${reading.wrong}`, fix ?? expected);
}

/**
 * Replaces `${env:NAME}`; `references` says that the text came, wholly or in part, from the environment.
 * A variable that is not set counts as empty where empty is the default and nothing else is written.
 */
function expandScalar(
  raw: RawValue,
  path: string,
  context: ReadingContext,
  emptyByDefault: boolean,
): { readonly raw: RawValue; readonly references: boolean } | typeof UNREADABLE {
  if (typeof raw !== 'string' || context.environment === undefined) return { raw, references: false };
  const { text, references, missing, whole, malformed } = expandReferences(raw, context.environment);
  if (malformed) {
    const right = `write \${env:NAME}, or $\${env:NAME} for the text itself`;
    return context.refuse(path, 'a reference to the environment is not complete', right);
  }
  const unset = whole && emptyByDefault;
  for (const name of missing) {
    if (unset) context.notes.unset.set(path, name);
    else context.refuse(path, ...variableNotSet(name));
  }
  return missing.length > 0 && !unset ? UNREADABLE : { raw: text, references };
}

export function variableNotSet(name: string): readonly [wrong: string, right: string] {
  return [`the environment variable ${name} is not set`, `set ${name}, or write the value`];
}

function holdsSecret({ secrecy }: LeafSetting, value: unknown): boolean {
  return secrecy === 'url' ? secretsOfUrl(String(value)).length > 0 : secrecy === 'secret';
}

/** A value as it was written (a reference as a reference), short enough for one line. */
function shown(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 56)}..."` : text;
}

/** The value of a setting that nobody set; `UNREADABLE` when it has to be given. */
export function defaultOf(setting: AnySetting, folders: Folders): unknown {
  if (setting.shape === 'group') {
    return collect(Object.entries(setting.members).map(([key, member]) => [key, defaultOf(member, folders)]));
  }
  const { fallback } = setting;
  if (fallback === undefined) return UNREADABLE;
  if (setting.shape === 'record') return {};
  if (setting.shape === 'leaf') return decodeDefault(setting, fallback, folders);
  return (fallback as readonly unknown[]).map((value) => decodeDefault(setting.member, value, folders));
}

function decodeDefault(setting: AnySetting, fallback: unknown, folders: Folders): unknown {
  if (setting.shape !== 'leaf' || fallback === '') return fallback;
  const reading = setting.decode(fallback as RawValue, false, folders);
  if ('value' in reading) return reading.value;
  throw new TypeError(`the default ${JSON.stringify(fallback)} ${reading.wrong}`);
}

interface Expansion {
  readonly text: string;
  /** At least one variable was named, whether it is set or not. */
  readonly references: boolean;
  readonly missing: readonly string[];
  /** The text was one reference and nothing else. */
  readonly whole: boolean;
  /** A `${env:` that is not closed, or names no possible variable. */
  readonly malformed: boolean;
}

/** Replaces every `${env:NAME}`; `$${env:NAME}` stands for the text itself. What comes out is not looked at again. */
export function expandReferences(text: string, environment: Environment): Expansion {
  const missing: string[] = [];
  let references = false;
  let malformed = false;
  const expanded = text.replaceAll(/\$?\$\{env:([^}]*)(\}?)/g, (match: string, name: string, end: string) => {
    if (match.startsWith('$$')) return match.slice(1);
    if (end === '' || !/^[A-Za-z_]\w*$/.test(name)) {
      malformed = true;
      return match;
    }
    references = true;
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    if (value === undefined) missing.push(name);
    return value ?? '';
  });
  return { text: expanded, references, missing, whole: WHOLE_REFERENCE.test(text), malformed };
}

export const WHOLE_REFERENCE = /^\$\{env:(\w+)\}$/;
