import type { Runnable, StatementResult } from './statement.ts';

export type EngineName = 'sqlite' | 'postgres';

/** Where a service's data lives: a file of its own, or a schema of its own. */
export type DatabaseLocation =
  | { readonly engine: 'sqlite'; readonly file: string }
  | { readonly engine: 'postgres'; readonly url: string; readonly schema: string };

/** One connection that nobody else uses meanwhile: its statements run one after another. */
export interface SqlConnection {
  readonly engine: EngineName;
  execute<Row>(statement: Runnable<Row>): Promise<StatementResult<Row>>;
}

export interface DatabaseStatistics {
  /** Batches stored. */
  readonly batches: number;
  /** Commits that stored them: each waits once for the disk. */
  readonly commits: number;
  readonly reads: number;
  /** Batches that wait or are being stored. */
  readonly queued: number;
}

export interface ExclusiveOptions {
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
