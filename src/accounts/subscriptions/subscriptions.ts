import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { AccountsCore } from '../accounts-core.ts';
import type { SubscriptionClaim, SubscriptionStatus } from '../contract/subscription.ts';
import type { SubscriptionRow, UserRow } from '../storage/accounts-schema.ts';
import { statusAt } from './describe-subscription.ts';

/** Contract/accounts, Rules: Subscriptions. */
export interface Subscriptions {
  ofUser(userId: string): Promise<SubscriptionRow[]>;
  /** What a client says of a purchase: `pending` until someone else decides, and without effect afterwards. */
  claim(user: UserRow, claim: SubscriptionClaim, head: RequestHead): Promise<SubscriptionRow>;
  cancel(user: UserRow, externalId: string, head: RequestHead): Promise<SubscriptionRow>;
  /** By an administrator. */
  setStatus(id: string, given: GivenStatus, actor: UserRow, head: RequestHead): Promise<SubscriptionRow>;
}

/** Far more than anyone buys; a stored list that grows without end helps nobody. */
const MOST_PER_USER = 100;
const META_BYTES = 4096;

type Parts = Pick<AccountsCore, 'subscriptions' | 'audit' | 'clock' | 'makeId'>;

export function createSubscriptions({ subscriptions: store, audit, clock, makeId }: Parts): Subscriptions {
  return {
    ofUser: (userId) => store.ofUser(userId, MOST_PER_USER + 1),
    async claim(user, claim, head) {
      const externalId = requireExternalId(claim.externalId);
      const own = await store.ofUser(user.id, MOST_PER_USER + 1);
      if (own.length >= MOST_PER_USER && !own.some((row) => row.external_id === externalId)) {
        throw new AppError('TOO_MANY_SUBSCRIPTIONS', { most: MOST_PER_USER });
      }
      const row = { ...newSubscription(makeId('sub_'), user.id, externalId, clock.now()), ...claimed(claim) };
      const details = { externalId, planId: row.plan_id };
      const entry = { event: 'subscription.claimed', actor: user.id, subject: user.id, head, details };
      return store.claim(row, [audit.statement(entry)]);
    },
    async cancel(user, given, head) {
      const externalId = requireExternalId(given);
      const now = clock.now();
      const entry = { actor: user.id, subject: user.id, head, details: { externalId } };
      const cancelled = await store.change({ userId: user.id, externalId }, (row) => {
        if (row === undefined || row.status === 'cancelled') return undefined;
        const also = [audit.statement({ event: 'subscription.cancelled', ...entry })];
        return { row: withStatus(row, 'cancelled', now, now), also };
      });
      if (cancelled !== undefined) return cancelled;
      // It may be someone else's: that, and nothing more, is what the record is for.
      await audit.record({ event: 'subscription.not_found', ...entry });
      throw new AppError('SUBSCRIPTION_NOT_FOUND');
    },
    async setStatus(id, { status, planId }, actor, head) {
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
        return {
          row: { ...withStatus(row, status, second, now), ...namedPlan(planId) },
          also: [audit.statement(entry)],
        };
      });
      if (changed === undefined) throw new AppError('SUBSCRIPTION_NOT_FOUND');
      return changed;
    },
  };
}

/** What an administrator says of a subscription. */
export interface GivenStatus {
  readonly status: SubscriptionStatus;
  readonly planId?: string | undefined;
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
    // Whoever sets a status has decided about the end too: only the trial of a registration ends by itself.
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
