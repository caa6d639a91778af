import { type Static, Type } from 'typebox';
import { NextCursor, Nothing, optionalBody, PageQuery, User } from './conventions.ts';

const strict = { additionalProperties: false };
const time = (description: string) =>
  Type.Optional(Type.String({ maxLength: 64, description, examples: ['2030-01-31T00:00:00Z'] }));
const OneUser = Type.Object({ user: User });

export const NewUser = Type.Object(
  {
    email: Type.String({ examples: ['ben@example.org'] }),
    name: Type.String({ examples: ['Ben'] }),
    role: Type.String({ examples: ['user'] }),
  },
  strict,
);
export type NewUser = Static<typeof NewUser>;

export const Renewal = Type.Object(
  {
    expires_in_days: Type.Optional(Type.Integer({ minimum: 1, maximum: 3650 })),
    expires_at: Type.Optional(Type.String({ description: 'A time such as 2030-01-31T00:00:00Z.' })),
  },
  strict,
);
export type Renewal = Static<typeof Renewal>;

export const UserQuery = Type.Object(
  {
    search: Type.Optional(
      Type.String({ maxLength: 254, description: 'A part of the address or the name, or the id.' }),
    ),
    role: Type.Optional(Type.String({ maxLength: 64 })),
    ...PageQuery.properties,
  },
  strict,
);
export type UserQuery = Static<typeof UserQuery>;

export const AuditQuery = Type.Object(
  {
    subject: Type.Optional(
      Type.String({ maxLength: 254, description: 'The id of the user or object that was changed.' }),
    ),
    address: Type.Optional(Type.String({ maxLength: 64, description: 'Where the request came from.' })),
    request: Type.Optional(Type.String({ maxLength: 128, description: 'Id of the request.' })),
    from: time('Not before this time.'),
    to: time('Before this time.'),
    actor: Type.Optional(
      Type.String({ maxLength: 200, description: 'Id of a user, `agent:<id>`, `command`, `billing`.' }),
    ),
    event: Type.Optional(Type.String({ maxLength: 100, examples: ['login.failed'] })),
    ...PageQuery.properties,
  },
  strict,
);
export type AuditQuery = Static<typeof AuditQuery>;

const AuditEntry = Type.Object({
  id: Type.String(),
  at: Type.String(),
  event: Type.String(),
  actor: Type.String(),
  subject: Type.String(),
  address: Type.String(),
  requestId: Type.String(),
  details: Type.Record(Type.String(), Type.Unknown()),
});

/** The permission matrix. */
export const MatrixSettings = Type.Object({
  version: Type.Integer({ minimum: 0, description: 'The version on which the change is based.' }),
  matrix: Type.Record(Type.String(), Type.Record(Type.String(), Type.Boolean()), {
    description: 'Module, role, whether it is granted.',
    examples: [{ 'admin.audit.read': { operator: false }, reports: { user: true } }],
  }),
});
export type MatrixSettings = Static<typeof MatrixSettings>;

const Point = Type.Object({
  period: Type.String({ examples: ['2030-01-31', '2030-W05'] }),
  total: Type.Integer(),
  active: Type.Integer(),
  subscribed: Type.Integer(),
});
const BlockedEmail = Type.Object({ email: Type.String({ examples: ['spam@example.org'] }) });

/** An action on one user, by an administrator. */
const action = (summary: string) => ({ summary, response: { 200: OneUser } });

