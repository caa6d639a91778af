import { createHmac } from 'node:crypto';
import { AppError } from '../../platform/errors/app-error.ts';
import { createSchemaCheck, parseBody } from '../../platform/http/request-body.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { digestToken, sameSecret } from '../../platform/secrets/tokens.ts';
import type { UserCall } from '../access.ts';
import type { AccountsCore, BasePort, PeoplePort, PostPort } from '../accounts-core.ts';
import { pageOf } from '../contract/conventions.ts';
import {
  BillingEvent,
  type NewStatus,
  type OwnedSubscription,
  type Subscription,
  type SubscriptionClaim,
  type SubscriptionQuery,
  type SubscriptionStatus,
} from '../contract/own-data.ts';
import type { SubscriptionRow } from '../storage/accounts-schema.ts';
import { timeText } from '../user-object.ts';
import type { WebhookEvent } from '../webhooks/webhook-post.ts';

/** Subscriptions of users: bought, assigned, or claimed. */
interface Subscriptions {
  list(userId: string): Promise<{ subscriptions: Subscription[] }>;
  /** Of everyone, newest first. */
  listAll(query: SubscriptionQuery): Promise<{ subscriptions: OwnedSubscription[]; nextCursor: string | null }>;
  /** Stores a client's claim of a purchase as `pending`. It has no effect after a payment or an administrator has decided. */
  claim(claim: SubscriptionClaim, call: UserCall): Promise<{ subscription: Subscription }>;
  cancel(externalId: string | undefined, call: UserCall): Promise<{ subscription: Subscription }>;
  /** By an administrator. */
  setStatus(id: string, given: NewStatus, call: UserCall): Promise<{ subscription: Subscription }>;
}

/** Far more than anyone buys; a stored list needs a limit. */
const MAX_PER_USER = 100;
const META_BYTES = 4096;

type SubscriptionParts = Pick<AccountsCore, 'subscriptions' | 'audit' | 'webhooks' | 'clock' | 'makeId'>;

export function createSubscriptions({
  subscriptions: store,
  audit,
  webhooks,
  clock,
  makeId,
}: SubscriptionParts): Subscriptions {
  const described = (row: SubscriptionRow) => ({ subscription: describeSubscription(row, clock.now()) });
  return {
    async list(userId) {
      const own = await store.ofUser(userId, MAX_PER_USER + 1);
      return { subscriptions: own.map((row) => describeSubscription(row, clock.now())) };
    },
    async listAll({ status, userId, plan, cursor, limit }) {
      const now = clock.now();
      const filter = { status, userId, plan, now };
      const { rows, nextCursor } = await pageOf(limit, (most) => store.list(filter, cursor, most));
      const subscriptions = rows.map(({ user_name: name, user_email: email, ...row }) => ({
        ...describeSubscription(row, now),
        plan: row.named_plan,
        user: { id: row.user_id, name, email },
      }));
      return { subscriptions, nextCursor };
    },
    async claim(claim, { caller: { user }, head }) {
      const externalId = requireExternalId(claim.externalId);
      const row = { ...newSubscription(makeId('sub_'), user.id, externalId, clock.now()), ...claimed(claim) };
      const details = { externalId, planId: row.plan_id };
      const entry = { event: 'subscription.claimed', actor: user.id, subject: user.id, head, details };
      const stored = await store.claim(row, [audit.statement(entry)], MAX_PER_USER);
      if (stored === undefined) throw new AppError('TOO_MANY_SUBSCRIPTIONS', { most: MAX_PER_USER });
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
      // Recorded, because the id may be that of someone else's subscription.
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
        // Rounded down, because events have whole seconds: an event of the same second counts as later.
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
function subscriptionChanged(before: string, row: SubscriptionRow): WebhookEvent {
  const { id, user_id: userId, external_id: externalId, status, named_plan: plan } = row;
  return { event: 'subscription.changed', data: { subscriptionId: id, userId, externalId, before, status, plan } };
}

/** A plan that counts: named by the payment webhook or an administrator, never by the client. */
function namedPlan(planId: string | undefined): Partial<SubscriptionRow> {
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
function withStatus(row: SubscriptionRow, status: SubscriptionStatus, eventAt: number, now: number): SubscriptionRow {
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

function metaText(meta: Readonly<Record<string, unknown>>): string {
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

/** Returns the status at a time: a trial ends at its time without a write. */
function statusAt({ status, expires_at }: SubscriptionRow, now: number): SubscriptionStatus {
  return status === 'trialing' && expires_at !== null && expires_at <= now ? 'expired' : (status as SubscriptionStatus);
}

type PaymentParts = BasePort & PeoplePort & PostPort;

/** Applies signed events of the payment system to subscriptions. */
export function createPayments({ settings, subscriptions, audit, webhooks, clock, makeId }: PaymentParts) {
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
        const next = { ...withStatus(before, status, sentAt, now), ...changed };
        const told = webhooks.enqueue(subscriptionChanged(row?.status ?? '', next));
        return { row: next, also: [audit.statement(entry), ...told] };
      },
      { names, now },
    );
    webhooks.wake();
    return applied;
  }

  return {
    async receive(body: Buffer, head: RequestHead) {
      const signature = head.headers['x-app-signature'];
      const secret = settings().billing_webhook_secret;
      const sentAt = typeof signature === 'string' ? signedAt(signature, body, secret, clock.now()) : undefined;
      if (sentAt === undefined) throw new AppError('INVALID_SIGNATURE');
      const event = check(parseBody(body));
      return { received: true, applied: await apply(event, sentAt, deliveryNames(head, sentAt, body), head) };
    },
  };
}

/** Returns the digests by which a repeated delivery is recognized: of the signed bytes, and of the sender's delivery id. */
function deliveryNames(head: RequestHead, sentAt: number, body: Buffer): readonly string[] {
  const { 'x-app-delivery': delivery } = head.headers;
  const names = [`signed:${sentAt}:${body.toString('base64')}`];
  if (typeof delivery === 'string' && delivery !== '') names.push(`delivery:${delivery.slice(0, 256)}`);
  return names.map((name) => digestToken(name).toString('base64url'));
}

const TOLERANCE_MS = 5 * 60_000;
const MAX_HEADER = 1024;
const MAX_SIGNATURES = 4;

/**
 * When a webhook was signed (`X-App-Signature: t=<unix seconds>,v1=<hex of HMAC-SHA256 over "t.body">`), in milliseconds;
 * undefined unless the signature is right and from the last five minutes. Several `v1` may stand there while the secret
 * is being replaced.
 */
export function signedAt(
  header: string | undefined,
  body: Uint8Array,
  secret: string,
  now: number,
): number | undefined {
  if (secret === '' || header === undefined || header.length > MAX_HEADER) return undefined;
  const parts = header.split(',').map((part) => part.trim());
  const times = parts.filter((part) => part.startsWith('t='));
  const [time = ''] = times;
  const signatures = parts.filter((part) => part.startsWith('v1=')).slice(0, MAX_SIGNATURES);
  if (times.length !== 1 || !/^t=\d{1,12}$/.test(time)) return undefined;
  const seconds = time.slice(2);
  const at = Number(seconds) * 1000;
  if (Math.abs(now - at) > TOLERANCE_MS) return undefined;
  const expected = createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex');
  return signatures.some((signature) => sameSecret(signature.slice(3).toLowerCase(), expected)) ? at : undefined;
}
