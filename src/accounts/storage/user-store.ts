import { type Kysely, sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, FoundUser, SubscriptionRow, TeamRow, UserCountRow, UserRow } from './accounts-schema.ts';
import { createClientListStore } from './administration-stores.ts';
import { createCredentialStore } from './credential-store.ts';
import { createTeamStore } from './team-store.ts';
import { createAccessTokenStore } from './token-stores.ts';

/** A new user, with the hash of the chosen password. */
export interface NewUserRow extends FoundUser {
  /** Null for someone who only logs in elsewhere, or has yet to choose one. */
  readonly password_hash: string | null;
}

/** Users, by the three things that name one. What changes them is a statement, to be part of a batch. */
export interface UserStore {
  byId(id: string): Promise<FoundUser | undefined>;
  byEmail(email: string): Promise<FoundUser | undefined>;
  byNameKey(nameKey: string): Promise<FoundUser | undefined>;
  /** Adds and counts them. */
  add(user: NewUserRow): readonly Runnable[];
  /**
   * Sets the password of someone whose epoch is still the given one, proves the address, and raises the epoch: no
   * session and no unfinished login counts any more.
   */
  setPassword(change: {
    id: string;
    epoch: number;
    passwordHash: string;
    verifiesEmail: boolean;
    byToken: boolean;
    now: number;
  }): readonly Runnable[];
  /** Ends all sessions and flows of the current epoch. */
  raiseEpoch(change: { id: string; epoch: number; now: number }): Runnable;
  noteLogin(change: { id: string; now: number }): Runnable;
}

