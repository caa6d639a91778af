import type { Database } from '../../platform/database/database.ts';
import type { AccountsSchema, PermissionMatrixRow } from './accounts-schema.ts';

const ROW_ID = 'default';

export interface PermissionStore {
  /** Undefined as long as nobody has stored one. */
  read(): Promise<PermissionMatrixRow | undefined>;
}

export function createPermissionStore(database: Database<AccountsSchema>): PermissionStore {
  const read = database.statement((query) =>
    query.selectFrom('permission_matrix').selectAll().where('id', '=', ROW_ID),
  );
  return {
    read: async () => (await database.readKeyed(read()))[0],
  };
}
