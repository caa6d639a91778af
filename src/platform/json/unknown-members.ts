import type { TSchema } from 'typebox';
import { nearestName } from '../config/problem.ts';
import type { Issue } from './describe-issues.ts';

/** Finds the members of a value that its schema does not name; undefined when there are none. */
export type FindUnknownMembers = (value: unknown) => readonly Issue[] | undefined;

/** What a schema says of the members of a value. Undefined in its place: anything may be there. */
interface Known {
  readonly members: ReadonlyMap<string, Known | undefined> | undefined;
  readonly items: Known | undefined;
}

const MAX_FOUND = 8;
const MAX_ECHOED_NAME = 100;
/** Protocols reserve this name for whatever a client adds. */
const RESERVED = '_meta';

/** Reads the schema once, so that a value costs one look-up for each of its members. */
export function createUnknownMemberSearch(schema: TSchema): FindUnknownMembers {
  const known = readSchema(schema);
  return (value) => (known === undefined ? undefined : search(value, known));
}

function readSchema(schema: unknown): Known | undefined {
  const { anyOf, properties, patternProperties, additionalProperties, items } = Object(schema) as Record<
    string,
    unknown
  >;
  if (Array.isArray(anyOf)) return joined(anyOf.map(readSchema));
  if (items !== undefined) return { members: undefined, items: readSchema(items) };
  if (
    properties === undefined ||
    patternProperties !== undefined ||
    Object(additionalProperties) === additionalProperties
  )
    return undefined;
  const members = new Map(Object.entries(Object(properties)).map(([name, member]) => [name, readSchema(member)]));
  return { members, items: undefined };
}

/** A member of a union may be one of any of its alternatives. */
function joined(alternatives: readonly (Known | undefined)[]): Known | undefined {
  const members = new Map<string, Known | undefined>();
  let items: Known | undefined;
  for (const one of alternatives) {
    for (const [name, known] of one?.members ?? []) members.set(name, known);
    items ??= one?.items;
  }
  return members.size === 0 && items === undefined
    ? undefined
    : { members: members.size > 0 ? members : undefined, items };
}

function search(value: unknown, known: Known): Issue[] | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { members, items } = known;
  let found: Issue[] | undefined;
  const add = (place: string, issues: readonly Issue[] | undefined): void => {
    if (issues === undefined) return;
    found = [...(found ?? []), ...issues.map(({ path, message }) => ({ path: `/${place}${path}`, message }))];
  };
  if (Array.isArray(value)) {
    if (items === undefined) return undefined;
    for (let index = 0; index < value.length && (found?.length ?? 0) < MAX_FOUND; index += 1) {
      add(String(index), search(value[index], items));
    }
  } else if (members !== undefined) {
    for (const name of Object.keys(value)) {
      if ((found?.length ?? 0) >= MAX_FOUND) break;
      const member = members.get(name);
      if (member !== undefined) add(name, search((value as Record<string, unknown>)[name], member));
      else if (!members.has(name) && name !== RESERVED) add(escaped(name), [unknown(name, [...members.keys()])]);
    }
  }
  return found?.slice(0, MAX_FOUND);
}

function unknown(name: string, names: readonly string[]): Issue {
  const near = nearestName(name, names) ?? names.find((one) => name.length > 2 && one.startsWith(name));
  return { path: '', message: `is not known here${near === undefined ? '' : `; did you mean ${near}?`}` };
}

function escaped(name: string): string {
  return name.slice(0, MAX_ECHOED_NAME).replaceAll('~', '~0').replaceAll('/', '~1');
}
