import { element, prose } from './element.js';
import { refName, resolve } from './operations.js';

/** @import { OpenApiDocument, Schema } from './openapi-types.d.ts' */

/** @typedef {{ name: string, schema: Schema, required: boolean }} Member */

const OPEN_LEVELS = 2;

/**
 * A schema as nested lists. Deeper levels are built when they are opened, so that a recursive schema is no trouble.
 * @param {OpenApiDocument} document
 * @param {Schema} schema
 * @returns {HTMLElement}
 */
export function schemaTree(document, schema, level = 0) {
  const members = membersOf(document, schema);
  if (members.length === 0) return element('p', { class: 'type' }, typeLabel(document, schema), ...limits(schema));
  return element('ul', { class: 'tree' }, ...members.map((member) => treeItem(document, member, level)));
}

/**
 * @param {OpenApiDocument} document
 * @param {Member} member
 * @param {number} level
 */
function treeItem(document, { name, schema, required }, level) {
  const resolved = resolve(document, schema);
  const head = element('span', { class: 'member' }, element('code', {}, name));
  head.append(element('span', { class: 'type' }, typeLabel(document, schema), ...limits(resolved)));
  if (required) head.append(element('span', { class: 'required' }, 'required'));
  const text = resolved.description ? [element('p', { class: 'hint' }, ...prose(resolved.description))] : [];
  if (membersOf(document, schema).length === 0) return element('li', {}, head, ...text);

  const details = element('details', { open: level < OPEN_LEVELS }, element('summary', {}, head), ...text);
  const fill = () => {
    if (details.open && details.lastElementChild?.className !== 'tree') {
      details.append(schemaTree(document, schema, level + 1));
    }
  };
  fill();
  details.addEventListener('toggle', fill);
  return element('li', {}, details);
}

/**
 * What is inside: members of an object, of an array's items, or the alternatives of a union.
 * @param {OpenApiDocument} document
 * @param {Schema} schema
 * @returns {Member[]}
 */
function membersOf(document, schema) {
  const resolved = resolve(document, schema);
  const { properties = {}, patternProperties = {}, additionalProperties, required = [], items, allOf } = resolved;
  if (typeof items === 'object') return membersOf(document, items);
  if (allOf) return allOf.flatMap((part) => membersOf(document, part));
  const alternatives = resolved.oneOf ?? resolved.anyOf ?? [];
  const structured = alternatives.filter((each) => membersOf(document, each).length > 0);
  const others = typeof additionalProperties === 'object' ? [additionalProperties] : [];
  return [
    ...Object.entries(properties).map(([name, each]) => ({ name, schema: each, required: required.includes(name) })),
    ...[...Object.values(patternProperties), ...others].map((each) => ({ name: '…', schema: each, required: false })),
    ...structured.map((each, index) => ({
      name: resolve(document, each).title ?? `option ${index + 1}`,
      schema: each,
      required: false,
    })),
  ];
}

/**
 * @param {OpenApiDocument} document
 * @param {Schema} schema
 * @returns {string}
 */
function typeLabel(document, schema) {
  if (schema.$ref !== undefined) return refName(schema.$ref);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(' | ');
  const alternatives = schema.oneOf ?? schema.anyOf;
  if (alternatives) return [...new Set(alternatives.map((each) => typeLabel(document, each)))].join(' | ');
  if (typeof schema.items === 'object') return `${typeLabel(document, schema.items)}[]`;
  if (schema.allOf) return 'object';
  const type = Array.isArray(schema.type) ? schema.type.join(' | ') : (schema.type ?? 'any');
  return schema.format ? `${type} (${schema.format})` : type;
}

/**
 * @param {Schema} schema
 * @returns {string[]}
 */
function limits({ minimum, maximum, exclusiveMinimum, exclusiveMaximum, ...schema }) {
  const all = [
    minimum !== undefined && `≥ ${minimum}`,
    exclusiveMinimum !== undefined && `> ${exclusiveMinimum}`,
    maximum !== undefined && `≤ ${maximum}`,
    exclusiveMaximum !== undefined && `< ${exclusiveMaximum}`,
    schema.minLength !== undefined && `length ≥ ${schema.minLength}`,
    schema.maxLength !== undefined && `length ≤ ${schema.maxLength}`,
    schema.minItems !== undefined && `items ≥ ${schema.minItems}`,
    schema.maxItems !== undefined && `items ≤ ${schema.maxItems}`,
    schema.default !== undefined && `default ${JSON.stringify(schema.default)}`,
  ];
  return all.flatMap((limit) => (limit === false ? [] : [`, ${limit}`]));
}

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
