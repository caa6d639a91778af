import type { Clock } from '../../clock/clock.ts';
import { AppError } from '../../errors/app-error.ts';
import type { Database, DatabaseLocation, Engine, EngineName, SqlConnection } from '../database.ts';
import { type DatabaseDefinition, migrate } from '../migrations.ts';
import { openEngine, runTransaction } from '../open-engine.ts';
import {
  compareDigests,
  copyFacts,
  digestTable,
  digestTables,
  holdsRows,
  placeholders,
  quoted,
  type Row,
  readPages,
  readTables,
  type Table,
  type TableDigest,
} from '../tables.ts';

interface CopyTarget extends DatabaseDefinition {
  readonly location: DatabaseLocation;
  readonly clock: Clock;
  /** Replaces what is there; otherwise a target that holds anything is refused. */
  readonly replace?: boolean;
}

const MAX_COPY_MS = 24 * 60 * 60 * 1000;
/** Both engines limit the values of one statement; SQLite to 32,766. */
const VALUES_PER_STATEMENT = 16_000;

/** A database, and where it is copied to. */
interface Copy {
  readonly source: SqlConnection;
  readonly target: CopyTarget;
}

/**
 * Makes the schemas at the targets, fills them in one transaction and compares counts and checksums before it commits: a
 * copy that was interrupted or does not match leaves all targets as they were. The data of the sources must not change
 * until then, and their schemas must be up to date. Several targets are schemas of one PostgreSQL database.
 */
async function copyAllInto(copies: readonly Copy[]): Promise<TableDigest[][]> {
  await using opened = new AsyncDisposableStack();
  const places: (Copy & { readonly engine: Engine })[] = [];
  for (const copy of copies) {
    const engine = await openEngine(withoutPooler(copy.target.location));
    opened.defer(() => engine.close());
    places.push({ ...copy, engine });
  }
  for (const { target, engine } of places) if (!target.replace) await refuseUnlessEmpty(engine, target.name);
  for (const { target, engine } of places) await migrate(engine, target, target.clock, target.location);
  const [first] = places;
  if (first === undefined) return [];
  return await runTransaction(first.engine, first.target.clock, { timeoutMs: MAX_COPY_MS }, async (connection) => {
    const digests: TableDigest[][] = [];
    for (const { source, target } of places) {
      if (target.location.engine === 'postgres') await enterSchema(connection, target.location.schema);
      digests.push(await fill(source, connection, target.name));
    }
    return digests;
  });
}

/** As `copyAllInto`, for one database. */
export async function copyInto(source: SqlConnection, target: CopyTarget): Promise<TableDigest[]> {
  return (await copyAllInto([{ source, target }])).flat();
}

/** A migration locks its connection, and a copy is one long transaction: neither may pass a pooler. */
function withoutPooler(location: DatabaseLocation): DatabaseLocation {
  if (location.engine === 'sqlite') return location;
  const { url, directUrl = url, schema } = location;
  return { engine: 'postgres', url: directUrl, schema };
}

/** Until the end of the transaction. */
async function enterSchema(connection: SqlConnection, schema: string): Promise<void> {
  await connection.execute({ sql: `SET LOCAL search_path = ${quoted(schema)}`, parameters: [] });
}

async function refuseUnlessEmpty(engine: Engine, name: string): Promise<void> {
  if (await engine.snapshot(holdsRows)) throw new AppError('STORAGE_NOT_EMPTY', { name });
}

async function fill(source: SqlConnection, target: SqlConnection, name: string): Promise<TableDigest[]> {
  const tables = await readTables(target);
  // For tables that refer to themselves or to each other in a circle.
  const defer = target.engine === 'sqlite' ? 'PRAGMA defer_foreign_keys = ON' : 'SET CONSTRAINTS ALL DEFERRED';
  await target.execute({ sql: defer, parameters: [] });
  // Deletes rows of migrations too, because the source has them unless they were removed there.
  for (const table of tables.toReversed()) {
    await target.execute({ sql: `DELETE FROM ${quoted(table.name)}`, parameters: [] });
  }
  const expected: TableDigest[] = [];
  for (const table of await readTables(source)) {
    for await (const page of readPages(source, table)) await insertRows(target, table, page);
    expected.push(await digestTable(source, table));
  }
  await copyFacts(source, target);
  const found = await digestTables(target);
  const problems = compareDigests(expected, found);
  if (problems.length > 0) throw new Error(`the copy of ${name} does not match: ${problems.join('; ')}`);
  return found;
}

async function insertRows(target: SqlConnection, table: Table, rows: readonly Row[]): Promise<void> {
  const { columns } = table;
  const perStatement = Math.max(1, Math.floor(VALUES_PER_STATEMENT / columns.length));
  for (let start = 0; start < rows.length; start += perStatement) {
    const part = rows.slice(start, start + perStatement);
    const parameters = part.flatMap((row) => columns.map((name) => row[name]));
    await target.execute({ sql: insertText(target.engine, table, part.length), parameters });
  }
}

function insertText(engine: EngineName, { name, columns }: Table, count: number): string {
  const width = columns.length;
  const rows = Array.from({ length: count }, (_, index) => `(${placeholders(engine, width, index * width + 1)})`);
  return `INSERT INTO ${quoted(name)} (${columns.map(quoted).join(', ')}) VALUES ${rows.join(', ')}`;
}

interface DatabaseCopy {
  readonly from: Pick<Database, 'snapshot'>;
  readonly to: CopyTarget;
}

/** Copies databases to another place, on the same engine or the other: all or none. SQLite files must be owned by the caller. */
export function copyDatabases(copies: readonly DatabaseCopy[], begun: readonly Copy[] = []): Promise<TableDigest[][]> {
  const [next, ...rest] = copies;
  if (next === undefined) return copyAllInto(begun);
  return next.from.snapshot((source) => copyDatabases(rest, [...begun, { source, target: next.to }]));
}