export function createUserStore(database: Database<AccountsSchema>): UserStore {
  const byId = database.statement((query, given: { id: string }) =>
    selectUsers(query).where('users.id', '=', given.id),
  );
  const byEmail = database.statement((query, given: { email: string }) =>
    selectUsers(query).where('users.email', '=', given.email),
  );
  const byNameKey = database.statement((query, given: { nameKey: string }) =>
    selectUsers(query).where('users.name_key', '=', given.nameKey),
  );
  const noteLogin = database.statement((query, given: { id: string; now: number }) =>
    query.updateTable('users').set({ last_login_at: given.now }).where('id', '=', given.id),
  );
  const { query } = database;
  const counts = createUserCountStore(database);
  const clients = createClientListStore(database);
  const credentials = createCredentialStore(database);

  return {
    byId: async (id) => (await database.readKeyed(byId({ id })))[0],
    byEmail: async (email) => (await database.readKeyed(byEmail({ email })))[0],
    byNameKey: async (nameKey) => (await database.readKeyed(byNameKey({ nameKey })))[0],
    add({ password_hash: hash, totp_state: _, totp_issued_at: __, totp_confirmed_at: ___, ...user }) {
      const password = { userId: user.id, hash: hash ?? '', confirmed: false, now: user.created_at };
      return [
        query.insertInto('users').values(user).compile(),
        ...(hash === null ? [] : [credentials.setPassword(password)]),
        counts.change(user, 1),
        clients.touch(),
      ];
    },
    setPassword: ({ id, epoch, passwordHash, verifiesEmail, byToken, now }) => [
      expectChanges(
        query
          .updateTable('users')
          .set({ access_epoch: epoch + 1, updated_at: now })
          .$if(verifiesEmail, (update) => update.set({ email_verified: 1, confirmed: 1 }))
          .where('id', '=', id)
          .where('access_epoch', '=', epoch)
          .compile(),
        1,
      ),
      credentials.setPassword({ userId: id, hash: passwordHash, confirmed: byToken, now }),
    ],
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

/** Users with the state of their second factor, by one more lookup in an index. */
export function selectUsers(query: Kysely<AccountsSchema>) {
  return query
    .selectFrom('users')
    .leftJoin('credentials as totp', (join) => join.onRef('totp.subject', '=', 'users.id').on('totp.kind', '=', 'totp'))
    .selectAll('users')
    .select([
      'totp.state as totp_state',
      'totp.created_at as totp_issued_at',
      'totp.confirmed_at as totp_confirmed_at',
    ]);
}

/** What decides whether a person's keys work, and how far. */
export interface OwnerFacts {
  readonly user: Pick<UserRow, 'id' | 'role' | 'plan' | 'active' | 'closing_at'>;
  readonly blocked: boolean;
  readonly teams: readonly TeamRow[];
  /** Only those whose plan the payment webhook or an administrator named; newest first. */
  readonly subscriptions: readonly Pick<SubscriptionRow, 'named_plan' | 'status' | 'expires_at' | 'event_at'>[];
}

export interface OwnerStore {
  /** Of `user:<id>` or `service:<id>`. Undefined when there is no such owner. */
  facts(owner: string): Promise<OwnerFacts | undefined>;
  team(id: string): Promise<TeamRow | undefined>;
}

const MAX_SUBSCRIPTIONS = 200;

export function createOwnerStore(database: Database<AccountsSchema>): OwnerStore {
  const teams = createTeamStore(database);
  const user = database.statement((select, given: { id: string }) =>
    select
      .selectFrom('users')
      .leftJoin('blacklist', 'blacklist.email', 'users.email')
      .select([
        'users.id',
        'users.role',
        'users.plan',
        'users.active',
        'users.closing_at',
        'users.teams',
        'blacklist.email as blocked_email',
      ])
      .where('users.id', '=', given.id),
  );
  const subscriptions = database.statement((select, given: { id: string }) =>
    select
      .selectFrom('subscriptions')
      .select(['named_plan', 'status', 'expires_at', 'event_at'])
      .where('user_id', '=', given.id)
      .where('named_plan', '<>', '')
      .where('status', 'in', ['active', 'trialing'])
      .orderBy('event_at', 'desc')
      .orderBy('id', 'desc')
      .limit(MAX_SUBSCRIPTIONS),
  );
  const tokens = createAccessTokenStore(database);
  return {
    async facts(owner) {
      const id = owner.slice(owner.indexOf(':') + 1);
      if (owner.startsWith('service:')) {
        const found = await tokens.service(id);
        if (found === undefined) return undefined;
        const { plan } = found;
        return {
          user: { id, role: 'user', plan, active: 1, closing_at: null },
          blocked: false,
          teams: [],
          subscriptions: [],
        };
      }
      const [found, named] = await Promise.all([
        database.readKeyed(user({ id })),
        database.readKeyed(subscriptions({ id })),
      ]);
      const [row] = found;
      if (row === undefined) return undefined;
      const { blocked_email: blocked, teams: count, ...rest } = row;
      const own = count === 0 ? [] : await teams.teamsOf(id);
      return { user: rest, blocked: blocked !== null, teams: own, subscriptions: named };
    },
    team: teams.byId,
  };
}

export const DAY_MS = 24 * 3_600_000;

/** What of a user is counted. */
type CountedUser = Pick<UserRow, 'created_at' | 'role' | 'active' | 'subscribed'>;

export type UserCounts = Pick<UserCountRow, 'total' | 'active' | 'subscribed'>;

/**
 * Numbers of users that cost the same however many there are. Code that adds, changes or removes a user counts it in the
 * same batch; nothing counts by itself.
 */
interface UserCountStore {
  /** `by`: 1 for a user who is there now, -1 for one who is no more, or who is no more as given. */
  change(user: CountedUser, by: 1 | -1): Runnable;
  /** Of all users, or of those with a role. */
  totals(role?: string): Promise<UserCounts>;
  /** By day of registration, from a day on. */
  byDay(from: number): Promise<(UserCounts & { readonly day: number })[]>;
  registeredSince(moment: number): Promise<number>;
}

export function createUserCountStore(database: Database<AccountsSchema>): UserCountStore {
  const { query } = database;
  const sums = () => [sumOf('total').as('total'), sumOf('active').as('active'), sumOf('subscribed').as('subscribed')];
  return {
    change({ created_at, role, active, subscribed }, by) {
      const counted = { total: by, active: by * active, subscribed: by * subscribed };
      return query
        .insertInto('user_counts')
        .values({ day: dayOf(created_at), role, ...counted })
        .onConflict((conflict) =>
          conflict.columns(['day', 'role']).doUpdateSet({
            total: sql<number>`user_counts.total + ${counted.total}`,
            active: sql<number>`user_counts.active + ${counted.active}`,
            subscribed: sql<number>`user_counts.subscribed + ${counted.subscribed}`,
          }),
        )
        .compile();
    },
    async totals(role) {
      const select = query.selectFrom('user_counts').select(sums());
      const [row] = await database.readKeyed((role === undefined ? select : select.where('role', '=', role)).compile());
      return { total: row?.total ?? 0, active: row?.active ?? 0, subscribed: row?.subscribed ?? 0 };
    },
    byDay: (from) =>
      database.readKeyed(
        query
          .selectFrom('user_counts')
          .select(['day', ...sums()])
          .where('day', '>=', from)
          .groupBy('day')
          .compile(),
      ),
    async registeredSince(moment) {
      const count = query
        .selectFrom('users')
        .select((build) => build.fn.countAll<number>().as('count'))
        .where('created_at', '>', moment);
      const [row] = await database.read(count.compile());
      return row?.count ?? 0;
    },
  };
}

/** Days since 1970 (UTC). */
export function dayOf(moment: number): number {
  return Math.floor(moment / DAY_MS);
}

/** PostgreSQL gives the sum of whole numbers as a decimal one. */
function sumOf(column: string) {
  return sql<number>`cast(sum(${sql.ref(column)}) as bigint)`;
}
