import { createHash } from 'node:crypto';
import type { Compilable, CompiledQuery, Kysely, SchemaModule } from 'kysely';
import type { EngineName } from './database.ts';
import { createPortableSchema, createQueryBuilder } from './kysely-dialect.ts';

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
  statements(tools: MigrationTools): readonly (Compilable | CompiledQuery)[];
}

/** What a service says of its database: its name, and how its schema came to be. */
export interface DatabaseDefinition {
  readonly name: string;
  readonly migrations: readonly Migration[];
}

export interface PlannedMigration {
  readonly id: string;
  /** Tells later whether the statements are still the same. */
  readonly checksum: string;
  readonly statements: readonly CompiledQuery[];
}

export function planMigrations(engine: EngineName, migrations: readonly Migration[]): PlannedMigration[] {
  const builder = createQueryBuilder<Record<string, Record<string, unknown>>>(engine, () => {
    throw new Error('a migration lists its statements; it does not run them');
  });
  const query = builder.withPlugin(createPortableSchema(engine));
  return migrations.map(({ id, statements }, index) => {
    const before = migrations[index - 1]?.id;
    if (before !== undefined && before >= id) throw new TypeError(`migration ${id} must sort after ${before}`);
    const listed = statements({ engine, schema: query.schema, query });
    const compiled = listed.map((statement) => ('compile' in statement ? statement.compile() : statement));
    const text = JSON.stringify(compiled.map(({ sql, parameters }) => [sql, parameters.map(String)]));
    return { id, statements: compiled, checksum: createHash('sha256').update(text).digest('hex') };
  });
}
