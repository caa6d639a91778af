import { AppError } from '../../platform/errors/app-error.ts';
import type { UserCall } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { NewStatus, Subscription, SubscriptionClaim, SubscriptionStatus } from '../contract/own-data.ts';
import type { SubscriptionRow } from '../storage/accounts-schema.ts';
import { timeText } from '../user-object.ts';
import type { WebhookEvent } from '../webhooks/webhook-post.ts';

/** Contract/accounts, Rules: Subscriptions. */
export interface Subscriptions {
  list(userId: string): Promise<{ subscriptions: Subscription[] }>;
  /** What a client says of a purchase: `pending` until someone else decides, and without effect afterwards. */
  claim(claim: SubscriptionClaim, call: UserCall): Promise<{ subscription: Subscription }>;
  cancel(externalId: string | undefined, call: UserCall): Promise<{ subscription: Subscription }>;
  /** By an administrator. */
  setStatus(id: string, given: NewStatus, call: UserCall): Promise<{ subscription: Subscription }>;
}

/** Far more than anyone buys; a stored list needs a limit. */
const MOST_PER_USER = 100;
const META_BYTES = 4096;

type Parts = Pick<AccountsCore, 'subscriptions' | 'audit' | 'webhooks' | 'clock' | 'makeId'>;

export function createSubscriptions({ subscriptions: store, audit, webhooks, clock, makeId }: Parts): Subscriptions {
  const described = (row: SubscriptionRow) => ({ subscription: describeSubscription(row, clock.now()) });
  return {
    async list(userId) {
      const own = await store.ofUser(userId, MOST_PER_USER + 1);
      return { subscriptions: own.map((row) => describeSubscription(row, clock.now())) };
    },
    async claim(claim, { caller: { user }, head }) {
      const externalId = requireExternalId(claim.externalId);
      const row = { ...newSubscription(makeId('sub_'), user.id, externalId, clock.now()), ...claimed(claim) };
      const details = { externalId, planId: row.plan_id };
      const entry = { event: 'subscription.claimed', actor: user.id, subject: user.id, head, details };
      const stored = await store.claim(row, [audit.statement(entry)], MOST_PER_USER);
      if (stored === undefined) throw new AppError('TOO_MANY_SUBSCRIPTIONS', { most: MOST_PER_USER });
      return described(stored);
    },
    async cancel(given, { caller: { user }, head }) {
      const externalId = requireExternalId(given);
      const now = clock.now();
      const entry = { actor: user.id, subject: user.id, head, details: { externalId } };
      const cancelled = await store.change({ userId: user.id, externalId }, (row) => {
        if (row === undefined || row.status === 'cancelled') return undefined;
        const changed = withStatus(row, 'cancelled', now, now);
        const event = webhooks.enqueue(subscriptionChanged(row.status, changed));
        return { row: changed, also: [audit.statement({ event: 'subscription.cancelled', ...entry }), ...event] };
      });
      webhooks.wake();
      if (cancelled !== undefined) return described(cancelled);
      // It may be someone else's: that, and nothing more, is what the record is for.
      await audit.record({ event: 'subscription.not_found', ...entry });
      throw new AppError('SUBSCRIPTION_NOT_FOUND');
    },
    async setStatus(id, { status, planId }, { caller: { user: actor }, head }) {
      const now = clock.now();
      const changed = await store.change({ id }, (row) => {
        if (row === undefined) return undefined;
        const details = {
          subscription: id,
          before: row.status,
          after: status,
          ...(planId !== undefined && { planId }),
        };
        const entry = { event: 'subscription.status_set', actor: actor.id, subject: row.user_id, head, details };
        // Events say when they were sent in whole seconds: one of this very second is taken for a later one.
        const second = Math.floor(now / 1000) * 1000;
        const next = { ...withStatus(row, status, second, now), ...namedPlan(planId) };
        return {
          row: next,
          also: [audit.statement(entry), ...webhooks.enqueue(subscriptionChanged(row.status, next))],
        };
      });
      webhooks.wake();
      if (changed === undefined) throw new AppError('SUBSCRIPTION_NOT_FOUND');
      return described(changed);
    },
  };
}

/** For webhooks: `before` is empty for a subscription that is new. */
export function subscriptionChanged(before: string, row: SubscriptionRow): WebhookEvent {
  const { id, user_id: userId, external_id: externalId, status, named_plan: plan } = row;
  return { event: 'subscription.changed', data: { subscriptionId: id, userId, externalId, before, status, plan } };
}

/** A plan that counts: named by the payment webhook or an administrator, never by the client. */
export function namedPlan(planId: string | undefined): Partial<SubscriptionRow> {
  return planId === undefined ? {} : { plan_id: planId, named_plan: planId };
}

export function newSubscription(id: string, userId: string, externalId: string, now: number): SubscriptionRow {
  return {
    id,
    user_id: userId,
    external_id: externalId,
    provider: '',
    payment_method: '',
    payment_qr: '',
    kind: '',
    plan_id: '',
    named_plan: '',
    status: 'pending',
    meta: '{}',
    revision: 1,
    created_at: now,
    updated_at: now,
    expires_at: null,
    cancelled_at: null,
    event_at: 0,
  };
}

/** `eventAt` is when it was decided, which for a payment's event is before it arrives. */
export function withStatus(
  row: SubscriptionRow,
  status: SubscriptionStatus,
  eventAt: number,
  now: number,
): SubscriptionRow {
  const isSame = status === statusAt(row, now);
  return {
    ...row,
    status,
    revision: row.revision + 1,
    updated_at: now,
    // An administrator who sets a status has decided about the end too: only the trial of a registration ends by itself.
    expires_at: isSame ? row.expires_at : null,
    cancelled_at: status === 'cancelled' ? (row.cancelled_at ?? now) : null,
    event_at: Math.max(row.event_at, eventAt),
  };
}

export function metaText(meta: Readonly<Record<string, unknown>>): string {
  const text = JSON.stringify(meta);
  if (Buffer.byteLength(text) <= META_BYTES) return text;
  const wrong = `it has more than ${META_BYTES} bytes`;
  throw new AppError('INVALID_REQUEST', { reason: `meta: ${wrong}`, issues: [{ path: '/meta', message: wrong }] });
}

function claimed(claim: SubscriptionClaim): Partial<SubscriptionRow> {
  return {
    provider: claim.provider ?? '',
    payment_method: claim.paymentMethod ?? '',
    payment_qr: claim.paymentQr ?? '',
    kind: claim.kind ?? '',
    plan_id: claim.planId ?? '',
    meta: metaText(claim.meta ?? {}),
  };
}

function requireExternalId(externalId: string | undefined): string {
  if (externalId === undefined || externalId.trim() === '') throw new AppError('EXTERNAL_ID_REQUIRED');
  return externalId;
}

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
