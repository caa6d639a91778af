import {
  type CompiledQuery,
  type DatabaseConnection,
  type Driver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryResult,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
import type { EngineName } from './engine.ts';
import type { StatementResult } from './statement.ts';

type Execute = (query: CompiledQuery) => Promise<StatementResult>;

/** Kysely's query builder for an engine; what it executes goes through `execute`. */
export function createQueryBuilder<Schema>(engine: EngineName, execute: Execute): Kysely<Schema> {
  return new Kysely<Schema>({
    dialect: {
      createAdapter: () => (engine === 'sqlite' ? new SqliteAdapter() : new PostgresAdapter()),
      createQueryCompiler: () => (engine === 'sqlite' ? new SqliteQueryCompiler() : new PostgresQueryCompiler()),
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
