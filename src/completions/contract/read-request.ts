import { Buffer } from 'node:buffer';
import { type Static, type TSchema, Type } from 'typebox';
import type { TLocalizedValidationError } from 'typebox/error';
import { Compile, type Validator } from 'typebox/schema';
import { AppError } from '../../platform/errors/app-error.ts';
import { MIN_LARGE_BODY, parseBody } from '../../platform/http/request-body.ts';
import { findErrors } from '../../platform/json/describe-issues.ts';
import type { ValueLimits } from '../../platform/json/parse-json.ts';

/** An optional field. Clients of every API send `null` for it too, which means the same as leaving it out. */
export const optional = <T extends TSchema>(schema: T) =>
  Type.Optional(Type.Unsafe<Static<T>>(Type.Union([schema, Type.Null()])));

const NULL = Buffer.from('null');

/**
 * Returns the one way to read the body of a request: parses it, checks it (INVALID_PARAMETER in the wording of OpenAI's
 * API), and removes every `null` that stands for an absent field, so that no code behind it meets one.
 */
export function createRequestReader<T extends TSchema>(
  schema: T,
  limits?: Partial<ValueLimits>,
  /** Brings the value into the form of the schema, before it is checked. */
  prepare: (value: unknown) => unknown = asItIs,
) {
  let validator: Validator | undefined;
  const removeNulls = nullRemoval(schema);
  return (body: Buffer): Static<T> => {
    const request = prepare(parseBody(body, limits));
    validator ??= Compile(schema);
    if (!validator.Check(request)) throw refusal(findErrors(validator, request)[0] ?? [], schema, request);
    // To search megabytes could take longer than to look at each value.
    if (body.length > MIN_LARGE_BODY || body.includes(NULL)) removeNulls?.(request);
    return request as Static<T>;
  };
}

function asItIs(value: unknown): unknown {
  return value;
}

interface SchemaNode {
  readonly type?: string;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly items?: SchemaNode;
  readonly anyOf?: readonly SchemaNode[];
}

type NullRemoval = (value: unknown) => void;

/** Compiles what must be done to a value that fits the schema; undefined when there is nothing to do. */
function nullRemoval(schema: SchemaNode): NullRemoval | undefined {
  if (schema.anyOf !== undefined) {
    const [list] = schema.anyOf.filter(({ type }) => type === 'array').flatMap((each) => nullRemoval(each) ?? []);
    const [object] = schema.anyOf.filter(({ type }) => type !== 'array').flatMap((each) => nullRemoval(each) ?? []);
    if (list === undefined && object === undefined) return undefined;
    return (value) => (Array.isArray(value) ? list?.(value) : object?.(value));
  }
  if (schema.items !== undefined) {
    const remove = nullRemoval(schema.items);
    return remove && ((list) => Array.isArray(list) && list.forEach(remove));
  }
  const members = Object.entries(schema.properties ?? {}).flatMap(([name, member]) => {
    const remove = nullRemoval(member);
    const nullIsAbsent = isOptionalField(member);
    return remove === undefined && !nullIsAbsent ? [] : [{ name, remove, nullIsAbsent }];
  });
  if (members.length === 0) return undefined;
  return (value) => {
    if (typeof value !== 'object' || value === null) return;
    const object = value as Record<string, unknown>;
    for (const { name, remove, nullIsAbsent } of members) {
      const given = object[name];
      if (given === null && nullIsAbsent) delete object[name];
      else if (given !== undefined) remove?.(given);
    }
  };
}

/** Whether a field was declared with `optional`. A union that names null among its own types keeps it. */
function isOptionalField({ anyOf }: SchemaNode): boolean {
  return anyOf?.length === 2 && anyOf[1]?.type === 'null';
}

function refusal(errors: readonly TLocalizedValidationError[], schema: SchemaNode, request: unknown): AppError {
  const [first] = errors;
  if (first === undefined) {
    return new AppError('INVALID_REQUEST', { reason: 'the body does not fit the schema' });
  }
  const missing = first.keyword === 'required' ? `/${first.params.requiredProperties[0] ?? ''}` : '';
  const path = first.instancePath + missing;
  if (path === '') return new AppError('INVALID_REQUEST', { reason: 'the body must be an object' });
  const param = paramOf(path);
  const wanted = (valueAt(schema, first.schemaPath) as SchemaNode | undefined)?.type;
  const value = valueAt(request, first.instancePath);
  return new AppError('INVALID_PARAMETER', { ...describe(errors, param, value, wanted === 'integer'), param });
}

