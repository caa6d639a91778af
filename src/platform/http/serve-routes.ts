import type { IncomingMessage, ServerResponse } from 'node:http';
import findMyWay, { type HTTPMethod } from 'find-my-way';
import type { Clock } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';
import { crossOriginHeaders } from './cross-origin.ts';
import type { HttpMetrics } from './http-metrics.ts';
import { plainHeaders, type RefuseRequest, secureHeaders } from './refusal.ts';
import { createSchemaCheck, createTextConversion, parseBody, readBody, refusalOfBody } from './request-body.ts';
import { type MatchedRow, type RequestState, stateOf } from './request-state.ts';
import { type Guard, type HttpSurface, Reply, type Route } from './surface.ts';

interface RouterOptions {
  readonly rows: readonly RouteRow[];
  readonly refuse: RefuseRequest;
  isDraining(): boolean;
  readonly clock: Pick<Clock, 'monotonic'>;
}

/** A request that has found its row. */
interface Matched {
  readonly row: RouteRow;
  readonly state: RequestState;
  readonly reply: Reply;
  readonly parts: RequestParts;
}

const MAX_PARAMETER_LENGTH = 4096;
/** A body that arrives later than this after its head may outlast the credential of its caller: the guard is asked again. */
const GUARD_HOLDS_MS = 50;

/** Routes requests to rows: guard, then type and size of the body, then its content, then the handler. */
export function createRouter({ rows, refuse, isDraining, clock }: RouterOptions) {
  const methods = [...new Set(rows.map(({ method }) => method))];
  const router = findMyWay({
    maxParamLength: MAX_PARAMETER_LENGTH,
    defaultRoute: (request) => refuseUnserved(stateOf(request)),
    onBadUrl: (_path, request) => refuseTarget(stateOf(request)),
  });
  for (const row of rows) {
    router.on(
      row.method === 'GET' ? ['GET', 'HEAD'] : row.method,
      row.path,
      (request, response, params, _row, query) => {
        const parts = { body: undefined, query, params: params as RequestParts['params'] };
        const state = stateOf(request);
        const reply = new Reply(response, state.secure ? secureHeaders : plainHeaders);
        begin({ row, state, reply, parts });
      },
      row,
    );
  }

  /** 405 with the methods that the path has, or 404. */
  function refuseUnserved(state: RequestState): void {
    const found = methods.map((method) => ({ method, row: router.find(method, state.path)?.store }));
    // What the router returns for a path that is not encoded properly has no row.
    if (found.some(({ row }) => row === null)) {
      refuseTarget(state);
      return;
    }
    const allowed = found.filter(({ row }) => row?.unlisted === false).map(({ method }) => method);
    const allow = (allowed.includes('GET') ? [...allowed, 'HEAD'] : allowed).toSorted().join(', ');
    refuse(state, allow === '' ? new AppError('NOT_FOUND') : new AppError('METHOD_NOT_ALLOWED', { allow }));
  }

  function refuseTarget(state: RequestState): void {
    refuse(state, new AppError('INVALID_REQUEST', { reason: 'its path is not valid' }));
  }

  function begin(matched: Matched): void {
    const { row, state, reply } = matched;
    state.row = row;
    reply.header('x-request-id', state.requestId);
    if (row.surface.crossOrigin !== undefined) reply.headers(crossOriginHeaders(row.surface, state));
    if (isDraining()) reply.header('connection', 'close');
    ask(matched, enter);
  }

  /** Asks the guard who is calling, and goes on with the next step when it lets them in. */
  function ask(matched: Matched, next: (matched: Matched, bytes?: Buffer) => void, bytes?: Buffer): void {
    const { row, state } = matched;
    const letIn = (caller: unknown) => {
      state.caller = caller;
      next(matched, bytes);
    };
    try {
      const caller = row.guard(state);
      if (isThenable(caller)) caller.then(letIn, failureOf(matched));
      else letIn(caller);
    } catch (error) {
      fail(matched, error);
    }
  }

  /** Reads the body, if the row has one: nothing of it was read before the guard let the caller in. */
  function enter(matched: Matched): void {
    const { row, state, reply } = matched;
    if (row.body === undefined) {
      answer(matched);
      return;
    }
    const refusal = refusalOfBody(state.request, row.bodyLimit, row.anyType);
    if (refusal !== undefined) {
      fail(matched, refusal);
      return;
    }
    if (state.awaitsContinue) {
      state.awaitsContinue = false;
      reply.raw.writeContinue();
    }
    readBody(state.request, row.bodyLimit, (error, bytes) => {
      if (error !== undefined) fail(matched, error);
      else if (clock.monotonic() - state.startedAt < GUARD_HOLDS_MS) answer(matched, bytes);
      else ask(matched, answer, bytes);
    });
  }

  function answer(matched: Matched, bytes?: Buffer): void {
    const { row, state, reply, parts } = matched;
    try {
      parts.body = row.body === 'json' && bytes !== undefined ? parseBody(bytes) : bytes;
      row.check(parts);
      const { body, query, params } = parts;
      const result = row.handle({ head: state, caller: state.caller, body, query, params, reply });
      if (isThenable(result)) result.then((value) => send(matched, value), failureOf(matched));
      else send(matched, result);
    } catch (error) {
      fail(matched, error);
    }
  }

  /** Sends what a handler returned, unless the handler has sent the response itself. No value is a 204. */
  function send(matched: Matched, value: unknown): void {
    const { reply } = matched;
    if (reply.sent || reply.raw.headersSent || value === reply) return;
    try {
      if (value === undefined && reply.statusCode === 200) reply.code(204);
      reply.send(value);
    } catch (error) {
      fail(matched, error);
    }
  }

  function fail({ state, reply }: Matched, error: unknown): void {
    refuse(state, error, reply.takeOver());
  }

  function failureOf(matched: Matched): (error: unknown) => void {
    return (error) => fail(matched, error);
  }

  return {
    serve(request: IncomingMessage, response: ServerResponse): void {
      // The router would cut the host off an absolute address, and serve another path than the guards see.
      if (request.url?.startsWith('/') === true) router.lookup(request, response);
      else refuseTarget(stateOf(request));
    },
  };
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
}

