import type { Database } from '../../platform/database/database.ts';
import type { AccountsSchema, ProxyAgentRow } from './accounts-schema.ts';

export interface ProxyAgentStore {
  byTokenHash(tokenHash: string): Promise<ProxyAgentRow | undefined>;
}

export function createProxyAgentStore(database: Database<AccountsSchema>): ProxyAgentStore {
  const byTokenHash = database.statement((query, given: { tokenHash: string }) =>
    query.selectFrom('proxy_agents').selectAll().where('token_hash', '=', given.tokenHash),
  );
  return {
    byTokenHash: async (tokenHash) => (await database.readKeyed(byTokenHash({ tokenHash })))[0],
  };
}
