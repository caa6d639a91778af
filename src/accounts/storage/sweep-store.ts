import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { AccountsSchema } from './accounts-schema.ts';

/** What is swept: rows whose time lies `keptMs` back. */
export interface SweptTable {
  readonly table: keyof AccountsSchema;
  readonly key: readonly string[];
  readonly time: string;
  readonly keptMs: number;
}

export interface SweepStore {
  /** Removes at most `limit` rows; answers with how many there were. */
  remove(swept: SweptTable, now: number, limit: number): Promise<number>;
}

export function createSweepStore(database: Database<AccountsSchema>): SweepStore {
  return {
    async remove({ table, key, time, keptMs }, now, limit) {
      const columns = sql.join(key.map((column) => sql.ref(column)));
      const old = sql`select ${columns} from ${sql.table(table)} where ${sql.ref(time)} <= ${now - keptMs} limit ${limit}`;
      const remove = sql`delete from ${sql.table(table)} where (${columns}) in (${old})`;
      const [{ changes }] = await database.write([remove.compile(database.query)]);
      return changes;
    },
  };
}
