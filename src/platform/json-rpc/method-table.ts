import type { Static, TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/schema';
import { AppError } from '../errors/app-error.ts';
import {
  createUnknownMemberSearch,
  type FindUnknownMembers,
  findIssues,
  firstIssue,
  type Issue,
} from '../json/describe-issues.ts';
import { RawJson, type RequestId, rawJson, rawJsonOf } from './envelope.ts';

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

interface DispatchOptions<Caller> {
  readonly rows: readonly MethodRow<Caller>[];
  /** `{ from: 'acme.', to: 'app.' }`: `acme.jobs.get` is `app.jobs.get`, unless a row has that very name. */
  readonly aliasPrefixes?: readonly { readonly from: string; readonly to: string }[];
  /**
   * Whether a call with parameters that the method does not know is refused; otherwise its result names them. Without this
   * function they are ignored, as in protocols of others.
   */
  isStrict?(call: MethodCall<Caller>): boolean;
}

const MAX_ECHOED_NAME = 100;

/** Serves the methods of a table and no others: finds the row, checks the parameters, calls the handler. */
export function createDispatch<Caller>(options: DispatchOptions<Caller>): Dispatch<Caller> {
  const { rows, aliasPrefixes = [], isStrict } = options;
  const methods = new Map<string, Dispatch<Caller>>();
  for (const row of rows) {
    if (methods.has(row.name)) throw new Error(`two methods are named ${row.name}`);
    methods.set(row.name, createHandler(row, isStrict));
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

function createHandler<Caller>(
  row: MethodRow<Caller>,
  isStrict: DispatchOptions<Caller>['isStrict'],
): Dispatch<Caller> {
  // Compiled by the first call: the start does not wait for all methods of all services.
  let validator: Validator | undefined;
  let findUnknown: FindUnknownMembers | undefined;
  return (call) => {
    validator ??= Compile(row.params);
    const { params = {} } = call;
    if (!validator.Check(params)) throw invalidParams(findIssues(validator, params));
    if (isStrict === undefined) return row.handle(params, call);
    findUnknown ??= createUnknownMemberSearch(row.params);
    const unknown = findUnknown(params);
    if (unknown === undefined) return row.handle(params, call);
    if (isStrict(call)) throw invalidParams(unknown);
    const result = row.handle(params, call);
    return result instanceof Promise
      ? result.then((value) => withWarnings(value, unknown))
      : withWarnings(result, unknown);
  };
}

function invalidParams(issues: readonly Issue[]): AppError {
  return new AppError('INVALID_PARAMS', { reason: firstIssue(issues), issues });
}

/** Adds the ignored parameters to a result as warnings. */
function withWarnings(result: unknown, issues: readonly Issue[]): unknown {
  const warnings = issues.map((issue) => {
    const text = firstIssue([issue]);
    return { path: issue.path, message: `${text}${text.endsWith('?') ? '' : '.'} It was ignored.` };
  });
  if (!(result instanceof RawJson)) return { ...Object(result), warnings };
  const { text, parts } = result;
  const added = (whole: string, isAlone: boolean) =>
    `${whole.slice(0, -1)}${isAlone ? '' : ','}"warnings":${JSON.stringify(warnings)}}`;
  if (parts === undefined) return rawJson(added(text, text === '{}'));
  return rawJsonOf([...parts.slice(0, -1), added(parts.at(-1) ?? '', false)]);
}

/** One call as its handler sees it. */
export interface MethodCall<Caller = unknown> {
  readonly method: string;
  /** An object, an array or undefined, not yet checked. */
  readonly params: unknown;
  /** Undefined for a notification. */
  readonly id: RequestId | undefined;
  readonly caller: Caller;
  /** Aborts when the caller cancels or goes away; its reason is an `AppError`. */
  readonly signal: AbortSignal;
  /** What a failure is logged under. */
  readonly requestId: string;
  /**
   * Sends a notification to the caller, before its answer; `eventId` is what a stream can be resumed after.
   * Where the answer is a single document there is no place for it and it is dropped.
   */
  notify(method: string, params: unknown, eventId?: string | number): void;
  /** Reports that the call was accepted and that its response may take long: a streamed response starts now. */
  accept(): void;
}

/** Serves a call: returns the result (or a promise of it), or throws. Where it can, it answers without a promise. */
export type Dispatch<Caller = unknown> = (call: MethodCall<Caller>) => unknown;

/** What all calls of one connection share. */
export interface CallOrigin<Caller> {
  readonly caller: Caller;
  readonly makeRequestId: () => string;
  /** Set when the connection is gone. */
  endReason: AppError | undefined;
  /** Notifications travel within the answer: a call that gets none has no place for them. */
  readonly withinAnswer: boolean;
  notify(method: string, params: unknown, eventId?: string | number): void;
  accept(): void;
}

/** A class for speed: most handlers read neither the signal nor the request id, so both are made on first use. */
export class IncomingCall<Caller> implements MethodCall<Caller> {
  readonly method: string;
  readonly params: unknown;
  readonly id: RequestId | undefined;
  readonly #origin: CallOrigin<Caller>;
  #abortReason: AppError | undefined;
  #controller: AbortController | undefined;
  #requestId: string | undefined;

  constructor(origin: CallOrigin<Caller>, id: RequestId | undefined, method: string, params: unknown) {
    this.#origin = origin;
    this.id = id;
    this.method = method;
    this.params = params;
  }

  get caller(): Caller {
    return this.#origin.caller;
  }

  get requestId(): string {
    this.#requestId ??= this.#origin.makeRequestId();
    return this.#requestId;
  }

  get abortReason(): AppError | undefined {
    return this.#abortReason ?? this.#origin.endReason;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.abortReason !== undefined) this.#controller.abort(this.abortReason);
    }
    return this.#controller.signal;
  }

  notify(method: string, params: unknown, eventId?: string | number): void {
    if (!this.#isUnheard) this.#origin.notify(method, params, eventId);
  }

  accept(): void {
    if (!this.#isUnheard) this.#origin.accept();
  }

  get #isUnheard(): boolean {
    return this.id === undefined && this.#origin.withinAnswer;
  }

  abort(reason: AppError): void {
    this.#abortReason ??= reason;
    this.#controller?.abort(reason);
  }
}
