import { createHash } from 'node:crypto';
import type { Compilable, CompiledQuery, Kysely, SchemaModule } from 'kysely';
import type { Clock } from '../clock/clock.ts';
import { AppError } from '../errors/app-error.ts';
import type { DatabaseLocation, Engine, EngineName, SqlConnection } from './database.ts';
import { createMigrationBuilder } from './kysely-dialect.ts';
import { FACTS_COLUMNS, FACTS_TABLE, hasColumn, MIGRATIONS_TABLE, readTables } from './tables.ts';

/** What a migration builds its statements with. Rows are loosely typed: the schema is what it was at that time. */
export interface MigrationTools {
  readonly engine: EngineName;
  /** Column types are text, integer, real and blob, on both engines: see `kysely-dialect.ts`. */
  readonly schema: SchemaModule;
  readonly query: Kysely<Record<string, Record<string, unknown>>>;
}

/** One step of a schema, forward only. Once released it never changes. */
export interface Migration {
  /** Sorts by its beginning: `0001-jobs`. */
  readonly id: string;
  /**
   * Where several processes share the database: finds those of an older version that must not run on the new schema. While it
   * finds any, the migration is refused. Not part of the checksum.
   */
  readonly inUse?: string;
  /**
   * The id of an earlier migration: programs that know it, and not this one, go on working, so that instances of both versions
   * may run while one after the other is replaced. None unless given. Not part of the checksum.
   */
  readonly readableSince?: string;
  statements(tools: MigrationTools): readonly (Compilable | CompiledQuery)[];
}

/** The database of a service: its name, and the migrations that create its schema. */
export interface DatabaseDefinition {
  readonly name: string;
  readonly migrations: readonly Migration[];
}

interface PlannedMigration {
  readonly id: string;
  /** Tells later whether the statements are still the same. */
  readonly checksum: string;
  readonly statements: readonly CompiledQuery[];
  readonly inUse: string | undefined;
  readonly readableSince: string | null;
}

export function planMigrations(engine: EngineName, migrations: readonly Migration[]): PlannedMigration[] {
  const query = createMigrationBuilder<Record<string, Record<string, unknown>>>(engine);
  return migrations.map(({ id, inUse, readableSince = null, statements }, index) => {
    const before = migrations[index - 1]?.id;
    if (before !== undefined && before >= id) throw new TypeError(`migration ${id} must sort after ${before}`);
    if (readableSince !== null && !migrations.slice(0, index).some((earlier) => earlier.id === readableSince)) {
      throw new TypeError(`readableSince of migration ${id} must be the id of an earlier one`);
    }
    const listed = statements({ engine, schema: query.schema, query });
    const compiled = listed.map((statement) => ('compile' in statement ? statement.compile() : statement));
    const text = JSON.stringify(compiled.map(({ sql, parameters }) => [sql, parameters.map(String)]));
    return {
      id,
      inUse,
      readableSince,
      statements: compiled,
      checksum: createHash('sha256').update(text).digest('hex'),
    };
  });
}

interface Applied {
  readonly id: string;
  readonly checksum: string;
  /** `readableSince` of the program that applied it. Not there: it was not asked for. */
  readonly readable_since?: string | null;
}

interface MigrationRun {
  readonly connection: SqlConnection;
  readonly location: DatabaseLocation;
  readonly name: string;
  readonly plan: readonly PlannedMigration[];
  readonly clock: Pick<Clock, 'now'>;
}

const READABLE_SINCE = 'readable_since';

/** Also for waiting until another instance has done it. */
const MAX_STATEMENT_MS = 24 * 60 * 60 * 1000;

/** The engines differ in little; `?` and `$1` cannot be written alike. */
const DIFFERENCES = {
  sqlite: {
    begin: 'BEGIN EXCLUSIVE',
    columns: 'id text PRIMARY KEY, applied_at integer NOT NULL, checksum text NOT NULL, readable_since text',
    end: 'STRICT',
    values: '?, ?, ?, ?',
  },
  postgres: {
    begin: 'BEGIN',
    columns: 'id text COLLATE "C" PRIMARY KEY, applied_at bigint NOT NULL, checksum text NOT NULL, readable_since text',
    end: '',
    values: '$1, $2, $3, $4',
  },
} as const;

/**
 * Brings the schema up to date. All missing migrations and the rows that record them are one transaction: a killed
 * process leaves the old schema or the new one, and a first start waits for the disk once. Instances that start at the
 * same time do it one after another.
 */
export async function migrate(
  engine: Engine,
  { name, migrations }: DatabaseDefinition,
  clock: Pick<Clock, 'now'>,
  location: DatabaseLocation,
): Promise<void> {
  const plan = planMigrations(engine.name, migrations);
  const options = { timeoutMs: MAX_STATEMENT_MS, discard: true };
  await engine.exclusive((connection) => runMigrations({ connection, location, name, plan, clock }), options);
}

/**
 * For a database that must not be changed. A newer schema that this program can read is accepted where it is to be served, not
 * where it is to be copied into an older one. Returns how many of this program's migrations it has.
 */
