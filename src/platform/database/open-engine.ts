import { type Clock, pause, withinTime } from '../clock/clock.ts';
import { AppError, errorCode } from '../errors/app-error.ts';
import type { DatabaseLocation, Engine, EngineName, SqlConnection } from './database.ts';
import { openSqliteEngine, type SqliteLimits } from './sqlite/sqlite-engine.ts';
import type { StatementResult } from './statement.ts';

export async function openEngine(location: DatabaseLocation, limits: Partial<SqliteLimits> = {}): Promise<Engine> {
  if (location.engine === 'sqlite') return openSqliteEngine(location.file, limits);
  // The driver is loaded only where data is stored in PostgreSQL.
  const { url, schema, directUrl, pool: shared } = location;
  const { describeConnectFailure, openPostgresEngine } = await import('./postgres/postgres-engine.ts');
  const { openConnectionPool } = await import('./postgres/connection-pool.ts');
  const pool = shared ?? (await openConnectionPool(url, { isPooled: directUrl !== undefined }));
  const engine = openPostgresEngine(pool, schema);
  async function close(): Promise<void> {
    await engine.close();
    if (shared === undefined) await pool.close();
  }
  try {
    await engine.ping();
    return { ...engine, close };
  } catch (error) {
    await close();
    const reason = error instanceof AppError ? describeConnectFailure(error.cause, location.url) : undefined;
    throw reason === undefined ? error : new AppError('DATABASE_UNREACHABLE', { reason }, { cause: error });
  }
}

/** PostgreSQL gets the same limit: a statement that waits for a lock would outlive its transaction. */
const BEGIN: Readonly<Record<EngineName, (timeoutMs: number) => string>> = {
  sqlite: () => 'BEGIN IMMEDIATE',
  postgres: (timeoutMs) => `BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL statement_timeout = ${timeoutMs};
    SET LOCAL idle_in_transaction_session_timeout = ${timeoutMs}`,
};
const ATTEMPTS = 5;
const FIRST_PAUSE_MS = 5;

/**
 * Runs `work` in a transaction that behaves as if nothing else ran at the same time. PostgreSQL may refuse that afterwards
 * (STORAGE_CONFLICT without details): then `work` runs again, a few times. It is given up after `timeoutMs`, because
 * on SQLite every other writer waits for it.
 */
export async function runTransaction<T>(
  engine: Engine,
  clock: Pick<Clock, 'after'>,
  options: { readonly timeoutMs: number; readonly isUrgent?: boolean },
  work: (connection: SqlConnection) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await engine.exclusive((connection) => attemptOnce(connection, clock, options.timeoutMs, work), options);
    } catch (error) {
      if (!isSerialisationFailure(error) || attempt === ATTEMPTS) throw error;
      await pause(clock, FIRST_PAUSE_MS * 2 ** attempt);
    }
  }
}

async function attemptOnce<T>(
  connection: SqlConnection,
  clock: Pick<Clock, 'after'>,
  timeoutMs: number,
  work: (connection: SqlConnection) => Promise<T>,
): Promise<T> {
  const control = (sql: string): Promise<StatementResult> => connection.execute({ sql, parameters: [] });
  let over: unknown;
  const guarded: SqlConnection = {
    engine: connection.engine,
    async execute(statement) {
      if (over !== undefined) throw over;
      try {
        return await connection.execute(statement);
      } catch (error) {
        // In PostgreSQL a statement that fails ends its transaction; so it does here, on both.
        over ??= error;
        throw error;
      }
    },
  };
  await control(BEGIN[connection.engine](timeoutMs));
  try {
    const result = await withinTime(clock, timeoutMs, work(guarded), () => {
      throw new AppError('CALL_TIMEOUT', { timeoutMs });
    });
    if (over !== undefined) throw over;
    over = new AppError('CALL_CANCELLED');
    await control('COMMIT');
    return result;
  } catch (error) {
    over ??= error;
    await control('ROLLBACK').catch(() => undefined);
    throw error;
  }
}

/** The engines' own refusals carry no details; those of `expectChanges` do, and trying again would not help them. */
function isSerialisationFailure(error: unknown): boolean {
  return errorCode(error) === 'STORAGE_CONFLICT' && Object.keys((error as AppError).details).length === 0;
}
