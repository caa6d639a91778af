import type { Subscription, SubscriptionStatus } from '../contract/subscription.ts';
import type { SubscriptionRow } from '../storage/accounts-schema.ts';
import { timeText } from '../user-object.ts';

/** A subscription as its user and administrators see it. */
export function describeSubscription(row: SubscriptionRow, now: number): Subscription {
  return {
    id: row.id,
    externalId: row.external_id,
    provider: row.provider,
    paymentMethod: row.payment_method,
    paymentQr: row.payment_qr,
    kind: row.kind,
    planId: row.plan_id,
    status: statusAt(row, now),
    meta: JSON.parse(row.meta) as Record<string, unknown>,
    createdAt: timeText(row.created_at),
    updatedAt: timeText(row.updated_at),
    ...(row.expires_at === null ? {} : { expiresAt: timeText(row.expires_at) }),
    ...(row.cancelled_at === null ? {} : { cancelledAt: timeText(row.cancelled_at) }),
  };
}

/** A trial ends by itself at its time: nothing has to be stored for that. */
export function statusAt({ status, expires_at }: SubscriptionRow, now: number): SubscriptionStatus {
  return status === 'trialing' && expires_at !== null && expires_at <= now ? 'expired' : (status as SubscriptionStatus);
}
