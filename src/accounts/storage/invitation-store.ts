import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, InvitationRow } from './accounts-schema.ts';

/** Invitations that were not accepted yet. One that has expired is never found, swept or not. */
export interface InvitationStore {
  add(invitation: InvitationRow): Runnable;
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
    add: (invitation) => query.insertInto('invitations').values(invitation).compile(),
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
