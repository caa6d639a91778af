import { type Static, Type } from 'typebox';
import { MessageAndUser, NextCursor, Nothing, optionalBody, PageQuery, User } from './conventions.ts';
import { Credential, OwnSession } from './login.ts';
import { Team } from './teams.ts';
import { AccessToken } from './tokens.ts';

const SUBSCRIPTION_STATUSES = ['pending', 'trialing', 'active', 'past_due', 'cancelled', 'expired'] as const;

export type SubscriptionStatus = (typeof SUBSCRIPTION_STATUSES)[number];

const Status = Type.Unsafe<SubscriptionStatus>({ type: 'string', enum: [...SUBSCRIPTION_STATUSES] });

const strict = { additionalProperties: false };
const text = (maxLength: number, description: string) => Type.Optional(Type.String({ maxLength, description }));

/** Whatever the app or the payment system wants to remember; at most a few kilobytes. */
const Meta = Type.Optional(Type.Record(Type.String(), Type.Unknown()));

/** What a user may say of a subscription. Its status, price and end are not among it. */
export const SubscriptionClaim = Type.Object({
  externalId: Type.Optional(Type.String({ maxLength: 200, examples: ['order-1001'] })),
  provider: text(64, 'The payment provider.'),
  paymentMethod: text(64, 'The payment method.'),
  paymentQr: text(4096, 'The QR code for a payment app.'),
  kind: text(64, 'The type of the subscription.'),
  planId: text(128, 'The requested plan.'),
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

const OneSubscription = { 200: Type.Object({ subscription: Subscription }) };

/** Which subscriptions an administrator wants to see. */
export const SubscriptionQuery = Type.Object(
  {
    status: Type.Optional(Status),
    userId: text(200, 'Only those of this user.'),
    plan: text(128, 'Only those that give this plan.'),
    ...PageQuery.properties,
  },
  strict,
);
export type SubscriptionQuery = Static<typeof SubscriptionQuery>;

/** A subscription with its user, as an administrator sees it. */
export const OwnedSubscription = Type.Object({
  ...Subscription.properties,
  plan: Type.String({ description: 'The plan that it gives while it is active or a trial. Empty: none.' }),
  user: Type.Object({ id: Type.String(), name: Type.String(), email: Type.String() }),
});
export type OwnedSubscription = Static<typeof OwnedSubscription>;

/** A plan of the settings. */
export const PlanView = Type.Object({
  name: Type.String(),
  isDefault: Type.Boolean(),
  models: Type.Array(Type.String()),
  requestsPerMinute: Type.Integer({ description: '0: no limit.' }),
  tokensPerMinute: Type.Integer({ description: '0: no limit.' }),
  budget: Type.Object({ usd: Type.Number(), period: Type.Enum(['day', 'month', 'total']) }),
  keys: Type.Integer(),
  bridge: Type.Boolean(),
  runningTurns: Type.Integer({ description: '0: only the limits of the bridge.' }),
  jobs: Type.Integer({ description: '0: only the limits of the bridge.' }),
});
export type PlanView = Static<typeof PlanView>;

/** What an administrator says of a subscription. */
export const NewStatus = Type.Object(
  {
    status: Status,
    planId: text(128, 'The plan that it gives from now on. A plan that a client named does not count.'),
  },
  strict,
);
export type NewStatus = Static<typeof NewStatus>;

/** What a payment says of a subscription. */
export const BillingEvent = Type.Object(
  {
    userId: Type.String({ maxLength: 200 }),
    externalId: Type.String({ minLength: 1, maxLength: 200 }),
    status: Status,
    planId: text(128, 'The plan that was paid for.'),
    meta: Meta,
  },
  strict,
);
export type BillingEvent = Static<typeof BillingEvent>;

const nullable = <T extends Parameters<typeof Type.Optional>[0]>(schema: T) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

/** What a key may be limited to; its owner is the caller. Strict, because a misspelt limit would be no limit. */
export const NewKey = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 200, pattern: '^[^\\u0000-\\u001f\\u007f]*$', examples: ['laptop'] }),
    models: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 200, pattern: '^[!-~]+$' }), { maxItems: 200 }),
    ),
    requests_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000 })),
    tokens_per_minute: nullable(Type.Integer({ minimum: 1, maximum: 1_000_000_000_000 })),
    tags: Type.Optional(
      Type.Array(Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$' }), {
        maxItems: 10,
        description: 'The tags of all its calls, for reports.',
      }),
    ),
    max_parallel: nullable(
      Type.Integer({ minimum: 1, maximum: 1_000_000, description: 'Calls that may run at the same time.' }),
    ),
    store_content: nullable(
      Type.Union([Type.Literal('none'), Type.Literal('errors'), Type.Literal('all')], {
        description:
          'Which of its calls are stored with their requests and responses. Null: as the operator has set it.',
      }),
    ),
    budget: nullable(
      Type.Object(
        {
          usd: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000_000 }),
          period: Type.Union([Type.Literal('day'), Type.Literal('month'), Type.Literal('total')]),
        },
        strict,
      ),
    ),
    expires_at: nullable(Type.String({ maxLength: 64, description: 'A time such as 2030-01-31T00:00:00Z.' })),
    team: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: 'Id of a team of yours: every call with the key is for it.',
      }),
    ),
  },
  strict,
);
export type NewKey = Static<typeof NewKey>;

