import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema } from './accounts-schema.ts';

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
