import type { Database } from '../../platform/database/database.ts';
import type { CatalogueRow, CompletionsSchema, UpstreamObjectRow } from './completions-schema.ts';

/** Whose the objects are that model APIs keep. */
export interface ObjectStore {
  /** An object that is known already keeps its owner. */
  add(objects: readonly UpstreamObjectRow[]): Promise<void>;
  /** The API that keeps an object of this owner; undefined when it is not theirs. */
  apiOf(id: string, owner: string): Promise<string | undefined>;
  /** An object of this owner, wherever it is kept. */
  find(id: string, owner: string): Promise<UpstreamObjectRow | undefined>;
  /** Objects of one kind of this owner, the latest first, beginning after one of them. */
  list(query: ObjectQuery): Promise<readonly UpstreamObjectRow[]>;
  count(owner: string, kind: string): Promise<number>;
  remove(id: string, owner: string): Promise<void>;
  /** Removes rows without a kind that are older than a moment, at most `limit` of them; returns how many. */
  removeBefore(time: number, limit: number): Promise<number>;
  removeOf(owner: string): Promise<void>;
}

export interface ObjectQuery {
  readonly owner: string;
  readonly kind: string;
  readonly after?: Pick<UpstreamObjectRow, 'id' | 'created_at'> | undefined;
  readonly limit: number;
}

export function createObjectStore(database: Database<CompletionsSchema>): ObjectStore {
  const { query } = database;
  const addOne = database.statement((builder, given: UpstreamObjectRow) =>
    builder
      .insertInto('upstream_objects')
      .values({ ...given })
      .onConflict((conflict) => conflict.doNothing()),
  );
  const apiOf = database.statement((builder, given: { id: string; owner: string }) =>
    builder.selectFrom('upstream_objects').select('api').where('id', '=', given.id).where('owner', '=', given.owner),
  );
  return {
    async add(objects) {
      await database.write(objects.map((object) => addOne(object)));
    },
    async apiOf(id, owner) {
      const [row] = await database.readKeyed(apiOf({ id, owner }));
      return row?.api;
    },
    async find(id, owner) {
      const [row] = await database.readKeyed(
        query
          .selectFrom('upstream_objects')
          .selectAll()
          .where('id', '=', id)
          .where('owner', '=', owner)
          .limit(1)
          .compile(),
      );
      return row;
    },
    list({ owner, kind, after, limit }) {
      let found = query.selectFrom('upstream_objects').selectAll().where('owner', '=', owner).where('kind', '=', kind);
      if (after !== undefined) {
        const { created_at: at, id } = after;
        found = found.where(({ or, and, eb }) =>
          or([eb('created_at', '<', at), and([eb('created_at', '=', at), eb('id', '<', id)])]),
        );
      }
      return database.readKeyed(found.orderBy('created_at', 'desc').orderBy('id', 'desc').limit(limit).compile());
    },
    async count(owner, kind) {
      const [row] = await database.read(
        query
          .selectFrom('upstream_objects')
          .select(({ fn }) => fn.countAll<number>().as('count'))
          .where('owner', '=', owner)
          .where('kind', '=', kind)
          .compile(),
      );
      return Number(row?.count ?? 0);
    },
    async remove(id, owner) {
      await database.write([
        query.deleteFrom('upstream_objects').where('id', '=', id).where('owner', '=', owner).compile(),
      ]);
    },
    async removeBefore(time, limit) {
      const [removed] = await database.write([
        query
          .deleteFrom('upstream_objects')
          .where(({ eb, refTuple }) =>
            eb(
              refTuple('id', 'api'),
              'in',
              query
                .selectFrom('upstream_objects')
                .select(['id', 'api'])
                .where('created_at', '<', time)
                .where('kind', '=', '')
                .limit(limit)
                .$asTuple('id', 'api'),
            ),
          )
          .compile(),
      ]);
      return removed.changes;
    },
    async removeOf(owner) {
      await database.write([query.deleteFrom('upstream_objects').where('owner', '=', owner).compile()]);
    },
  };
}

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
