import { hideCredentials } from '../../platform/log/hidden-secrets.ts';
import type { UpstreamFailure } from './dialect.ts';
import { asNumber, asObject, asWords, type JsonObject } from './json-value.ts';

/** More than a caller gets: the end is cut off when the secrets in it are hidden. */
const MAX_MESSAGE_LENGTH = 8000;

/** Our codes for failures of which only the status is known. */
const CODE_OF_STATUS: ReadonlyMap<number, string> = new Map([
  [401, 'upstream_authentication'],
  [402, 'insufficient_quota'],
  [403, 'upstream_authentication'],
  [404, 'model_not_found'],
  [408, 'upstream_timeout'],
  [413, 'request_too_large'],
  [429, 'rate_limit_exceeded'],
  [503, 'upstream_overloaded'],
  [504, 'upstream_timeout'],
  [529, 'upstream_overloaded'],
]);

/** The statuses for words of upstreams, for a failure inside a response with status 200. */
const STATUS_OF_WORD: ReadonlyMap<string, number> = new Map([
  ['invalid_request_error', 400],
  ['invalid_argument', 400],
  ['failed_precondition', 400],
  ['bad_request', 400],
  ['validationexception', 400],
  ['context_length_exceeded', 400],
  ['content_filter', 400],
  ['content_policy_violation', 400],
  ['authentication_error', 401],
  ['unauthenticated', 401],
  ['invalid_api_key', 401],
  ['unrecognizedclientexception', 401],
  ['billing_error', 402],
  ['insufficient_quota', 402],
  ['permission_error', 403],
  ['permission_denied', 403],
  ['accessdeniedexception', 403],
  ['not_found_error', 404],
  ['not_found', 404],
  ['model_not_found', 404],
  ['resourcenotfoundexception', 404],
  ['timeout_error', 504],
  ['deadline_exceeded', 504],
  ['modeltimeoutexception', 504],
  ['request_too_large', 413],
  ['rate_limit_error', 429],
  ['rate_limit_exceeded', 429],
  ['resource_exhausted', 429],
  ['throttlingexception', 429],
  ['servicequotaexceededexception', 429],
  ['overloaded_error', 529],
  ['unavailable', 503],
  ['serviceunavailableexception', 503],
  ['modelnotreadyexception', 503],
  ['api_error', 500],
  ['internal', 500],
  ['server_error', 500],
  ['internalserverexception', 500],
  ['modelstreamerrorexception', 502],
  ['modelerrorexception', 502],
]);

/** Phrases of upstreams for a prompt that is too long, because few of them have a code for it. */
const TOO_LONG = [
  'context length',
  'context_length',
  'context window',
  'maximum context',
  'prompt is too long',
  'input is too long',
  'too many tokens',
  'too many total text bytes',
  'input token count',
  'maximum number of tokens',
  'token limit',
  'reduce the length',
];

export interface FailureFacts {
  readonly message?: string | undefined;
  readonly status?: number | undefined;
  /** The upstream's own name of what went wrong: `overloaded_error`, `RESOURCE_EXHAUSTED`, `throttlingException`. */
  readonly word?: string | undefined;
  readonly param?: string | undefined;
}

/** Returns a failure in one form, from the facts that an upstream sent. */
export function upstreamFailure({ message, status, word, param }: FailureFacts): UpstreamFailure {
  const known = word === undefined ? undefined : STATUS_OF_WORD.get(word.toLowerCase());
  const real = status !== undefined && status >= 400 && status <= 599 ? status : (known ?? 502);
  const text = hideCredentials((message ?? `The model API answered with status ${real}.`).slice(0, MAX_MESSAGE_LENGTH));
  return { message: text, code: codeOf(real, word?.toLowerCase(), text), param: param ?? null, status: real };
}

