import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, UserRow } from './accounts-schema.ts';
import { createClientListStore } from './client-list-store.ts';
import { createUserCountStore } from './user-count-store.ts';

/** Everyone belongs to this tenant for now; the column is there for when there are more. */
export const TENANT = 'default';

/** Users, by the three things that name one. What changes them is a statement, to be part of a batch. */
export interface UserStore {
  byId(id: string): Promise<UserRow | undefined>;
  byEmail(email: string): Promise<UserRow | undefined>;
  byNameKey(nameKey: string): Promise<UserRow | undefined>;
  /** Adds and counts them. */
  add(user: UserRow): readonly Runnable[];
  /**
   * Sets the password of someone whose epoch is still the given one, proves the address, and raises the epoch: no
   * session and no unfinished login counts any more.
   */
  setPassword(change: {
    id: string;
    epoch: number;
    passwordHash: string;
    verifiesEmail: boolean;
    now: number;
  }): Runnable;
  /** The same password under newer parameters; nothing happens when it was changed meanwhile. */
  rehash(change: { id: string; before: string; after: string }): Runnable;
  /** Ends everything that was begun with the present epoch. */
  raiseEpoch(change: { id: string; epoch: number; now: number }): Runnable;
  noteLogin(change: { id: string; now: number }): Runnable;
}

export function createUserStore(database: Database<AccountsSchema>): UserStore {
  const byId = database.statement((query, given: { id: string }) =>
    query.selectFrom('users').selectAll().where('id', '=', given.id),
  );
  const byEmail = database.statement((query, given: { email: string }) =>
    query.selectFrom('users').selectAll().where('tenant', '=', TENANT).where('email', '=', given.email),
  );
  const byNameKey = database.statement((query, given: { nameKey: string }) =>
    query.selectFrom('users').selectAll().where('tenant', '=', TENANT).where('name_key', '=', given.nameKey),
  );
  const noteLogin = database.statement((query, given: { id: string; now: number }) =>
    query.updateTable('users').set({ last_login_at: given.now }).where('id', '=', given.id),
  );
  const { query } = database;
  const counts = createUserCountStore(database);
  const clients = createClientListStore(database);

  return {
    byId: async (id) => (await database.readKeyed(byId({ id })))[0],
    byEmail: async (email) => (await database.readKeyed(byEmail({ email })))[0],
    byNameKey: async (nameKey) => (await database.readKeyed(byNameKey({ nameKey })))[0],
    add: (user) => [query.insertInto('users').values(user).compile(), counts.change(user, 1), clients.touch()],
    setPassword: ({ id, epoch, passwordHash, verifiesEmail, now }) =>
      query
        .updateTable('users')
        .set({ password_hash: passwordHash, access_epoch: epoch + 1, updated_at: now })
        .$if(verifiesEmail, (update) => update.set({ email_verified: 1 }))
        .where('id', '=', id)
        .where('access_epoch', '=', epoch)
        .compile(),
    rehash: ({ id, before, after }) =>
      query
        .updateTable('users')
        .set({ password_hash: after })
        .where('id', '=', id)
        .where('password_hash', '=', before)
        .compile(),
    raiseEpoch: ({ id, epoch, now }) =>
      query
        .updateTable('users')
        .set({ access_epoch: epoch + 1, updated_at: now })
        .where('id', '=', id)
        .where('access_epoch', '=', epoch)
        .compile(),
    noteLogin,
  };
}