/** A JSON pointer as OpenAI's API names a field: `/messages/0/role` is `messages[0].role`. */
export function paramOf(pointer: string): string {
  const names = pointer.slice(1).split('/');
  const path = names.map((name) => (/^\d+$/.test(name) ? `[${name}]` : `.${name}`)).join('');
  return path.slice(1, MAX_PARAM_LENGTH).replaceAll('~1', '/').replaceAll('~0', '~');
}

const MAX_PARAM_LENGTH = 200;
const MAX_SHOWN_LENGTH = 64;

/** Words an error as OpenAI's API does, with its code. */
function describe(errors: readonly TLocalizedValidationError[], param: string, value: unknown, isInteger: boolean) {
  const [error] = errors;
  const length = typeof value === 'string' || Array.isArray(value) ? value.length : 0;
  const number = isInteger ? 'integer' : 'decimal';
  switch (error?.keyword) {
    case 'required':
      return { message: `Missing required parameter: '${param}'.`, apiCode: 'missing_required_parameter' };
    case 'minItems':
    case 'minLength': {
      const [kind, a] = error.keyword === 'minItems' ? ['array', 'an array'] : ['string', 'a string'];
      const expected = `Expected ${a} with minimum length ${error.params.limit}`;
      const got = `an empty ${kind}`;
      return {
        message: `Invalid '${param}': empty ${kind}. ${expected}, but got ${got} instead.`,
        apiCode: `empty_${kind}`,
      };
    }
    case 'maxItems':
      return {
        message: `Invalid '${param}': array too long. Expected an array with maximum length ${error.params.limit}, but got an array with length ${length} instead.`,
        apiCode: 'array_above_max_length',
      };
    case 'minimum':
      return {
        message: `Invalid '${param}': ${number} below minimum value. Expected a value >= ${error.params.limit}, but got ${value} instead.`,
        apiCode: `${number}_below_min_value`,
      };
    case 'maximum':
      return {
        message: `Invalid '${param}': ${number} above maximum value. Expected a value <= ${error.params.limit}, but got ${value} instead.`,
        apiCode: `${number}_above_max_value`,
      };
    case 'const': {
      const allowed = errors.flatMap((each) => (each.keyword === 'const' ? [`'${each.params.allowedValue}'`] : []));
      const given = typeof value === 'string' ? value.slice(0, MAX_SHOWN_LENGTH) : typeName(typeOf(value));
      return {
        message: `Invalid value: '${given}'. Supported values are: ${list(allowed, 'and')}.`,
        apiCode: 'invalid_value',
      };
    }
    default: {
      const types = errors.flatMap((each) => (each.keyword === 'type' ? [each.params.type].flat() : []));
      const known = types.filter((type) => type !== 'null').map(typeName);
      if (known.length === 0)
        return { message: `Invalid '${param}': it does not fit the schema.`, apiCode: 'invalid_value' };
      const expected = new Set(known).size === 1 ? known[0] : `one of ${list(known, 'or')}`;
      const got = typeName(typeOf(value));
      return {
        message: `Invalid type for '${param}': expected ${expected}, but got ${got} instead.`,
        apiCode: 'invalid_type',
      };
    }
  }
}

function list(words: readonly string[], last: 'and' | 'or'): string {
  const distinct = [...new Set(words)];
  return distinct.length < 2 ? distinct.join('') : `${distinct.slice(0, -1).join(', ')} ${last} ${distinct.at(-1)}`;
}

const TYPE_NAMES: Readonly<Record<string, string>> = {
  array: 'an array',
  boolean: 'a boolean',
  integer: 'an integer',
  number: 'a decimal',
  object: 'an object',
  string: 'a string',
};

function typeName(type: string): string {
  return TYPE_NAMES[type] ?? type;
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return Number.isInteger(value) ? 'integer' : typeof value;
}

function valueAt(value: unknown, pointer: string): unknown {
  let at = value;
  for (const name of pointer.split('/').slice(1)) {
    at = (at as Record<string, unknown> | undefined)?.[name.replaceAll('~1', '/').replaceAll('~0', '~')];
  }
  return at;
}

/** Every error of the service, in the shape that clients of OpenAI's API read. */
export const ApiError = Type.Object({
  error: Type.Object({
    message: Type.String(),
    type: Type.String(),
    param: Type.Union([Type.String(), Type.Null()]),
    code: Type.Union([Type.String(), Type.Null()]),
  }),
});

export type ApiErrorBody = Static<typeof ApiError>;
