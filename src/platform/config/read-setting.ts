import type { Environment } from '../runtime/runtime.ts';
import { parseYaml } from './parse-yaml.ts';
import { nearestName } from './problem.ts';
import {
  annotationOf,
  type CollectionAnnotation,
  type Folders,
  type GroupAnnotation,
  joinPath,
  type LeafAnnotation,
  type RawValue,
  type Setting,
  secretsOfUrl,
} from './setting-annotation.ts';

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

/** Reads a value that somebody wrote, by its schema. */
export function readSetting(schema: Setting<unknown>, raw: unknown, path: string, context: ReadingContext): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'leaf') return readLeaf(annotation, raw, path, context);
  if (annotation.shape === 'group') return readGroup(annotation, raw, path, context);
  if (typeof raw === 'string') {
    const isEmptyByDefault = Object.keys(annotation.fallback ?? { given: true }).length === 0;
    const expanded = expandScalar(raw, path, context, isEmptyByDefault);
    if (expanded === UNREADABLE) return UNREADABLE;
    if (expanded.references && expanded.raw === '' && isEmptyByDefault) return annotation.fallback;
    if (expanded.references) {
      // Problems name the place of the reference, and show nothing of the text.
      const refuse: ReadingContext['refuse'] = (_path, wrong, right) => context.refuse(path, wrong, right);
      return readText(schema, String(expanded.raw), path, { ...context, concealed: true, refuse, notes: emptyNotes() });
    }
  }
  return annotation.shape === 'list'
    ? readList(annotation, raw, path, context)
    : readRecord(annotation, raw, path, context);
}

/** Reads the text of a variable: lists of single values are comma separated, whatever has more structure is YAML. */
export function readText(schema: Setting<unknown>, text: string, path: string, context: ReadingContext): unknown {
  const annotation = annotationOf(schema);
  const { environment: _, ...plain } = context;
  if (annotation.shape === 'leaf') return readLeaf(annotation, text, path, { ...plain, textual: true });
  if (annotation.shape === 'list' && annotationOf(annotation.member).shape === 'leaf') {
    const items = text.split(',').map((part) => part.trim());
    const given = items.filter((item) => item !== '');
    return readList(annotation, given, path, { ...plain, textual: true });
  }
  const { value = '', faults } = parseYaml(text);
  for (const { wrong, right } of faults) context.refuse(path, wrong, right);
  return faults.length > 0 ? UNREADABLE : readSetting(schema, value, path, { ...plain, textual: false });
}

function readGroup(annotation: GroupAnnotation, raw: unknown, path: string, context: ReadingContext): unknown {
  const mapping = readKeys(annotation, raw, path, context);
  if (mapping === undefined) return UNREADABLE;
  return collect(
    Object.entries(annotation.members).map(([key, member]) => {
      const memberPath = joinPath(path, key);
      const given = own(mapping, key);
      if (!isAbsent(given)) return [key, readSetting(member, given, memberPath, context)];
      const value = defaultOf(member, context);
      if (value === UNREADABLE) context.refuse(memberPath, 'this has to be given', `add "${key}"`);
      return [key, value];
    }),
  );
}

function readList(annotation: CollectionAnnotation, raw: unknown, path: string, context: ReadingContext): unknown {
  const { type, minimum, member } = annotation;
  if (!Array.isArray(raw)) {
    return context.refuse(path, `there is a ${kindOf(raw)} where a list belongs`, `expected a ${type}, in brackets`);
  }
  if (raw.length < minimum) {
    return context.refuse(path, 'the list is too short', `expected at least ${minimum} in a ${type}`);
  }
  const items = raw.map((item, index) => readMember(member, item, joinPath(path, index), context));
  return items.includes(UNREADABLE) ? UNREADABLE : items;
}

function readRecord(annotation: CollectionAnnotation, raw: unknown, path: string, context: ReadingContext): unknown {
  const { keyPattern, keyExpects, member } = annotation;
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
function readMember(schema: Setting<unknown>, raw: unknown, path: string, context: ReadingContext): unknown {
  const bare = isAbsent(raw) && annotationOf(schema).shape === 'group';
  return readSetting(schema, bare ? {} : raw, path, context);
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
  { members }: GroupAnnotation,
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

/** Reads a single value. */
function readLeaf(annotation: LeafAnnotation, given: unknown, path: string, context: ReadingContext): unknown {
  const expected = `expected ${annotation.expects}`;
  const kind = kindOf(given);
  if (kind !== 'single value') return context.refuse(path, `there is a ${kind} where one value belongs`, expected);
  const expanded = expandScalar((given ?? '') as RawValue, path, context, annotation.fallback === '');
  if (expanded === UNREADABLE) return UNREADABLE;
  const { raw, references } = expanded;
  if (raw === '' && annotation.fallback === '') return raw;
  const reading =
    raw === '' ? { wrong: 'is empty' } : annotation.decode(raw, context.textual === true || references, context);
  if ('value' in reading) {
    if (!references && holdsSecret(annotation, reading.value)) context.notes.clearSecrets.push(path);
    return reading.value;
  }
  const hidden = annotation.secrecy !== 'open' || context.concealed === true;
  const fix = hidden || references ? undefined : reading.fix;
  return context.refuse(path, `${hidden ? 'the value' : shown(given)} ${reading.wrong}`, fix ?? expected);
}

interface ExpandedScalar {
  readonly raw: RawValue;
  /** The text came, wholly or in part, from the environment. */
  readonly references: boolean;
}

/** Replaces `${env:NAME}`. A variable that is not set counts as empty where empty is the default and nothing else is written. */
function expandScalar(
  raw: RawValue,
  path: string,
  context: ReadingContext,
  emptyByDefault: boolean,
): ExpandedScalar | typeof UNREADABLE {
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

function holdsSecret({ secrecy }: LeafAnnotation, value: unknown): boolean {
  return secrecy === 'url' ? secretsOfUrl(String(value)).length > 0 : secrecy === 'secret';
}

/** A value as it was written (a reference as a reference), short enough for one line. */
function shown(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 56)}..."` : text;
}

/** The value of a setting that nobody set; `UNREADABLE` when it has to be given. */
export function defaultOf(schema: Setting<unknown>, folders: Folders): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'group') {
    return collect(Object.entries(annotation.members).map(([key, member]) => [key, defaultOf(member, folders)]));
  }
  const { fallback } = annotation;
  if (fallback === undefined) return UNREADABLE;
  if (annotation.shape === 'record') return {};
  if (annotation.shape === 'leaf') return decodeDefault(annotation, fallback, folders);
  const item = annotationOf(annotation.member);
  return (fallback as readonly unknown[]).map((value) =>
    item.shape === 'leaf' ? decodeDefault(item, value, folders) : value,
  );
}

function decodeDefault(annotation: LeafAnnotation, fallback: unknown, folders: Folders): unknown {
  if (fallback === '') return fallback;
  const reading = annotation.decode(fallback as RawValue, false, folders);
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
