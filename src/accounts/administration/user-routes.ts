import { type Static, Type } from 'typebox';
import { AppError } from '../../platform/errors/app-error.ts';
import type { Call, Route } from '../../platform/http/surface.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { optionalBody } from '../contract/optional-body.ts';
import { User } from '../contract/user.ts';
import { BODY_LIMIT } from '../limits.ts';
import { isRole } from '../permissions.ts';
import { nameKey } from '../registration/identity-names.ts';
import type { FoundUser } from '../storage/accounts-schema.ts';
import { DAY_MS } from '../storage/user-count-store.ts';
import { PageQuery, pageOf } from './page.ts';
import { ROLE_NAMES } from './ranks.ts';
import { type Actor, actorOf, type UserAdministration } from './user-administration.ts';

const Query = Type.Object(
  {
    search: Type.Optional(
      Type.String({ maxLength: 254, description: 'A part of the address or the name, or the id.' }),
    ),
    role: Type.Optional(Type.String({ maxLength: 64 })),
    ...PageQuery.properties,
  },
  { additionalProperties: false },
);
const Users = Type.Object({
  users: Type.Array(User),
  nextCursor: Type.Union([Type.String(), Type.Null()]),
  total: Type.Integer({ description: 'How many there are on all pages.' }),
});
const OneUser = Type.Object({ user: User });
const NewUser = Type.Object(
  {
    email: Type.String({ examples: ['ben@example.org'] }),
    name: Type.String({ examples: ['Ben'] }),
    role: Type.String({ examples: ['user'] }),
  },
  { additionalProperties: false },
);
const NewRole = Type.Object({ role: Type.String({ examples: ['operator'] }) }, { additionalProperties: false });
const NewPlan = Type.Object(
  {
    plan: Type.String({
      maxLength: 64,
      examples: ['pro'],
      description: 'Empty: that of a subscription, or the default.',
    }),
  },
  { additionalProperties: false },
);
const Renewal = Type.Object(
  {
    expires_in_days: Type.Optional(Type.Integer({ minimum: 1, maximum: 3650 })),
    expires_at: Type.Optional(Type.String({ description: 'A time such as 2030-01-31T00:00:00Z.' })),
  },
  { additionalProperties: false },
);

type UserCall = Call<UserCaller>;
type Parts = Pick<AccountsCore, 'access' | 'userAdministration' | 'userObjects' | 'clock'>;

/** What administrators do with users (contract/accounts, Beyond the document: Admin). */
export function userRoutes(parts: Parts, administration: UserAdministration): readonly Route[] {
  const { access, userAdministration: store, userObjects, clock } = parts;
  const described = async (user: FoundUser, { caller }: UserCall) => ({
    user: (await userObjects.describeFor(caller.user, [user]))[0],
  });

  const action = (
    name: string,
    guard: Route<UserCaller>['guard'],
    summary: string,
    act: (id: string, actor: Actor, call: UserCall) => Promise<FoundUser>,
    body?: NonNullable<Route['schema']>['body'],
  ): Route<UserCaller> => ({
    method: 'POST',
    path: `/api/auth/admin/users/:id/${name}`,
    guard,
    summary,
    ...(body !== undefined && { body: 'json', bodyLimit: BODY_LIMIT }),
    schema: { ...(body !== undefined && { body }), response: { 200: OneUser } },
    handle: async (call) => described(await act(call.params.id ?? '', actorOf(call), call), call),
  });

  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'GET',
      path: '/api/auth/admin/users',
      guard: access.adminWith('admin.users.list.read'),
      summary: 'Users, newest first.',
      schema: { query: Query, response: { 200: Users } },
      async handle({ caller, query }) {
        const { search, role, cursor, limit } = query as Static<typeof Query>;
        if (role !== undefined && !isRole(role)) {
          throw new AppError('INVALID_ROLE', { reason: `There are the roles ${ROLE_NAMES}.` });
        }
        const key = search === undefined || search.trim() === '' ? undefined : nameKey(search);
        const filter = { role, search: key };
        const [page, total] = await Promise.all([
          pageOf(limit, (most) => store.list(filter, cursor, most)),
          store.count(filter),
        ]);
        return { users: await userObjects.describeFor(caller.user, page.rows), nextCursor: page.nextCursor, total };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/admin/users',
      guard: access.adminWith('admin.users.role.write'),
      summary: 'Makes a user, and mails a token to set the password with.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: NewUser, response: { 201: OneUser } },
      async handle(call) {
        const user = await administration.create(call.body as Static<typeof NewUser>, actorOf(call));
        call.reply.code(201);
        return described(user, call);
      },
    },
    action(
      'role',
      access.adminWith('admin.users.role.write'),
      'Gives a user another role; it counts from the next request on.',
      (id, actor, { body }) => administration.setRole(id, (body as Static<typeof NewRole>).role, actor),
      NewRole,
    ),
    action(
      'plan',
      access.adminOnly,
      'Gives a user another plan; it counts from the next request on.',
      (id, actor, { body }) => administration.setPlan(id, (body as Static<typeof NewPlan>).plan, actor),
      NewPlan,
    ),
    action(
      'pause',
      access.adminWith('admin.users.pause.write'),
      'Suspends a user: every session ends at once.',
      administration.pause,
    ),
    action('resume', access.adminWith('admin.users.resume.write'), 'Lets a user in again.', administration.resume),
    action(
      'renew-uuid',
      access.adminWith('admin.users.renew_uuid.write'),
      'Gives a user a new UUID for proxy nodes.',
      (id, actor, { body }) => administration.renewUuid(id, readExpiry(body, clock.now()), actor),
      optionalBody(Renewal, true),
    ),
    action(
      'end-sessions',
      // Less than a pause, which ends them too.
      access.adminWith('admin.users.pause.write'),
      'Ends every session of a user.',
      administration.endSessions,
    ),
    action(
      'reset-mfa',
      access.freshAdmin,
      'Removes the second factor of a user who has lost it; every session ends, and the user is told by mail.',
      administration.resetMfa,
    ),
    {
      method: 'DELETE',
      path: '/api/auth/admin/users/:id',
      guard: access.adminWith('admin.users.delete.write'),
      summary: 'Removes a user and all that is theirs.',
      schema: { response: { 204: Type.Null() } },
      handle: (call) => administration.remove(call.params.id ?? '', actorOf(call)),
    },
  ];
  return rows;
}

/** Null: it does not end. */
function readExpiry(body: unknown, now: number): number | null {
  const { expires_in_days: days, expires_at: text } = (body ?? {}) as Static<typeof Renewal>;
  if (days !== undefined && text !== undefined) throw invalid('give expires_in_days or expires_at, not both');
  if (days !== undefined) return now + days * DAY_MS;
  if (text === undefined) return null;
  const at = /^\d{4}-\d\d-\d\dT/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(at)) throw invalid('expires_at is not a time such as 2030-01-31T00:00:00Z');
  if (at <= now) throw invalid('expires_at has passed');
  return at;
}

function invalid(reason: string): AppError {
  return new AppError('INVALID_REQUEST', { reason, issues: [{ path: '/expires_at', message: reason }] });
}
