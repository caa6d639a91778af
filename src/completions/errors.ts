import { AppError } from '../platform/errors/app-error.ts';
import { describeError, type ErrorTable, platformErrors } from '../platform/errors/error-table.ts';
import { type ApiErrorBody, paramOf } from './contract/read-request.ts';

/** The errors of the service; for callers, `code` is in lower case there. */
export const completionsErrors = {
  ...platformErrors,
  INVALID_API_KEY: { status: 401, message: 'A valid key is required: send "Authorization: Bearer <key>".' },
  MODEL_NOT_FOUND: { status: 404, message: 'There is no model "{model}" here. {nearest}' },
  MODEL_NOT_ALLOWED: { status: 403, message: 'This key may not use the model "{model}".' },
  INVALID_PARAMETER: { status: 400, message: '{message}' },
  NOT_IN_TEAM: {
    status: 403,
    message: 'You are not a member of the team "{team}"; GET /api/auth/teams lists your teams.',
  },
  CALL_NOT_FOUND: { status: 404, message: 'There is no call "{id}" that you can see.' },
  KEY_NOT_FOUND: { status: 404, message: 'There is no key "{id}".' },
  KEY_OF_OPERATOR: {
    status: 403,
    message: 'An operator issued this key, so you can change only its name: omit {fields}.',
  },
  RATE_LIMIT_EXCEEDED: {
    status: 429,
    message: 'You have reached the limit of {limit} {unit} per minute; try again later.',
  },
  TOO_MANY_PARALLEL_CALLS: {
    status: 429,
    message: 'At most {limit} calls of {of} can run at the same time; try again when one has ended.',
  },
  BUDGET_EXCEEDED: { status: 402, message: 'The budget of {of} is used up: {usd} USD ({period}).' },
  INSUFFICIENT_QUOTA: { status: 429, message: 'The budget of {of} is used up: {usd} USD ({period}).' },
  CONTENT_BLOCKED: { status: 400, message: 'The content was blocked by the guardrail "{guardrail}" of this server.' },
  UNSUPPORTED_PARAMETER: { status: 400, message: 'The model API does not support "{param}"; omit it.' },
  OPERATION_NOT_SUPPORTED: {
    status: 400,
    message: 'The API of this model does not offer {operation}; use another model.',
  },
  NO_TARGET_AVAILABLE: {
    status: 503,
    message: 'No target for "{model}" is available right now; try again later.',
  },
  UPSTREAM_REFUSED: { status: 400, message: '{message}' },
  UPSTREAM_AUTHENTICATION: { status: 502, message: 'The model API rejected the key that is configured for it.' },
  UPSTREAM_ERROR: { status: 502, message: 'The model API failed: {reason}' },
  UPSTREAM_TIMEOUT: { status: 504, message: 'The model API took too long ({limit}).' },
  INVALID_CATALOG: {
    status: 400,
    message: 'The model catalogue is not valid: {reason}. It must have the format of https://models.dev/api.json.',
  },
  CATALOG_UNREACHABLE: { status: 502, message: 'The model catalogue could not be read: {reason}' },
  TOO_MANY_STORED: {
    status: 400,
    message: 'You have stored {limit} objects of the kind "{kind}", the maximum; delete some first.',
  },
  NOTHING_STORED: {
    status: 400,
    message:
      '{field} refers to content stored at a model API, but nothing is stored for you there; send the whole content instead. For addresses in storage such as s3://bucket/key, the operator may list prefixes in completions.storage_allow.',
  },
} as const satisfies ErrorTable;

export type CompletionsErrorCode = keyof typeof completionsErrors;

declare module '../platform/errors/app-error.ts' {
  interface ErrorCodes extends Record<CompletionsErrorCode, unknown> {}
}

/** An error as callers of OpenAI's API read it. */
export interface ApiFailure {
  readonly status: number;
  readonly body: ApiErrorBody;
}

type Details = Readonly<Record<string, unknown>>;

/** The one translator: status, and a body with all four keys. */
export function describeFailure(error: unknown): ApiFailure {
  const { code, message, details } = describeError(completionsErrors, error);
  const status = statusOf(error);
  return { status, body: apiErrorBody({ status, code, message, details }) };
}

/** An upstream's own 4xx passes with its status; everything else has the one of its row. */
export function statusOf(error: unknown): number {
  const own = error instanceof AppError && error.code === 'UPSTREAM_REFUSED' ? error.details.status : undefined;
  return typeof own === 'number' ? own : describeError(completionsErrors, error).status;
}

export function apiErrorBody(error: {
  readonly status: number;
  readonly code: string;
  readonly message: string;
  readonly details: Details;
}): ApiErrorBody {
  const { status, code, message, details } = error;
  const said = typeof details.apiCode === 'string' ? details.apiCode : code.toLowerCase();
  return { error: { message, type: errorType(status, said), param: fieldOf(details), code: said } };
}

/** The word that clients of OpenAI's API switch on. */
function errorType(status: number, code: string): string {
  if (code === 'insufficient_quota') return 'insufficient_quota';
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 429) return 'rate_limit_error';
  if (status === 502) return 'upstream_error';
  if (status === 504) return 'upstream_timeout';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

/** The field that is wrong, as OpenAI's API names it: `messages[0].role`. */
function fieldOf({ issues, param }: Details): string | null {
  if (typeof param === 'string') return param;
  const [first] = Array.isArray(issues) ? (issues as { path: string }[]) : [];
  return first === undefined || first.path === '' ? null : paramOf(first.path);
}