export const KeyRotation = Type.Object(
  {
    grace_seconds: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: 86_400,
        description: 'How long the old key stays valid beside the new one, at most a day. Default: 0.',
      }),
    ),
  },
  strict,
);
export type KeyRotation = Static<typeof KeyRotation>;

const Key = Type.Object({ id: Type.String() }, { additionalProperties: true });

export const ProfileChange = Type.Object(
  {
    name: Type.Optional(Type.String({ maxLength: 256, examples: ['Ann'] })),
    email: Type.Optional(
      Type.String({ maxLength: 254, description: 'The new address. Without a code, one is mailed to it.' }),
    ),
    code: text(64, 'The code that was mailed to the new address.'),
    password: text(1024, 'Required for a code, except within five minutes of a login.'),
  },
  strict,
);
export type ProfileChange = Static<typeof ProfileChange>;

/** More would make the response too large; `auditIsComplete` tells. */
export const MAX_EXPORTED_ENTRIES = 10_000;

export const Export = Type.Object({
  exportedAt: Type.String(),
  user: User,
  credentials: Type.Array(Credential),
  sessions: Type.Array(OwnSession),
  subscriptions: Type.Array(Subscription),
  teams: Type.Array(Team),
  tokens: Type.Array(AccessToken, { description: 'Personal access tokens, without the tokens themselves.' }),
  keys: Type.Array(Key),
  usage: Type.Union([Type.Object({}, { additionalProperties: true }), Type.Null()], {
    description: 'What the keys have used and the user has spent. Null if the completions service does not run here.',
  }),
  audit: Type.Array(
    Type.Object({
      at: Type.String(),
      event: Type.String(),
      byOwner: Type.Boolean(),
      address: text(64, 'Absent if someone else did it, such as an administrator.'),
      details: Type.Record(Type.String(), Type.Unknown()),
    }),
  ),
  auditIsComplete: Type.Boolean({ description: `False: only the newest ${MAX_EXPORTED_ENTRIES} entries are here.` }),
});
export type Export = Static<typeof Export>;

/** What belongs to one person: subscriptions, keys, all of their data together. */
export const ownDataOperations = {
  listSubscriptions: {
    summary: 'The caller’s subscriptions.',
    response: { 200: Type.Object({ subscriptions: Type.Array(Subscription) }) },
  },
  claimSubscription: {
    summary: 'Reports a purchase. It is pending until the payment provider or an administrator confirms it.',
    body: SubscriptionClaim,
    response: OneSubscription,
  },
  cancelSubscription: {
    summary: 'Cancels one of the caller’s subscriptions.',
    body: Type.Object({ externalId: Type.Optional(Type.String({ maxLength: 200 })) }),
    response: OneSubscription,
  },
  listAllSubscriptions: {
    summary: 'The subscriptions of all users, newest first.',
    query: SubscriptionQuery,
    response: { 200: Type.Object({ subscriptions: Type.Array(OwnedSubscription), nextCursor: NextCursor }) },
  },
  listPlans: {
    summary: 'The plans of the settings.',
    response: { 200: Type.Object({ plans: Type.Array(PlanView) }) },
  },
  setSubscriptionStatus: {
    summary: 'Sets the status of a subscription and its plan.',
    body: NewStatus,
    response: OneSubscription,
  },
  receivePayment: {
    summary: 'Receives changes of a subscription from the payment provider, signed with the billing secret.',
    body: BillingEvent,
    raw: true as const,
    response: {
      200: Type.Object({
        received: Type.Literal(true),
        applied: Type.Boolean({
          description: 'False if the event was received before, or is older than the current state.',
        }),
      }),
    },
  },
  createKey: {
    summary: 'Creates a key of the completions API for the caller. The key is shown only in this response.',
    body: NewKey,
    response: { 201: Key },
  },
  listKeys: {
    summary: 'The caller’s keys of the completions API.',
    response: { 200: Type.Object({ keys: Type.Array(Key) }) },
  },
  rotateKey: {
    summary:
      'Replaces one of the caller’s keys with a new one, which is shown only in this response. Needs a login from the last five minutes.',
    body: KeyRotation,
    response: { 200: Key },
  },
  removeKey: { summary: 'Removes one of the caller’s keys: it stops working immediately.', response: Nothing },
  changeProfile: {
    summary:
      'Changes the caller’s name, or the e-mail address with a code that is mailed to the new address; a new address ends all other sessions.',
    body: ProfileChange,
    response: { 200: MessageAndUser },
  },
  exportData: { summary: 'Returns all data of the caller, as JSON.', response: { 200: Export } },
  closeAccount: {
    summary: 'Deletes the caller’s account in 14 days; its keys stop working immediately.',
    body: optionalBody(
      Type.Object(
        { password: Type.Optional(Type.String({ description: 'Not required within five minutes of a login.' })) },
        strict,
      ),
      true,
    ),
    response: { 200: MessageAndUser },
  },
  keepAccount: {
    summary: 'Undoes the deletion: the account stays, and its keys work again.',
    response: { 200: MessageAndUser },
  },
  syncConfiguration: { summary: 'Configuration sync; not implemented.' },
};
