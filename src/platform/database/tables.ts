import { hash } from 'node:crypto';
import type { AnyDatabase, EngineName, SqlConnection } from './database.ts';
import type { SqlValue } from './statement.ts';

export const MIGRATIONS_TABLE = 'schema_migrations';

/** A table as the database itself describes it. */
export interface Table {
  readonly name: string;
  /** Sorted by name, because engines return them in different orders. */
  readonly columns: readonly string[];
  readonly primaryKey: readonly string[];
  /** Tables that its foreign keys point at. */
  readonly references: readonly string[];
}

export type Row = Readonly<Record<string, SqlValue>>;

/** One row per column: its table, its name, its place in the primary key (from 1; 0 when it is not in it). */
const COLUMNS: Readonly<Record<EngineName, string>> = {
  sqlite: `SELECT t.name AS table_name, c.name AS column_name, c.pk AS key_place
    FROM pragma_table_list() t, pragma_table_info(t.name) c
    WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'`,
  postgres: `SELECT t.relname AS table_name, c.attname AS column_name,
      coalesce(array_position(string_to_array(k.indkey::text, ' '), c.attnum::text), 0) AS key_place
    FROM pg_class t JOIN pg_attribute c ON c.attrelid = t.oid AND c.attnum > 0 AND NOT c.attisdropped
    LEFT JOIN pg_index k ON k.indrelid = t.oid AND k.indisprimary
    WHERE t.relnamespace = to_regnamespace(current_schema()) AND t.relkind IN ('r', 'p')`,
};

const REFERENCES: Readonly<Record<EngineName, string>> = {
  sqlite: `SELECT DISTINCT t.name AS table_name, f."table" AS target
    FROM pragma_table_list() t, pragma_foreign_key_list(t.name) f WHERE t.schema = 'main' AND t.type = 'table'`,
  postgres: `SELECT DISTINCT t.relname AS table_name, o.relname AS target
    FROM pg_constraint f JOIN pg_class t ON t.oid = f.conrelid JOIN pg_class o ON o.oid = f.confrelid
    WHERE f.contype = 'f' AND t.relnamespace = to_regnamespace(current_schema())`,
};

interface ColumnRow {
  readonly table_name: string;
  readonly column_name: string;
  readonly key_place: number;
}

/** Returns all tables of the service, each after those that it refers to: not the migrations and facts. */
export async function readTables(connection: SqlConnection): Promise<Table[]> {
  const { engine } = connection;
  const columns = await connection.execute<ColumnRow>({ sql: COLUMNS[engine], parameters: [] });
  const links = await connection.execute<{ table_name: string; target: string }>({
    sql: REFERENCES[engine],
    parameters: [],
  });
  const byTable = Map.groupBy(columns.rows, (row) => row.table_name);
  byTable.delete(MIGRATIONS_TABLE);
  byTable.delete(FACTS_TABLE);
  const tables = [...byTable].map(([name, rows]): Table => {
    const key = rows.filter((row) => row.key_place > 0).sort((a, b) => a.key_place - b.key_place);
    if (key.length === 0) throw new Error(`the table ${name} has no primary key`);
    return {
      name,
      columns: rows.map((row) => row.column_name).sort(),
      primaryKey: key.map((row) => row.column_name),
      references: links.rows.filter((row) => row.table_name === name).map((row) => row.target),
    };
  });
  return inOrderOfReference(tables.sort((a, b) => (a.name < b.name ? -1 : 1)));
}

/** Tables that refer to each other in a circle keep the order of their names. */
function inOrderOfReference(tables: readonly Table[]): Table[] {
  const ordered = new Set<Table>();
  const begun = new Set<Table>();
  const place = (table: Table): void => {
    if (begun.has(table)) return;
    begun.add(table);
    for (const target of tables) if (table.references.includes(target.name)) place(target);
    ordered.add(table);
  };
  for (const table of tables) place(table);
  return [...ordered];
}

const FIRST_PAGE = 16;
const MAX_PAGE = 1024;
const PAGE_SIZE_GOAL = 2 * 1024 * 1024;

