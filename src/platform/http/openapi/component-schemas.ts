import { isDeepStrictEqual } from 'node:util';
import type { TSchema } from 'typebox';
import type { Route, UpgradeRoute } from '../surface.ts';

export type JsonObject = { [key: string]: unknown };

/** A JSON Schema as it stands in the document: plain data, named schemas replaced by references. */
export type JsonSchema = JsonObject | boolean;

export interface ComponentSchemas {
  /** A clean copy of a schema. Whatever has an `$id` in it moves to the components and leaves a reference behind. */
  describe(schema: unknown): JsonSchema;
  /** As `describe`, but a schema without an `$id` is stored under the given name. */
  define(name: string, schema: unknown): JsonSchema;
  /** All components in order of their names. Throws when a reference leads nowhere. */
  collect(): Record<string, JsonSchema>;
}

const HOLDS_SCHEMA = new Set([
  'additionalProperties',
  'contains',
  'contentSchema',
  'else',
  'if',
  'items',
  'not',
  'propertyNames',
  'then',
  'unevaluatedItems',
  'unevaluatedProperties',
]);
const HOLDS_LIST = new Set(['allOf', 'anyOf', 'oneOf', 'prefixItems']);
const HOLDS_MAP = new Set(['dependentSchemas', 'patternProperties', 'properties']);
/** Handled apart, or without meaning inside an OpenAPI document. */
const LEFT_OUT = new Set(['$defs', '$id', '$ref', '$schema', 'additionalItems']);

const REFERENCE = '#/components/schemas/';

export function createComponentSchemas(): ComponentSchemas {
  const components = new Map<string, JsonSchema>();
  const referenced = new Set<string>();

  function describe(schema: unknown): JsonSchema {
    if (typeof schema === 'boolean') return schema;
    if (!isObject(schema)) throw new TypeError('A schema must be an object or a boolean.');
    return typeof schema.$id === 'string' ? store(schema.$id, copy(schema)) : copy(schema);
  }

  function define(name: string, schema: unknown): JsonSchema {
    const described = describe(schema);
    const alreadyNamed =
      isObject(described) && typeof described.$ref === 'string' && Object.keys(described).length === 1;
    return alreadyNamed ? described : store(name, described);
  }

  function store(id: string, schema: JsonSchema): JsonSchema {
    const name = componentName(id);
    const known = components.get(name);
    if (known !== undefined && !isDeepStrictEqual(known, schema)) {
      throw new Error(`Two different schemas are named "${name}".`);
    }
    components.set(name, schema);
    return referenceTo(name);
  }

  function referenceTo(name: string): JsonObject {
    referenced.add(name);
    return { $ref: `${REFERENCE}${name}` };
  }

  function copy(schema: JsonObject): JsonObject {
    if (isObject(schema.$defs)) {
      for (const [name, definition] of Object.entries(schema.$defs)) define(name, definition);
    }
    const result: JsonObject = typeof schema.$ref === 'string' ? referenceTo(referencedName(schema.$ref)) : {};
    for (const [keyword, value] of Object.entries(schema)) {
      if (value === undefined || LEFT_OUT.has(keyword) || keyword.startsWith('~')) continue;
      if (keyword === 'items' && Array.isArray(value)) {
        // The tuple of older drafts, which is what typebox writes; OpenAPI 3.1 speaks draft 2020-12.
        result.prefixItems = value.map(describe);
        if (schema.additionalItems === false) result.items = false;
      } else if (HOLDS_SCHEMA.has(keyword)) result[keyword] = describe(value);
      else if (HOLDS_LIST.has(keyword) && Array.isArray(value)) result[keyword] = value.map(describe);
      else if (HOLDS_MAP.has(keyword) && isObject(value)) result[keyword] = describeMap(value);
      else result[keyword] = JSON.parse(JSON.stringify(value));
    }
    return result;
  }

  function describeMap(map: JsonObject): JsonObject {
    return Object.fromEntries(Object.entries(map).map(([key, value]) => [key, describe(value)]));
  }

  function collect(): Record<string, JsonSchema> {
    for (const name of referenced) {
      if (!components.has(name)) throw new Error(`A schema refers to "${name}", which is not in the document.`);
    }
    return Object.fromEntries([...components].sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  return { describe, define, collect };
}

function referencedName(reference: string): string {
  return componentName(reference.replace(/^#\/\$defs\//, ''));
}

/** OpenAPI allows only these characters in the name of a component. */
function componentName(id: string): string {
  return id.replaceAll(/[^A-Za-z0-9._-]/g, '_');
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export type DescribedRoute = Pick<Route, 'method' | 'path' | 'summary' | 'body' | 'schema' | 'unlisted'>;

export interface DescribedUpgrade extends Pick<UpgradeRoute, 'path' | 'summary' | 'error' | 'unlisted'> {
  readonly query?: TSchema;
}

/** The part of an `HttpSurface` that the OpenAPI document tells of. */
export interface DescribedSurface {
  readonly name: string;
  readonly title: string;
  readonly routes: readonly DescribedRoute[];
  readonly upgrades: readonly DescribedUpgrade[];
  /** The shape of `errorBody`; with it, each operation has a `default` response. */
  readonly errorSchema?: TSchema;
}

/** A path in OpenAPI's spelling, and what it holds. */
interface PathTemplate {
  readonly path: string;
  readonly parameters: readonly PathParameter[];
}

export interface PathParameter {
  readonly name: string;
  /** Its name in the route's `params` schema: `*` for the rest of a path. */
  readonly routeName: string;
  readonly multiSegment: boolean;
}

/** `/sessions/:id` becomes `/sessions/{id}`, and `/models/*` becomes `/models/{path}`. */
export function pathTemplate(routePath: string): PathTemplate {
  const parameters: PathParameter[] = [];
  const path = routePath.replaceAll(/:(\w+)|\*/g, (routeName, named: string | undefined) => {
    const name = named ?? 'path';
    parameters.push({ name, routeName: named ?? routeName, multiSegment: named === undefined });
    return `{${name}}`;
  });
  return { path, parameters };
}

/** `POST /v1/keys/{id}` becomes `postV1KeysById`: it changes only when the path does. */
export function operationIdOf(method: string, path: string): string {
  const words = path
    .replaceAll(/\{(\w+)\}/g, 'by-$1')
    .split(/[^A-Za-z0-9]+/)
    .filter((word) => word !== '')
    .map((word) => word.charAt(0).toUpperCase() + word.slice(1));
  return method.toLowerCase() + (words.join('') || 'Root');
}
