import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { AppError, errorCode } from '../../errors/app-error.ts';
import type { SqlValue } from '../statement.ts';

/** Rows as they cross threads: the names once, the values of all rows in one flat list. */
interface RowBlock {
  readonly columns: readonly string[];
  readonly values: SqlValue[];
}

/** A number of changed rows, or the rows that the statement gave. */
export type SqliteResult = number | RowBlock;

export type SqliteMode = 'write' | 'read';

/** A connection with its prepared statements. `reference` is a text's number once it was registered, or the text. */
export interface SqliteConnection {
  readonly database: DatabaseSync;
  run(reference: number | string, values: readonly SqlValue[]): SqliteResult;
  /** True when the statement gives no rows, and so is over once it has run. */
  isSilent(reference: number | string): boolean;
  step(name: TransactionStep): void;
  close(): void;
}

interface Prepared {
  readonly statement: StatementSync;
  readonly columns: readonly string[];
  /** Reads integers as bigints: slower, so registered statements do it only once an integer did not fit a number. */
  exact: boolean;
}

const TRANSACTION_STEPS = {
  begin: 'BEGIN IMMEDIATE',
  commit: 'COMMIT',
  savepoint: 'SAVEPOINT unit',
  release: 'RELEASE unit',
  undo: 'ROLLBACK TO unit',
} as const;

type TransactionStep = keyof typeof TRANSACTION_STEPS;

const BUSY_TIMEOUT_MS = 5000;
const SETTINGS = 'PRAGMA trusted_schema = OFF; PRAGMA temp_store = MEMORY;';
/** What is deleted is overwritten with zeros, so that no file holds it any longer. */
const WRITER_SETTINGS = `PRAGMA synchronous = FULL; PRAGMA cache_size = -16384; PRAGMA wal_autocheckpoint = 1000;
  PRAGMA journal_size_limit = 16777216; PRAGMA secure_delete = ON;`;

/** Maps this much of the file into memory, so that a keyed read costs about as much in a large file as in a small one. */
const READER_SETTINGS = 'PRAGMA mmap_size = 2147418112;';

/** `textOf` gives the text of a registered number. */
export function openSqliteConnection(
  file: string,
  mode: SqliteMode,
  textOf: (id: number) => string,
  timeout = BUSY_TIMEOUT_MS,
): SqliteConnection {
  const database = new DatabaseSync(file, { readOnly: mode === 'read', timeout });
  try {
    database.exec(SETTINGS);
    if (mode === 'write') {
      enableWriteAheadLog(database);
      database.exec(WRITER_SETTINGS);
    } else {
      database.exec(READER_SETTINGS);
    }
  } catch (error) {
    database.close();
    throw error;
  }
  const prepared: Prepared[] = [];
  const prepare = (text: string, exact: boolean): Prepared => {
    const statement = database.prepare(text, { returnArrays: true, readBigInts: exact });
    return { statement, columns: statement.columns().map(({ name }) => name), exact };
  };
  const find = (reference: number | string): Prepared => {
    if (typeof reference === 'string') return prepare(reference, true);
    const known = prepared[reference];
    if (known !== undefined) return known;
    const made = prepare(textOf(reference), false);
    prepared[reference] = made;
    return made;
  };
  const steps = new Map<TransactionStep, StatementSync>();
  const stepOf = (name: TransactionStep): StatementSync => {
    const known = steps.get(name);
    if (known !== undefined) return known;
    const made = database.prepare(TRANSACTION_STEPS[name]);
    steps.set(name, made);
    return made;
  };
  return {
    database,
    run: (reference, values) => runPrepared(find(reference), values),
    isSilent: (reference) => typeof reference === 'number' && find(reference).columns.length === 0,
    step: (name) => void stepOf(name).run(),
    close: () => database.close(),
  };
}

/** Retries, because processes that start at the same time block each other here, and SQLite does not wait for this by itself. */
function enableWriteAheadLog(database: DatabaseSync): void {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const row = database.prepare('PRAGMA journal_mode = WAL').get();
      if (row?.journal_mode !== 'wal') throw new Error('this file system does not support a write-ahead log');
      return;
    } catch (error) {
      if (!isBusy(error) || attempt === 100) throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
    }
  }
}

/**
 * An integer did not fit into a number. The statement will give bigints from now on; what it changed must be undone
 * before it is run again.
 */
export class ReadAgain extends Error {}

function runPrepared(prepared: Prepared, values: readonly SqlValue[]): SqliteResult {
  const bound = values as (string | number | bigint | null | Uint8Array)[];
  if (prepared.columns.length === 0) return Number(prepared.statement.run(...bound).changes);
  try {
    return readRows(prepared, prepared.statement.all(...bound) as unknown as SqlValue[][]);
  } catch (error) {
    if (errorCode(error) !== 'ERR_OUT_OF_RANGE' || prepared.exact) throw error;
    prepared.statement.setReadBigInts(true);
    prepared.exact = true;
    throw new ReadAgain();
  }
}

function readRows({ columns, exact }: Prepared, rows: readonly SqlValue[][]): RowBlock {
  const values: SqlValue[] = [];
  for (const row of rows) {
    for (const value of row) values.push(exact && typeof value === 'bigint' ? shortest(value) : value);
  }
  return { columns, values };
}

/** A number where it is exact, so that a row looks the same whichever way it was read. */
function shortest(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/** Runs a statement that changes nothing. */
export function readWith(
  connection: SqliteConnection,
  reference: number | string,
  values: readonly SqlValue[],
): SqliteResult {
  try {
    return connection.run(reference, values);
  } catch (error) {
    if (!(error instanceof ReadAgain)) throw error;
    return connection.run(reference, values);
  }
}

export function toRows(result: SqliteResult): Record<string, SqlValue>[] {
  if (typeof result === 'number') return [];
  const { columns, values } = result;
  const rows: Record<string, SqlValue>[] = [];
  for (let start = 0; start < values.length; start += columns.length) {
    const row: Record<string, SqlValue> = {};
    for (let index = 0; index < columns.length; index += 1) {
      row[columns[index] as string] = values[start + index] as SqlValue;
    }
    rows.push(row);
  }
  return rows;
}

export function changesOf(result: SqliteResult): number {
  return typeof result === 'number' ? result : result.values.length / result.columns.length;
}

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
