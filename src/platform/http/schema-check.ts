import type { TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/schema';
import { AppError } from '../errors/app-error.ts';
import { findIssues, firstIssue } from '../json/describe-issues.ts';

export type SchemaCheck = (value: unknown) => void;

/** Throws INVALID_REQUEST, naming the first field that is wrong, for a value that does not fit. */
export function createSchemaCheck(schema: TSchema, part: 'body' | 'query' | 'path'): SchemaCheck {
  // Compiled by the first request: the start does not wait for all routes of all services.
  let validator: Validator | undefined;
  return (value) => {
    validator ??= Compile(schema);
    if (validator.Check(value)) return;
    const issues = findIssues(validator, value);
    const [first] = issues;
    const reason = first !== undefined && first.path === '' ? `the ${part} ${first.message}` : firstIssue(issues);
    throw new AppError('INVALID_REQUEST', { reason, issues });
  };
}

/**
 * The text of a query string, or of a path, as the values that its schema asks for: `limit=10` is the number 10. Text
 * that does not fit stays text, and the check refuses it.
 */
export function createTextConversion(schema: TSchema): (values: object) => Record<string, unknown> {
  const types = Object.entries(propertiesOf(schema)).flatMap(([name, { type }]) =>
    type === 'integer' || type === 'number' || type === 'boolean' ? [{ name, type }] : [],
  );
  return (values) => {
    const converted: Record<string, unknown> = { ...values };
    for (const { name, type } of types) {
      const text = converted[name];
      if (typeof text === 'string') converted[name] = type === 'boolean' ? toBoolean(text) : toNumber(text);
    }
    return converted;
  };
}

function propertiesOf(schema: TSchema): Readonly<Record<string, { readonly type?: unknown }>> {
  return 'properties' in schema && typeof schema.properties === 'object' && schema.properties !== null
    ? (schema.properties as Record<string, { readonly type?: unknown }>)
    : {};
}

function toNumber(text: string): number | string {
  return /^-?(?:0|[1-9]\d{0,15})(?:\.\d{1,15})?$/.test(text) ? Number(text) : text;
}

function toBoolean(text: string): boolean | string {
  return text === 'true' ? true : text === 'false' ? false : text;
}