export async function refuseNewerSchema(
  connection: SqlConnection,
  { name, migrations }: DatabaseDefinition,
  purpose: 'serve' | 'copy',
): Promise<number> {
  const isServed = purpose === 'serve' && (await hasColumn(connection, MIGRATIONS_TABLE, READABLE_SINCE));
  const columns = isServed ? `id, checksum, ${READABLE_SINCE}` : 'id, checksum';
  const { rows } = await runner(connection)(`SELECT ${columns} FROM ${MIGRATIONS_TABLE} ORDER BY id`);
  return migrations.length - missingMigrations(name, planMigrations(connection.engine, migrations), rows).length;
}

async function runMigrations(given: MigrationRun): Promise<void> {
  const run = runner(given.connection);
  if (given.location.engine === 'sqlite') {
    // As SQLite advises for changing tables that others refer to; the references are checked before the commit.
    await run('PRAGMA foreign_keys = OFF');
    try {
      await runMissing(given);
    } finally {
      await run('PRAGMA foreign_keys = ON');
    }
  } else {
    // The connection is thrown away afterwards, and with it the lock and the setting.
    const { schema } = given.location;
    await run('SET statement_timeout = 0');
    await run('SELECT pg_advisory_lock(hashtextextended($1, 0))', [`migrations ${schema}`]);
    await run(`CREATE SCHEMA IF NOT EXISTS "${schema}"`);
    await runMissing(given);
  }
}

async function runMissing({ connection, name, plan, clock }: MigrationRun): Promise<void> {
  const { begin, columns, end, values } = DIFFERENCES[connection.engine];
  const run = runner(connection);
  await run(begin);
  try {
    await run(`CREATE TABLE IF NOT EXISTS ${MIGRATIONS_TABLE} (${columns}) ${end}`);
    await run(`CREATE TABLE IF NOT EXISTS ${FACTS_TABLE} (${FACTS_COLUMNS[connection.engine]}) ${end}`);
    if (!(await hasColumn(connection, MIGRATIONS_TABLE, READABLE_SINCE))) {
      await run(`ALTER TABLE ${MIGRATIONS_TABLE} ADD COLUMN ${READABLE_SINCE} text`);
    }
    const { rows } = await run(`SELECT id, checksum, ${READABLE_SINCE} FROM ${MIGRATIONS_TABLE} ORDER BY id`);
    const missing = missingMigrations(name, plan, rows);
    for (const { id, checksum, statements, inUse, readableSince } of missing) {
      // The table that it looks into is one of those that were there before.
      if (inUse !== undefined && connection.engine === 'postgres' && rows.length > 0) {
        const { rows: running } = await run(inUse);
        if (running.length > 0) throw new AppError('SCHEMA_IN_USE', { name, ids: running.map((one) => one.id) });
      }
      for (const statement of statements) await connection.execute(statement);
      await run(`INSERT INTO ${MIGRATIONS_TABLE} (id, applied_at, checksum, ${READABLE_SINCE}) VALUES (${values})`, [
        id,
        clock.now(),
        checksum,
        readableSince,
      ]);
    }
    if (missing.length > 0) await checkSchema(connection, name);
    await run('COMMIT');
  } catch (error) {
    await run('ROLLBACK').catch(() => undefined);
    throw error;
  }
}

function runner(connection: SqlConnection) {
  return (sql: string, parameters: readonly unknown[] = []) => connection.execute<Applied>({ sql, parameters });
}

/** Returns the missing migrations. The applied ones must be the first of this program's, or all of them and newer ones that it can read. */
function missingMigrations(
  name: string,
  plan: readonly PlannedMigration[],
  applied: readonly Applied[],
): readonly PlannedMigration[] {
  const known = new Set(plan.map(({ id }) => id));
  const newest = plan.at(-1)?.id ?? '';
  const ours = applied.filter(({ id }) => known.has(id));
  const unknown = applied.filter(({ id }) => !known.has(id));
  const isReadable =
    ours.length === plan.length &&
    unknown.every(({ id, readable_since: since }) => id > newest && typeof since === 'string' && since <= newest);
  if (unknown.length > 0 && !isReadable)
    throw new AppError('SCHEMA_TOO_NEW', { name, ids: unknown.map(({ id }) => id) });
  for (const [index, { id, checksum }] of ours.entries()) {
    const planned = plan[index];
    if (planned?.id !== id || planned.checksum !== checksum) throw new AppError('SCHEMA_CHANGED', { name, id });
  }
  return plan.slice(ours.length);
}

/** Every table must have a primary key, and every reference must lead somewhere. */
async function checkSchema(connection: SqlConnection, name: string): Promise<void> {
  await readTables(connection);
  if (connection.engine !== 'sqlite') return;
  const { rows } = await connection.execute({ sql: 'PRAGMA foreign_key_check', parameters: [] });
  if (rows.length > 0) throw new Error(`the migrations of ${name} would leave rows that refer to nothing`);
}
