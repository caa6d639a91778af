import type { Environment } from '../runtime/runtime.ts';
import { isAbsent, type MappingNode, type Position, parseYaml, type ScalarNode, type ValueNode } from './parse-yaml.ts';
import { nearestName, type Problem } from './problem.ts';
import {
  annotationOf,
  type Folders,
  type GroupAnnotation,
  joinPath,
  type LeafAnnotation,
  type ListAnnotation,
  type RecordAnnotation,
  type Setting,
} from './setting-annotation.ts';
import { secretsOfUrl } from './setting-values.ts';

const START: Position = { line: 1, column: 1 };

/** Reads a value that somebody wrote, by its schema. */
export function readSetting(schema: Setting<unknown>, node: ValueNode, path: string, context: ReadingContext): unknown {
  context.note(path, context.where(node.at));
  const annotation = annotationOf(schema);
  if (annotation.shape === 'leaf') return readLeaf(annotation, node, path, context);
  if (annotation.shape === 'group') return readGroup(annotation, node, path, context);
  if (node.kind === 'scalar' && typeof node.value === 'string') {
    const isEmptyByDefault = Object.keys(annotation.fallback ?? { given: true }).length === 0;
    const expanded = expandScalar(node, path, context, isEmptyByDefault);
    if (expanded === UNREADABLE) return UNREADABLE;
    if (expanded.references && expanded.raw === '' && isEmptyByDefault) return annotation.fallback;
    if (expanded.references) return readText(schema, String(expanded.raw), path, concealed(context, node.at, path));
  }
  return annotation.shape === 'list'
    ? readList(annotation, node, path, context)
    : readRecord(annotation, node, path, context);
}

/** Reads the text of a variable: lists of single values are comma separated, whatever has more structure is YAML. */
export function readText(schema: Setting<unknown>, text: string, path: string, context: ReadingContext): unknown {
  const annotation = annotationOf(schema);
  const textual = { ...context, environment: undefined, textual: true };
  if (annotation.shape === 'leaf') return readSetting(schema, scalar(text), path, textual);
  if (annotation.shape === 'list' && annotationOf(annotation.item).shape === 'leaf') {
    const items = text.split(',').flatMap((part) => (part.trim() === '' ? [] : [scalar(part.trim())]));
    return readSetting(schema, { kind: 'list', at: START, items }, path, textual);
  }
  const { root, faults } = parseYaml(text);
  for (const { wrong, right } of faults) context.report({ where: context.where(START), path, wrong, right });
  if (faults.length > 0) return UNREADABLE;
  return readSetting(schema, root ?? scalar(''), path, { ...textual, textual: false });
}

function readGroup(annotation: GroupAnnotation, node: ValueNode, path: string, context: ReadingContext): unknown {
  const mapping = asMapping(annotation, node, path, context);
  if (mapping === undefined) return UNREADABLE;
  reportUnknownKeys(mapping, annotation, path, context, []);
  const members = Object.entries(annotation.members).map(([key, member]) => {
    const entry = mapping.entries.get(key);
    const memberPath = joinPath(path, key);
    if (entry !== undefined && !isAbsent(entry.node))
      return [key, readSetting(member, entry.node, memberPath, context)];
    const value = defaultOf(member, context);
    if (value === UNREADABLE) {
      const where = context.where(node.at);
      context.report({ where, path: memberPath, wrong: 'this has to be given', right: `add "${key}"` });
    }
    return [key, value];
  });
  return members.some(([, value]) => value === UNREADABLE) ? UNREADABLE : Object.fromEntries(members);
}

function readList(annotation: ListAnnotation, node: ValueNode, path: string, context: ReadingContext): unknown {
  const { type, minimum } = annotation;
  const where = context.where(node.at);
  if (node.kind !== 'list') {
    const wrong = `there is a ${kindOf(node)} where a list belongs`;
    context.report({ where, path, wrong, right: `expected a ${type}, in brackets` });
    return UNREADABLE;
  }
  if (node.items.length < minimum) {
    context.report({ where, path, wrong: 'the list is too short', right: `expected at least ${minimum} in a ${type}` });
    return UNREADABLE;
  }
  const items = node.items.map((item, index) => readMember(annotation.item, item, joinPath(path, index), context));
  return items.includes(UNREADABLE) ? UNREADABLE : items;
}

