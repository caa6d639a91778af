import { AppError } from '../errors/app-error.ts';
import type { DescribedError } from '../errors/error-table.ts';

/** The `error` member of somebody else's answer. */
export interface ForeignError {
  readonly code: number;
  readonly message: string;
  readonly data: unknown;
}

/** An error that another server has answered with, and that our caller gets as it is, whatever our own tables say. */
export class RelayedError extends AppError {
  /** The `error` member of the answer, as JSON text. */
  readonly text: string;
  readonly described: DescribedError;

  constructor(error: ForeignError, status: number) {
    const details = typeof error.data === 'object' && error.data !== null ? { ...error.data } : {};
    const word = 'code' in details && typeof details.code === 'string' ? details.code : 'REMOTE_ERROR';
    super(word, details);
    this.name = 'RelayedError';
    this.text = JSON.stringify(error);
    this.described = { code: word, status, rpc: error.code, message: error.message, details };
  }
}
