import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, PermissionMatrixRow } from './accounts-schema.ts';

const ROW_ID = 'default';

export interface PermissionStore {
  /** Undefined as long as nobody has stored one. */
  read(): Promise<PermissionMatrixRow | undefined>;
  /** Takes the place of version `before`; the batch is undone when another one stands there by now. 0: there is none yet. */
  replace(matrix: string, before: number, now: number): Runnable;
}

export function createPermissionStore(database: Database<AccountsSchema>): PermissionStore {
  const read = database.statement((query) =>
    query.selectFrom('permission_matrix').selectAll().where('id', '=', ROW_ID),
  );
  return {
    read: async () => (await database.readKeyed(read()))[0],
    replace(matrix, before, now) {
      const row = { version: before + 1, matrix, updated_at: now };
      const { query } = database;
      const statement =
        before === 0
          ? query
              .insertInto('permission_matrix')
              .values({ id: ROW_ID, ...row })
              .onConflict((conflict) => conflict.column('id').doNothing())
          : query.updateTable('permission_matrix').set(row).where('id', '=', ROW_ID).where('version', '=', before);
      return expectChanges(statement.compile(), 1);
    },
  };
}