/** A row of a route table, made ready to serve. */
interface RouteRow extends MatchedRow {
  readonly method: Extract<HTTPMethod, Route['method']>;
  readonly guard: Guard;
  readonly body: Route['body'];
  readonly bodyLimit: number;
  readonly anyType: boolean;
  readonly unlisted: boolean;
  /** Throws INVALID_REQUEST; converts the text of query and path. */
  check(parts: RequestParts): void;
  handle: Route['handle'];
}

/** The parts of a request that a schema may speak of. */
interface RequestParts {
  body: unknown;
  query: Readonly<Record<string, unknown>>;
  params: Readonly<Record<string, string>>;
}

interface RouteRowOptions {
  readonly surface: HttpSurface;
  readonly route: Route;
  readonly metrics: HttpMetrics;
  readonly defaultBodyLimit: number;
}

export function createRouteRow({ surface, route, metrics, defaultBodyLimit }: RouteRowOptions): RouteRow {
  const { method, path, guard, body, bodyLimit = defaultBodyLimit, anyType = false, unlisted = false } = route;
  if (!path.startsWith('/') || /[()?]|::|\*.|[^/]:|[^/]\*/.test(path)) {
    throw new Error(`The path "${path}" uses more than fixed segments, :name and a final *`);
  }
  return {
    surface,
    method,
    path,
    guard,
    body,
    bodyLimit,
    anyType,
    unlisted,
    meter: metrics.meter({ service: surface.name, route: path, method }),
    check: createPartsCheck(route),
    handle: (call) => route.handle(call),
  };
}

function createPartsCheck({ schema = {}, body: bodyMode }: Route): (parts: RequestParts) => void {
  const steps: ((parts: RequestParts) => void)[] = [];
  const { params, query, body } = schema;
  if (params !== undefined) {
    const check = createSchemaCheck(params, 'path');
    const convert = createTextConversion(params);
    steps.push((parts) => check(convert(parts.params)));
  }
  if (query !== undefined) {
    const check = createSchemaCheck(query, 'query');
    const convert = createTextConversion(query);
    steps.push((parts) => {
      const converted = convert(parts.query);
      check(converted);
      parts.query = converted;
    });
  }
  // Bytes are parsed by the handler; the schema of such a row is there for the documents.
  if (body !== undefined && bodyMode === 'json') {
    const check = createSchemaCheck(body, 'body');
    steps.push((parts) => check(parts.body));
  }
  if (steps.length === 0) return nothing;
  return (parts) => {
    for (const step of steps) step(parts);
  };
}

function nothing(): void {}
