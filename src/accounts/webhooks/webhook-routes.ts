import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { type Route, defineRoute as row } from '../../platform/http/surface.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import { type Actor, actorOf } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import {
  type NewWebhook,
  webhookOperations as op,
  type Webhook,
  type WebhookDelivery,
  type WebhookEventName,
} from '../contract/administration.ts';
import { pageOf } from '../contract/conventions.ts';
import type { WebhookDeliveryRow, WebhookRow } from '../storage/accounts-schema.ts';
import { createWebhookStore } from '../storage/outgoing-stores.ts';
import { timeText } from '../user-object.ts';
import { webhookContext } from './webhook-post.ts';

const MAX_WEBHOOKS = 20;
const SECRET_PREFIX = 'whs_';

/** The rows of webhooks, which post events to other programs. Only administrators choose the receivers. */
export function webhookRoutes(core: AccountsCore): readonly Route[] {
  const { access } = core;
  const webhooks = createWebhooks(core);
  const path = '/api/auth/admin/webhooks' as const;
  return [
    row(`GET ${path}`, access.adminOnly, op.listWebhooks, webhooks.list),
    // A webhook outlives the session that creates it, and sends what happens here elsewhere.
    row(`POST ${path}`, access.freshAdmin, op.createWebhook, (call) => webhooks.create(call.body, actorOf(call))),
    row(`DELETE ${path}/:id`, access.adminOnly, op.removeWebhook, (call) =>
      webhooks.remove(call.params.id, actorOf(call)),
    ),
    row(`POST ${path}/:id/enable`, access.freshAdmin, op.enableWebhook, (call) =>
      webhooks.enable(call.params.id, actorOf(call)),
    ),
    row(`GET ${path}/:id/deliveries`, access.adminOnly, op.listDeliveries, (call) =>
      webhooks.deliveries(call.params.id, call.query),
    ),
  ];
}

function createWebhooks({ database, webhooks: post, secretBox, audit, clock, randomness, makeId }: AccountsCore) {
  const store = createWebhookStore(database);
  const entryOf = (event: string, id: string, { id: actor, head }: Actor, details: Record<string, unknown>) =>
    audit.statement({ event, actor, subject: id, ...(head !== undefined && { head }), details });

  return {
    async create(given: NewWebhook, actor: Actor) {
      const url = await post.check(given.url);
      const events = [...new Set(given.events)];
      const id = makeId('whk_');
      const secret = createToken(randomness, SECRET_PREFIX);
      const webhook: WebhookRow = {
        id,
        url,
        events: JSON.stringify(events),
        secret: secretBox.seal(secret, webhookContext(id)),
        created_by: actor.id,
        created_at: clock.now(),
        failing_since: null,
        disabled_at: null,
        dropped: 0,
      };
      const entry = entryOf('webhook.created', id, actor, { host: new URL(url).host, events });
      await database.write([...store.add(webhook, MAX_WEBHOOKS), entry], {
        conflict: 'TOO_MANY_WEBHOOKS',
        details: { most: MAX_WEBHOOKS },
      });
      return { webhook: describeWebhook({ ...webhook, waiting: 0 }), secret };
    },
    list: async () => ({ webhooks: (await store.list()).map(describeWebhook) }),
    async remove(id: string, actor: Actor): Promise<void> {
      await database.write([...store.remove(id), entryOf('webhook.removed', id, actor, {})], {
        conflict: 'WEBHOOK_NOT_FOUND',
      });
    },
    /** Changes nothing for a webhook that is on. */
    async enable(id: string, actor: Actor) {
      const before = await store.find(id);
      if (before === undefined) throw new AppError('WEBHOOK_NOT_FOUND');
      if (before.disabled_at !== null) {
        // The rules may have changed since it was created.
        await post.check(before.url);
        const entry = entryOf('webhook.enabled', id, actor, { host: new URL(before.url).host });
        await database.write([store.enable(id), entry]).catch((error) => {
          // Another administrator was faster.
          if (errorCode(error) !== 'STORAGE_CONFLICT') throw error;
        });
      }
      const webhook = (await store.list()).find((one) => one.id === id);
      if (webhook === undefined) throw new AppError('WEBHOOK_NOT_FOUND');
      return { webhook: describeWebhook(webhook) };
    },
    async deliveries(id: string, { cursor, limit }: { cursor?: string; limit?: number }) {
      if ((await store.find(id)) === undefined) throw new AppError('WEBHOOK_NOT_FOUND');
      const { rows, nextCursor } = await pageOf(limit, (most) => store.deliveries(id, cursor, most));
      return { deliveries: rows.map(describeDelivery), nextCursor };
    },
  };
}

const timeOrNull = (at: number | null) => (at === null ? null : timeText(at));

function describeWebhook(webhook: WebhookRow & { readonly waiting: number }): Webhook {
  return {
    id: webhook.id,
    url: webhook.url,
    events: JSON.parse(webhook.events) as WebhookEventName[],
    createdBy: webhook.created_by,
    createdAt: timeText(webhook.created_at),
    failingSince: timeOrNull(webhook.failing_since),
    disabledAt: timeOrNull(webhook.disabled_at),
    waiting: webhook.waiting,
    dropped: webhook.dropped,
  };
}

function describeDelivery(delivery: WebhookDeliveryRow): WebhookDelivery {
  const { id, event, state, attempts, detail, body } = delivery;
  return {
    id,
    event: event as WebhookEventName,
    state,
    attempts,
    detail,
    createdAt: timeText(delivery.created_at),
    nextAttemptAt: timeOrNull(delivery.due_at),
    endedAt: timeOrNull(delivery.ended_at),
    body,
  };
}
