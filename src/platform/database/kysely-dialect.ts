import {
  type ColumnDefinitionNode,
  type CompiledQuery,
  CreateTableNode,
  type DatabaseConnection,
  DataTypeNode,
  type Driver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryResult,
  RawNode,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
import type { EngineName } from './database.ts';
import type { StatementResult } from './statement.ts';

type Execute = (query: CompiledQuery) => Promise<StatementResult>;

/** Kysely's query builder for an engine; what it executes goes through `execute`. */
export function createQueryBuilder<Schema>(
  engine: EngineName,
  execute: Execute,
  compiler = engine === 'sqlite' ? new SqliteQueryCompiler() : new PostgresQueryCompiler(),
): Kysely<Schema> {
  return new Kysely<Schema>({
    dialect: {
      createAdapter: () => (engine === 'sqlite' ? new SqliteAdapter() : new PostgresAdapter()),
      createQueryCompiler: () => compiler,
      createIntrospector: (query) =>
        engine === 'sqlite' ? new SqliteIntrospector(query) : new PostgresIntrospector(query),
      createDriver: () => createDriver(execute),
    },
  });
}

/** True for a query that certainly changes nothing. */
export function isSelect({ query }: CompiledQuery): boolean {
  return query.kind === 'SelectQueryNode';
}

function createDriver(execute: Execute): Driver {
  const connection: DatabaseConnection = {
    async executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
      const { rows, changes } = await execute(query);
      return { rows: rows as Row[], numAffectedRows: BigInt(changes) };
    },
    // biome-ignore lint/correctness/useYield: it refuses, and must still have the type of a generator.
    async *streamQuery() {
      throw new Error('rows are not streamed: read them page by page');
    },
  };
  const refuseTransaction = async (): Promise<void> => {
    throw new Error('use database.transaction');
  };
  return {
    init: async () => undefined,
    acquireConnection: async () => connection,
    beginTransaction: refuseTransaction,
    commitTransaction: refuseTransaction,
    rollbackTransaction: refuseTransaction,
    releaseConnection: async () => undefined,
    destroy: async () => undefined,
  };
}

/**
 * The column types that mean the same on both engines, as migrations write them, and what they become.
 *
 * - `text`: ids, JSON, everything readable. Sorted by its bytes, as SQLite does, whatever language the PostgreSQL
 *   server was set up for; so ids sort alike.
 * - `integer`: 64 bits. Read as a number where that is exact, otherwise as a bigint. Times are whole milliseconds since
 *   1970; flags are 1 and 0.
 * - `real`, `blob`.
 *
 * No column counts by itself (no sequences): rows keep their keys when they are copied to another engine. Every table
 * has a primary key. `like` ignores case on SQLite only: compare `lower(...)`.
 */
const COLUMN_TYPES: ReadonlyMap<string, Readonly<Record<EngineName, string>>> = new Map([
  ['text', { sqlite: 'text', postgres: 'text collate "C"' }],
  ['integer', { sqlite: 'integer', postgres: 'bigint' }],
  ['real', { sqlite: 'real', postgres: 'double precision' }],
  ['blob', { sqlite: 'blob', postgres: 'bytea' }],
]);

/** Builds the statements of migrations: the same source for both engines. */
export function createMigrationBuilder<Schema>(engine: EngineName): Kysely<Schema> {
  const refuse: Execute = () => {
    throw new Error('a migration lists its statements; it does not run them');
  };
  return createQueryBuilder<Schema>(
    engine,
    refuse,
    engine === 'sqlite' ? new PortableSqliteCompiler() : new PortablePostgresCompiler(),
  );
}

class PortableSqliteCompiler extends SqliteQueryCompiler {
  protected override visitColumnDefinition(node: ColumnDefinitionNode): void {
    super.visitColumnDefinition(portableColumn(node, 'sqlite'));
  }

  /** SQLite then refuses values of another type, as PostgreSQL does by itself. */
  protected override visitCreateTable(node: CreateTableNode): void {
    super.visitCreateTable(CreateTableNode.cloneWithEndModifier(node, RawNode.createWithSql('strict')));
  }
}

class PortablePostgresCompiler extends PostgresQueryCompiler {
  protected override visitColumnDefinition(node: ColumnDefinitionNode): void {
    super.visitColumnDefinition(portableColumn(node, 'postgres'));
  }
}

function portableColumn(node: ColumnDefinitionNode, engine: EngineName): ColumnDefinitionNode {
  const column = node.column.column.name;
  const type = DataTypeNode.is(node.dataType) ? COLUMN_TYPES.get(node.dataType.dataType) : undefined;
  if (type === undefined) throw new TypeError(`column ${column}: use text, integer, real or blob`);
  if (node.autoIncrement || node.identity) throw new TypeError(`column ${column}: columns do not count by themselves`);
  return { ...node, dataType: RawNode.createWithSql(type[engine]) };
}