function readRecord(annotation: RecordAnnotation, node: ValueNode, path: string, context: ReadingContext): unknown {
  const mapping = asMapping(annotation, node, path, context);
  if (mapping === undefined) return UNREADABLE;
  let readable = true;
  const entries = [...mapping.entries].map(([key, entry]) => {
    const memberPath = joinPath(path, key.slice(0, 100));
    if (!annotation.keyPattern.test(key)) {
      const where = context.where(entry.keyAt);
      const wrong = 'the key does not have the right form';
      context.report({ where, path: memberPath, wrong, right: `expected ${annotation.keyExpects}` });
      readable = false;
    }
    return [key, readMember(annotation.value, entry.node, memberPath, context)] as const;
  });
  return readable && entries.every(([, value]) => value !== UNREADABLE) ? Object.fromEntries(entries) : UNREADABLE;
}

/** In a list or record a group that is left empty is a group all of whose members have their defaults. */
function readMember(schema: Setting<unknown>, node: ValueNode, path: string, context: ReadingContext): unknown {
  const bare = isAbsent(node) && annotationOf(schema).shape === 'group';
  return readSetting(schema, bare ? { kind: 'mapping', at: node.at, entries: new Map() } : node, path, context);
}

/** Reports keys that no setting has, with the nearest name; `everywhere` are full paths that the key may have meant. */
export function reportUnknownKeys(
  mapping: MappingNode,
  { members }: GroupAnnotation,
  path: string,
  context: ReadingContext,
  everywhere: readonly string[],
): void {
  for (const [key, { keyAt }] of mapping.entries) {
    if (Object.hasOwn(members, key)) continue;
    const near = nearestName(key, Object.keys(members)) ?? everywhere.find((other) => other.endsWith(`.${key}`));
    const right = near === undefined ? `possible here: ${Object.keys(members).join(', ')}` : `did you mean "${near}"?`;
    const memberPath = joinPath(path, key.slice(0, 60));
    context.report({ where: context.where(keyAt), path: memberPath, wrong: 'there is no such setting', right });
  }
}

export function asMapping(
  annotation: GroupAnnotation | RecordAnnotation,
  node: ValueNode,
  path: string,
  context: ReadingContext,
): MappingNode | undefined {
  if (node.kind === 'mapping') return node;
  const keys =
    annotation.shape === 'group' ? Object.keys(annotation.members).slice(0, 12).join(', ') : annotation.keyExpects;
  const wrong = `there is a ${kindOf(node)} where keys belong`;
  context.report({ where: context.where(node.at), path, wrong, right: `expected keys under it: ${keys}` });
  return undefined;
}

/** For a whole collection that comes from `${env:NAME}`: problems name the place of the reference and show nothing of the text. */
function concealed(context: ReadingContext, at: Position, path: string): ReadingContext {
  const where = context.where(at);
  return {
    ...context,
    concealed: true,
    where: () => where,
    report: (problem) => context.report({ ...problem, path }),
    noteClearSecret: () => {},
    noteUnset: () => {},
  };
}

function kindOf(node: ValueNode): string {
  return node.kind === 'scalar' ? 'single value' : node.kind;
}

function scalar(value: string): ScalarNode {
  return { kind: 'scalar', at: START, value };
}

/** Reads a single value. */
function readLeaf(annotation: LeafAnnotation, node: ValueNode, path: string, context: ReadingContext): unknown {
  const where = context.where(node.at);
  const expected = `expected ${annotation.expects}`;
  if (node.kind !== 'scalar') {
    context.report({ where, path, wrong: `there is a ${node.kind} where one value belongs`, right: expected });
    return UNREADABLE;
  }
  const expanded = expandScalar(node, path, context, annotation.fallback === '');
  if (expanded === UNREADABLE) return UNREADABLE;
  const { raw, references } = expanded;
  if (raw === '' && annotation.fallback === '') return raw;
  const reading = raw === '' ? { wrong: 'is empty' } : annotation.read(raw, context.textual || references, context);
  if ('value' in reading) {
    if (!references && holdsSecret(annotation, reading.value)) context.noteClearSecret(path);
    return reading.value;
  }
  const hidden = annotation.secrecy !== 'open' || context.concealed;
  const mend = hidden || references ? undefined : reading.mend;
  context.report({ where, path, wrong: `${shown(node, hidden)} ${reading.wrong}`, right: mend ?? expected });
  return UNREADABLE;
}

interface ExpandedScalar {
  readonly raw: string | number | boolean;
  /** The text came, wholly or in part, from the environment. */
  readonly references: boolean;
}

