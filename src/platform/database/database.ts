import type { Compilable, Kysely } from 'kysely';
import type { DatabaseStatistics, EngineName, SqlConnection } from './engine.ts';
import type { RowOf, Runnable, StatementMaker, StatementResult } from './statement.ts';

/** The database of one service, on either engine. Everything it throws is an `AppError` or a programming error. */
export interface Database<Schema = unknown> {
  readonly name: string;
  readonly engine: EngineName;
  /** Builds queries, and runs them where it does not matter how long that takes. */
  readonly query: Kysely<Schema>;
  /** Compiles a query once, for use on every request: `statement((query, given: { id: string }) => query...)`. */
  statement<Row, Parameters extends object = Record<never, never>>(
    build: (query: Kysely<Schema>, parameters: Parameters) => Compilable<Row>,
  ): StatementMaker<Parameters, Row>;
  /** For a few rows found by an index: on SQLite it runs in this very thread. */
  readKeyed<Row>(statement: Runnable<Row>): Promise<Row[]>;
  /** For all other reads: however long it takes, commits and the event loop go on. */
  read<Row>(statement: Runnable<Row>): Promise<Row[]>;
  /**
   * All or nothing. Resolves when it is on the disk; many small batches share one wait for it. After
   * STORAGE_UNAVAILABLE it is not known whether it was stored.
   */
  write<const Batch extends readonly Runnable[]>(statements: Batch): Promise<WriteResults<Batch>>;
  /**
   * For what cannot be said in one batch. On SQLite all other writers wait meanwhile, so `work` waits for nothing but
   * its own statements; on PostgreSQL it may run more than once.
   */
  transaction<T>(work: (transaction: Transaction<Schema>) => Promise<T>, options?: { timeoutMs?: number }): Promise<T>;
  /** A view of the data that does not change while others write. */
  snapshot<T>(work: (connection: SqlConnection) => Promise<T>): Promise<T>;
  /** Rejects with STORAGE_UNAVAILABLE unless the database answers within two seconds. */
  check(): Promise<void>;
  statistics(): DatabaseStatistics;
  /** Writes a copy into a new SQLite file (0600), of one moment, while others go on writing. */
  backupTo(file: string): Promise<void>;
  /** Stores what was submitted, then lets go of files and connections. */
  close(): Promise<void>;
}

export interface Transaction<Schema> {
  readonly query: Kysely<Schema>;
  run<Row>(statement: Runnable<Row>): Promise<StatementResult<Row>>;
}

export type WriteResults<Batch extends readonly Runnable[]> = {
  -readonly [Index in keyof Batch]: StatementResult<RowOf<Batch[Index]>>;
};
