import type { JsonObject } from './json-value.ts';
import type { Steps } from './steps.ts';

/**
 * Structured output for models without it: they must call this tool, whose arguments are the answer. What they call
 * it with is handed on as the text of the answer, and the caller never sees a call.
 */
export const ANSWER_TOOL = 'structured_answer';

export const ANSWER_TOOL_DESCRIPTION = 'Gives the answer. Call it exactly once, with the whole answer.';

/** Constraints that strict decoding does not know; APIs refuse a schema that has them. */
const UNKNOWN_CONSTRAINTS: ReadonlySet<string> = new Set([
  ...['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf', 'minLength', 'maxLength'],
  ...['maxItems', 'uniqueItems', 'minProperties', 'maxProperties', 'patternProperties', 'propertyNames'],
  ...['contains', 'minContains', 'maxContains', 'not', 'if', 'then', 'else', '$schema', '$id', 'examples'],
]);

const MAX_DEPTH = 64;

/** A schema as strict decoding takes it: closed objects, no numeric or length constraints; `oneOf` becomes `anyOf`. */
export function strictSchema(schema: unknown, steps: Steps, depth = 0): unknown {
  steps.take();
  if (Array.isArray(schema)) return schema.map((item) => strictSchema(item, steps, depth + 1));
  if (typeof schema !== 'object' || schema === null) return schema;
  if (depth > MAX_DEPTH) return {};
  const entries = Object.entries(schema).flatMap(([name, value]): [string, unknown][] => {
    if (UNKNOWN_CONSTRAINTS.has(name)) return [];
    if (name === 'minItems') return value === 0 || value === 1 ? [[name, value]] : [];
    if (name === 'properties' || name === '$defs' || name === 'definitions')
      return [[name, strictMembers(value, steps, depth)]];
    if (name === 'enum' || name === 'const' || name === 'default') return [[name, value]];
    return [[name === 'oneOf' ? 'anyOf' : name, strictSchema(value, steps, depth + 1)]];
  });
  const strict: JsonObject = Object.fromEntries(entries);
  if (strict.type === 'object' || strict.properties !== undefined) strict.additionalProperties = false;
  return strict;
}

function strictMembers(members: unknown, steps: Steps, depth: number): unknown {
  if (typeof members !== 'object' || members === null) return members;
  return Object.fromEntries(
    Object.entries(members).map(([name, member]) => [name, strictSchema(member, steps, depth + 1)]),
  );
}

const KEYWORD = /^[$\w.-]{1,64}$/;

/** Adds the keywords that a translated schema lacks to what is dropped: `tools.function.parameters.uniqueItems`. */
export function nameLostKeywords(field: string, lost: Iterable<string>, dropped: Set<string>): void {
  for (const keyword of lost) dropped.add(`${field}.${KEYWORD.test(keyword) ? keyword : 'unknown'}`);
}