/** Replaces `${env:NAME}`. A variable that is not set counts as empty where empty is the default and nothing else is written. */
function expandScalar(
  { value, at }: ScalarNode,
  path: string,
  context: ReadingContext,
  emptyByDefault: boolean,
): ExpandedScalar | typeof UNREADABLE {
  if (typeof value !== 'string' || context.environment === undefined) return { raw: value ?? '', references: false };
  const { text, names, missing, whole, malformed } = expandReferences(value, context.environment);
  const where = context.where(at);
  if (malformed) {
    const right = `write \${env:NAME}, or $\${env:NAME} for the text itself`;
    context.report({ where, path, wrong: 'a reference to the environment is not complete', right });
    return UNREADABLE;
  }
  if (missing.length > 0 && !(whole && emptyByDefault)) {
    for (const name of missing) {
      const right = `set ${name}, or write the value`;
      context.report({ where, path, wrong: `the environment variable ${name} is not set`, right });
    }
    return UNREADABLE;
  }
  for (const name of missing) context.noteUnset(path, name);
  return { raw: text, references: names.length > 0 };
}

function holdsSecret({ secrecy }: LeafAnnotation, value: unknown): boolean {
  if (secrecy === 'url') return secretsOfUrl(String(value)).length > 0;
  return secrecy === 'secret';
}

/** A value as it was written, short enough for one line; never a secret, and never what came from a reference. */
function shown({ value }: ScalarNode, hidden: boolean): string {
  if (hidden) return 'the value';
  const text = JSON.stringify(value);
  return text.length > 60 ? `${text.slice(0, 56)}..."` : text;
}

/** The value of a setting that nobody set; `UNREADABLE` when it has to be given. */
export function defaultOf(schema: Setting<unknown>, folders: Folders): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape === 'group') {
    const members = Object.entries(annotation.members).map(
      ([key, member]) => [key, defaultOf(member, folders)] as const,
    );
    return members.some(([, value]) => value === UNREADABLE) ? UNREADABLE : Object.fromEntries(members);
  }
  const { fallback } = annotation;
  if (fallback === undefined) return UNREADABLE;
  if (annotation.shape === 'record') return {};
  if (annotation.shape === 'list') {
    return (fallback as readonly unknown[]).map((item) => readDefault(annotation.item, item, folders));
  }
  return readDefault(schema, fallback, folders);
}

function readDefault(schema: Setting<unknown>, fallback: unknown, folders: Folders): unknown {
  const annotation = annotationOf(schema);
  if (annotation.shape !== 'leaf' || fallback === '') return fallback;
  const reading = annotation.read(fallback as string | number | boolean, false, folders);
  if ('value' in reading) return reading.value;
  throw new TypeError(`the default ${JSON.stringify(fallback)} ${reading.wrong}`);
}

/** Where a value comes from, and what to call about it. */
export interface ReadingContext extends Folders {
  /** How this place is named in a problem. */
  where(at: Position): string;
  /** Given for files: `${env:NAME}` is replaced from it. */
  readonly environment: Environment | undefined;
  /** Variables and flags: numbers and booleans come as strings. */
  readonly textual: boolean;
  /** What is read came through a `${env:NAME}`, so that no part of it is shown in a problem. */
  readonly concealed: boolean;
  report(problem: Problem): void;
  /** Called for every value that was written down. */
  note(path: string, where: string): void;
  /** Called for every secret that stands in the text itself. */
  noteClearSecret(path: string): void;
  /** Called for every value that is empty because its `${env:NAME}` is not set. */
  noteUnset(path: string, variable: string): void;
}

/** Stands for a value that could not be read; what was wrong has been reported. */
export const UNREADABLE = Symbol('unreadable');

interface Expansion {
  readonly text: string;
  /** The variables that were named, whether they are set or not. */
  readonly names: readonly string[];
  readonly missing: readonly string[];
  /** The text was one reference and nothing else. */
  readonly whole: boolean;
  /** A `${env:` that is not closed, or names no possible variable. */
  readonly malformed: boolean;
}

const REFERENCE = /\$?\$\{env:([^}]*)(\}?)/g;
const VARIABLE_NAME = /^[A-Za-z_]\w*$/;

/** Replaces every `${env:NAME}`; `$${env:NAME}` stands for the text itself. What comes out is not looked at again. */
export function expandReferences(text: string, environment: Environment): Expansion {
  const names: string[] = [];
  const missing: string[] = [];
  let malformed = false;
  const expanded = text.replaceAll(REFERENCE, (match: string, name: string, end: string) => {
    if (match.startsWith('$$')) return match.slice(1);
    if (end === '' || !VARIABLE_NAME.test(name)) {
      malformed = true;
      return match;
    }
    names.push(name);
    const value = Object.hasOwn(environment, name) ? environment[name] : undefined;
    if (value === undefined) missing.push(name);
    return value ?? '';
  });
  const whole = names.length === 1 && text === `\${env:${names[0]}}`;
  return { text: expanded, names, missing, whole, malformed };
}
