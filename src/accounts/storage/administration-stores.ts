import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, BlacklistRow, InvitationRow, PermissionMatrixRow } from './accounts-schema.ts';
import { insertWithin } from './within-limit.ts';

/** Addresses that may neither register nor log in. */
export interface BlacklistStore {
  has(email: string): Promise<boolean>;
  /** Nothing happens when it is there already. */
  put(entry: BlacklistRow): Runnable;
  remove(email: string): Runnable;
  /** By address; `after` is the last one of the page before. */
  list(after: string, limit: number): Promise<BlacklistRow[]>;
}

export function createBlacklistStore(database: Database<AccountsSchema>): BlacklistStore {
  const { query } = database;
  const find = database.statement((select, given: { email: string }) =>
    select.selectFrom('blacklist').select('email').where('email', '=', given.email),
  );
  return {
    has: async (email) => (await database.readKeyed(find({ email }))).length > 0,
    put: (entry) =>
      query
        .insertInto('blacklist')
        .values(entry)
        .onConflict((conflict) => conflict.column('email').doNothing())
        .compile(),
    remove: (email) => query.deleteFrom('blacklist').where('email', '=', email).compile(),
    list: (after, limit) =>
      database.readKeyed(
        query.selectFrom('blacklist').selectAll().where('email', '>', after).orderBy('email').limit(limit).compile(),
      ),
  };
}

/** Invitations that were not accepted yet. One that has expired is never found, swept or not. */
export interface InvitationStore {
  /** Undoes the batch when `most` invitations are open. */
  add(invitation: InvitationRow, most: number): readonly Runnable[];
  byTokenHash(tokenHash: string, now: number): Promise<InvitationRow | undefined>;
  /** The newest one for an address. */
  byEmail(email: string, now: number): Promise<InvitationRow | undefined>;
  /** Newest first; `before` is the id of the last of the page before. */
  list(before: string | undefined, now: number, limit: number): Promise<InvitationRow[]>;
  /** Uses it up: the batch is undone for anyone but the first. */
  take(id: string, now: number): Runnable;
}

export function createInvitationStore(database: Database<AccountsSchema>): InvitationStore {
  const { query } = database;
  const open = (now: number) => query.selectFrom('invitations').selectAll().where('expires_at', '>', now);
  return {
    add: (invitation, most) =>
      insertWithin(database, query.insertInto('invitations').values(invitation).compile(), {
        name: 'invitations',
        rows: query.selectFrom('invitations').where('expires_at', '>', invitation.created_at),
        most,
      }),
    async byTokenHash(tokenHash, now) {
      return (await database.readKeyed(open(now).where('token_hash', '=', tokenHash).compile()))[0];
    },
    async byEmail(email, now) {
      const newest = open(now).where('email', '=', email).orderBy('id', 'desc').limit(1);
      return (await database.readKeyed(newest.compile()))[0];
    },
    list(before, now, limit) {
      const all = open(now).orderBy('id', 'desc').limit(limit);
      return database.read((before === undefined ? all : all.where('id', '<', before)).compile());
    },
    take: (id, now) =>
      expectChanges(query.deleteFrom('invitations').where('id', '=', id).where('expires_at', '>', now).compile(), 1),
  };
}

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
