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
