import type { Database } from '../../platform/database/database.ts';
import type { CatalogueRow, CompletionsSchema } from './completions-schema.ts';

/** Updates of the catalogue of models. */
export interface CatalogueStore {
  /** The newest first. */
  newest(limit: number): Promise<readonly CatalogueRow[]>;
  /** Stores an update, or when it was checked last, and removes all but the newest `versions`. */
  keep(row: CatalogueRow, versions: number): Promise<void>;
}

export function createCatalogueStore(database: Database<CompletionsSchema>): CatalogueStore {
  const { query } = database;
  const newest = (limit: number) =>
    query.selectFrom('catalogues').where('id', '>', '').orderBy('id', 'desc').limit(limit);
  return {
    newest: (limit) => database.readKeyed(newest(limit).selectAll().compile()),
    async keep(row, versions) {
      const { source, checked_at } = row;
      await database.write([
        query
          .insertInto('catalogues')
          .values(row)
          .onConflict((conflict) => conflict.column('id').doUpdateSet({ source, checked_at }))
          .compile(),
        query.deleteFrom('catalogues').where('id', 'not in', newest(versions).select('id')).compile(),
      ]);
    },
  };
}
