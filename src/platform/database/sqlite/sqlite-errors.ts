import { AppError } from '../../errors/app-error.ts';

interface Conflict {
  readonly statement: number;
  readonly expected: number;
  readonly changes: number;
}

/** An error of SQLite in a form that crosses threads. */
export interface SqliteFailure {
  readonly message: string;
  /** SQLite's extended result code; 0 for anything that SQLite did not say. */
  readonly resultCode: number;
  readonly conflict?: Conflict;
}

/** Thrown when a statement changed another number of rows than expected. */
export class UnexpectedChanges extends Error {
  readonly conflict: Conflict;
  constructor(conflict: Conflict) {
    super('unexpected changes');
    this.conflict = conflict;
  }
}

/** Result codes: https://sqlite.org/rescode.html */
const PRIMARY_CODE = 0xff;
const BUSY = 5;
const IO_ERROR = 10;
const FULL = 13;
const IO_ERROR_SHARED_MEMORY_SIZE = 4874;
const UNIQUE_CODES = new Set([1555, 2067, 2579]);
/** Busy, locked, out of memory, read-only, interrupted, I/O, corrupt, cannot open, protocol, not a database. */
const UNAVAILABLE_CODES = new Set([BUSY, 6, 7, 8, 9, IO_ERROR, 11, 14, 15, 26]);

export function toFailure(error: unknown): SqliteFailure {
  if (error instanceof UnexpectedChanges) return { message: error.message, resultCode: 0, conflict: error.conflict };
  return { message: error instanceof Error ? error.message : String(error), resultCode: resultCodeOf(error) };
}

export function isDiskFailure(error: unknown): boolean {
  return (resultCodeOf(error) & PRIMARY_CODE) === IO_ERROR;
}

export function isBusy(error: unknown): boolean {
  return (resultCodeOf(error) & PRIMARY_CODE) === BUSY;
}

function resultCodeOf(error: unknown): number {
  if (typeof error !== 'object' || error === null || !('errcode' in error)) return 0;
  return typeof error.errcode === 'number' ? error.errcode : 0;
}

/** What the program sees. An error that is none of the expected ones stays a plain error: a mistake in our SQL. */
export function fromFailure(failure: SqliteFailure): Error {
  const cause = new Error(failure.message);
  if (failure.conflict !== undefined) return new AppError('STORAGE_CONFLICT', { ...failure.conflict });
  if (UNIQUE_CODES.has(failure.resultCode)) {
    return new AppError('STORAGE_DUPLICATE', duplicateOf(failure.message), { cause });
  }
  const primary = failure.resultCode & PRIMARY_CODE;
  if (primary === FULL || failure.resultCode === IO_ERROR_SHARED_MEMORY_SIZE) {
    return new AppError('STORAGE_FULL', {}, { cause });
  }
  if (UNAVAILABLE_CODES.has(primary)) return new AppError('STORAGE_UNAVAILABLE', {}, { cause });
  return cause;
}

/** `UNIQUE constraint failed: users.tenant, users.email` */
function duplicateOf(message: string): { table: string; columns: string[] } {
  const names = message.slice(message.indexOf(':') + 1).split(',');
  const paths = names.map((name) => name.trim().split('.'));
  return { table: paths[0]?.[0] ?? '', columns: paths.map((path) => path.at(-1) ?? '') };
}
