import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccessTokenRow, AccountsSchema, ServiceAccountRow, SigningKeyRow } from './accounts-schema.ts';
import { insertWithin } from './guarded-writes.ts';

/** Personal access tokens, by digest and by owner, and the service accounts that have tokens and nothing else. */
export interface AccessTokenStore {
  byHash(hash: string): Promise<AccessTokenRow | undefined>;
  /** Undoes the batch when the owner has `most` tokens that have not ended. */
  add(token: AccessTokenRow, most: number): readonly Runnable[];
  /** Those that have not ended, newest first. */
  ofOwner(owner: string, now: number): Promise<readonly AccessTokenRow[]>;
  /** Undoes the batch when the owner has no such token. */
  remove(token: { id: string; owner: string }): Runnable;
  removeAllOf(owner: string): Runnable;
  touch(use: { id: string; now: number }): Runnable;
  service(id: string): Promise<ServiceAccountRow | undefined>;
  services(): Promise<readonly ServiceAccountRow[]>;
  /** Undoes the batch when there are `most` service accounts. */
  addService(service: ServiceAccountRow, most: number): readonly Runnable[];
  /** Undoes the batch when there is no such service account. */
  removeService(id: string): Runnable;
}

const MAX_LISTED_TOKENS = 500;

export function createAccessTokenStore(database: Database<AccountsSchema>): AccessTokenStore {
  const { query } = database;
  const byHash = database.statement((select, given: { hash: string }) =>
    select.selectFrom('access_tokens').selectAll().where('token_hash', '=', given.hash),
  );
  const touch = database.statement((update, given: { id: string; now: number }) =>
    update.updateTable('access_tokens').set({ last_used_at: given.now }).where('id', '=', given.id),
  );
  const service = database.statement((select, given: { id: string }) =>
    select.selectFrom('service_accounts').selectAll().where('id', '=', given.id),
  );
  return {
    byHash: async (hash) => (await database.readKeyed(byHash({ hash })))[0],
    add: (token, most) =>
      insertWithin(database, query.insertInto('access_tokens').values(token).compile(), {
        name: `tokens of ${token.owner}`,
        rows: query
          .selectFrom('access_tokens')
          .where('owner', '=', token.owner)
          .where('expires_at', '>', token.created_at),
        most,
      }),
    ofOwner: (owner, now) =>
      database.read(
        query
          .selectFrom('access_tokens')
          .selectAll()
          .where('owner', '=', owner)
          .where('expires_at', '>', now)
          .orderBy('id', 'desc')
          .limit(MAX_LISTED_TOKENS)
          .compile(),
      ),
    remove: ({ id, owner }) =>
      expectChanges(query.deleteFrom('access_tokens').where('id', '=', id).where('owner', '=', owner).compile(), 1),
    removeAllOf: (owner) => query.deleteFrom('access_tokens').where('owner', '=', owner).compile(),
    touch,
    service: async (id) => (await database.readKeyed(service({ id })))[0],
    services: () =>
      database.read(query.selectFrom('service_accounts').selectAll().orderBy('id').limit(MAX_LISTED_TOKENS).compile()),
    addService: (row, most) =>
      insertWithin(database, query.insertInto('service_accounts').values(row).compile(), {
        name: 'service accounts',
        rows: query.selectFrom('service_accounts'),
        most,
      }),
    removeService: (id) => expectChanges(query.deleteFrom('service_accounts').where('id', '=', id).compile(), 1),
  };
}

/** The keys that sign tokens, and whether the credentials that these tokens stand for still count. */
interface SigningKeyStore {
  add(key: SigningKeyRow): Runnable;
  /** Those that were created after a time, the newest last. */
  since(time: number): Promise<readonly SigningKeyRow[]>;
}

export interface CredentialCheckStore {
  /** Whether a login session or an access token of this owner exists and has not ended. */
  isLive(credential: { readonly id: string; readonly owner: string; readonly now: number }): Promise<boolean>;
}

const MAX_LISTED_KEYS = 100;

export function createSigningKeyStore(database: Database<AccountsSchema>): SigningKeyStore {
  const { query } = database;
  return {
    add: (key) => query.insertInto('signing_keys').values(key).compile(),
    since: (time) =>
      database.read(
        query
          .selectFrom('signing_keys')
          .selectAll()
          .where('created_at', '>', time)
          .orderBy('id')
          .limit(MAX_LISTED_KEYS)
          .compile(),
      ),
  };
}

export function createCredentialCheckStore(database: Database<AccountsSchema>): CredentialCheckStore {
  const session = database.statement((select, given: { id: string; userId: string; now: number }) =>
    select
      .selectFrom('sessions')
      .innerJoin('users', 'users.id', 'sessions.user_id')
      .select('sessions.id')
      .where('sessions.id', '=', given.id)
      .where('users.id', '=', given.userId)
      .where('users.active', '=', 1)
      .where('sessions.expires_at', '>', given.now)
      .where(sql<boolean>`sessions.epoch = users.access_epoch`),
  );
  const token = database.statement((select, given: { id: string; owner: string; now: number }) =>
    select
      .selectFrom('access_tokens')
      .select('id')
      .where('id', '=', given.id)
      .where('owner', '=', given.owner)
      .where('expires_at', '>', given.now),
  );
  return {
    async isLive({ id, owner, now }) {
      if (id.startsWith('tok_')) return (await database.readKeyed(token({ id, owner, now }))).length > 0;
      const userId = owner.startsWith('user:') ? owner.slice('user:'.length) : '';
      return (await database.readKeyed(session({ id, userId, now }))).length > 0;
    },
  };
}
