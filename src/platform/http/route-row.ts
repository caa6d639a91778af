import type { HttpMetrics } from './http-metrics.ts';
import { compilePath } from './path-pattern.ts';
import type { MatchedRow } from './request-state.ts';
import { createSchemaCheck, createTextConversion } from './schema-check.ts';
import type { Call, Guard, HttpSurface, Route } from './surface.ts';

/** A row of a route table, made ready to serve. */
export interface RouteRow extends MatchedRow {
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
export interface RequestParts {
  body: unknown;
  query: Readonly<Record<string, unknown>>;
  params: Readonly<Record<string, string>>;
}

export interface RouteRowOptions {
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
