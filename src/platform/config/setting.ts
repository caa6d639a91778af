import type { Static } from 'typebox';
import { cidr, hostName, listenAddress, origin, url } from './address-settings.ts';
import { annotate, annotationOf, type Setting } from './setting-annotation.ts';
import { command, keyBytes, path, text, token } from './text-settings.ts';
import { choice, duration, flag, integer, number } from './value-settings.ts';

type Members = Readonly<Record<string, Setting<unknown>>>;

/** Settings under one key. Each of them may be set on its own. */
function group<const M extends Members>(
  description: string,
  members: M,
): Setting<{ readonly [Key in keyof M]: Static<M[Key]> }> {
  const required = Object.keys(members).filter((key) => isRequired(members[key]));
  const json = {
    type: 'object',
    properties: members,
    additionalProperties: false,
    ...(required.length > 0 && { required }),
  };
  return annotate(json, { shape: 'group', description, members });
}

interface CollectionOptions {
  readonly description: string;
  readonly env?: string;
  readonly reload?: boolean;
}

/** Any number of values; set as a whole. */
function list<T>(
  item: Setting<T>,
  options: CollectionOptions & { readonly default?: readonly unknown[]; readonly minimum?: number },
): Setting<readonly T[]> {
  const { minimum = 0, env, reload = false, description } = options;
  const fallback = minimum > 0 ? options.default : (options.default ?? []);
  const json = {
    type: 'array',
    items: item,
    ...(minimum > 0 && { minItems: minimum }),
    ...(fallback && { default: fallback }),
  };
  const type = `list of ${typeName(item)}`;
  return annotate(json, { shape: 'list', description, env, flag: undefined, reload, fallback, type, item, minimum });
}

/** Values under keys that the user chooses; set as a whole. Empty by default. */
function record<T>(
  value: Setting<T>,
  options: CollectionOptions & { readonly keyPattern: string; readonly keyExpects: string },
): Setting<Readonly<Record<string, T>>> {
  const { env, reload = false, description, keyPattern, keyExpects } = options;
  const json = { type: 'object', propertyNames: { pattern: keyPattern }, additionalProperties: value, default: {} };
  return annotate(json, {
    shape: 'record',
    description,
    env,
    flag: undefined,
    reload,
    fallback: {},
    type: `map of ${typeName(value)}`,
    value,
    keyPattern: new RegExp(keyPattern),
    keyExpects,
  });
}

function isRequired(schema: Setting<unknown> | undefined): boolean {
  const annotation = schema === undefined ? undefined : annotationOf(schema);
  return annotation !== undefined && annotation.shape !== 'group' && annotation.fallback === undefined;
}

function typeName(schema: Setting<unknown>): string {
  const annotation = annotationOf(schema);
  return annotation.shape === 'group' ? 'groups' : annotation.type;
}

/** How settings are declared: one call each, from which type, validation, names, schema, documentation and masking follow. */
export const setting = {
  group,
  list,
  record,
  text,
  token,
  keyBytes,
  path,
  command,
  url,
  origin,
  hostName,
  cidr,
  listenAddress,
  choice,
  integer,
  number,
  flag,
  duration,
} as const;