function codeOf(status: number, word: string | undefined, message: string): string {
  if (word === 'insufficient_quota' || word === 'billing_error') return 'insufficient_quota';
  if (word === 'content_filter' || word === 'content_policy_violation') return 'content_filter';
  if (status === 400 || status === 413 || status === 422) {
    const lower = message.toLowerCase();
    if (word === 'context_length_exceeded' || TOO_LONG.some((words) => lower.includes(words))) {
      return 'context_length_exceeded';
    }
  }
  return CODE_OF_STATUS.get(status) ?? (status >= 500 ? 'upstream_error' : 'invalid_request_error');
}

/** Returns the failure for an invalid response of an upstream. */
export function brokenAnswer(
  message = 'The model API answered with something else than a JSON object.',
): UpstreamFailure {
  return upstreamFailure({ message, status: 502 });
}

/**
 * Returns the failure in a body. Reads the usual forms: `{error: {message, type, code, param}}`, `{error: "text"}`, `{message}`,
 * `{detail}`, a list with one of these, or plain text.
 */
export function failureInBody(status: number, body: unknown): UpstreamFailure {
  if (typeof body === 'string') return upstreamFailure({ status, message: asWords(body.trim()) });
  const first = asObject(Array.isArray(body) ? body[0] : body);
  if (first === undefined) return upstreamFailure({ status });
  return upstreamFailure({ ...errorFacts(first), status });
}

/** Returns the failure in an object that contains one, with the status for its words. */
export function failureInObject(body: JsonObject): UpstreamFailure {
  return upstreamFailure(errorFacts(body));
}

/**
 * Returns whether an object is a failure, in any form of upstreams: `error` as an object or as text, `{object: "error"}`,
 * `{type: "error"}`; and if `isAnswer` is false (the object has no member of a response), also a bare `message`, `detail` or
 * `Message`. An `error` that is null or false does not count.
 */
export function isFailureObject(body: JsonObject, isAnswer: boolean): boolean {
  if (body.error || body.object === 'error' || body.type === 'error') return true;
  if (isAnswer) return false;
  return (
    asWords(body.message) !== undefined ||
    asWords(body.Message) !== undefined ||
    asWords(body.detail) !== undefined ||
    asObject(asArrayItem(body.detail)) !== undefined ||
    asObject(body.detail) !== undefined
  );
}

/** Returns the failure in an event of type `error`, with any data. */
export function failureInEvent(data: string, body: JsonObject | undefined): UpstreamFailure {
  return body === undefined ? upstreamFailure({ message: asWords(data.trim()) }) : failureInObject(body);
}

/** Returns the failure for a stream that ended before its finish reason. */
export function endedEarly(): UpstreamFailure {
  return brokenAnswer('The model API ended its stream before the answer was complete.');
}

/** The data of an event is not a JSON object. */
export function noObject(): UpstreamFailure {
  return brokenAnswer('The stream of the model API holds something else than JSON objects.');
}

function errorFacts(body: JsonObject): FailureFacts {
  const error = asObject(body.error) ?? body;
  const inner = asObject(error.error);
  const message =
    asWords(error.message) ??
    asWords(inner?.message) ??
    asWords(body.error) ??
    asWords(body.detail) ??
    asWords(asObject(asArrayItem(body.detail))?.msg) ??
    asWords(asObject(body.detail)?.message) ??
    asWords(body.Message);
  return {
    message,
    word: wordOf(error),
    param: asWords(error.param),
    status: asNumber(error.code) ?? asNumber(error.status) ?? asNumber(error.status_code),
  };
}

function asArrayItem(value: unknown): unknown {
  return Array.isArray(value) ? value[0] : undefined;
}

/** Returns the most specific name of an error: a known code, otherwise its type, otherwise its status in words (Google). */
function wordOf(error: JsonObject): string | undefined {
  const code = asWords(error.code);
  if (code !== undefined && STATUS_OF_WORD.has(code.toLowerCase())) return code;
  return asWords(error.type) ?? asWords(error.status) ?? code;
}
