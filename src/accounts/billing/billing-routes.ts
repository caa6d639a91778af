import { type Static, Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import { createSchemaCheck, parseBody } from '../../platform/http/request-body.ts';
import type { RequestHead, Route } from '../../platform/http/surface.ts';
import { digestToken } from '../../platform/secrets/tokens.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { Meta, Status } from '../contract/subscription.ts';
import { BODY_LIMIT } from '../limits.ts';
import { metaText, namedPlan, newSubscription, withStatus } from '../subscriptions/subscriptions.ts';
import { signedAt } from './webhook-signature.ts';

const BillingEvent = Type.Object(
  {
    userId: Type.String({ maxLength: 200 }),
    externalId: Type.String({ minLength: 1, maxLength: 200 }),
    status: Status,
    planId: Type.Optional(Type.String({ maxLength: 128, description: 'The plan that was paid for.' })),
    meta: Meta,
  },
  { additionalProperties: false },
);
type BillingEvent = Static<typeof BillingEvent>;

const Received = Type.Object({
  received: Type.Literal(true),
  applied: Type.Boolean({ description: 'False for what was received before, and for what is older than what counts.' }),
});

type Parts = Pick<AccountsCore, 'access' | 'settings' | 'subscriptions' | 'audit' | 'clock' | 'makeId'>;

/** What payments say of subscriptions (contract/accounts: POST /api/billing/webhook). */
export function billingRoutes(parts: Parts): readonly Route[] {
  const { access, settings, subscriptions, audit, clock, makeId } = parts;
  const check = createSchemaCheck(BillingEvent, 'body');

  async function apply(event: BillingEvent, sentAt: number, names: readonly string[], head: RequestHead) {
    const { userId, externalId, status, planId, meta } = event;
    const now = clock.now();
    let applied = false;
    const changed = { ...namedPlan(planId), ...(meta && { meta: metaText(meta) }) };
    await subscriptions.change(
      { userId, externalId },
      (row, user) => {
        applied = false;
        if (user === undefined) throw new AppError('USER_NOT_FOUND');
        // An event that was overtaken by a newer one, or by a cancellation, must not bring back what is over.
        if (row !== undefined && sentAt < row.event_at) return undefined;
        applied = true;
        const before = row ?? newSubscription(makeId('sub_'), userId, externalId, now);
        const details = { externalId, before: row?.status ?? '', after: status };
        const entry = { event: 'billing.received', actor: 'billing', subject: userId, head, details };
        return { row: { ...withStatus(before, status, sentAt, now), ...changed }, also: [audit.statement(entry)] };
      },
      { names, now },
    );
    return applied;
  }

  return [
    {
      method: 'POST',
      path: '/api/billing/webhook',
      guard: access.anyone(),
      summary: 'A payment’s news of a subscription, signed with the billing secret.',
      body: 'bytes',
      bodyLimit: BODY_LIMIT,
      schema: { body: BillingEvent, response: { 200: Received } },
      async handle({ body, head }) {
        const bytes = body as Buffer;
        const signature = head.headers['x-app-signature'];
        const secret = settings().billing_webhook_secret;
        const sentAt = typeof signature === 'string' ? signedAt(signature, bytes, secret, clock.now()) : undefined;
        if (sentAt === undefined) throw new AppError('INVALID_SIGNATURE');
        const event = parseBody(bytes);
        check(event);
        const names = deliveryNames(head, sentAt, bytes);
        return { received: true, applied: await apply(event as BillingEvent, sentAt, names, head) };
      },
    },
  ];
}

/** A delivery is known by what was signed, and by the id that its sender gives to all its attempts. */
function deliveryNames(head: RequestHead, sentAt: number, body: Buffer): readonly string[] {
  const { 'x-app-delivery': delivery } = head.headers;
  const names = [`signed:${sentAt}:${body.toString('base64')}`];
  if (typeof delivery === 'string' && delivery !== '') names.push(`delivery:${delivery.slice(0, 256)}`);
  return names.map((name) => digestToken(name).toString('base64url'));
}
