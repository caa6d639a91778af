import { createHmac } from 'node:crypto';
import { AppError } from '../../platform/errors/app-error.ts';
import { createSchemaCheck, parseBody } from '../../platform/http/request-body.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { digestToken, sameSecret } from '../../platform/secrets/tokens.ts';
import type { BasePort, PeoplePort, PostPort } from '../accounts-core.ts';
import { BillingEvent } from '../contract/own-data.ts';
import { metaText, namedPlan, newSubscription, subscriptionChanged, withStatus } from './subscriptions.ts';

type Parts = BasePort & PeoplePort & PostPort;

/** What payments say of subscriptions (contract/accounts: POST /api/billing/webhook). */
export function createPayments({ settings, subscriptions, audit, webhooks, clock, makeId }: Parts) {
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

/** A delivery is known by what was signed, and by the id that its sender gives to all its attempts. */
function deliveryNames(head: RequestHead, sentAt: number, body: Buffer): readonly string[] {
  const { 'x-app-delivery': delivery } = head.headers;
  const names = [`signed:${sentAt}:${body.toString('base64')}`];
  if (typeof delivery === 'string' && delivery !== '') names.push(`delivery:${delivery.slice(0, 256)}`);
  return names.map((name) => digestToken(name).toString('base64url'));
}

const TOLERANCE_MS = 5 * 60_000;
const LONGEST_HEADER = 1024;
const MOST_SIGNATURES = 4;

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
  if (secret === '' || header === undefined || header.length > LONGEST_HEADER) return undefined;
  const parts = header.split(',').map((part) => part.trim());
  const times = parts.filter((part) => part.startsWith('t='));
  const [time = ''] = times;
  const signatures = parts.filter((part) => part.startsWith('v1=')).slice(0, MOST_SIGNATURES);
  if (times.length !== 1 || !/^t=\d{1,12}$/.test(time)) return undefined;
  const seconds = time.slice(2);
  const at = Number(seconds) * 1000;
  if (Math.abs(now - at) > TOLERANCE_MS) return undefined;
  const expected = createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex');
  return signatures.some((signature) => sameSecret(signature.slice(3).toLowerCase(), expected)) ? at : undefined;
}
