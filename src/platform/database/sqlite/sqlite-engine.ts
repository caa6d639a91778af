import { AppError } from '../../errors/app-error.ts';
import type { Engine, SqlConnection } from '../database.ts';
import { checkedValue, type Runnable, type SqlValue, type Statement, type StatementResult } from '../statement.ts';
import {
  changesOf,
  fromFailure,
  isBusy,
  openSqliteConnection,
  readWith,
  type SqliteResult,
  toFailure,
  toRows,
} from './sqlite-connection.ts';
import { makePrivateFile } from './sqlite-file.ts';
import { type BoundStatement, claimThread, type ThreadClaim } from './sqlite-thread.ts';

export interface SqliteLimits {
  /** Batches that may wait for their commit; one more is refused with OVERLOADED. */
  readonly queuedBatches: number;
  /** Characters and bytes in them. */
  readonly queuedSize: number;
  readonly queuedReads: number;
}

const LIMITS: SqliteLimits = { queuedBatches: 10_000, queuedSize: 64 * 1024 * 1024, queuedReads: 1000 };

/** The timeout for locks on the main thread: none, so that the event loop never waits. */
const NO_WAITING = 0;

/** Written by the writer thread, read by this thread (short indexed reads) and by the reader thread (all other reads). */
export async function openSqliteEngine(file: string, limits: Partial<SqliteLimits> = {}): Promise<Engine> {
  const { queuedBatches, queuedSize, queuedReads } = { ...LIMITS, ...limits };
  await makePrivateFile(file);
  const writer = claimThread('writer');
  const { writing, near } = await openBoth(writer, file);
  let reader: FarReader | undefined;
  let closing = false;
  let batches = 0;
  let reads = 0;
  let queued = 0;
  let size = 0;
  let pendingReads = 0;
  /** While one caller has the writing connection for itself, batches wait here. */
  let held: (() => void)[] | undefined;
  let lastTurn: Promise<unknown> = Promise.resolve();
  const underWay = new Set<Promise<unknown>>();

  const track = <T>(work: Promise<T>): Promise<T> => {
    underWay.add(work);
    const done = () => void underWay.delete(work);
    work.then(done, done);
    return work;
  };
  const refuseWhenClosing = (): void => {
    if (closing) throw new AppError('SHUTTING_DOWN');
  };
  const farReader = (): FarReader => {
    const isAlive = reader?.claim.thread.isAlive() === true;
    if (reader !== undefined && isAlive && !reader.hasFailed) return reader;
    if (!isAlive) void reader?.claim.release();
    reader = openReader(reader !== undefined && isAlive ? reader.claim : claimThread('reader'), file);
    return reader;
  };
  const readFar = async <Row>(statement: Runnable<Row>): Promise<Row[]> => {
    if (pendingReads >= queuedReads) throw new AppError('OVERLOADED');
    const bound = bind(statement);
    pendingReads += 1;
    try {
      const { claim, connection } = farReader();
      return toRows(await claim.thread.run(await connection, bound)) as Row[];
    } finally {
      pendingReads -= 1;
    }
  };
  const submit = (bound: readonly BoundStatement[]): Promise<readonly SqliteResult[]> => {
    if (held === undefined) return writer.thread.submit(writing, bound);
    const waiting = held;
    return new Promise((resolve) => waiting.push(() => resolve(writer.thread.submit(writing, bound))));
  };
  /** The path of most writes, with few promises, because they dominate its cost under load. */
  const store = (bound: readonly BoundStatement[], weight: number): Promise<StatementResult[]> => {
    queued += 1;
    size += weight;
    const settle = (): void => {
      queued -= 1;
      size -= weight;
    };
    return submit(bound).then(
      (results) => {
        settle();
        batches += 1;
        return results.map(toResult);
      },
      (error) => {
        settle();
        throw error;
      },
    );
  };
  const takeTurn = async <T>(work: (connection: SqlConnection) => Promise<T>): Promise<T> => {
    held = [];
    // Sends the text each time, because these statements are rare, and a registered one might have to run twice.
    const execute: SqlConnection['execute'] = async <Row>(statement: Runnable<Row>) => {
      const { sql, values } = bind(statement);
      return toResult(await writer.thread.run(writing, plain(sql, values))) as StatementResult<Row>;
    };
    try {
      return await work({ engine: 'sqlite', execute });
    } finally {
      const waiting = held;
      held = undefined;
      for (const resume of waiting) resume();
    }
  };

  return {
    name: 'sqlite',
    async readKeyed(statement) {
      refuseWhenClosing();
      reads += 1;
      return near.read(statement) ?? track(readFar(statement));
    },
    async read(statement) {
      refuseWhenClosing();
      reads += 1;
      return track(readFar(statement));
    },
    write(statements) {
      try {
        refuseWhenClosing();
        if (statements.length === 0) return Promise.resolve([]);
        const bound = statements.map(bind);
        const weight = bound.reduce((sum, { values }) => sum + sizeOf(values), 0);
        // A batch above the limit is accepted if nothing else waits.
        if (queued >= queuedBatches || (queued > 0 && size + weight > queuedSize)) throw new AppError('OVERLOADED');
        return store(bound, weight);
      } catch (error) {
        return Promise.reject(error);
      }
    },
    async exclusive(work) {
      refuseWhenClosing();
      const turn = lastTurn.then(() => takeTurn(work));
      lastTurn = turn.catch(() => undefined);
      return track(turn);
    },
    async snapshot(work) {
      refuseWhenClosing();
      return track(lookAt(farReader().claim, file, work));
    },
    async ping() {
      refuseWhenClosing();
      near.read({ sql: 'SELECT 1', parameters: [] });
      await writer.thread.ping();
    },
    statistics: () => ({ batches, commits: writer.thread.commits(writing), reads, queued }),
    async close() {
      if (closing) return;
      closing = true;
      while (underWay.size > 0 || queued > 0) {
        await Promise.allSettled(underWay);
        // It is answered after everything that was submitted before.
        await writer.thread.ping().catch(() => undefined);
      }
      near.close();
      if (reader !== undefined) await closeReader(reader);
      // Closing the last connection would do it too, but only if no other process has the file open.
      await writer.thread.run(writing, plain('PRAGMA wal_checkpoint(TRUNCATE)')).catch(() => undefined);
      await writer.thread.closeConnection(writing).catch(() => undefined);
      await writer.release();
    },
  };
}

