import type { OutgoingHttpHeaders } from 'node:http';
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify';
import { AppError, errorCode } from '../errors/app-error.ts';
import { crossOriginHeaders } from './cross-origin.ts';
import type { HttpMetrics } from './http-metrics.ts';
import { plainHeaders, type RefuseRequest, secureHeaders } from './refusal.ts';
import { createSchemaCheck, createTextConversion, parseBody, readBody, refusalOfBody } from './request-body.ts';
import { type MatchedRow, type RequestState, stateOf } from './request-state.ts';
import type { Call, Guard, HttpSurface, Route } from './surface.ts';

interface RouterOptions {
  readonly rows: readonly RouteRow[];
  readonly refuse: RefuseRequest;
  isDraining(): boolean;
}

type Done = (error?: Error) => void;

const MAX_PARAMETER_LENGTH = 4096;

/**
 * Routes requests to rows: guard, then type and size of the body, then its content, then the handler. Fastify finds the
 * row and writes replies; its validators, its logger and its body parsers (and with them ajv) are left out: they would
 * read a body before the guard has spoken, and cost more than the rest.
 */
export function createRouter({ rows, refuse, isDraining }: RouterOptions): FastifyInstance {
  const router = fastify({
    logger: false,
    genReqId: (request) => stateOf(request).requestId,
    routerOptions: { maxParamLength: MAX_PARAMETER_LENGTH },
    schemaController: { compilersFactory: { buildValidator: notUsed, buildSerializer: notUsed } },
    frameworkErrors: (error, request) => {
      const tooLong = error.code === 'FST_ERR_MAX_PARAM_LENGTH';
      const refusal = tooLong ? new AppError('NOT_FOUND') : invalidRequest('its path is not valid');
      refuse(stateOf(request.raw), refusal);
    },
  });
  router.removeAllContentTypeParsers();
  router.addContentTypeParser(['application/json', '*'], (_request, _payload, done) => done(null));
  router.setErrorHandler((error, request, reply) => {
    const state = stateOf(request.raw);
    fail(refuse, state, reply, request.is404 ? notServed(rows, state) : translate(error));
  });
  // The parsers above read nothing, so this too is answered before the body.
  router.setNotFoundHandler((request, reply) => {
    const state = stateOf(request.raw);
    fail(refuse, state, reply, notServed(rows, state));
  });
  for (const row of rows) addRow(router, row, refuse, isDraining);
  return router;
}

function addRow(router: FastifyInstance, row: RouteRow, refuse: RefuseRequest, isDraining: () => boolean): void {
  router.route({
    method: row.method,
    url: row.path,
    onRequest(request, reply, done) {
      const state = stateOf(request.raw);
      state.row = row;
      reply.headers(state.secure ? secureHeaders : plainHeaders);
      reply.header('x-request-id', state.requestId);
      if (row.surface.crossOrigin !== undefined) reply.headers(crossOriginHeaders(row.surface, state));
      if (isDraining()) reply.header('connection', 'close');
      admit(row, state, done);
    },
    handler(request, reply) {
      const state = stateOf(request.raw);
      if (row.body === undefined) {
        answer(row, state, request, reply, undefined, refuse);
        return;
      }
      if (state.awaitsContinue) {
        state.awaitsContinue = false;
        reply.raw.writeContinue();
      }
      readBody(request.raw, row.bodyLimit, (error, bytes) => {
        if (error === undefined) answer(row, state, request, reply, bytes, refuse);
        else fail(refuse, state, reply, error);
      });
    },
  });
}

/** Asks the guard. Whatever it throws, even nothing at all, is a refusal. */
function admit(row: RouteRow, state: RequestState, done: Done): void {
  let caller: unknown;
  try {
    caller = row.guard(state);
  } catch (error) {
    done(asError(error));
    return;
  }
  if (isThenable(caller)) {
    caller.then(
      (value) => enter(row, state, value, done),
      (error) => done(asError(error)),
    );
  } else {
    enter(row, state, caller, done);
  }
}

function enter(row: RouteRow, state: RequestState, caller: unknown, done: Done): void {
  state.caller = caller;
  done(row.body === undefined ? undefined : refusalOfBody(state.request, row.bodyLimit));
}

