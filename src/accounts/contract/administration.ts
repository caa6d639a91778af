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
    subject: Type.Optional(Type.String({ maxLength: 254, description: 'Id of whom or what it was done to.' })),
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
  version: Type.Integer({ minimum: 0, description: 'The version that the change was made from.' }),
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
        total: Type.Integer({ description: 'How many there are on all pages.' }),
      }),
    },
  },
  createUser: {
    summary: 'Creates a user, and mails a token to set the password with.',
    body: NewUser,
    response: { 201: OneUser },
  },
  setRole: {
    ...action('Gives a user another role; it counts from the next request on.'),
    body: Type.Object({ role: Type.String({ examples: ['operator'] }) }, strict),
  },
  setPlan: {
    ...action('Gives a user another plan; it counts from the next request on.'),
    body: Type.Object(
      {
        plan: Type.String({
          maxLength: 64,
          examples: ['pro'],
          description: 'Empty: that of a subscription, or the default.',
        }),
      },
      strict,
    ),
  },
  pauseUser: action('Suspends a user: every session ends immediately.'),
  resumeUser: action('Lets a user in again.'),
  renewUuid: { ...action('Gives a user a new UUID for proxy nodes.'), body: optionalBody(Renewal, true) },
  endSessionsOfUser: action('Ends every session of a user.'),
  resetMfa: action(
    'Removes the second factor of a user who has lost it; every session ends, and the user gets a mail.',
  ),
  removeUser: { summary: 'Removes a user and all that is theirs.', response: Nothing },

  readMetrics: {
    summary: 'How many users there are, and when they came.',
    response: {
      200: Type.Object({
        overview: Type.Object({
          totalUsers: Type.Integer(),
          activeUsers: Type.Integer({ description: 'Not paused.' }),
          subscribedUsers: Type.Integer({ description: 'With an active subscription; trials are none.' }),
          newUsersLast24h: Type.Integer(),
        }),
        series: Type.Object({ daily: Type.Array(Point), weekly: Type.Array(Point) }),
      }),
    },
  },
  readSettings: { summary: 'The permission matrix.', response: { 200: MatrixSettings } },
  replaceSettings: {
    summary: 'Replaces the permission matrix, if nobody else has done so since.',
    body: MatrixSettings,
    bodyLimit: 256 * 1024,
    response: { 200: MatrixSettings },
  },
  listBlacklist: {
    summary: 'Addresses that may neither register nor log in.',
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
    summary: 'Refuses an address; anyone who has it is logged out.',
    body: BlockedEmail,
    response: { 201: BlockedEmail },
  },
  unblock: { summary: 'Takes an address off the list.', response: Nothing },
  listAudit: {
    summary: 'What happened, newest first.',
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
