import type { Compilable, Kysely } from 'kysely';
import type { ErrorCode } from '../errors/app-error.ts';
import type { ConnectionPool } from './postgres/connection-pool.ts';
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
  write<const Batch extends readonly Runnable[]>(
    statements: Batch,
    refusals?: WriteRefusals,
  ): Promise<WriteResults<Batch>>;
  /**
   * For work that does not fit into one batch. On SQLite all other writers wait until it ends, so `work` waits for nothing but
   * its own statements; on PostgreSQL it may run more than once.
   */
  transaction<T>(
    work: (transaction: Transaction<Schema>) => Promise<T>,
    options?: { readonly timeoutMs?: number; readonly isUrgent?: boolean },
  ): Promise<T>;
  /** A view of the data that does not change while others write. */
  snapshot<T>(work: (connection: SqlConnection) => Promise<T>): Promise<T>;
  /** Rejects with STORAGE_UNAVAILABLE unless the database answers within two seconds. */
  check(): Promise<void>;
  statistics(): DatabaseStatistics;
  /** Writes a copy into a new SQLite file (0600), of one moment, while others go on writing. */
  backupTo(file: string): Promise<void>;
  /**
   * Removes earlier versions of changed and deleted rows from the write-ahead log of SQLite, for data that a person asked
   * to have deleted. Leaves them to the next checkpoint while someone reads. PostgreSQL does this by its own vacuum.
   */
  emptyLog(): Promise<void>;
  /** Stores what was submitted, then lets go of files and connections. */
  close(): Promise<void>;
}

/** A database of any schema, for work on the whole: its file, its facts, its copies. */
export type AnyDatabase = Omit<Database<never>, 'query' | 'statement' | 'transaction'> & {
  transaction<T>(work: (transaction: Pick<Transaction<never>, 'run'>) => Promise<T>): Promise<T>;
};

/** The errors that callers get instead of STORAGE_CONFLICT and STORAGE_DUPLICATE. */
export interface WriteRefusals {
  readonly conflict?: ErrorCode;
  readonly duplicate?: ErrorCode;
  readonly details?: Readonly<Record<string, unknown>>;
}

export interface Transaction<Schema> {
  readonly query: Kysely<Schema>;
  run<Row>(statement: Runnable<Row>): Promise<StatementResult<Row>>;
}

type WriteResults<Batch extends readonly Runnable[]> = {
  -readonly [Index in keyof Batch]: StatementResult<RowOf<Batch[Index]>>;
};

export type EngineName = 'sqlite' | 'postgres';

/** Where a service's data lives: a file of its own, or a schema of its own. */
export type DatabaseLocation =
  | { readonly engine: 'sqlite'; readonly file: string }
  | {
      readonly engine: 'postgres';
      readonly url: string;
      readonly schema: string;
      /** Set where `url` is that of a pooler in transaction mode: the server itself, for migrations. */
      readonly directUrl?: string;
      /** Connections that others use, too; opened and closed with the database unless given. */
      readonly pool?: ConnectionPool;
    };

/** One connection that nobody else uses until it is released: its statements run one after another. */
export interface SqlConnection {
  readonly engine: EngineName;
  execute<Row>(statement: Runnable<Row>): Promise<StatementResult<Row>>;
}

interface DatabaseStatistics {
  /** Batches stored. */
  readonly batches: number;
  /** Commits that stored them: each waits once for the disk. */
  readonly commits: number;
  readonly reads: number;
  /** Batches that wait or are being stored. */
  readonly queued: number;
}

export interface ExclusiveOptions {
  /** On PostgreSQL it gets a connection before all that wait for one. */
  readonly isUrgent?: boolean;
  /** How long one statement may take, where that is longer than usual. */
  readonly timeoutMs?: number;
  /** The connection is not used again afterwards: what was set on it is forgotten. */
  readonly discard?: boolean;
}

/** What both engines offer to the rest of this folder. Everything it throws is an `AppError` or a programming error. */
export interface Engine {
  readonly name: EngineName;
  readKeyed<Row>(statement: Runnable<Row>): Promise<Row[]>;
  read<Row>(statement: Runnable<Row>): Promise<Row[]>;
  /** All or nothing. */
  write(statements: readonly Runnable[]): Promise<StatementResult[]>;
  /** The caller begins and ends transactions itself. */
  exclusive<T>(work: (connection: SqlConnection) => Promise<T>, options?: ExclusiveOptions): Promise<T>;
  /** A view of the data that does not change while others write. */
  snapshot<T>(work: (connection: SqlConnection) => Promise<T>): Promise<T>;
  ping(): Promise<void>;
  statistics(): DatabaseStatistics;
  /** Waits for what is under way, refuses anything new. */
  close(): Promise<void>;
}
