import type { Static, TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/schema';
import { AppError } from '../errors/app-error.ts';
import { findIssues, firstIssue } from '../json/describe-issues.ts';
import type { Dispatch, MethodCall } from './method-call.ts';
import type { RawJson } from './raw-json.ts';

/** One row of a service's method table: all that a caller, a document or a test needs to know about the method. */
export interface MethodRow<Caller = unknown, Params extends TSchema = TSchema, Result extends TSchema = TSchema> {
  readonly name: string;
  readonly summary: string;
  /** An object schema: our methods take their parameters by name, and `{}` when none were sent. */
  readonly params: Params;
  /** An object schema, for the documents; results are not checked. */
  readonly result: Result;
  handle(params: Static<Params>, call: MethodCall<Caller>): HandlerResult<Result> | Promise<HandlerResult<Result>>;
}

type HandlerResult<Result extends TSchema> = Static<Result> | RawJson;

/** Lets a row's handler take its types from the row's schemas. */
export function defineMethod<Caller, Params extends TSchema, Result extends TSchema>(
  row: MethodRow<Caller, Params, Result>,
): MethodRow<Caller> {
  return row;
}

export interface DispatchOptions<Caller> {
  readonly rows: readonly MethodRow<Caller>[];
  /** `{ from: 'acme.', to: 'app.' }`: `acme.jobs.get` is `app.jobs.get`, unless a row has that very name. */
  readonly aliasPrefixes?: readonly { readonly from: string; readonly to: string }[];
}

const MAX_ECHOED_NAME = 100;

/** Serves the methods of a table and no others: finds the row, checks the parameters, calls the handler. */
export function createDispatch<Caller>({ rows, aliasPrefixes = [] }: DispatchOptions<Caller>): Dispatch<Caller> {
  const methods = new Map<string, Dispatch<Caller>>();
  for (const row of rows) {
    if (methods.has(row.name)) throw new Error(`two methods are named ${row.name}`);
    methods.set(row.name, createHandler(row));
  }
  for (const [name, handler] of [...methods]) {
    for (const { from, to } of aliasPrefixes) {
      const alias = name.startsWith(to) ? from + name.slice(to.length) : name;
      if (!methods.has(alias)) methods.set(alias, handler);
    }
  }
  return (call) => {
    const handler = methods.get(call.method);
    if (handler === undefined) {
      throw new AppError('METHOD_NOT_FOUND', { method: call.method.slice(0, MAX_ECHOED_NAME) });
    }
    return handler(call);
  };
}

function createHandler<Caller>(row: MethodRow<Caller>): Dispatch<Caller> {
  // Compiled by the first call: the start does not wait for all methods of all services.
  let validator: Validator | undefined;
  return (call) => {
    validator ??= Compile(row.params);
    const { params = {} } = call;
    if (!validator.Check(params)) throw invalidParams(validator, params);
    return row.handle(params, call);
  };
}

function invalidParams(validator: Validator, params: unknown): AppError {
  const issues = findIssues(validator, params);
  return new AppError('INVALID_PARAMS', { reason: firstIssue(issues), issues });
}
