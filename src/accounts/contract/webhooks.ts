import { type Static, Type } from 'typebox';
import { NextCursor, Nothing, PageQuery } from './conventions.ts';

const EVENTS = [
  'user.created',
  'user.paused',
  'subscription.changed',
  'key.created',
  'session.needs_input',
  'job.started',
] as const;
const EventName = Type.Unsafe<WebhookEventName>({ type: 'string', enum: [...EVENTS] });
export type WebhookEventName = (typeof EVENTS)[number];

/** Strict, because a misspelt member would give a webhook that sends something else than was meant. */
export const NewWebhook = Type.Object(
  {
    url: Type.String({
      minLength: 1,
      maxLength: 2000,
      description: 'Where events are posted: a public http or https address, or one in `accounts.webhook_allow`.',
      examples: ['https://hooks.example.org/trestle'],
    }),
    events: Type.Array(EventName, {
      minItems: 1,
      maxItems: EVENTS.length,
      description: 'The events that it gets.',
      examples: [['user.created', 'job.started']],
    }),
  },
  { additionalProperties: false, $id: 'NewWebhook' },
);
export type NewWebhook = Static<typeof NewWebhook>;

const timeOrNull = (description: string) => Type.Union([Type.String(), Type.Null()], { description });

export const Webhook = Type.Object(
  {
    id: Type.String(),
    url: Type.String(),
    events: Type.Array(EventName),
    createdBy: Type.String(),
    createdAt: Type.String(),
    failingSince: timeOrNull('Since when no delivery has succeeded; null after a success.'),
    disabledAt: timeOrNull('When it was switched off, after three days without a success.'),
    waiting: Type.Integer({ description: 'Deliveries that are still to be made.' }),
    dropped: Type.Integer({ description: 'Events that were lost because too many deliveries waited.' }),
  },
  { $id: 'Webhook' },
);
export type Webhook = Static<typeof Webhook>;

export const WebhookDelivery = Type.Object(
  {
    id: Type.String({ description: 'As in X-App-Delivery: the same for all attempts.' }),
    event: EventName,
    state: Type.Unsafe<'waiting' | 'sent' | 'failed'>({ type: 'string', enum: ['waiting', 'sent', 'failed'] }),
    attempts: Type.Integer(),
    detail: Type.String({ description: 'The outcome of the last attempt: `HTTP 503`, `ECONNREFUSED`.' }),
    createdAt: Type.String(),
    nextAttemptAt: timeOrNull('While it waits.'),
    endedAt: timeOrNull('When it was sent, or given up.'),
    body: Type.String({ description: 'The JSON that is posted.' }),
  },
  { $id: 'WebhookDelivery' },
);
export type WebhookDelivery = Static<typeof WebhookDelivery>;

export const webhookOperations = {
  createWebhook: {
    summary: 'Posts events to an address from now on. The secret that signs them is shown this once.',
    body: NewWebhook,
    response: {
      201: Type.Object({ webhook: Webhook, secret: Type.String({ description: 'Signs each post. Shown this once.' }) }),
    },
  },
  listWebhooks: {
    summary: 'The webhooks, and how they fare.',
    response: { 200: Type.Object({ webhooks: Type.Array(Webhook) }) },
  },
  removeWebhook: { summary: 'Removes a webhook with its deliveries.', response: Nothing },
  enableWebhook: {
    summary: 'Switches a webhook on again, after its receiver was fixed. Events of the time in between are not sent.',
    response: { 200: Type.Object({ webhook: Webhook }) },
  },
  listDeliveries: {
    summary: 'The deliveries of a webhook of the last seven days, newest first.',
    query: PageQuery,
    response: { 200: Type.Object({ deliveries: Type.Array(WebhookDelivery), nextCursor: NextCursor }) },
  },
};
