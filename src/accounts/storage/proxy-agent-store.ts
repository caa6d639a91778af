import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, ProxyAgentRow, ProxyAgentStatusRow } from './accounts-schema.ts';

/** Agents of proxy nodes whose tokens were issued here, and what all agents report. */
export interface ProxyAgentStore {
  byTokenHash(tokenHash: string): Promise<ProxyAgentRow | undefined>;
  /** By id. */
  list(): Promise<ProxyAgentRow[]>;
  /** STORAGE_DUPLICATE when the id is taken. */
  add(agent: ProxyAgentRow): Runnable;
  /** Removes the agent and its report. */
  /** The first statement removes the agent itself. */
  remove(id: string): readonly [Runnable, ...Runnable[]];
  report(status: ProxyAgentStatusRow): Runnable;
  reports(): Promise<ProxyAgentStatusRow[]>;
}

export function createProxyAgentStore(database: Database<AccountsSchema>): ProxyAgentStore {
  const { query } = database;
  const byTokenHash = database.statement((select, given: { tokenHash: string }) =>
    select.selectFrom('proxy_agents').selectAll().where('token_hash', '=', given.tokenHash),
  );
  const report = database.statement((insert, given: ProxyAgentStatusRow) => {
    const { healthy, message, users, sync_revision, xray, updated_at } = given;
    const values = { healthy, message, users, sync_revision, xray, updated_at };
    return insert
      .insertInto('proxy_agent_status')
      .values({ agent_id: given.agent_id, ...values })
      .onConflict((conflict) => conflict.column('agent_id').doUpdateSet(values));
  });
  return {
    byTokenHash: async (tokenHash) => (await database.readKeyed(byTokenHash({ tokenHash })))[0],
    list: () => database.read(query.selectFrom('proxy_agents').selectAll().orderBy('id').compile()),
    add: (agent) => query.insertInto('proxy_agents').values(agent).compile(),
    remove: (id) => [
      query.deleteFrom('proxy_agents').where('id', '=', id).compile(),
      query.deleteFrom('proxy_agent_status').where('agent_id', '=', id).compile(),
    ],
    report,
    reports: () => database.read(query.selectFrom('proxy_agent_status').selectAll().compile()),
  };
}