/** Reads a table page by page in the order of its primary key; pages shrink when rows are large. */
export async function* readPages(connection: SqlConnection, table: Table): AsyncGenerator<readonly Row[]> {
  const key = table.primaryKey.map(quoted).join(', ');
  const columns = table.columns.map(quoted).join(', ');
  const slots = placeholders(connection.engine, table.primaryKey.length);
  let after: readonly SqlValue[] = [];
  for (let limit = FIRST_PAGE; ; ) {
    const where = after.length === 0 ? '' : `WHERE (${key}) > (${slots})`;
    const sql = `SELECT ${columns} FROM ${quoted(table.name)} ${where} ORDER BY ${key} LIMIT ${limit}`;
    const { rows } = await connection.execute<Row>({ sql, parameters: after });
    const last = rows.at(-1);
    if (last === undefined) return;
    yield rows;
    if (rows.length < limit) return;
    after = table.primaryKey.map((name) => last[name] as SqlValue);
    const size = rows.reduce((sum, row) => sum + sizeOf(row), 0);
    limit = Math.min(MAX_PAGE, Math.max(1, size > PAGE_SIZE_GOAL ? limit >> 1 : limit << 1));
  }
}

export async function holdsRows(connection: SqlConnection): Promise<boolean> {
  for (const table of await readTables(connection)) {
    const { rows } = await connection.execute({ sql: `SELECT 1 FROM ${quoted(table.name)} LIMIT 1`, parameters: [] });
    if (rows.length > 0) return true;
  }
  return false;
}

export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export function placeholders(engine: EngineName, count: number, from = 1): string {
  return Array.from({ length: count }, (_, index) => (engine === 'sqlite' ? '?' : `$${from + index}`)).join(', ');
}

function sizeOf(row: Row): number {
  let size = 0;
  for (const value of Object.values(row)) {
    size += typeof value === 'string' || value instanceof Uint8Array ? value.length : 8;
  }
  return size;
}

/** A digest of a table, by which two copies can be compared, also on different engines. */
export interface TableDigest {
  readonly name: string;
  readonly rows: number;
  readonly checksum: string;
}

const MODULUS = 2n ** 256n;

export async function digestTables(connection: SqlConnection): Promise<TableDigest[]> {
  const digests: TableDigest[] = [];
  for (const table of await readTables(connection)) digests.push(await digestTable(connection, table));
  return digests;
}

/** The sum of the checksums of all rows: it does not depend on their order, which engines may see differently. */
export async function digestTable(connection: SqlConnection, table: Table): Promise<TableDigest> {
  let rows = 0;
  let sum = 0n;
  for await (const page of readPages(connection, table)) {
    rows += page.length;
    for (const row of page) sum += BigInt(`0x${hash('sha256', canonicalRow(table.columns, row))}`);
    sum %= MODULUS;
  }
  return { name: table.name, rows, checksum: sum.toString(16).padStart(64, '0') };
}

/** Tables that differ, are missing, or are too many. */
export function compareDigests(expected: readonly TableDigest[], found: readonly TableDigest[]): string[] {
  const left = new Map(found.map((table) => [table.name, table]));
  const problems: string[] = [];
  for (const { name, rows, checksum } of expected) {
    const other = left.get(name);
    left.delete(name);
    if (other === undefined) problems.push(`table ${name} is missing`);
    else if (other.rows !== rows) problems.push(`table ${name} has ${other.rows} rows instead of ${rows}`);
    else if (other.checksum !== checksum) problems.push(`table ${name} has other contents`);
  }
  for (const name of left.keys()) problems.push(`table ${name} should not exist`);
  return problems;
}

function canonicalRow(columns: readonly string[], row: Row): string {
  return columns.map((name) => `${name}=${canonicalValue(row[name])};`).join('');
}

/** Encodes a value with its type and length, so that different values never have the same text. */
function canonicalValue(value: SqlValue | undefined): string {
  if (typeof value === 'string') return `t${value.length}:${value}`;
  if (value instanceof Uint8Array) return `b${value.length}:${Buffer.from(value).toString('hex')}`;
  return value === null ? 'null' : `n${value}`;
}

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

const FIND_COLUMN: Readonly<Record<EngineName, string>> = {
  sqlite: 'SELECT 1 FROM pragma_table_info(?) WHERE name = ?',
  postgres:
    'SELECT 1 FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1 AND column_name = $2',
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

export async function hasColumn(connection: SqlConnection, table: string, column: string): Promise<boolean> {
  const { rows } = await connection.execute({ sql: FIND_COLUMN[connection.engine], parameters: [table, column] });
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
