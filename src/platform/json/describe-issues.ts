import type { TSchema } from 'typebox';
import type { TLocalizedValidationError } from 'typebox/error';
import type { Validator } from 'typebox/schema';
import { nearestName } from '../config/problem.ts';

/** One thing that is wrong with a value: where (a JSON pointer) and how to fix it. */
export interface Issue {
  readonly path: string;
  readonly message: string;
}

const MAX_PATH_LENGTH = 200;
const MAX_ISSUES = 8;
/** The validator takes seconds to explain what is wrong with millions of values, though it finds it in no time. */
const MAX_EXPLAINED_VALUES = 5000;
const TYPE_NAMES: Readonly<Record<string, string>> = {
  array: 'an array',
  boolean: 'a boolean',
  integer: 'an integer',
  number: 'a number',
  object: 'an object',
  string: 'a string',
};

/** A moment in a JSON text: ISO 8601 with an offset. */
export const MOMENT_PATTERN = '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d(:\\d\\d(\\.\\d{1,9})?)?(Z|[+-]\\d\\d:\\d\\d)$';
/** What texts of a pattern are called. Of any other pattern, people see the pattern itself. */
const PATTERN_NAMES: Readonly<Record<string, string>> = {
  [MOMENT_PATTERN]: 'a date and time with an offset, such as 2030-01-31T08:00:00Z',
};

/** Describes what is wrong with a value that did not fit: the first few issues, or none where the value is too large. */
export function findIssues(validator: Validator, value: unknown): Issue[] {
  const issues = new Map<string, Issue>();
  for (const errors of findErrors(validator, value)) {
    for (const issue of toIssues(errors)) {
      if (issues.size >= MAX_ISSUES) break;
      const path = issue.path.slice(0, MAX_PATH_LENGTH);
      if (!issues.has(path)) issues.set(path, { path, message: issue.message });
    }
  }
  return [...issues.values()];
}

/**
 * The validator's errors, one list per thing that is wrong. For a union only the alternative that comes closest counts;
 * where none does, the list holds what each of them expects. Empty for a value too large to explain.
 */
export function findErrors(validator: Validator, value: unknown): (readonly TLocalizedValidationError[])[] {
  if (valuesLeft(value, MAX_EXPLAINED_VALUES) <= 0) return [];
  const found: (readonly TLocalizedValidationError[])[] = [];
  let left: readonly TLocalizedValidationError[] = validator
    .Errors(value)[1]
    .filter(({ keyword }) => keyword !== 'anyOf');
  while (left.length > 0) {
    const [errors, rest] = takeFirst(left, 0);
    found.push(errors);
    left = rest;
  }
  return found;
}

type Errors = readonly TLocalizedValidationError[];

/** Takes the errors that belong to the first thing that is wrong. `from`: unions in this part of the path are resolved. */
function takeFirst(errors: Errors, from: number): [first: Errors, rest: Errors] {
  const [first, ...others] = errors;
  const at = first?.schemaPath.indexOf('/anyOf/', from) ?? -1;
  if (first === undefined || at === -1) return [errors.slice(0, 1), others];
  const union = first.schemaPath.slice(0, at);
  const place = instanceOf(first.instancePath, union);
  const alternatives = new Map<string, TLocalizedValidationError[]>();
  const rest: TLocalizedValidationError[] = [];
  for (const error of errors) {
    const inside = error.schemaPath.startsWith(`${union}/anyOf/`) && `${error.instancePath}/`.startsWith(`${place}/`);
    const name = inside ? (/^(?:\/anyOf\/\d+)+/.exec(error.schemaPath.slice(at))?.[0] ?? '') : '';
    if (!inside) rest.push(error);
    else alternatives.set(name, [...(alternatives.get(name) ?? []), error]);
  }
  for (const [name, own] of alternatives) {
    if (own.some((error) => isOfAnotherKind(error, place))) continue;
    const [chosen, more] = takeFirst(own, at + name.length);
    return [chosen, [...more, ...rest]];
  }
  const wrongKinds = [...alternatives.values()].flat().filter((error) => isOfAnotherKind(error, place));
  const named = wrongKinds.filter(({ keyword, instancePath }) => keyword === 'const' && instancePath !== place);
  return [named.length > 0 ? named : wrongKinds, rest];
}

/** Whether an error says that a value is not meant to be this alternative: another type, or another `type` member. */
function isOfAnotherKind({ keyword, instancePath }: TLocalizedValidationError, place: string): boolean {
  if (keyword === 'type' || keyword === 'enum') return instancePath === place;
  return keyword === 'const' && (instancePath === place || instancePath.lastIndexOf('/') === place.length);
}

/** Where in the value a part of the schema applies: each `properties/<name>` and `items` on the way is one step. */
function instanceOf(instancePath: string, schemaPath: string): string {
  const names = schemaPath.split('/');
  let steps = 0;
  for (let at = 0; at < names.length; at += 1) {
    const isNamed = names[at] === 'properties' || names[at] === 'patternProperties';
    if (isNamed || names[at] === 'items' || names[at] === 'additionalProperties') steps += 1;
    // The next part is the name of a member, of any form, or the number of an alternative.
    if (isNamed || names[at] === 'anyOf') at += 1;
  }
  return instancePath
    .split('/')
    .slice(0, 1 + steps)
    .join('/');
}

/** The first issue as a sentence without its stop: `routing.steps.0.prompt must be a string`. */
export function firstIssue(issues: readonly Issue[]): string {
  const [issue] = issues;
  if (issue === undefined) return 'they do not fit the schema';
  const field = issue.path.slice(1).replaceAll('/', '.').replaceAll('~1', '/').replaceAll('~0', '~');
  return `${field === '' ? 'params' : field} ${issue.message}`;
}

function toIssues(errors: Errors): Issue[] {
  const [first] = errors;
  if (first === undefined) return [];
  const path = first.instancePath;
  if (first.keyword === 'required') {
    return first.params.requiredProperties.map((name) => ({ path: member(path, name), message: 'is required' }));
  }
  // `additionalProperties: false` reports each member before it reports all of them.
  if (first.keyword === 'additionalProperties') return [];
  if (first.keyword === 'boolean') return [{ path, message: 'is not known here: leave it out' }];
  const expected = errors.flatMap(expectedValues);
  return [{ path, message: expected.length === 0 ? first.message : `must be ${expected.join(' or ')}` }];
}

function expectedValues(error: TLocalizedValidationError): string[] {
  switch (error.keyword) {
    case 'type':
      return [error.params.type].flat().map(typeName);
    case 'const':
      return [JSON.stringify(error.params.allowedValue)];
    case 'enum':
      return error.params.allowedValues.map((value) => JSON.stringify(value));
    case 'pattern':
      return [PATTERN_NAMES[String(error.params.pattern)] ?? []].flat();
    default:
      return [];
  }
}

/** What counting the value, and all that is in it, leaves of an allowance: 0 as soon as that is used up. */
function valuesLeft(value: unknown, allowed: number): number {
  let left = allowed - 1;
  if (typeof value !== 'object' || value === null) return left;
  // The names first: of an object with many members, the values take three times as long.
  const names = Array.isArray(value) ? undefined : Object.keys(value);
  if ((names ?? (value as unknown[])).length > left) return 0;
  for (const member of names === undefined ? (value as unknown[]) : Object.values(value)) {
    left = valuesLeft(member, left);
    if (left <= 0) return 0;
  }
  return left;
}

function typeName(type: string): string {
  return TYPE_NAMES[type] ?? type;
}

function member(path: string, name: string): string {
  return `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
}

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
