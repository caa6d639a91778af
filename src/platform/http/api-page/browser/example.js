import { refName, resolve } from './operations.js';

/** @import { OpenApiDocument, Schema } from './openapi-types.d.ts' */

/** @type {Record<string, string>} */
const TEXT_BY_FORMAT = {
  date: '2030-01-31',
  'date-time': '2030-01-31T12:00:00Z',
  email: 'name@example.com',
  uri: 'https://example.com/',
  url: 'https://example.com/',
  uuid: '00000000-0000-4000-8000-000000000000',
};

/**
 * A value that fits the schema: what the schema itself gives as example or default, else the shortest that will do.
 * Of optional members only those are filled in that have an example or a default.
 * @param {OpenApiDocument} document
 * @param {Schema | boolean | undefined} schema
 * @param {readonly string[]} [outer] the named schemas that this one stands in
 * @returns {unknown}
 */
export function exampleOf(document, schema, outer = []) {
  const resolved = resolve(document, schema);
  const given = givenExample(resolved);
  if (given !== undefined) return given;
  const name = nameOf(schema);
  if (outer.includes(name)) return null;
  const inner = name === '' ? outer : [...outer, name];

  const variants = resolved.oneOf ?? resolved.anyOf;
  const variant = variants?.find((each) => resolve(document, each).type !== 'null');
  if (variant) return exampleOf(document, variant, inner);
  if (resolved.allOf) {
    const parts = resolved.allOf.map((part) => exampleOf(document, part, inner));
    return Object.assign({}, ...parts);
  }
  switch (typeOf(resolved)) {
    case 'object':
      return objectExample(document, resolved, inner);
    case 'array':
      return arrayExample(document, resolved, inner);
    case 'string':
      return (TEXT_BY_FORMAT[resolved.format ?? ''] ?? 'text')
        .padEnd(resolved.minLength ?? 0, 'x')
        .slice(0, resolved.maxLength);
    case 'integer':
    case 'number':
      return numberExample(resolved);
    case 'boolean':
      return false;
    case 'null':
      return null;
    default:
      return {};
  }
}

/**
 * @param {Schema} schema
 * @returns {unknown}
 */
function givenExample({ examples, default: fallback, const: only, enum: allowed }) {
  return [examples?.[0], fallback, only, allowed?.[0]].find((value) => value !== undefined);
}

/** @param {Schema} schema */
function typeOf({ type, properties, items, prefixItems }) {
  const types = Array.isArray(type) ? type : type === undefined ? [] : [type];
  if (types.length > 0) return types.find((each) => each !== 'null') ?? 'null';
  if (properties) return 'object';
  return items || prefixItems ? 'array' : undefined;
}

/**
 * @param {OpenApiDocument} document
 * @param {Schema} schema
 * @param {readonly string[]} inner
 */
function objectExample(document, { properties = {}, required = [] }, inner) {
  const shown = Object.entries(properties).filter(
    ([name, property]) => required.includes(name) || givenExample(resolve(document, property)) !== undefined,
  );
  return Object.fromEntries(shown.map(([name, property]) => [name, exampleOf(document, property, inner)]));
}

/**
 * @param {OpenApiDocument} document
 * @param {Schema} schema
 * @param {readonly string[]} inner
 */
function arrayExample(document, { items, prefixItems, minItems = 0, maxItems }, inner) {
  if (prefixItems) return prefixItems.map((item) => exampleOf(document, item, inner));
  if (maxItems === 0 || typeof items !== 'object' || Object.keys(items).length === 0) return [];
  if (inner.includes(nameOf(items))) return [];
  return Array.from({ length: Math.max(1, minItems) }, () => exampleOf(document, items, inner));
}

/** @param {Schema} schema */
function numberExample({ minimum, maximum, exclusiveMinimum, exclusiveMaximum }) {
  const lowest = minimum ?? (exclusiveMinimum === undefined ? -Infinity : exclusiveMinimum + 1);
  const highest = maximum ?? (exclusiveMaximum === undefined ? Infinity : exclusiveMaximum - 1);
  return Math.min(Math.max(1, lowest), highest);
}

/**
 * @param {Schema | boolean | undefined} schema
 * @returns {string} empty for a schema without a name
 */
function nameOf(schema) {
  return typeof schema === 'object' && schema.$ref !== undefined ? refName(schema.$ref) : '';
}
