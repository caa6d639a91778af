import { secretsOfUrl } from '../../platform/config/setting-declaration.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { createKnownSecrets } from '../../platform/log/hidden-secrets.ts';
import type { UsableApi } from '../apis/model-api.ts';
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

const MAX_MESSAGE_LENGTH = 4000;
const RETRIED_STATUSES: ReadonlySet<number> = new Set([408, 409, 429]);
/** Statuses that concern the target and not the request: unknown model, no credit, gone. */
const TARGETS_FAULT: ReadonlySet<number> = new Set([402, 404, 405, 410]);
const NO_HELP: FailurePolicy = { retry: false, next: false, countsAgainstTarget: false, tooLong: false };

/** Returns what may be done after a failure, by its code and its status. */
export function policyOf(error: unknown): FailurePolicy {
  if (!(error instanceof AppError)) return NO_HELP;
  const status = typeof error.details.status === 'number' ? error.details.status : 0;
  switch (error.code) {
    case 'UPSTREAM_ERROR':
      return { retry: true, next: true, countsAgainstTarget: error.details.ofAnswer !== true, tooLong: false };
    case 'UPSTREAM_TIMEOUT':
      // The caller's own timeout says nothing about the target, and leaves no time for another one.
      if (error.details.limit === 'x-timeout-ms') return NO_HELP;
      // Another target is better than waiting as long again. An upstream's own 504 came in time.
      return { retry: status === 504, next: true, countsAgainstTarget: true, tooLong: false };
    case 'UPSTREAM_AUTHENTICATION':
      return { retry: false, next: true, countsAgainstTarget: true, tooLong: false };
    case 'UPSTREAM_REFUSED':
      if (error.details.apiCode === 'context_length_exceeded') return { ...NO_HELP, tooLong: true };
      // Another model may accept content that this one refuses.
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

/** Returns the error for an upstream that cannot be reached, or whose response is invalid. `reason` never contains text of the upstream. */
export function upstreamError(reason: string, cause?: unknown): AppError {
  return new AppError('UPSTREAM_ERROR', { reason }, cause === undefined ? undefined : { cause });
}

export function upstreamTimeout(limit: 'connect' | 'first_byte' | 'idle' | 'total' | 'x-timeout-ms'): AppError {
  return new AppError('UPSTREAM_TIMEOUT', { limit });
}

/** Removes what a model API was sent as a credential from a text that came back from it. */
export type HideSecrets = (text: string) => string;

type SecretsOfApi = Pick<UsableApi, 'credentials' | 'headers' | 'baseUrl'>;

/** Headers whose values are the same for everyone; hiding them would only make messages unreadable. */
const PUBLIC_HEADERS =
  /^(?:accept|accept-.{1,30}|content-type|user-agent|referer|http-referer|x-title|anthropic-version|anthropic-beta|openai-beta)$/;
const INSTEAD = '[hidden]';

const known = new WeakMap<SecretsOfApi, HideSecrets>();

/**
 * Returns the function that hides the secrets of an API: its key, the values of its headers, and what its address holds. Nearly
 * no call fails, so it is made at the first failure.
 */
export function hidingSecretsOf(api: SecretsOfApi): HideSecrets {
  return (text) => {
    const hide = known.get(api) ?? createKnownSecrets(secretsOf(api), INSTEAD).hide;
    known.set(api, hide);
    return hide(text);
  };
}

function secretsOf({ credentials, headers = {}, baseUrl }: SecretsOfApi): readonly string[] {
  const { key, aws } = credentials;
  const values = Object.entries(headers).flatMap(([name, value]) => (PUBLIC_HEADERS.test(name) ? [] : [value]));
  return [
    ...[key, aws?.secretAccessKey ?? '', aws?.sessionToken ?? '', ...values],
    // `Bearer ...`: an upstream may repeat the token without its scheme.
    ...values.map((value) => value.trim().split(/\s+/).at(-1) ?? ''),
    ...(URL.canParse(baseUrl) ? secretsOfUrl(baseUrl) : []),
  ];
}

/**
 * Returns the error that our caller gets for a failure of an upstream. A refused key is a fault of this installation, and its text
 * is hidden; a 5xx becomes a 502; any other 4xx passes with its status and message, without the secrets of the API.
 */
export function failureToError(failure: UpstreamFailure, hide: HideSecrets, refused?: Refusal): AppError {
  const { status, code } = failure;
  const { retryAfterMs } = refused ?? {};
  const param = failure.param === null ? null : hide(failure.param);
  // After the secrets are hidden: half of one would not be recognised.
  const message = hide(failure.message).slice(0, MAX_MESSAGE_LENGTH);
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

/** A failure that was the status of the response, and not inside a response with status 200. */
export interface Refusal {
  readonly retryAfterMs: number | undefined;
}

/** The status of an invalid output of the model, such as a malformed call. It says nothing about the target. */
const BAD_ANSWER = 502;

/** Returns the pause in milliseconds, from seconds, milliseconds (`retry-after-ms`) or a date; undefined if there is no valid one. */
export function readRetryAfter(headers: UpstreamHeaders, now: number): number | undefined {
  const exact = Number(headers['retry-after-ms']);
  if (exact > 0) return exact;
  const given = headers['retry-after'];
  if (typeof given !== 'string') return undefined;
  if (/^\d{1,8}(?:\.\d{1,6})?$/.test(given)) return Number(given) * 1000;
  const date = Date.parse(given);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

/** Returns the pause that Google sends in the body: `error.details[].retryDelay` of a `RetryInfo`, as `12s` or `0.5s`. */
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
