import { AppError } from '../errors/app-error.ts';
import type { DatabaseLocation, Engine } from './engine.ts';
import { openSqliteEngine, type SqliteLimits } from './sqlite/sqlite-engine.ts';

export async function openEngine(location: DatabaseLocation, limits: Partial<SqliteLimits> = {}): Promise<Engine> {
  if (location.engine === 'sqlite') return openSqliteEngine(location.file, limits);
  // The driver is loaded only where data is stored in PostgreSQL.
  const { openPostgresEngine } = await import('./postgres/postgres-engine.ts');
  const { describeConnectFailure } = await import('./postgres/postgres-errors.ts');
  const engine = await openPostgresEngine(location.url, location.schema);
  try {
    await engine.ping();
    return engine;
  } catch (error) {
    await engine.close();
    const reason = error instanceof AppError ? describeConnectFailure(error.cause, location.url) : undefined;
    throw reason === undefined ? error : new AppError('DATABASE_UNREACHABLE', { reason }, { cause: error });
  }
}
