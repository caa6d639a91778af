import type { DescribedError } from '../errors/error-table.ts';

/**
 * The `error` member of a response. Its `data` has the stable code, whatever the error tells about itself, and for
 * failures of our own the id under which they were logged.
 */
export function errorText(error: DescribedError, requestId?: string): string {
  const data = { code: error.code, ...error.details };
  data.code = error.code;
  return JSON.stringify({
    code: error.rpc,
    message: error.message,
    data: requestId === undefined ? data : { ...data, requestId },
  });
}
