import type { AnyDatabase, EngineName, SqlConnection } from './database.ts';

/**
 * What a database says about itself, by name; created together with the table of migrations. It travels with the data
 * into backups and copies.
 */
export const FACTS_TABLE = 'database_facts';

/** The fingerprint of the secret key that secrets in this database are encrypted with. */
export const SECRET_KEY_FACT = 'secret_key';

export const FACTS_COLUMNS: Readonly<Record<EngineName, string>> = {
  sqlite: 'name text PRIMARY KEY, value text NOT NULL',
  postgres: 'name text COLLATE "C" PRIMARY KEY, value text NOT NULL',
};

const FIND_TABLE: Readonly<Record<EngineName, string>> = {
  sqlite: "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?",
  postgres: 'SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1',
};

/** SQLite and PostgreSQL write parameters differently. */
const PARAMETERS: Readonly<Record<EngineName, readonly [string, string]>> = {
  sqlite: ['?1', '?2'],
  postgres: ['$1', '$2'],
};

export async function hasTable(connection: SqlConnection, name: string): Promise<boolean> {
  const { rows } = await connection.execute({ sql: FIND_TABLE[connection.engine], parameters: [name] });
  return rows.length > 0;
}

/** Undefined also where the database is older than the table of facts. */
export async function readFact(connection: SqlConnection, name: string): Promise<string | undefined> {
  if (!(await hasTable(connection, FACTS_TABLE))) return undefined;
  const [first] = PARAMETERS[connection.engine];
  const sql = `SELECT value FROM ${FACTS_TABLE} WHERE name = ${first}`;
  const { rows } = await connection.execute<{ value: string }>({ sql, parameters: [name] });
  return rows[0]?.value;
}

/** The fact of an open database. Does not start the thread for longer reads: every start asks. */
export function findFact(database: AnyDatabase, name: string): Promise<string | undefined> {
  const { engine } = database;
  return readFact(
    { engine, execute: async (statement) => ({ rows: await database.readKeyed(statement), changes: 0 }) },
    name,
  );
}

/** The target has its table of facts already, as every migrated database has. */
export async function copyFacts(source: SqlConnection, target: SqlConnection): Promise<void> {
  const value = await readFact(source, SECRET_KEY_FACT);
  if (value === undefined) return;
  await target.execute({ sql: replaceText(target.engine), parameters: [SECRET_KEY_FACT, value] });
}

/** Stores a fact unless there is one, and returns the stored one: of several instances that start together, one wins. */
export async function settleFact(database: AnyDatabase, name: string, value: string): Promise<string> {
  const [first, second] = PARAMETERS[database.engine];
  const sql = `INSERT INTO ${FACTS_TABLE} (name, value) VALUES (${first}, ${second}) ON CONFLICT (name) DO NOTHING`;
  await database.transaction(async ({ run }) => void (await run({ sql, parameters: [name, value] })));
  return (await findFact(database, name)) ?? value;
}

export async function replaceFact(database: AnyDatabase, name: string, value: string): Promise<void> {
  const statement = { sql: replaceText(database.engine), parameters: [name, value] };
  await database.transaction(async ({ run }) => void (await run(statement)));
}

function replaceText(engine: EngineName): string {
  const [first, second] = PARAMETERS[engine];
  return `INSERT INTO ${FACTS_TABLE} (name, value) VALUES (${first}, ${second}) ON CONFLICT (name) DO UPDATE SET value = ${second}`;
}
