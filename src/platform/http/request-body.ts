import type { IncomingMessage } from 'node:http';
import type { Static, TSchema } from 'typebox';
import { Compile, type Validator } from 'typebox/schema';
import { AppError } from '../errors/app-error.ts';
import { findIssues, firstIssue } from '../json/describe-issues.ts';
import { parseRequest, type ValueLimits } from '../json/parse-json.ts';

const EMPTY = Buffer.alloc(0);
/** A body above this size is stored without a copy, and its handler lets others go first after parsing it. */
export const MIN_LARGE_BODY = 1024 * 1024;
const UTF8 = /^"?utf-?8"?$/i;

/** Returns why a body must not be read, by the head alone: first its type, then its size (the order of the contract). */
export function refusalOfBody(
  { headers }: IncomingMessage,
  limit: number,
  takesAnyType: boolean,
): AppError | undefined {
  const type = headers['content-type'];
  const encoding = headers['content-encoding'];
  const isRefused = type === undefined ? hasBody(headers) : !isJsonType(type);
  if (isRefused && !takesAnyType) return new AppError('UNSUPPORTED_MEDIA_TYPE');
  // A compressed body could grow without bound while its length looks harmless.
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') return new AppError('UNSUPPORTED_MEDIA_TYPE');
  if (Number(headers['content-length'] ?? 0) > limit) return new AppError('BODY_TOO_LARGE', { limit });
  return undefined;
}

type BodyRead = (error: AppError | undefined, body: Buffer) => void;

/** Collects the body, and stops listening at the first byte over the limit. */
export function readBody(request: IncomingMessage, limit: number, done: BodyRead): void {
  if (!hasBody(request.headers)) {
    done(undefined, EMPTY);
    return;
  }
  if (request.complete) {
    readArrived(request, limit, done);
    return;
  }
  if (request.destroyed) {
    done(new AppError('CONNECTION_CLOSED'), EMPTY);
    return;
  }
  // The bytes of a large body are put where they belong as they come: it is never there twice.
  const announced = Number(request.headers['content-length'] ?? 0);
  const whole = announced > MIN_LARGE_BODY && announced <= limit ? Buffer.allocUnsafeSlow(announced) : undefined;
  let chunks: Buffer[] = [];
  let length = 0;
  let over = false;

  function onData(chunk: Buffer): void {
    if (over) return;
    length += chunk.length;
    if (length > limit) finish(new AppError('BODY_TOO_LARGE', { limit }));
    else if (whole === undefined) chunks.push(chunk);
    else chunk.copy(whole, length - chunk.length);
  }
  function onEnd(): void {
    if (!over) finish(undefined);
  }
  function onLost(): void {
    if (!over) finish(new AppError('CONNECTION_CLOSED'));
  }
  // The listeners stay without effect, because an aborted request fails again, and removing them costs time.
  function finish(error: AppError | undefined): void {
    over = true;
    // Always a copy: the bytes of a single chunk are a view into the socket's shared buffer.
    const body = error !== undefined ? EMPTY : (whole ?? Buffer.concat(chunks, length));
    chunks = [];
    done(error, body);
  }

  request.on('data', onData).on('end', onEnd).on('error', onLost).on('close', onLost);
}

/** All of it is there: usually a body comes with its head. */
function readArrived(request: IncomingMessage, limit: number, done: BodyRead): void {
  const { readableLength } = request;
  if (readableLength > limit) done(new AppError('BODY_TOO_LARGE', { limit }), EMPTY);
  // A copy: the bytes are a view into the socket's shared buffer.
  else done(undefined, Buffer.from((request.read() as Buffer | null) ?? EMPTY));
}

/** Parses a body. An empty one is `undefined`, which the schema accepts or refuses. */
export function parseBody(body: Buffer, limits?: Partial<ValueLimits>): unknown {
  return body.length === 0 ? undefined : parseRequest(body, limits);
}

export function hasBody(headers: IncomingMessage['headers']): boolean {
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';
}

/** Accepts only `application/json` in UTF-8, because pages of other sites can send forms and plain text without a preflight (CSRF). */
function isJsonType(type: string): boolean {
  if (type === 'application/json') return true;
  const [media = '', ...parameters] = type.split(';');
  if (media.trim().toLowerCase() !== 'application/json') return false;
  return parameters.every((parameter) => {
    const [name = '', value = ''] = parameter.split('=', 2);
    return name.trim().toLowerCase() !== 'charset' || UTF8.test(value.trim());
  });
}

/** Throws INVALID_REQUEST, naming the first field that is wrong, for a value that does not fit. */
export function createSchemaCheck<Schema extends TSchema>(
  schema: Schema,
  part: 'body' | 'query' | 'path',
): (value: unknown) => Static<Schema> {
  // Compiled by the first request: the start does not wait for all routes of all services.
  let validator: Validator | undefined;
  return (value) => {
    validator ??= Compile(schema);
    if (validator.Check(value)) return value as Static<Schema>;
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
