/** The codes of all error tables: each table adds its own, so that a code without a row does not compile. */
// biome-ignore lint/suspicious/noEmptyInterface: the tables add its members
export interface ErrorCodes {}

export type ErrorCode = keyof ErrorCodes;

/** The one error that our own code throws. `code` is a row of an error table; `details` are safe to show to the caller. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(code: ErrorCode, details: Readonly<Record<string, unknown>> = {}, options?: ErrorOptions) {
    super(code, options);
    this.name = 'AppError';
    this.code = code;
    this.details = details;
  }
}

/** The code of an operating-system error (`ENOENT`), or of an `AppError`; an empty string for anything else. */
export function errorCode(error: unknown): string {
  if (typeof error !== 'object' || error === null || !('code' in error)) return '';
  return typeof error.code === 'string' ? error.code : '';
}