/** What administrators do. */
export const administrationOperations = {
  listUsers: {
    summary: 'Users, newest first.',
    query: UserQuery,
    response: {
      200: Type.Object({
        users: Type.Array(User),
        nextCursor: NextCursor,
        total: Type.Integer({ description: 'The number of users on all pages.' }),
      }),
    },
  },
  createUser: {
    summary: 'Creates a user and mails a token for setting the password.',
    body: NewUser,
    response: { 201: OneUser },
  },
  setRole: {
    ...action('Changes the role of a user, from the next request on.'),
    body: Type.Object({ role: Type.String({ examples: ['operator'] }) }, strict),
  },
  setPlan: {
    ...action('Changes the plan of a user, from the next request on.'),
    body: Type.Object(
      {
        plan: Type.String({
          maxLength: 64,
          examples: ['pro'],
          description: 'Empty: the plan of a subscription, or the default.',
        }),
      },
      strict,
    ),
  },
  pauseUser: action('Suspends a user: every session ends immediately.'),
  resumeUser: action('Resumes a paused user.'),
  renewUuid: { ...action('Gives a user a new UUID for proxy nodes.'), body: optionalBody(Renewal, true) },
  endSessionsOfUser: action('Ends every session of a user.'),
  resetMfa: action(
    'Removes the second factor of a user who has lost it; every session ends, and the user gets a mail.',
  ),
  removeUser: { summary: 'Removes a user and all data of the user.', response: Nothing },

  readMetrics: {
    summary: 'The number of users, and when they registered.',
    response: {
      200: Type.Object({
        overview: Type.Object({
          totalUsers: Type.Integer(),
          activeUsers: Type.Integer({ description: 'Not paused.' }),
          subscribedUsers: Type.Integer({ description: 'Users with an active subscription, not counting trials.' }),
          newUsersLast24h: Type.Integer(),
        }),
        series: Type.Object({ daily: Type.Array(Point), weekly: Type.Array(Point) }),
      }),
    },
  },
  readSettings: { summary: 'The permission matrix.', response: { 200: MatrixSettings } },
  replaceSettings: {
    summary: 'Replaces the permission matrix, unless it has changed since the given version.',
    body: MatrixSettings,
    bodyLimit: 256 * 1024,
    response: { 200: MatrixSettings },
  },
  listBlacklist: {
    summary: 'The e-mail addresses that may neither register nor log in.',
    query: PageQuery,
    response: {
      200: Type.Object({
        blacklist: Type.Array(
          Type.Object({ email: Type.String(), createdBy: Type.String(), createdAt: Type.String() }),
        ),
        nextCursor: NextCursor,
      }),
    },
  },
  block: {
    summary: 'Blocks an e-mail address; its user is logged out.',
    body: BlockedEmail,
    response: { 201: BlockedEmail },
  },
  unblock: { summary: 'Removes an e-mail address from the list.', response: Nothing },
  listAudit: {
    summary: 'The audit log, newest first.',
    query: AuditQuery,
    response: { 200: Type.Object({ entries: Type.Array(AuditEntry), nextCursor: NextCursor }) },
  },
};

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
    disabledAt: timeOrNull('When it was disabled, after three days without a success.'),
    waiting: Type.Integer({ description: 'Pending deliveries.' }),
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
    nextAttemptAt: timeOrNull('When the next attempt is made, while it waits.'),
    endedAt: timeOrNull('When it was delivered or given up.'),
    body: Type.String({ description: 'The JSON that is posted.' }),
  },
  { $id: 'WebhookDelivery' },
);
export type WebhookDelivery = Static<typeof WebhookDelivery>;

export const webhookOperations = {
  createWebhook: {
    summary:
      'Creates a webhook, which posts events to an address. The secret that signs them is shown only in this response.',
    body: NewWebhook,
    response: {
      201: Type.Object({
        webhook: Webhook,
        secret: Type.String({ description: 'The secret that signs each post. Shown only in this response.' }),
      }),
    },
  },
  listWebhooks: {
    summary: 'The webhooks and their state.',
    response: { 200: Type.Object({ webhooks: Type.Array(Webhook) }) },
  },
  removeWebhook: { summary: 'Removes a webhook with its deliveries.', response: Nothing },
  enableWebhook: {
    summary: 'Enables a webhook again after its receiver was fixed. Events from the time in between are not sent.',
    response: { 200: Type.Object({ webhook: Webhook }) },
  },
  listDeliveries: {
    summary: 'The deliveries of a webhook of the last seven days, newest first.',
    query: PageQuery,
    response: { 200: Type.Object({ deliveries: Type.Array(WebhookDelivery), nextCursor: NextCursor }) },
  },
};
