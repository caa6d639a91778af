import type { Static } from 'typebox';
import type { MessagesError } from '../../contract/messages.ts';

export const MESSAGES_PATH = '/v1/messages';

/** Below this path errors have Anthropic's shape. */
export function speaksMessages(path: string): boolean {
  return path === MESSAGES_PATH || path.startsWith(`${MESSAGES_PATH}/`);
}

const TYPES: ReadonlyMap<number, string> = new Map([
  [401, 'authentication_error'],
  [402, 'billing_error'],
  [403, 'permission_error'],
  [404, 'not_found_error'],
  [408, 'timeout_error'],
  [413, 'request_too_large'],
  [429, 'rate_limit_error'],
  [503, 'overloaded_error'],
  [504, 'timeout_error'],
]);

export interface FailureFacts {
  readonly status: number;
  readonly message: string;
  readonly requestId: string;
}

/** An error as clients of Anthropic's API read it; the status is the same as everywhere (contract/completions 5). */
export function messagesErrorBody({ status, message, requestId }: FailureFacts): Static<typeof MessagesError> {
  const type = TYPES.get(status) ?? (status >= 500 ? 'api_error' : 'invalid_request_error');
  return { type: 'error', error: { type, message }, request_id: requestId };
}
