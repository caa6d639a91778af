import type { Database } from '../../platform/database/database.ts';
import type { Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, SubscriptionRow } from './accounts-schema.ts';

export interface SubscriptionStore {
  add(subscription: SubscriptionRow): Runnable;
}

export function createSubscriptionStore(database: Database<AccountsSchema>): SubscriptionStore {
  return {
    add: (subscription) => database.query.insertInto('subscriptions').values(subscription).compile(),
  };
}
