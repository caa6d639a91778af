import { createSteps, type Steps } from '../dialect.ts';
import { asList, asObject, asText, type JsonObject } from '../json-value.ts';

/** Keywords of JSON Schema that Gemini's own kind of schema has too, with the same meaning. */
const KEPT: ReadonlySet<string> = new Set([
  ...['title', 'description', 'default', 'minItems', 'maxItems', 'minProperties', 'maxProperties'],
  ...['minLength', 'maxLength', 'pattern', 'minimum', 'maximum', 'propertyOrdering'],
]);

/** Keywords that narrow what fits a schema, and that Gemini's own kind does not have. */
const UNKNOWN_CONSTRAINTS: ReadonlySet<string> = new Set([
  ...['exclusiveMinimum', 'exclusiveMaximum', 'multipleOf', 'uniqueItems', 'contains', 'minContains', 'maxContains'],
  ...['prefixItems', 'additionalItems', 'unevaluatedItems', 'patternProperties', 'propertyNames', 'dependencies'],
  ...['dependentRequired', 'dependentSchemas', 'unevaluatedProperties', 'not', 'if', 'then', 'else'],
]);

const FORMATS: ReadonlySet<unknown> = new Set(['date-time', 'enum', 'int32', 'int64', 'float', 'double']);
/** The number of types in JSON Schema; a longer list repeats some. */
const MAX_TYPES = 7;

/** Deeper schemas end in an object that may hold anything. */
const MAX_DEPTH = 32;

/** One conversion: the whole schema, the references that are being written out, and what got lost. */
interface Conversion {
  readonly root: JsonObject;
  readonly open: Set<string>;
  readonly lost: Set<string>;
  readonly steps: Steps;
}

/**
 * JSON Schema as every Gemini takes it: references are written out, `null` becomes `nullable`, `oneOf` and `allOf` are
 * turned into what there is. Keywords that Gemini would refuse are left out, and their names are added to `lost`.
 */
export function googleSchema(
  schema: unknown,
  lost: Set<string> = new Set<string>(),
  steps: Steps = createSteps(),
): JsonObject {
  const root = asObject(schema) ?? {};
  return convert(root, { root, open: new Set(), lost, steps }, 0);
}

/**
 * Whether Gemini's own kind of schema cannot hold all of a schema: it has references, or constraints that are unknown
 * there. Such a schema goes as JSON Schema to models that take it.
 */
export function needsJsonSchema(schema: unknown, steps: Steps): boolean {
  steps.take();
  if (Array.isArray(schema)) return schema.some((item) => needsJsonSchema(item, steps));
  const given = asObject(schema);
  if (given === undefined) return false;
  for (const [name, value] of Object.entries(given)) {
    if (name === '$ref' || isBeyond(name, value)) return true;
    if (name === 'properties') {
      for (const member of Object.values(asObject(value) ?? {})) if (needsJsonSchema(member, steps)) return true;
    } else if (NESTED.has(name) && needsJsonSchema(value, steps)) return true;
  }
  return false;
}

/** A constraint that gets lost in Gemini's own kind of schema. */
function isBeyond(name: string, value: unknown): boolean {
  switch (name) {
    case 'additionalProperties':
      return value !== false;
    case 'format':
      return !FORMATS.has(value);
    case 'enum':
      return !asList(value).every((choice) => typeof choice === 'string');
    case 'const':
      return typeof value !== 'string';
    case 'items':
      return Array.isArray(value);
    default:
      return UNKNOWN_CONSTRAINTS.has(name);
  }
}

const NESTED: ReadonlySet<string> = new Set(['items', 'anyOf', 'oneOf', 'allOf']);
const NAMED_MEMBERS: ReadonlySet<string> = new Set(['properties', '$defs', 'definitions', 'patternProperties']);
const VALUES: ReadonlySet<string> = new Set(['enum', 'default', 'examples', 'example', 'required']);
const DEFINITIONS = '#/definitions/';

/**
 * JSON Schema for `parametersJsonSchema` and `responseJsonSchema`. Gemini allows nothing beside a `$ref`, so what
 * stands beside one moves one level up; and it looks for definitions under `$defs` alone.
 */
