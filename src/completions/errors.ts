import type { ErrorTable } from '../platform/errors/error-table.ts';
import { platformErrors } from '../platform/errors/platform-errors.ts';

/** `type` is the word that clients of OpenAI's API switch on; `code` is in lower case there. */
export const completionsErrors = {
  ...platformErrors,
  INVALID_API_KEY: { status: 401, message: 'A valid key is needed: send "Authorization: Bearer <key>".' },
  MODEL_NOT_FOUND: { status: 404, message: 'There is no model "{model}". Nearest: {nearest}.' },
} as const satisfies ErrorTable;

/** The error `type` of a status (contract/completions 5). */
export function errorType(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}
