import type { Database } from '../../platform/database/database.ts';
import type { AccountsSchema } from './accounts-schema.ts';

export interface BlacklistStore {
  has(email: string): Promise<boolean>;
}

export function createBlacklistStore(database: Database<AccountsSchema>): BlacklistStore {
  const find = database.statement((query, given: { email: string }) =>
    query.selectFrom('blacklist').select('email').where('email', '=', given.email),
  );
  return {
    has: async (email) => (await database.readKeyed(find({ email }))).length > 0,
  };
}
