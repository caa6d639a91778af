import type { Database } from '../../platform/database/database.ts';
import type { AccountsSchema, SubscriptionRow, UserRow } from './accounts-schema.ts';

/** What decides whether a person's keys work, and how far. */
export interface OwnerFacts {
  readonly user: Pick<UserRow, 'id' | 'role' | 'plan' | 'active' | 'closing_at'>;
  readonly blocked: boolean;
  /** Only those whose plan the payment webhook or an administrator named; newest first. */
  readonly subscriptions: readonly Pick<SubscriptionRow, 'named_plan' | 'status' | 'expires_at' | 'event_at'>[];
}

export interface OwnerStore {
  /** Undefined when there is no such user. */
  facts(id: string): Promise<OwnerFacts | undefined>;
  idOfEmail(email: string): Promise<string | undefined>;
}

const MAX_SUBSCRIPTIONS = 200;

export function createOwnerStore(database: Database<AccountsSchema>): OwnerStore {
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
  const byEmail = database.statement((select, given: { email: string }) =>
    select.selectFrom('users').select('id').where('email', '=', given.email),
  );
  return {
    async facts(id) {
      const [found, named] = await Promise.all([
        database.readKeyed(user({ id })),
        database.readKeyed(subscriptions({ id })),
      ]);
      const [row] = found;
      if (row === undefined) return undefined;
      const { blocked_email: blocked, ...rest } = row;
      return { user: rest, blocked: blocked !== null, subscriptions: named };
    },
    idOfEmail: async (email) => (await database.readKeyed(byEmail({ email })))[0]?.id,
  };
}
