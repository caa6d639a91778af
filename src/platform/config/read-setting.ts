import { defaultOf } from './default-of.ts';
import { nearestName } from './nearest-name.ts';
import { parseYaml } from './parse-yaml.ts';
import { expandScalar, readLeaf } from './read-leaf.ts';
import { type ReadingContext, UNREADABLE } from './reading-context.ts';
import {
  annotationOf,
  type GroupAnnotation,
  type ListAnnotation,
  type RecordAnnotation,
  type Setting,
} from './setting-annotation.ts';
import { joinPath } from './setting-path.ts';
import { isAbsent, type MappingNode, type Position, type ScalarNode, type ValueNode } from './value-tree.ts';

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