export function googleJsonSchema(schema: unknown, steps: Steps): unknown {
  steps.take();
  if (Array.isArray(schema)) return schema.map((item) => googleJsonSchema(item, steps));
  const given = asObject(schema);
  if (given === undefined) return schema;
  const result: JsonObject = {};
  for (const [name, value] of Object.entries(given)) {
    if (name === '$schema') continue;
    if (name === 'definitions') result.$defs = { ...asObject(result.$defs), ...copyMembers(value, steps) };
    else if (NAMED_MEMBERS.has(name)) result[name] = { ...asObject(result[name]), ...copyMembers(value, steps) };
    // Gemini knows no `const`, and a list of one choice is the same.
    else if (name === 'const') result.enum = [value];
    else result[name] = VALUES.has(name) ? value : googleJsonSchema(value, steps);
  }
  const reference = asText(result.$ref);
  if (reference === undefined) return result;
  const target = reference.startsWith(DEFINITIONS) ? `#/$defs/${reference.slice(DEFINITIONS.length)}` : reference;
  if (Object.keys(result).every((name) => name.startsWith('$'))) return { ...result, $ref: target };
  const { $ref: _, ...beside } = result;
  return { ...beside, anyOf: [{ $ref: target }] };
}

function copyMembers(members: unknown, steps: Steps): JsonObject {
  return Object.fromEntries(
    Object.entries(asObject(members) ?? {}).map(([name, member]) => [name, googleJsonSchema(member, steps)]),
  );
}

function convert(value: unknown, conversion: Conversion, depth: number): JsonObject {
  const { lost, steps } = conversion;
  steps.take();
  const schema = asObject(value);
  if (schema === undefined) return {};
  if (depth > MAX_DEPTH) {
    lost.add('depth');
    return { type: 'object' };
  }
  const reference = asText(schema.$ref);
  if (reference !== undefined) return writeOut(reference, schema, conversion, depth);
  const merged = mergeAll(schema, conversion);
  noteLost(merged, conversion);
  const types = typesOf(merged);
  const variants = variantsOf(merged, types);
  const nullable = types.includes('null') || variants.some(isNull) || merged.nullable === true;
  const real = variants.filter((variant) => !isNull(variant)).map((variant) => convert(variant, conversion, depth + 1));
  const base = { ...keptOf(merged), ...(nullable && { nullable: true }) };
  if (real.length === 1) return { ...real[0], ...base };
  if (real.length > 1) return { ...base, anyOf: real };
  return { ...base, ...ofType(merged, typeWithoutNull(types, merged), conversion, depth) };
}

/** A reference inside of what it refers to would never end: there it is an object that may hold anything. */
function writeOut(reference: string, schema: JsonObject, conversion: Conversion, depth: number): JsonObject {
  const { open, lost, root } = conversion;
  const { $ref: _, ...beside } = schema;
  if (open.has(reference)) {
    lost.add('$ref');
    return { type: 'object', ...keptOf(beside) };
  }
  open.add(reference);
  const written = convert(resolve(reference, root), conversion, depth + 1);
  open.delete(reference);
  return { ...written, ...keptOf(beside) };
}

function noteLost(schema: JsonObject, { lost, steps }: Conversion): void {
  for (const name of Object.keys(schema)) {
    steps.take();
    if (isBeyond(name, schema[name])) lost.add(name);
  }
}

function keptOf(schema: JsonObject): JsonObject {
  const kept: JsonObject = {};
  for (const name of Object.keys(schema)) if (KEPT.has(name) && schema[name] !== undefined) kept[name] = schema[name];
  return kept;
}

function resolve(reference: string, root: JsonObject): unknown {
  const [, table, name] = /^#\/(\$defs|definitions)\/([^/]{1,200})$/.exec(reference) ?? [];
  const definitions = table === undefined ? undefined : asObject(root[table]);
  return definitions !== undefined && name !== undefined && Object.hasOwn(definitions, name)
    ? definitions[name]
    : { type: 'object' };
}

/** A schema with its `allOf` merged into it. */
function mergeAll(schema: JsonObject, { root, steps }: Conversion): JsonObject {
  const parts = asList(schema.allOf);
  if (parts.length === 0) return schema;
  const merged: JsonObject = { ...schema };
  const properties: JsonObject = { ...asObject(schema.properties) };
  const required = [...asList(schema.required)];
  for (const part of parts) {
    const given = asObject(part) ?? {};
    const added = typeof given.$ref === 'string' ? (asObject(resolve(given.$ref, root)) ?? {}) : given;
    steps.take(1 + Object.keys(added).length + Object.keys(asObject(added.properties) ?? {}).length);
    Object.assign(merged, added);
    Object.assign(properties, asObject(added.properties));
    for (const name of asList(added.required)) required.push(name);
  }
  return { ...merged, properties, required };
}

function typesOf({ type }: JsonObject): readonly string[] {
  const names = Array.isArray(type) ? [...new Set(type.slice(0, MAX_TYPES))] : [type];
  return names.filter((name) => typeof name === 'string');
}

