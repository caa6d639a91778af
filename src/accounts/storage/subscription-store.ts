import type { Database, Transaction } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { AccountsSchema, SubscriptionRow, UserRow } from './accounts-schema.ts';
import { insertWithin } from './guarded-writes.ts';
import { createUserCountStore } from './user-store.ts';

type SubscriptionKey = { readonly id: string } | { readonly userId: string; readonly externalId: string };

interface SubscriptionDecision {
  readonly row: SubscriptionRow;
  /** Stored with it, or not at all. */
  readonly also: readonly Runnable[];
}

interface SubscriptionFilter {
  readonly status: string | undefined;
  readonly userId: string | undefined;
  /** The plan that they give. */
  readonly plan: string | undefined;
  readonly now: number;
}

type OwnedSubscriptionRow = SubscriptionRow & { readonly user_name: string; readonly user_email: string };

export interface SubscriptionStore {
  /** For a new one that is not active: nothing is counted. */
  add(subscription: SubscriptionRow): Runnable;
  /** Oldest first. */
  ofUser(userId: string, limit: number): Promise<SubscriptionRow[]>;
  /** Newest first, each with its user. A trial that is over counts as expired. */
  list(filter: SubscriptionFilter, before: string | undefined, limit: number): Promise<OwnedSubscriptionRow[]>;
  /**
   * Stores the user's claim unless its status was decided before; returns the stored subscription.
   * Undefined when the user has `most` others.
   */
  claim(subscription: SubscriptionRow, also: readonly Runnable[], most: number): Promise<SubscriptionRow | undefined>;
  /**
   * Changes one, and counts its user again, as if nothing else ran at the same time. `decide` answers undefined to leave all as
   * it is, and on PostgreSQL may be asked more than once. `once` are names of which none may have been stored before:
   * otherwise nothing happens.
   */
  change(
    key: SubscriptionKey,
    decide: (row: SubscriptionRow | undefined, user: UserRow | undefined) => SubscriptionDecision | undefined,
    once?: { readonly names: readonly string[]; readonly now: number },
  ): Promise<SubscriptionRow | undefined>;
}

/** `onChanged` is awaited after every change of a user's subscription, even one whose outcome is not known. */
export function createSubscriptionStore(
  database: Database<AccountsSchema>,
  onChanged: (userId: string) => Promise<void>,
): SubscriptionStore {
  const { query } = database;
  const counts = createUserCountStore(database);

  const selectBy = (key: SubscriptionKey) => {
    const select = query.selectFrom('subscriptions').selectAll();
    return 'id' in key
      ? select.where('id', '=', key.id).compile()
      : select.where('user_id', '=', key.userId).where('external_id', '=', key.externalId).compile();
  };

  async function isFirst(
    transaction: Transaction<AccountsSchema>,
    once: { readonly names: readonly string[]; readonly now: number },
  ): Promise<boolean> {
    for (const digest of once.names) {
      const note = query
        .insertInto('billing_deliveries')
        .values({ digest, received_at: once.now })
        .onConflict((conflict) => conflict.column('digest').doNothing());
      if ((await transaction.run(note.compile())).changes === 0) return false;
    }
    return true;
  }

  async function store(transaction: Transaction<AccountsSchema>, row: SubscriptionRow, user: UserRow): Promise<void> {
    const { id, user_id, external_id, ...rest } = row;
    const put = query
      .insertInto('subscriptions')
      .values(row)
      .onConflict((conflict) => conflict.column('id').doUpdateSet(rest));
    await transaction.run(put.compile());
    const active = query
      .selectFrom('subscriptions')
      .select('id')
      .where('user_id', '=', user.id)
      .where('status', '=', 'active')
      .limit(1);
    const subscribed = (await transaction.run(active.compile())).rows.length;
    if (subscribed === user.subscribed) return;
    const mark = query.updateTable('users').set({ subscribed }).where('id', '=', user.id);
    await transaction.run(mark.compile());
    await transaction.run(counts.change(user, -1));
    await transaction.run(counts.change({ ...user, subscribed }, 1));
  }

  return {
    add: (subscription) => query.insertInto('subscriptions').values(subscription).compile(),
    ofUser: (userId, limit) =>
      database.readKeyed(
        query
          .selectFrom('subscriptions')
          .selectAll()
          .where('user_id', '=', userId)
          .orderBy('id')
          .limit(limit)
          .compile(),
      ),
    list({ status, userId, plan, now }, before, limit) {
      let select = query
        .selectFrom('subscriptions')
        .innerJoin('users', 'users.id', 'subscriptions.user_id')
        .selectAll('subscriptions')
        .select(['users.name as user_name', 'users.email as user_email'])
        .orderBy('subscriptions.id', 'desc')
        .limit(limit);
      if (before !== undefined) select = select.where('subscriptions.id', '<', before);
      if (userId !== undefined) select = select.where('subscriptions.user_id', '=', userId);
      if (plan !== undefined) select = select.where('subscriptions.named_plan', '=', plan);
      // A trial ends by itself at its time: its row still says that it is one.
      if (status === 'trialing') {
        select = select.where((is) =>
          is.or([is('subscriptions.expires_at', 'is', null), is('subscriptions.expires_at', '>', now)]),
        );
      }
      if (status === 'expired') {
        select = select.where((is) => {
          const isTrial = is('subscriptions.status', '=', 'trialing');
          const isOver = is.and([isTrial, is('subscriptions.expires_at', '<=', now)]);
          return is.or([is('subscriptions.status', '=', 'expired'), isOver]);
        });
      } else if (status !== undefined) select = select.where('subscriptions.status', '=', status);
      return database.read(select.compile());
    },
    async claim(subscription, also, most) {
      const { user_id: userId, external_id: externalId } = subscription;
      const { provider, payment_method, payment_qr, kind, plan_id, meta, updated_at } = subscription;
      const put = query
        .insertInto('subscriptions')
        .values(subscription)
        .onConflict((conflict) =>
          conflict
            .columns(['user_id', 'external_id'])
            .doUpdateSet((build) => ({
              provider,
              payment_method,
              payment_qr,
              kind,
              plan_id,
              meta,
              updated_at,
              revision: build('subscriptions.revision', '+', 1),
            }))
            .where('subscriptions.status', '=', 'pending'),
        );
      const limit = {
        name: `subscriptions of ${userId}`,
        rows: query.selectFrom('subscriptions').where('user_id', '=', userId),
        most,
      };
      try {
        await database.write([...insertWithin(database, expectChanges(put.compile(), 1), limit), ...also]);
      } catch (error) {
        // The subscription was decided before: the claim is neither stored nor recorded.
        if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
      }
      return (await database.readKeyed(selectBy({ userId, externalId })))[0];
    },
    async change(key, decide, once) {
      let userId = 'userId' in key ? key.userId : '';
      try {
        return await database.transaction(async (transaction) => {
          if (once !== undefined && !(await isFirst(transaction, once))) return undefined;
          const [row] = (await transaction.run(selectBy(key))).rows;
          userId = row?.user_id ?? userId;
          const selectUser = query.selectFrom('users').selectAll().where('id', '=', userId);
          const [user] = (await transaction.run(selectUser.compile())).rows;
          const decision = decide(row, user);
          if (decision === undefined || user === undefined) return row;
          await store(transaction, decision.row, user);
          for (const statement of decision.also) await transaction.run(statement);
          return decision.row;
        });
      } finally {
        if (userId !== '') await onChanged(userId);
      }
    },
  };
}
