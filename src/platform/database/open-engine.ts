import type { DatabaseLocation, Engine } from './engine.ts';
import { openSqliteEngine, type SqliteLimits } from './sqlite/sqlite-engine.ts';

export async function openEngine(location: DatabaseLocation, limits: Partial<SqliteLimits> = {}): Promise<Engine> {
  if (location.engine === 'sqlite') return openSqliteEngine(location.file, limits);
  // Only who stores in PostgreSQL loads its driver.
  const { openPostgresEngine } = await import('./postgres/postgres-engine.ts');
  return openPostgresEngine(location.url, location.schema);
}