interface FarReader {
  readonly claim: ThreadClaim;
  readonly connection: Promise<number>;
  /** The connection could not be opened: the next read opens another one, because the cause may be gone, such as a lack of file descriptors. */
  hasFailed: boolean;
}

function openReader(claim: ThreadClaim, file: string): FarReader {
  const reader: FarReader = { claim, connection: claim.thread.open(file, 'read'), hasFailed: false };
  reader.connection.catch(() => {
    reader.hasFailed = true;
  });
  return reader;
}

interface NearReader {
  /** Undefined when the file cannot be read without waiting. */
  read<Row>(statement: Runnable<Row>): Row[] | undefined;
  close(): void;
}

function openNear(file: string): NearReader {
  const texts = new Map<number, string>();
  const connection = openSqliteConnection(file, 'read', (id) => texts.get(id) ?? '', NO_WAITING);
  return {
    read<Row>(statement: Runnable<Row>) {
      const { textId, sql, values } = bind(statement);
      if (textId !== undefined && !texts.has(textId)) texts.set(textId, sql);
      try {
        return toRows(readWith(connection, textId ?? sql, values)) as Row[];
      } catch (error) {
        if (isBusy(error)) return undefined;
        throw fromFailure(toFailure(error));
      }
    },
    close: connection.close,
  };
}

async function lookAt<T>(
  { thread }: ThreadClaim,
  file: string,
  work: (connection: SqlConnection) => Promise<T>,
): Promise<T> {
  const connection = await thread.open(file, 'read');
  const execute: SqlConnection['execute'] = async <Row>(statement: Runnable<Row>) =>
    toResult(await thread.run(connection, bind(statement))) as StatementResult<Row>;
  try {
    await execute({ sql: 'BEGIN', parameters: [] });
    // The view is fixed by the first read.
    await execute({ sql: 'SELECT count(*) FROM sqlite_schema', parameters: [] });
    return await work({ engine: 'sqlite', execute });
  } finally {
    await thread.closeConnection(connection);
  }
}

async function closeReader(reader: FarReader): Promise<void> {
  await reader.connection.then((connection) => reader.claim.thread.closeConnection(connection)).catch(() => undefined);
  await reader.claim.release();
}

async function openBoth(writer: ThreadClaim, file: string): Promise<{ writing: number; near: NearReader }> {
  let writing: number | undefined;
  try {
    writing = await writer.thread.open(file, 'write');
    return { writing, near: openNear(file) };
  } catch (error) {
    if (writing !== undefined) await writer.thread.closeConnection(writing);
    await writer.release();
    throw error;
  }
}

function bind(statement: Runnable): BoundStatement {
  const { textId, expectedChanges }: Partial<Statement> = statement;
  return { sql: statement.sql, textId, expectedChanges, values: statement.parameters.map(bindValue) };
}

function plain(sql: string, values: readonly SqlValue[] = []): BoundStatement {
  return { sql, textId: undefined, expectedChanges: undefined, values };
}

function bindValue(given: unknown): SqlValue {
  const value = checkedValue(given);
  // Copies a view of a part, because a thread gets a copy of the whole buffer behind a view.
  if (value instanceof Uint8Array && value.byteLength !== value.buffer.byteLength) return new Uint8Array(value);
  return value;
}

function sizeOf(values: readonly SqlValue[]): number {
  let size = 0;
  for (const value of values) {
    if (typeof value === 'string') size += value.length;
    else if (value instanceof Uint8Array) size += value.byteLength;
  }
  return size;
}

function toResult(result: SqliteResult): StatementResult {
  return { rows: toRows(result), changes: changesOf(result) };
}
