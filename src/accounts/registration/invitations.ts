import { type Static, Type } from 'typebox';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead, Route } from '../../platform/http/surface.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import type { UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { PageQuery, pageOf } from '../administration/page.ts';
import { mayActOn } from '../administration/ranks.ts';
import { type Actor, actorOf, explainTaken, requirePlan, requireRole } from '../administration/user-administration.ts';
import { User } from '../contract/user.ts';
import { tokenKey } from '../flows.ts';
import { BODY_LIMIT } from '../limits.ts';
import { invitationMail } from '../mail/messages.ts';
import { checkNewPassword } from '../passwords/password-rules.ts';
import type { FoundUser, InvitationRow } from '../storage/accounts-schema.ts';
import { createInvitationStore } from '../storage/invitation-store.ts';
import { DAY_MS } from '../storage/user-count-store.ts';
import { timeText } from '../user-object.ts';
import { requireEmail } from './email-address.ts';
import { normalizeName } from './identity-names.ts';
import { newUserRow } from './new-user.ts';
import { trialOf } from './trial.ts';

const LIFETIME_MS = 7 * DAY_MS;

const NewInvitation = Type.Object(
  {
    email: Type.Optional(
      Type.String({ examples: ['ben@example.org'], description: 'Whom it is for. Left out: whoever has the link.' }),
    ),
    role: Type.Optional(Type.String({ description: '`user` unless given; never above the own role.' })),
    plan: Type.Optional(Type.String({ maxLength: 64, description: 'The default plan unless given.' })),
    mail: Type.Optional(
      Type.Boolean({
        description: 'Mail the link, so that it verifies the address. True unless given, with an email.',
      }),
    ),
  },
  { additionalProperties: false },
);
const Acceptance = Type.Object(
  {
    token: Type.String({ maxLength: 200 }),
    name: Type.String({ examples: ['Ben'] }),
    email: Type.Optional(Type.String({ description: 'For an invitation that names no address.' })),
    password: Type.String(),
  },
  { additionalProperties: false },
);
const Invitation = Type.Object({
  id: Type.String(),
  email: Type.Union([Type.String(), Type.Null()]),
  mailed: Type.Boolean(),
  role: Type.String(),
  plan: Type.Union([Type.String(), Type.Null()]),
  createdBy: Type.String(),
  createdAt: Type.String(),
  expiresAt: Type.String(),
});
const Created = Type.Object({
  invitation: Invitation,
  link: Type.Optional(Type.String({ description: 'To copy, where it was not mailed. Shown this once.' })),
  token: Type.Optional(Type.String({ description: 'What the link holds.' })),
});
const Invitations = Type.Object({
  invitations: Type.Array(Invitation),
  nextCursor: Type.Union([Type.String(), Type.Null()]),
});
const Accepted = Type.Object({ message: Type.String(), user: User });

/** People whom an administrator lets in, with the role and the plan that they get. */
export interface Invitations {
  create(given: Static<typeof NewInvitation>, actor: Actor): Promise<{ row: InvitationRow; token: string }>;
  revoke(id: string, actor: Actor): Promise<void>;
  accept(given: Static<typeof Acceptance>, head: RequestHead): Promise<FoundUser>;
}

type Parts = Pick<
  AccountsCore,
  | 'access'
  | 'database'
  | 'users'
  | 'subscriptions'
  | 'blacklist'
  | 'audit'
  | 'mail'
  | 'passwords'
  | 'settings'
  | 'frontendUrl'
  | 'userObjects'
  | 'clock'
  | 'randomness'
  | 'makeId'
>;

