import { type Clock, withinTime } from '../clock/clock.ts';
import { AppError, type ErrorCode, errorCode } from '../errors/app-error.ts';
import { copyInto } from './backup/copy-into.ts';
import type { Database, DatabaseLocation, Engine, SqlConnection, Transaction, WriteRefusals } from './database.ts';
import { createQueryBuilder, isSelect } from './kysely-dialect.ts';
import { type DatabaseDefinition, migrate } from './migrations.ts';
import { openEngine, runTransaction } from './open-engine.ts';
import type { SqliteLimits } from './sqlite/sqlite-engine.ts';
import { copySqliteFile, emptySqliteLog, foldLog, makeNewFile, refuseUnfinished } from './sqlite/sqlite-file.ts';
import { compileStatement, type Runnable, type StatementResult } from './statement.ts';

export interface DatabaseOptions extends DatabaseDefinition {
  readonly location: DatabaseLocation;
  readonly clock: Clock;
  readonly limits?: Partial<SqliteLimits>;
}

const TRANSACTION_TIMEOUT_MS = 5000;
const CHECK_TIMEOUT_MS = 2000;

/** Opens a service's database and brings its schema up to date. */
export async function openDatabase<Schema>(options: DatabaseOptions): Promise<Database<Schema>> {
  const { location, name } = options;
  if (location.engine === 'sqlite') await refuseUnfinished(location.file, name);
  const engine = await openEngine(options.location, options.limits);
  try {
    await bringUpToDate(engine, options);
  } catch (error) {
    await engine.close();
    throw error;
  }
  return createDatabase<Schema>(engine, options);
}

/** Migrations hold a lock on their connection for as long as they run, which no pooler can promise. */
async function bringUpToDate(engine: Engine, options: DatabaseOptions): Promise<void> {
  const { location, clock } = options;
  if (location.engine === 'sqlite' || location.directUrl === undefined)
    return migrate(engine, options, clock, location);
  const { directUrl: url, schema } = location;
  const direct = await openEngine({ engine: 'postgres', url, schema });
  try {
    await migrate(direct, options, clock, location);
  } finally {
    await direct.close();
  }
}

function createDatabase<Schema>(engine: Engine, options: DatabaseOptions): Database<Schema> {
  const { name, clock, location } = options;
  const query = createQueryBuilder<Schema>(engine.name, async (compiled) => {
    if (isSelect(compiled)) {
      const rows = await engine.read(compiled);
      return { rows, changes: rows.length };
    }
    const [result] = await engine.write([compiled]);
    return result ?? { rows: [], changes: 0 };
  });
  return {
    name,
    engine: engine.name,
    query,
    statement: (build) => compileStatement(query, build),
    readKeyed: engine.readKeyed,
    read: engine.read,
    write: withRefusals(engine.write),
    transaction: (work, { timeoutMs = TRANSACTION_TIMEOUT_MS, isUrgent = false } = {}) =>
      runTransaction(engine, clock, { timeoutMs, isUrgent }, (connection) =>
        work(createTransaction<Schema>(connection)),
      ),
    snapshot: engine.snapshot,
    check: () => checkWithin(clock, CHECK_TIMEOUT_MS, engine.ping()),
    statistics: engine.statistics,
    async backupTo(file) {
      if (location.engine === 'sqlite') return copySqliteFile(location.file, file);
      await makeNewFile(file);
      await engine.snapshot((source) => copyInto(source, { ...options, location: { engine: 'sqlite', file } }));
      await foldLog(file);
    },
    async emptyLog() {
      if (engine.name === 'sqlite') await engine.exclusive(emptySqliteLog);
    },
    close: engine.close,
  };
}

/** Lets each write name the errors for a conflict and for a duplicate. */
export function withRefusals(
  write: (statements: readonly Runnable[]) => Promise<StatementResult[]>,
): Database['write'] {
  const refusing = (statements: readonly Runnable[], refusals?: WriteRefusals): Promise<StatementResult[]> => {
    if (refusals === undefined) return write(statements);
    const { conflict, duplicate, details } = refusals;
    const codes: Readonly<Record<string, ErrorCode | undefined>> = {
      STORAGE_CONFLICT: conflict,
      STORAGE_DUPLICATE: duplicate,
    };
    return write(statements).catch((error) => {
      const code = codes[errorCode(error)];
      throw code === undefined ? error : new AppError(code, details);
    });
  };
  return refusing as Database['write'];
}

function createTransaction<Schema>(connection: SqlConnection): Transaction<Schema> {
  return { query: createQueryBuilder<Schema>(connection.engine, connection.execute), run: connection.execute };
}

async function checkWithin(clock: Clock, ms: number, ping: Promise<void>): Promise<void> {
  try {
    await withinTime(clock, ms, ping, () => {
      throw new AppError('STORAGE_UNAVAILABLE');
    });
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('STORAGE_UNAVAILABLE', {}, { cause: error });
  }
}
