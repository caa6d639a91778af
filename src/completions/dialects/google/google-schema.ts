import { asList, asObject, asText, type JsonObject } from '../json-value.ts';

/** Keywords of JSON Schema that Gemini's own kind of schema has too, with the same meaning. */
const KEPT = [
  ...['title', 'description', 'default', 'minItems', 'maxItems', 'minProperties', 'maxProperties'],
  ...['minLength', 'maxLength', 'pattern', 'minimum', 'maximum', 'propertyOrdering'],
];

const FORMATS: ReadonlySet<unknown> = new Set(['date-time', 'enum', 'int32', 'int64', 'float', 'double']);

/** Deeper schemas, and those that contain themselves, end in an object that may hold anything. */
const MAX_DEPTH = 32;

/**
 * JSON Schema as Gemini takes it: references are written out, `null` becomes `nullable`, `oneOf` and `allOf` are
 * turned into what there is, and everything that it would refuse is left out.
 */
export function googleSchema(schema: unknown): JsonObject {
  const root = asObject(schema) ?? {};
  return convert(root, root, 0);
}

function convert(value: unknown, root: JsonObject, depth: number): JsonObject {
  const schema = asObject(value);
  if (schema === undefined) return {};
  if (depth > MAX_DEPTH) return { type: 'object' };
  const reference = asText(schema.$ref);
  if (reference !== undefined) {
    const { $ref: _, ...beside } = schema;
    return { ...convert(resolve(reference, root), root, depth + 1), ...keptOf(beside) };
  }
  const merged = asList(schema.allOf).reduce<JsonObject>((all, part) => mergeSchemas(all, part, root), schema);
  const types = typesOf(merged);
  const variants = variantsOf(merged, types);
  const nullable = types.includes('null') || variants.some(isNull) || merged.nullable === true;
  const real = variants.filter((variant) => !isNull(variant)).map((variant) => convert(variant, root, depth + 1));
  const base = { ...keptOf(merged), ...(nullable && { nullable: true }) };
  if (real.length === 1) return { ...real[0], ...base };
  if (real.length > 1) return { ...base, anyOf: real };
  return { ...base, ...ofType(merged, typeWithoutNull(types, merged), root, depth) };
}

function keptOf(schema: JsonObject): JsonObject {
  return Object.fromEntries(KEPT.filter((name) => schema[name] !== undefined).map((name) => [name, schema[name]]));
}

function resolve(reference: string, root: JsonObject): unknown {
  const [, table, name] = /^#\/(\$defs|definitions)\/([^/]{1,200})$/.exec(reference) ?? [];
  const definitions = table === undefined ? undefined : asObject(root[table]);
  return definitions !== undefined && name !== undefined && Object.hasOwn(definitions, name)
    ? definitions[name]
    : { type: 'object' };
}

function mergeSchemas(all: JsonObject, part: unknown, root: JsonObject): JsonObject {
  const given = asObject(part) ?? {};
  const added = typeof given.$ref === 'string' ? (asObject(resolve(given.$ref, root)) ?? {}) : given;
  return {
    ...all,
    ...added,
    properties: { ...asObject(all.properties), ...asObject(added.properties) },
    required: [...asList(all.required), ...asList(added.required)],
  };
}

function typesOf({ type }: JsonObject): readonly string[] {
  return (Array.isArray(type) ? type : [type]).filter((name) => typeof name === 'string');
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

function ofType(schema: JsonObject, type: string | undefined, root: JsonObject, depth: number): JsonObject {
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
      properties: Object.fromEntries(properties.map(([name, member]) => [name, convert(member, root, depth + 1)])),
      ...(required.length > 0 && { required }),
    };
  }
  if (type === 'array') {
    const items = convert(Array.isArray(schema.items) ? schema.items[0] : schema.items, root, depth + 1);
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