export function createInvitations(parts: Parts): Invitations {
  const { database, users, audit, clock, randomness, makeId } = parts;
  const store = createInvitationStore(database);
  const entryOf = (event: string, id: string, { id: actor, head }: Actor, details: Record<string, unknown>) =>
    audit.statement({ event, actor, subject: id, ...(head !== undefined && { head }), details });

  return {
    async create(given, actor) {
      if (parts.settings().registration === 'closed') throw new AppError('REGISTRATION_CLOSED');
      const email = given.email === undefined ? '' : requireEmail(given.email);
      const mailed = given.mail ?? email !== '';
      if (mailed && email === '') throw new AppError('MISSING_CREDENTIALS', { fields: 'the email to mail it to' });
      const now = clock.now();
      const token = createToken(randomness);
      const row: InvitationRow = {
        id: makeId('inv_'),
        token_hash: tokenKey(token),
        email,
        mailed: mailed ? 1 : 0,
        role: requireRole(given.role ?? 'user', actor),
        plan: requirePlan(given.plan ?? '', parts.settings()),
        created_by: actor.id,
        created_at: now,
        expires_at: now + LIFETIME_MS,
      };
      const details = { role: row.role, plan: row.plan, mailed };
      const link = linkOf(parts.frontendUrl(), token);
      const message = mailed ? [parts.mail.enqueue(invitationMail(email, token, link))] : [];
      await database.write([store.add(row), ...message, entryOf('invitation.created', row.id, actor, details)]);
      parts.mail.wake();
      return { row, token };
    },
    async revoke(id, actor) {
      const removed = entryOf('invitation.revoked', id, actor, {});
      try {
        await database.write([store.take(id, clock.now()), removed]);
      } catch (error) {
        throw errorCode(error) === 'STORAGE_CONFLICT' ? new AppError('INVITATION_NOT_FOUND') : error;
      }
    },
    async accept(given, head) {
      const now = clock.now();
      const row = await store.byTokenHash(tokenKey(given.token), now);
      if (row === undefined || !(await isStillBacked(row, users))) throw new AppError('INVALID_TOKEN');
      if (parts.settings().registration === 'closed') throw new AppError('REGISTRATION_CLOSED');
      const name = normalizeName(given.name);
      if (name === undefined) throw new AppError('NAME_REQUIRED');
      const email = requireEmail(given.email ?? row.email);
      if (row.email !== '' && email !== row.email) throw new AppError('INVALID_EMAIL');
      checkNewPassword(given.password, { name, email });
      if (await parts.blacklist.has(email)) throw new AppError('FORBIDDEN');
      const user = newUserRow(
        {
          name,
          email,
          // A link that was copied shows that someone was given the link, not that the address is theirs.
          emailVerified: row.mailed === 1,
          confirmed: true,
          passwordHash: await parts.passwords.hash(given.password),
          role: requireRole(row.role, { id: row.created_by, role: 'root' }),
          plan: row.plan,
          now,
        },
        makeId,
        randomness,
      );
      const trial = trialOf(user.id, parts.settings().trial_days, now, makeId);
      const details = { how: 'invitation', invitation: row.id, invitedBy: row.created_by, role: row.role };
      const registered = audit.statement({ event: 'register', actor: user.id, subject: user.id, head, details });
      const statements = [store.take(row.id, now), ...users.add(user), ...trial.map(parts.subscriptions.add)];
      try {
        await database.write([...statements, registered]).catch(explainTaken);
      } catch (error) {
        throw errorCode(error) === 'STORAGE_CONFLICT' ? new AppError('INVALID_TOKEN') : error;
      }
      return user;
    },
  };
}

/** What an invitation gives is never more than its author could give now. */
export async function isStillBacked(
  { created_by: author, role }: InvitationRow,
  users: AccountsCore['users'],
): Promise<boolean> {
  const user = await users.byId(author);
  return user !== undefined && user.active === 1 && mayActOn(user.role, role);
}

export function invitationRoutes(parts: Parts, invitations: Invitations): readonly Route[] {
  const { access, database, clock } = parts;
  const store = createInvitationStore(database);
  const rows: readonly Route<UserCaller>[] = [
    {
      method: 'POST',
      path: '/api/auth/admin/invitations',
      guard: access.adminWith('admin.users.role.write'),
      summary: 'Invites someone, for seven days: by mail, or by a link to copy.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: NewInvitation, response: { 201: Created } },
      async handle(call) {
        const { row, token } = await invitations.create(call.body as Static<typeof NewInvitation>, actorOf(call));
        call.reply.code(201).header('cache-control', 'no-store');
        const shown = row.mailed === 1 ? {} : { link: linkOf(parts.frontendUrl(), token), token };
        return { invitation: describe(row), ...shown };
      },
    },
    {
      method: 'GET',
      path: '/api/auth/admin/invitations',
      guard: access.adminWith('admin.users.list.read'),
      summary: 'Invitations that were not accepted yet, newest first.',
      schema: { query: PageQuery, response: { 200: Invitations } },
      async handle({ query }) {
        const { cursor, limit } = query as Static<typeof PageQuery>;
        const page = await pageOf(limit, (most) => store.list(cursor, clock.now(), most));
        return { invitations: page.rows.map(describe), nextCursor: page.nextCursor };
      },
    },
    {
      method: 'DELETE',
      path: '/api/auth/admin/invitations/:id',
      guard: access.adminWith('admin.users.role.write'),
      summary: 'Revokes an invitation.',
      schema: { response: { 204: Type.Null() } },
      handle: (call) => invitations.revoke((call.params.id ?? '').slice(0, 64), actorOf(call)),
    },
  ];
  const accept: Route = {
    method: 'POST',
    path: '/api/auth/invitations/accept',
    guard: access.anyone(),
    summary: 'Creates the account that an invitation is for. Nobody is logged in by it.',
    body: 'json',
    bodyLimit: BODY_LIMIT,
    schema: { body: Acceptance, response: { 201: Accepted } },
    async handle({ body, head, reply }) {
      const user = await invitations.accept(body as Static<typeof Acceptance>, head);
      reply.code(201);
      return { message: 'registered', user: await parts.userObjects.describe(user) };
    },
  };
  return [...rows, accept];
}

function describe(row: InvitationRow): Static<typeof Invitation> {
  return {
    id: row.id,
    email: row.email === '' ? null : row.email,
    mailed: row.mailed === 1,
    role: row.role,
    plan: row.plan === '' ? null : row.plan,
    createdBy: row.created_by,
    createdAt: timeText(row.created_at),
    expiresAt: timeText(row.expires_at),
  };
}

function linkOf(frontendUrl: string, token: string): string {
  return `${frontendUrl}/accept-invitation#token=${token}`;
}