function answer(
  row: RouteRow,
  state: RequestState,
  request: FastifyRequest,
  reply: FastifyReply,
  bytes: Buffer | undefined,
  refuse: RefuseRequest,
): void {
  try {
    const parts: RequestParts = {
      body: row.body === 'json' && bytes !== undefined ? parseBody(bytes) : bytes,
      query: request.query as RequestParts['query'],
      params: request.params as RequestParts['params'],
    };
    row.check(parts);
    const { body, query, params } = parts;
    const call: Call = { head: state, caller: state.caller, body, query, params, reply };
    const result = row.handle(call);
    if (isThenable(result)) {
      result.then(
        (value) => send(refuse, state, reply, value),
        (error) => fail(refuse, state, reply, error),
      );
    } else {
      send(refuse, state, reply, result);
    }
  } catch (error) {
    fail(refuse, state, reply, error);
  }
}

/** Sends what a handler returned, unless it has taken the answer into its own hands. Nothing at all is a 204. */
function send(refuse: RefuseRequest, state: RequestState, reply: FastifyReply, value: unknown): void {
  if (reply.sent || reply.raw.headersSent || value === reply) return;
  try {
    if (value === undefined && reply.statusCode === 200) reply.code(204);
    reply.send(value);
  } catch (error) {
    fail(refuse, state, reply, error);
  }
}

function fail(refuse: RefuseRequest, state: RequestState, reply: FastifyReply, error: unknown): void {
  const earlier = reply.getHeaders() as OutgoingHttpHeaders;
  reply.hijack();
  refuse(state, error, earlier);
}

/** 405 with what the address does take, or 404. */
function notServed(rows: readonly RouteRow[], state: RequestState): AppError {
  const methods = new Set(rows.filter((row) => !row.unlisted && row.matches(state.path)).map(({ method }) => method));
  if (methods.size === 0) return new AppError('NOT_FOUND');
  if (methods.has('GET')) methods.add('HEAD');
  return new AppError('METHOD_NOT_ALLOWED', { allow: [...methods].sort().join(', ') });
}

/** What Fastify finds wrong with a request before any of our code runs. */
function translate(error: unknown): unknown {
  return errorCode(error) === 'FST_ERR_CTP_INVALID_MEDIA_TYPE' ? new AppError('UNSUPPORTED_MEDIA_TYPE') : error;
}

function invalidRequest(reason: string): AppError {
  return new AppError('INVALID_REQUEST', { reason });
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error('something that is no error was thrown', { cause: error });
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
}

function notUsed(): never {
  throw new Error('Fastify validates and serialises nothing here');
}

/** A row of a route table, made ready to serve. */
interface RouteRow extends MatchedRow {
  readonly method: string;
  readonly guard: Guard;
  matches(path: string): boolean;
  readonly body: Route['body'];
  readonly bodyLimit: number;
  readonly unlisted: boolean;
  /** Throws INVALID_REQUEST; converts the text of query and path. */
  check(parts: RequestParts): void;
  handle(call: Call): unknown;
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
  const { method, path, guard, body, bodyLimit = defaultBodyLimit, unlisted = false } = route;
  return {
    surface,
    method,
    path,
    guard,
    matches: compilePath(path),
    body,
    bodyLimit,
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

/**
 * Compiles the part of Fastify's path syntax that route tables use: fixed segments, `:name` for one segment and a final
 * `*` for the rest. Paths are compared as sent: nothing is decoded, no slash is merged, no dot segment resolved.
 */
export function compilePath(pattern: string): (path: string) => boolean {
  if (!pattern.startsWith('/') || /[()?]|::|\*.|[^/]:|[^/]\*/.test(pattern)) {
    throw new Error(`The path "${pattern}" uses more than fixed segments, :name and a final *`);
  }
  const parts = pattern.split('/');
  const open = parts.at(-1) === '*';
  const fixed = open ? parts.slice(0, -1) : parts;
  if (!open && !pattern.includes(':')) return (path) => path === pattern;
  return (path) => {
    const segments = path.split('/');
    if (open ? segments.length <= fixed.length : segments.length !== fixed.length) return false;
    return fixed.every((part, index) => (part.startsWith(':') ? segments[index] !== '' : segments[index] === part));
  };
}
