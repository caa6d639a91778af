import { sql } from 'kysely';
import type { Database, Transaction } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, FoundUser, UserRow } from './accounts-schema.ts';
import { createClientListStore, pseudonymizeAudit } from './administration-stores.ts';
import { createUserCountStore, selectUsers } from './user-store.ts';

export type UserChange = Partial<
  Pick<
    UserRow,
    | 'name'
    | 'name_key'
    | 'email'
    | 'email_verified'
    | 'role'
    | 'root_mark'
    | 'plan'
    | 'active'
    | 'closing_at'
    | 'access_epoch'
    | 'proxy_uuid'
    | 'proxy_uuid_expires_at'
    | 'updated_at'
  >
>;

/** What is to be done about a user. */
export interface UserDecision {
  readonly change: UserChange;
  /** Stored with it, or not at all. */
  readonly also: readonly Runnable[];
}

/** The state of a user for a decision about them, in a transaction that excludes concurrent changes of administrators. */
export interface UserStanding {
  readonly user: FoundUser;
  /** Administrators besides this one who can log in. */
  readonly otherAdmins: number;
}

interface UserFilter {
  /** In the address or the name, in lower case. */
  readonly search?: string | undefined;
  readonly role?: string | undefined;
}

/** Changes of users by administrators. Each is serializable, on both engines and across instances. */
export interface UserAdministrationStore {
  /** Undefined when there is no such user. */
  standing(id: string): Promise<UserStanding | undefined>;
  /** Undefined when there is no such user. `decide` throws to refuse; on PostgreSQL it may be asked more than once. */
  change(id: string, decide: (standing: UserStanding) => UserDecision): Promise<FoundUser | undefined>;
  /**
   * Removes the user and all that is theirs. What must stay, such as the audit log, keeps the id and neither the e-mail
   * address nor the name.
   */
  remove(id: string, decide: (standing: UserStanding) => readonly Runnable[]): Promise<FoundUser | undefined>;
  /** Ids of users whose time to undo their own deletion is over. */
  dueForDeletion(now: number, limit: number): Promise<string[]>;
  /** Newest first; `before` is the id of the last of the page before. */
  list(filter: UserFilter, before: string | undefined, limit: number): Promise<FoundUser[]>;
  count(filter: UserFilter): Promise<number>;
  /** Whether anyone could administer this installation. */
  hasAdmin(): Promise<boolean>;
}

const OWNED_TABLES = [
  'sessions',
  'flows',
  'credentials',
  'devices',
  'device_logins',
  'subscriptions',
  'team_members',
] as const;

/** `onChanged` is awaited after every change, even one whose outcome is not known. */
export function createUserAdministrationStore(
  database: Database<AccountsSchema>,
  onChanged: (userId: string) => Promise<void>,
): UserAdministrationStore {
  const { query } = database;
  const counts = createUserCountStore(database);
  const clients = createClientListStore(database);

  const admins = () => query.selectFrom('users').where('role', 'in', ['root', 'admin']);

  async function standingOf(transaction: Transaction<AccountsSchema>, id: string): Promise<UserStanding | undefined> {
    const { rows } = await transaction.run(selectUsers(query).where('users.id', '=', id).compile());
    const [user] = rows;
    if (user === undefined) return undefined;
    const others = admins()
      .select('id')
      .where('id', '<>', id)
      .where('active', '=', 1)
      .where('confirmed', '=', 1)
      .where('closing_at', 'is', null)
      .where('email', 'not in', (build) => build.selectFrom('blacklist').select('email'))
      .limit(1);
    return { user, otherAdmins: (await transaction.run(others.compile())).rows.length };
  }

  async function changing<Result>(
    id: string,
    run: (transaction: Transaction<AccountsSchema>) => Promise<Result>,
  ): Promise<Result> {
    try {
      return await database.transaction(run);
    } finally {
      await onChanged(id);
    }
  }

  const filtered = ({ search, role }: UserFilter) => {
    let select = selectUsers(query);
    if (role !== undefined) select = select.where('users.role', '=', role);
    if (search !== undefined) {
      const pattern = `%${search.replaceAll(/[\\%_]/g, (sign) => `\\${sign}`)}%`;
      select = select.where((build) =>
        build.or([
          build('users.id', '=', search),
          sql<boolean>`users.email like ${pattern} escape '\\'`,
          sql<boolean>`users.name_key like ${pattern} escape '\\'`,
        ]),
      );
    }
    return select;
  };

  return {
    standing: (id) => database.transaction((transaction) => standingOf(transaction, id)),
    change: (id, decide) =>
      changing(id, async (transaction) => {
        const standing = await standingOf(transaction, id);
        if (standing === undefined) return undefined;
        const { user } = standing;
        const { change, also } = decide(standing);
        const changed = { ...user, ...change };
        const recounted = [counts.change(user, -1), counts.change(changed, 1)];
        const isCountedAnew = user.role !== changed.role || user.active !== changed.active;
        const update = query.updateTable('users').set(change).where('id', '=', id);
        const statements = [
          ...(Object.keys(change).length > 0 ? [update.compile()] : []),
          ...(isCountedAnew ? recounted : []),
          clients.touch(),
          ...also,
        ];
        for (const statement of statements) await transaction.run(statement);
        return changed;
      }),
    remove: (id, decide) =>
      changing(id, async (transaction) => {
        const standing = await standingOf(transaction, id);
        if (standing === undefined) return undefined;
        const also = decide(standing);
        for (const table of OWNED_TABLES) {
          await transaction.run(query.deleteFrom(table).where('user_id', '=', id).compile());
        }
        await transaction.run(query.deleteFrom('access_tokens').where('owner', '=', `user:${id}`).compile());
        const { email, name } = standing.user;
        for (const table of ['flows', 'invitations'] as const) {
          await transaction.run(query.deleteFrom(table).where('email', '=', email).compile());
        }
        await pseudonymizeAudit(transaction, { id, email, name });
        await transaction.run(query.deleteFrom('users').where('id', '=', id).compile());
        for (const statement of [counts.change(standing.user, -1), clients.touch(), ...also]) {
          await transaction.run(statement);
        }
        return standing.user;
      }),
    async dueForDeletion(now, limit) {
      const due = query.selectFrom('users').select('id').where('closing_at', '<=', now).orderBy('closing_at');
      return (await database.read(due.limit(limit).compile())).map(({ id }) => id);
    },
    list(filter, before, limit) {
      const select = filtered(filter).orderBy('users.id', 'desc').limit(limit);
      return database.read((before === undefined ? select : select.where('users.id', '<', before)).compile());
    },
    async count(filter) {
      // Only a search has to count the users themselves.
      if (filter.search === undefined) return (await counts.totals(filter.role)).total;
      const count = filtered(filter)
        .clearSelect()
        .select((build) => build.fn.countAll<number>().as('count'));
      return (await database.read(count.compile()))[0]?.count ?? 0;
    },
    async hasAdmin() {
      return (await database.readKeyed(admins().select('id').limit(1).compile())).length > 0;
    },
  };
}
