import type { Steps } from './dialect.ts';
import { asObject, type JsonObject } from './json-value.ts';

/**
 * Structured output for models without it: they must call this tool, whose arguments are the answer. What they call
 * it with is handed on as the text of the answer, and the caller never sees a call.
 */
export const ANSWER_TOOL = 'structured_answer';

export const ANSWER_TOOL_DESCRIPTION =
  'Gives the answer, a JSON object. Call it exactly once: its arguments are the whole answer, with every member.';

/** Constraints that strict decoding does not know; APIs refuse a schema that has them. */
const UNKNOWN_CONSTRAINTS: ReadonlySet<string> = new Set([
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf', 'minLength', 'maxLength'],
  ...['maxItems', 'uniqueItems', 'minProperties', 'maxProperties', 'patternProperties', 'propertyNames'],
  ...['contains', 'minContains', 'maxContains', 'not', 'if', 'then', 'else', '$schema', '$id', 'examples'],
]);

const MAX_DEPTH = 64;

/**
 * A schema as strict decoding takes it: closed objects, no numeric or length constraints; `oneOf` becomes `anyOf`. The
 * names of constraints that it had are added to `lost`.
 */
export function strictSchema(schema: unknown, steps: Steps, lost: Set<string>, depth = 0): unknown {
  steps.take();
  if (Array.isArray(schema)) return schema.map((item) => strictSchema(item, steps, lost, depth + 1));
  if (typeof schema !== 'object' || schema === null) return schema;
  if (depth > MAX_DEPTH) {
    lost.add('depth');
    return {};
  }
  const entries = Object.entries(schema).flatMap(([name, value]): [string, unknown][] => {
    if (name === 'minItems' && (value === 0 || value === 1)) return [[name, value]];
    if (name === 'minItems' || UNKNOWN_CONSTRAINTS.has(name)) {
      if (!ANNOTATIONS.has(name)) lost.add(name);
      return [];
    }
    if (name === 'additionalProperties' && value !== false) lost.add(name);
    if (name === 'properties' || name === '$defs' || name === 'definitions')
      return [[name, strictMembers(value, steps, lost, depth)]];
    if (name === 'enum' || name === 'const' || name === 'default') return [[name, value]];
    return [[name === 'oneOf' ? 'anyOf' : name, strictSchema(value, steps, lost, depth + 1)]];
  });
  const strict: JsonObject = Object.fromEntries(entries);
  if (strict.type === 'object' || strict.properties !== undefined) strict.additionalProperties = false;
  return strict;
}

function strictMembers(members: unknown, steps: Steps, lost: Set<string>, depth: number): unknown {
  if (typeof members !== 'object' || members === null) return members;
  return Object.fromEntries(
    Object.entries(members).map(([name, member]) => [name, strictSchema(member, steps, lost, depth + 1)]),
  );
}

/** Whether an object in a schema may have members that it does not name: closed, it could only be empty, or lose some. */
export function hasOpenObject(schema: unknown, steps: Steps): boolean {
  steps.take();
  if (Array.isArray(schema)) return schema.some((item) => hasOpenObject(item, steps));
  const given = asObject(schema);
  if (given === undefined) return false;
  const { additionalProperties: more, patternProperties: patterns, properties, type } = given;
  if (more === undefined ? type === 'object' && properties === undefined : more !== false) return true;
  if (patterns !== undefined) return true;
  return Object.entries(given).some(([name, value]) => {
    if (VALUES.has(name)) return false;
    if (!MEMBERS.has(name)) return hasOpenObject(value, steps);
    return Object.values(asObject(value) ?? {}).some((member) => hasOpenObject(member, steps));
  });
}

const VALUES: ReadonlySet<string> = new Set(['enum', 'const', 'default', 'examples', 'required']);
const MEMBERS: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions']);
const ANNOTATIONS: ReadonlySet<string> = new Set(['$schema', '$id', 'examples']);

/** Asks for any JSON object, as the tool whose arguments are the answer. */
export const ANY_OBJECT: JsonObject = Object.freeze({ type: 'object', additionalProperties: true });

const KEYWORD = /^[$\w.-]{1,64}$/;

/** Adds the keywords that a translated schema lacks to what is dropped: `tools.function.parameters.uniqueItems`. */
export function nameLostKeywords(field: string, lost: Iterable<string>, dropped: Set<string>): void {
  for (const keyword of lost) dropped.add(`${field}.${KEYWORD.test(keyword) ? keyword : 'unknown'}`);
}
