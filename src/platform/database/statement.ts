import type { Compilable, CompiledQuery } from 'kysely';
import { AppError, errorCode } from '../errors/app-error.ts';

/** What a column may hold, on both engines. Booleans are stored as 1 and 0. */
export type SqlValue = string | number | bigint | boolean | null | Uint8Array;

declare const rowType: unique symbol;

/** One statement with its values, ready to run. Made by `database.statement(...)`, or by kysely's `compile()`. */
export interface Statement<Row = unknown> {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  /** The number of its SQL text, when the text is known ahead and worth preparing. */
  readonly textId?: number;
  readonly expectedChanges?: number;
  /** Its batch gets a connection before all that wait for one. */
  readonly isUrgent?: boolean;
  readonly [rowType]?: Row;
}

/** Kysely's own compiled queries run as well: for queries whose shape depends on the request. */
export type Runnable<Row = unknown> = Statement<Row> | CompiledQuery<Row>;

export interface StatementResult<Row = unknown> {
  readonly rows: Row[];
  /** Rows inserted, updated or deleted; for a query, the rows it found. */
  readonly changes: number;
}

/** Fills the parameters of a compiled statement. */
export type StatementMaker<Parameters extends object, Row> = (
  ...parameters: keyof Parameters extends never ? [] : [Parameters]
) => Statement<Row>;

/** A statement that must change exactly `count` rows: otherwise its whole batch is undone with STORAGE_CONFLICT. */
export function expectChanges<Row>(statement: Runnable<Row>, count: number): Statement<Row> {
  const textId = 'textId' in statement ? statement.textId : undefined;
  const expected = { sql: statement.sql, parameters: statement.parameters, expectedChanges: count };
  return textId === undefined ? expected : { ...expected, textId };
}

/** For what others judge this process by: on PostgreSQL it passes all batches and reads that wait for a connection. */
export function urgent<Row>({ sql, parameters }: Runnable<Row>): Statement<Row> {
  return { sql, parameters, isUrgent: true };
}

/** Whether a batch was stored; false when a statement of it changed another number of rows than it had to. */
export async function unlessConflict(written: Promise<unknown>): Promise<boolean> {
  try {
    await written;
    return true;
  } catch (error) {
    if (errorCode(error) === 'STORAGE_CONFLICT') return false;
    throw error;
  }
}

/** Returns whether an error is a temporary fault of the store, and not of the statements. */
export function isStoreFault(error: unknown): boolean {
  const code = errorCode(error);
  return code.startsWith('STORAGE_') || code === 'OVERLOADED';
}

/** The row type that a statement gives. */
export type RowOf<Given> = Given extends Runnable<infer Row> ? Row : never;

/** Stands for a value that is not known yet, while kysely builds the query. */
class Placeholder {
  readonly name: string;
  constructor(name: string) {
    this.name = name;
  }
}

const textIds = new Map<string, number>();

/** The same text always gets the same number, in every database of the process. */
function textIdOf(sql: string): number {
  const known = textIds.get(sql);
  if (known !== undefined) return known;
  const id = textIds.size;
  textIds.set(sql, id);
  return id;
}

/**
 * Lets kysely build and compile the query once, with a placeholder for each parameter, since building a query costs
 * more than running it. Call it when a store is made, not per request: its SQL text is kept until the process ends.
 * The first use compiles: a start would otherwise wait for hundreds of queries that it does not run. `{ ...given }`
 * stands for a whole row: the members of the first one are the columns, and every later one must have the same.
 */
export function compileStatement<Builder, Parameters extends object, Row>(
  builder: Builder,
  build: (query: Builder, parameters: Parameters) => Compilable<Row>,
): StatementMaker<Parameters, Row> {
  const compile = (first: object) => {
    let columns: number | undefined;
    const placeholders = new Proxy(first, {
      get: (_, name) => new Placeholder(String(name)),
      ownKeys: (row) => {
        const names = Reflect.ownKeys(row);
        columns = names.length;
        return names;
      },
    });
    const { sql, parameters: slots } = build(builder, placeholders as Parameters).compile();
    return { sql, slots, columns, textId: textIdOf(sql) };
  };
  let compiled: ReturnType<typeof compile> | undefined;
  return (...[given]) => {
    compiled ??= compile({ ...given });
    const { sql, slots, columns, textId } = compiled;
    if (columns !== undefined && columns !== Object.keys(given ?? {}).length) {
      throw new TypeError('a row has other members than the first one that this statement was given');
    }
    const values: unknown[] = new Array(slots.length);
    for (let index = 0; index < slots.length; index += 1) {
      const slot = slots[index];
      values[index] = slot instanceof Placeholder ? given?.[slot.name as keyof typeof given] : slot;
    }
    return { sql, parameters: values, textId };
  };
}

const MAX_INTEGER = 2n ** 63n - 1n;
const MIN_INTEGER = -(2n ** 63n);

/**
 * Refuses what the engines would store differently, or silently change: NaN becomes NULL in SQLite, NUL characters are
 * refused by PostgreSQL only, dates and objects mean something else to each driver.
 */
export function checkedValue(value: unknown): Exclude<SqlValue, boolean> {
  switch (typeof value) {
    case 'string':
      if (value.includes('\0')) throw new AppError('INVALID_REQUEST', { reason: 'text must not hold a NUL character' });
      return value;
    case 'number':
      if (!Number.isFinite(value)) throw new TypeError(`${value} cannot be stored`);
      return value;
    case 'bigint':
      if (value > MAX_INTEGER || value < MIN_INTEGER) throw new RangeError('an integer needs over 64 bits');
      return value;
    case 'boolean':
      return value ? 1 : 0;
    default:
      if (value === null || value instanceof Uint8Array) return value;
      throw new TypeError(`a ${value === undefined ? 'missing value' : typeof value} cannot be stored`);
  }
}
