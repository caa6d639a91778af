import { type Static, Type } from 'typebox';

export const SUBSCRIPTION_STATUSES = ['pending', 'trialing', 'active', 'past_due', 'cancelled', 'expired'] as const;

export type SubscriptionStatus = (typeof SUBSCRIPTION_STATUSES)[number];

export const Status = Type.Unsafe<SubscriptionStatus>({ type: 'string', enum: [...SUBSCRIPTION_STATUSES] });

const text = (maxLength: number, description: string) => Type.Optional(Type.String({ maxLength, description }));

/** Whatever the app or the payment system wants to remember; at most a few kilobytes. */
export const Meta = Type.Optional(Type.Record(Type.String(), Type.Unknown()));

/** What a user may say of a subscription. Its status, price and end are not among it (contract/accounts, Rules). */
export const SubscriptionClaim = Type.Object({
  externalId: Type.Optional(Type.String({ maxLength: 200, examples: ['order-1001'] })),
  provider: text(64, 'Who takes the payment.'),
  paymentMethod: text(64, 'How it is paid.'),
  paymentQr: text(4096, 'What a payment app scans.'),
  kind: text(64, 'What sort of subscription it is.'),
  planId: text(128, 'The plan that is asked for.'),
  meta: Meta,
});

export type SubscriptionClaim = Static<typeof SubscriptionClaim>;

export const Subscription = Type.Object({
  id: Type.String(),
  externalId: Type.String(),
  provider: Type.String(),
  paymentMethod: Type.String(),
  paymentQr: Type.String(),
  kind: Type.String(),
  planId: Type.String(),
  status: Status,
  meta: Type.Record(Type.String(), Type.Unknown()),
  createdAt: Type.String(),
  updatedAt: Type.String(),
  expiresAt: Type.Optional(Type.String({ description: 'When a trial ends.' })),
  cancelledAt: Type.Optional(Type.String()),
});

export type Subscription = Static<typeof Subscription>;
