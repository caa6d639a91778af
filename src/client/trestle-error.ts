/** Further facts about a failure. */
export interface ErrorFacts {
  /** The number of a JSON-RPC error. */
  readonly rpcCode?: number;
  /** The HTTP status, where one came with it. */
  readonly status?: number;
  readonly data?: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
}

/** Failures that the client itself finds; every other `code` is the bridge's `error.data.code`. */
export type ClientErrorCode =
  /** The bridge cannot be reached, or the connection broke and could not be resumed. */
  | 'CONNECTION_LOST'
  | 'TIMEOUT'
  /** The `signal` of the call has aborted. */
  | 'ABORTED'
  | 'CLIENT_CLOSED'
  /** The response did not come from a bridge. */
  | 'BAD_ANSWER'
  /** More updates waited to be read than may wait; `data.afterSeq` is the last one that was kept. */
  | 'UPDATES_OVERFLOWED'
  /** The chosen transport cannot do this here; the message names one that can. */
  | 'UNSUPPORTED';

/**
 * Every failure of a call: `code` is a stable word, `data` holds what else the bridge reports.
 *
 * @example
 * ```ts
 * try {
 *   await trestle.session('unknown').message('Hello').result;
 * } catch (error) {
 *   if (error instanceof TrestleError) console.log(error.code, error.message);
 * }
 * ```
 */
export class TrestleError extends Error {
  override readonly name = 'TrestleError';
  readonly code: string;
  readonly rpcCode: number | undefined;
  readonly status: number | undefined;
  readonly data: Readonly<Record<string, unknown>>;

  constructor(code: string, message: string, { rpcCode, status, data = {}, cause }: ErrorFacts = {}) {
    super(message, { cause });
    this.code = code;
    this.rpcCode = rpcCode;
    this.status = status;
    this.data = data;
  }
}

export function clientError(code: ClientErrorCode, message: string, facts?: ErrorFacts): TrestleError {
  return new TrestleError(code, message, facts);
}

export function connectionLost(reason: string, facts?: ErrorFacts): TrestleError {
  return clientError('CONNECTION_LOST', `The bridge cannot be reached: ${reason}`, facts);
}