function variantsOf(schema: JsonObject, types: readonly string[]): readonly unknown[] {
  const given = asList(schema.anyOf ?? schema.oneOf);
  if (given.length > 0) return given;
  const real = types.filter((type) => type !== 'null');
  return real.length > 1 ? real.map((type) => ({ ...schema, type, title: undefined, description: undefined })) : [];
}

function isNull(variant: unknown): boolean {
  return asObject(variant)?.type === 'null';
}

function typeWithoutNull(types: readonly string[], schema: JsonObject): string | undefined {
  const named = types.find((type) => type !== 'null');
  if (named !== undefined) return named;
  if (Object.keys(asObject(schema.properties) ?? {}).length > 0) return 'object';
  if (schema.items !== undefined) return 'array';
  return schema.enum !== undefined || schema.const !== undefined ? 'string' : undefined;
}

function ofType(schema: JsonObject, type: string | undefined, conversion: Conversion, depth: number): JsonObject {
  const format = FORMATS.has(schema.format) && { format: schema.format };
  if (type === 'object') {
    const properties = Object.entries(asObject(schema.properties) ?? {});
    if (properties.length === 0) return { type };
    const names = new Set(properties.map(([name]) => name));
    const required = [...new Set(asList(schema.required))].filter(
      (name) => typeof name === 'string' && names.has(name),
    );
    return {
      type,
      properties: Object.fromEntries(
        properties.map(([name, member]) => [name, convert(member, conversion, depth + 1)]),
      ),
      ...(required.length > 0 && { required }),
    };
  }
  if (type === 'array') {
    const items = convert(Array.isArray(schema.items) ? schema.items[0] : schema.items, conversion, depth + 1);
    return { type, items: Object.keys(items).length === 0 ? { type: 'string' } : items };
  }
  if (type === 'string') {
    const choices = (schema.const === undefined ? asList(schema.enum) : [schema.const]).filter(
      (value) => typeof value !== 'object',
    );
    return { type, ...format, ...(choices.length > 0 && { enum: choices.map(String) }) };
  }
  return type === undefined ? {} : { type, ...format };
}

/** Numbers that come as text, because they have 64 bits. */
const COUNTS: ReadonlySet<string> = new Set([
  ...['minItems', 'maxItems', 'minLength', 'maxLength', 'minProperties', 'maxProperties'],
]);

/**
 * A schema of Gemini's own kind as JSON Schema: the names of types in small letters, `nullable` as a type, counts as numbers.
 * JSON Schema itself stays as it is.
 */
export function jsonSchemaOf(schema: unknown, steps: Steps = createSteps()): JsonObject {
  steps.take();
  const members: [string, unknown][] = [];
  const given = asObject(schema) ?? {};
  for (const [spelled, value] of Object.entries(given)) {
    const name = spelled.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
    if (name === 'nullable' || name === 'propertyOrdering') continue;
    if (name === 'type') members.push(...typeMember(value, given.nullable === true));
    else if (name === 'example') members.push(['examples', [value]]);
    else if (name === 'format' && value === 'enum') continue;
    else if (name === 'enum' && given.nullable === true) members.push([name, [...asList(value), null]]);
    else if (COUNTS.has(name)) members.push([name, typeof value === 'string' ? Number(value) : value]);
    else if (name === 'anyOf') members.push([name, alternatives(asList(value), given, steps)]);
    else if (name === 'items' || name === 'additionalProperties') members.push([name, innerSchema(value, steps)]);
    else if (name === 'properties' || spelled === '$defs') members.push([spelled, schemasOf(value, steps)]);
    else members.push([spelled, value]);
  }
  return Object.fromEntries(members);
}

function typeMember(value: unknown, isNullable: boolean): [string, unknown][] {
  if (Array.isArray(value)) return [['type', value.map(smallLetters)]];
  if (value === 'TYPE_UNSPECIFIED') return [];
  const type = smallLetters(value);
  return [['type', isNullable ? [type, 'null'] : type]];
}

function smallLetters(type: unknown): unknown {
  return typeof type === 'string' ? type.toLowerCase() : type;
}

function alternatives(list: readonly unknown[], given: JsonObject, steps: Steps): readonly JsonObject[] {
  const schemas = list.map((each) => jsonSchemaOf(each, steps));
  return given.nullable === true && given.type === undefined ? [...schemas, { type: 'null' }] : schemas;
}

function innerSchema(value: unknown, steps: Steps): unknown {
  return asObject(value) === undefined ? value : jsonSchemaOf(value, steps);
}

function schemasOf(value: unknown, steps: Steps): JsonObject {
  return Object.fromEntries(
    Object.entries(asObject(value) ?? {}).map(([name, each]) => [name, innerSchema(each, steps)]),
  );
}
