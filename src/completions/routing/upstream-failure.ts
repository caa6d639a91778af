import { AppError } from '../../platform/errors/app-error.ts';
import type { UpstreamFailure } from '../dialects/dialect.ts';
import { asList, asObject } from '../dialects/json-value.ts';

/** Headers of an upstream's answer, in lower case. */
export type UpstreamHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** What may be done after an attempt failed. */
export interface FailurePolicy {
  /** Try the same target again. */
  readonly retry: boolean;
  /** Try other targets, then fallbacks. False: the request itself is wrong, and would be anywhere. */
  readonly next: boolean;
  /** Counts towards taking the target out. */
  readonly countsAgainstTarget: boolean;
  /** Only a model that takes longer prompts can help. */
  readonly tooLong: boolean;
}

const RETRIED_STATUSES: ReadonlySet<number> = new Set([408, 409, 429]);
/** About the target rather than the request: unknown model, no credit, gone, unprocessable at this place only. */
const TARGETS_FAULT: ReadonlySet<number> = new Set([402, 404, 405, 410]);
const NO_HELP: FailurePolicy = { retry: false, next: false, countsAgainstTarget: false, tooLong: false };

/** What is known of a failure is in its code and its status; this is the table of what follows from them. */
export function policyOf(error: unknown): FailurePolicy {
  if (!(error instanceof AppError)) return NO_HELP;
  const status = typeof error.details.status === 'number' ? error.details.status : 0;
  switch (error.code) {
    case 'UPSTREAM_ERROR':
      return { retry: true, next: true, countsAgainstTarget: error.details.ofAnswer !== true, tooLong: false };
    case 'UPSTREAM_TIMEOUT':
      // The caller's own limit shows nothing about the target, and leaves no time for another one.
      if (error.details.limit === 'x-timeout-ms') return NO_HELP;
      // To wait as long again is no better than to ask another target; an upstream's own 504 came in time.
      return { retry: status === 504, next: true, countsAgainstTarget: true, tooLong: false };
    case 'UPSTREAM_AUTHENTICATION':
      return { retry: false, next: true, countsAgainstTarget: true, tooLong: false };
    case 'UPSTREAM_REFUSED':
      if (error.details.apiCode === 'context_length_exceeded') return { ...NO_HELP, tooLong: true };
      // Another model may take what this one's maker does not want to be asked.
      if (error.details.apiCode === 'content_filter') return { ...NO_HELP, next: true };
      if (RETRIED_STATUSES.has(status)) return { ...NO_HELP, retry: true, next: true };
      return { ...NO_HELP, next: TARGETS_FAULT.has(status) };
    case 'UNSUPPORTED_PARAMETER':
    case 'OPERATION_NOT_SUPPORTED':
    case 'NO_TARGET_AVAILABLE':
      return { ...NO_HELP, next: true };
    default:
      return NO_HELP;
  }
}

/** The upstream could not be reached, or what it said makes no sense. `reason` never holds what it said. */
export function upstreamError(reason: string, cause?: unknown): AppError {
  return new AppError('UPSTREAM_ERROR', { reason }, cause === undefined ? undefined : { cause });
}

export function upstreamTimeout(limit: 'connect' | 'first_byte' | 'idle' | 'total' | 'x-timeout-ms'): AppError {
  return new AppError('UPSTREAM_TIMEOUT', { limit });
}

/**
 * What an upstream said, as our caller gets it: a refused key is our own trouble and its
 * text is kept back, a 5xx is a 502, and any other 4xx passes with its status and message. `secret` is the API's key,
 * which some repeat.
 */
export function failureToError(failure: UpstreamFailure, secret: string, refused?: Refusal): AppError {
  const { status, code, param } = failure;
  const { retryAfterMs } = refused ?? {};
  const message = secret === '' ? failure.message : failure.message.replaceAll(secret, '[hidden]');
  if (status === 401 || status === 403) return new AppError('UPSTREAM_AUTHENTICATION', { status });
  if (status === 504) return new AppError('UPSTREAM_TIMEOUT', { limit: 'its own', status });
  if (status < 400 || status >= 500) {
    const ofAnswer = refused === undefined && status === BAD_ANSWER;
    return new AppError('UPSTREAM_ERROR', { reason: message, status, ...(ofAnswer && { ofAnswer }) });
  }
  return new AppError('UPSTREAM_REFUSED', {
    status,
    message,
    apiCode: code,
    param,
    ...(retryAfterMs === undefined ? {} : { retryAfterSeconds: Math.ceil(retryAfterMs / 1000) }),
  });
}

/** A failure that came as the status of the response, and not inside an answer that began with 200. */
export interface Refusal {
  readonly retryAfterMs: number | undefined;
}

/** What the model itself put out makes no sense, such as a malformed call: that shows nothing about the target. */
const BAD_ANSWER = 502;

/** Seconds, milliseconds (`retry-after-ms`) or a date; undefined when it says nothing usable. */
export function readRetryAfter(headers: UpstreamHeaders, now: number): number | undefined {
  const exact = Number(headers['retry-after-ms']);
  if (exact > 0) return exact;
  const given = headers['retry-after'];
  if (typeof given !== 'string') return undefined;
  if (/^\d{1,8}(?:\.\d{1,6})?$/.test(given)) return Number(given) * 1000;
  const date = Date.parse(given);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

/** Google says in the body how long to wait: `error.details[].retryDelay` of a `RetryInfo`, as `12s` or `0.5s`. */
export function readRetryInfo(body: unknown): number | undefined {
  const error = asObject(asObject(Array.isArray(body) ? body[0] : body)?.error);
  for (const value of asList(error?.details)) {
    const detail = asObject(value);
    if (!String(detail?.['@type']).endsWith('google.rpc.RetryInfo')) continue;
    const [, seconds] = /^(\d{1,8}(?:\.\d{1,9})?)s$/.exec(String(detail?.retryDelay)) ?? [];
    if (seconds !== undefined) return Number(seconds) * 1000;
  }
  return undefined;
}
