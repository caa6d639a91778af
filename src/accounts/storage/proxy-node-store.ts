import { sql } from 'kysely';
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

const CLIENTS = 'proxy_clients';

export interface ProxyClientRow {
  readonly id: string;
  readonly proxy_uuid: string;
  readonly email: string;
  readonly proxy_uuid_expires_at: number | null;
}

/** The users that proxy nodes let in: active, not about to be deleted, with a verified address and a proxy UUID that has not expired. */
export interface ClientListStore {
  /** For every batch that may change the list: who keeps it in memory looks again. */
  touch(): Runnable;
  revision(): Promise<number>;
  page(after: string, now: number, limit: number): Promise<ProxyClientRow[]>;
}

export function createClientListStore(database: Database<AccountsSchema>): ClientListStore {
  const touch = database.statement((query) =>
    query
      .insertInto('revisions')
      .values({ id: CLIENTS, revision: 1 })
      .onConflict((conflict) => conflict.column('id').doUpdateSet({ revision: sql<number>`revisions.revision + 1` })),
  );
  const revision = database.statement((query) =>
    query.selectFrom('revisions').select('revision').where('id', '=', CLIENTS),
  );
  return {
    touch,
    revision: async () => (await database.readKeyed(revision()))[0]?.revision ?? 0,
    page: (after, now, limit) =>
      database.read(
        database.query
          .selectFrom('users')
          .select(['id', 'proxy_uuid', 'email', 'proxy_uuid_expires_at'])
          .where('id', '>', after)
          .where('active', '=', 1)
          .where('closing_at', 'is', null)
          .where('confirmed', '=', 1)
          .where((build) =>
            build.or([build('proxy_uuid_expires_at', 'is', null), build('proxy_uuid_expires_at', '>', now)]),
          )
          .where('email', 'not in', (build) => build.selectFrom('blacklist').select('email'))
          .orderBy('id')
          .limit(limit)
          .compile(),
      ),
  };
}
