import { AppError } from './app-error.ts';

/** One row: how an error code looks outside. `message` may name details in braces: `'{field} is too long'`. */
export interface ErrorRow {
  readonly status: number;
  /** JSON-RPC error number, for surfaces that speak JSON-RPC. */
  readonly rpc?: number;
  readonly message: string;
}

export type ErrorTable = Readonly<Record<string, ErrorRow>>;

/** An error as any outside shape (HTTP body, JSON-RPC error) needs it. */
export interface DescribedError {
  readonly code: string;
  readonly status: number;
  readonly rpc: number;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>>;
}

const INTERNAL_RPC = -32603;
const INTERNAL: ErrorRow = { status: 500, message: 'Something went wrong on our side.' };

/**
 * Looks an error up in a table. What is not an `AppError`, or has no row, becomes INTERNAL_ERROR with no details:
 * nothing that a library wrote into a message reaches a caller.
 */
export function describeError(table: ErrorTable, error: unknown): DescribedError {
  if (error instanceof AppError) {
    const row = Object.hasOwn(table, error.code) ? table[error.code] : undefined;
    if (row !== undefined) {
      const message = fillMessage(row.message, error.details);
      return { code: error.code, status: row.status, rpc: row.rpc ?? INTERNAL_RPC, message, details: error.details };
    }
  }
  const { status, message } = table.INTERNAL_ERROR ?? INTERNAL;
  return { code: 'INTERNAL_ERROR', status, rpc: INTERNAL_RPC, message, details: {} };
}

export function isExpected(table: ErrorTable, error: unknown): boolean {
  return error instanceof AppError && Object.hasOwn(table, error.code) && error.code !== 'INTERNAL_ERROR';
}

function fillMessage(message: string, details: Readonly<Record<string, unknown>>): string {
  return message.replaceAll(/\{(\w+)\}/g, (whole, name: string) =>
    Object.hasOwn(details, name) ? String(details[name]) : whole,
  );
}
