import { AppError } from '../../platform/errors/app-error.ts';
import type { ChatRequest } from '../contract/chat.ts';
import { paramOf } from '../contract/read-request.ts';

/** A request of another dialect, in the form that the pipeline runs. */
export interface DecodedRequest {
  readonly chat: ChatRequest;
  /** What chat completions have no place for (contract/completions 2): named in `x-dropped-params`, or refused. */
  readonly dropped: readonly string[];
}

const MAX_NAME_LENGTH = 64;
const MAX_NAMES = 32;
const NOT_IN_A_NAME = /[^\w.-]/g;

/** Names for a header: the caller may have chosen them, so they are bounded and made harmless. */
export function droppedNames(names: Iterable<string>): readonly string[] {
  const clean = [...names].map((name) => name.slice(0, MAX_NAME_LENGTH).replaceAll(NOT_IN_A_NAME, '_'));
  return [...new Set(clean)].filter((name) => name !== '').slice(0, MAX_NAMES);
}

/** Fields of a request that mean something, are not in the list of those that were translated, and so are lost. */
export function unknownFields(request: object, known: ReadonlySet<string>): readonly string[] {
  return Object.entries(request)
    .filter(([name, value]) => !known.has(name) && isPresent(value))
    .map(([name]) => name);
}

/** The last chunk must bring the usage: it is part of every other dialect's stream. */
export function streamFields({ stream }: { readonly stream?: boolean | null }): Partial<ChatRequest> {
  return stream === true ? { stream: true, stream_options: { include_usage: true } } : {};
}

/** `path` is a JSON pointer: `/input/3/call_id`. */
export function invalidField(path: string, message: string): AppError {
  const param = paramOf(path);
  return new AppError('INVALID_PARAMETER', { message: `Invalid '${param}': it ${message}.`, param });
}

export function requiredText(value: unknown, path: string): string {
  if (typeof value !== 'string') throw invalidField(path, 'must be a string');
  return value;
}

export function isPresent<T>(value: T | null | undefined): value is T {
  return value !== undefined && value !== null;
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
