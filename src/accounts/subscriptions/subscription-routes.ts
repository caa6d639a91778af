import { type Static, Type } from 'typebox';
import type { Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { Status, Subscription, SubscriptionClaim } from '../contract/subscription.ts';
import { BODY_LIMIT } from '../limits.ts';
import { describeSubscription } from './describe-subscription.ts';
import type { Subscriptions } from './subscriptions.ts';

const One = Type.Object({ subscription: Subscription });
const All = Type.Object({ subscriptions: Type.Array(Subscription) });
const ExternalId = Type.Object({ externalId: Type.Optional(Type.String({ maxLength: 200 })) });
const NewStatus = Type.Object(
  {
    status: Status,
    planId: Type.Optional(
      Type.String({
        maxLength: 128,
        description: 'The plan that it gives from now on. What a client named gives none.',
      }),
    ),
  },
  { additionalProperties: false },
);

type Parts = Pick<AccountsCore, 'access' | 'clock'>;

export function subscriptionRoutes({ access, clock }: Parts, subscriptions: Subscriptions): readonly Route[] {
  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'GET',
      path: '/api/auth/subscriptions',
      guard: access.user,
      summary: 'The own subscriptions.',
      schema: { response: { 200: All } },
      async handle({ caller }) {
        const own = await subscriptions.ofUser(caller.user.id);
        return { subscriptions: own.map((row) => describeSubscription(row, clock.now())) };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/subscriptions',
      guard: access.user,
      summary: 'Says that something was bought: it is pending until the payment, or an administrator, confirms it.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: SubscriptionClaim, response: { 200: One } },
      async handle({ caller, body, head }) {
        const row = await subscriptions.claim(caller.user, body as SubscriptionClaim, head);
        return { subscription: describeSubscription(row, clock.now()) };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/subscriptions/cancel',
      guard: access.user,
      summary: 'Cancels one of the own subscriptions.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: ExternalId, response: { 200: One } },
      async handle({ caller, body, head }) {
        const { externalId = '' } = body as Static<typeof ExternalId>;
        const row = await subscriptions.cancel(caller.user, externalId, head);
        return { subscription: describeSubscription(row, clock.now()) };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/admin/subscriptions/:id/status',
      guard: access.adminOnly,
      summary: 'Sets the status of anyone’s subscription, and the plan that it gives.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: NewStatus, response: { 200: One } },
      async handle({ caller, params, body, head }) {
        const row = await subscriptions.setStatus(params.id ?? '', body as Static<typeof NewStatus>, caller.user, head);
        return { subscription: describeSubscription(row, clock.now()) };
      },
    },
  ];
  return rows;
}
