import type { Runnable } from '../../platform/database/statement.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import { createToken } from '../../platform/secrets/tokens.ts';
import type { Actor } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { pageOf, type User } from '../contract/conventions.ts';
import type { Acceptance, Invitation, NewInvitation } from '../contract/registration.ts';
import { tokenKey } from '../flows.ts';
import { invitationMail } from '../mail/messages.ts';
import { requirePlan } from '../owners.ts';
import { holdsPermission, isAdminRole, mayActOn, type PermissionMatrix, requireRole } from '../permissions.ts';
import type { InvitationRow } from '../storage/accounts-schema.ts';
import { createInvitationStore } from '../storage/administration-stores.ts';
import type { TeamStore } from '../storage/team-store.ts';
import { DAY_MS } from '../storage/user-store.ts';
import { timeText } from '../user-object.ts';
import { createPersonCreation, requireEmail } from './new-user.ts';

const LIFETIME_MS = 7 * DAY_MS;
/** Of those that are open. A script that invites without end must not fill the disk. */
export const MAX_INVITATIONS = 10_000;

/** People whom an administrator lets in, with the role and the plan that they get. */
interface Invitations {
  /** The link and its token are in the answer only where they were not mailed. */
  create(given: NewInvitation, actor: Actor): Promise<{ invitation: Invitation; link?: string; token?: string }>;
  list(page: { cursor?: string; limit?: number }): Promise<{ invitations: Invitation[]; nextCursor: string | null }>;
  revoke(id: string, actor: Actor): Promise<void>;
  accept(given: Acceptance, head: RequestHead): Promise<{ message: string; user: User }>;
}

type Parts = AccountsCore;

export function createInvitations(parts: Parts): Invitations {
  const { database, audit, clock, randomness, makeId } = parts;
  const store = createInvitationStore(database);
  const createPerson = createPersonCreation(parts);
  const entryOf = (event: string, id: string, { id: actor, head }: Actor, details: Record<string, unknown>) =>
    audit.statement({ event, actor, subject: id, ...(head !== undefined && { head }), details });

  async function requireTeam(id: string): Promise<string> {
    if (id !== '' && (await parts.teams.byId(id)) === undefined) throw new AppError('TEAM_NOT_FOUND');
    return id;
  }

  return {
    async create(given, actor) {
      if (parts.settings().registration === 'closed') throw new AppError('REGISTRATION_CLOSED');
      const email = given.email === undefined ? '' : requireEmail(given.email);
      const mailed = given.mail ?? email !== '';
      if (mailed && email === '') throw new AppError('MISSING_CREDENTIALS', { fields: 'the email to mail it to' });
      const now = clock.now();
      const token = createToken(randomness);
      const { plan = '', team = '' } = given;
      if (!mayGive(actor.role, { plan, team })) throw new AppError('FORBIDDEN');
      const row: InvitationRow = {
        id: makeId('inv_'),
        token_hash: tokenKey(token),
        email,
        mailed: mailed ? 1 : 0,
        role: requireRole(given.role ?? 'user', actor.role),
        plan: requirePlan(plan, parts.settings()),
        team: await requireTeam(team),
        created_by: actor.id,
        created_at: now,
        expires_at: now + LIFETIME_MS,
      };
      const details = { role: row.role, plan: row.plan, team: row.team, mailed };
      const link = linkOf(parts.frontendUrl(), token);
      const message = mailed ? [parts.mail.enqueue(invitationMail(email, token, link))] : [];
      const entry = entryOf('invitation.created', row.id, actor, details);
      await database.write([...store.add(row, MAX_INVITATIONS), ...message, entry], {
        conflict: 'TOO_MANY_INVITATIONS',
        details: { most: MAX_INVITATIONS },
      });
      parts.mail.wake();
      return { invitation: describe(row), ...(!mailed && { link, token }) };
    },
    async list({ cursor, limit }) {
      const { rows, nextCursor } = await pageOf(limit, (most) => store.list(cursor, clock.now(), most));
      return { invitations: rows.map(describe), nextCursor };
    },
    async revoke(given, actor) {
      const id = given.slice(0, 64);
      const row = await store.byId(id, clock.now());
      if (row === undefined) throw new AppError('INVITATION_NOT_FOUND');
      if (!mayActOn(actor.role, row.role)) throw new AppError('FORBIDDEN');
      const removed = entryOf('invitation.revoked', id, actor, {});
      await database.write([store.take(id, clock.now()), removed], { conflict: 'INVITATION_NOT_FOUND' });
    },
    async accept(given, head) {
      const now = clock.now();
      const row = await store.byTokenHash(tokenKey(given.token), now);
      if (row === undefined || !(await isStillBacked(row, parts))) throw new AppError('INVALID_TOKEN');
      if (parts.settings().registration === 'closed') throw new AppError('REGISTRATION_CLOSED');
      const address = given.email ?? row.email;
      if (address === '')
        throw new AppError('MISSING_CREDENTIALS', { fields: 'email: the invitation names no address' });
      const email = requireEmail(address);
      if (row.email !== '' && email !== row.email) throw new AppError('INVALID_EMAIL');
      const { user } = await createPerson({
        how: 'invitation',
        name: given.name,
        email,
        // A link that was copied shows that someone was given the link, not that the address is theirs.
        emailVerified: row.mailed === 1,
        password: given.password,
        role: requireRole(row.role, 'root'),
        plan: row.plan,
        head,
        details: { invitation: row.id, invitedBy: row.created_by },
        async proof() {
          if (await parts.blacklist.has(email)) throw new AppError('FORBIDDEN');
          return [store.take(row.id, now)];
        },
        also: (userId) => intoTeam(parts.teams, row, userId, now),
        conflict: 'INVALID_TOKEN',
      });
      return { message: 'registered', user: await parts.userObjects.describe(user) };
    },
  };
}

/** Brings someone who was invited into a team. A team that is removed takes its invitations along. */
export function intoTeam(teams: TeamStore, { team }: InvitationRow, userId: string, now: number): readonly Runnable[] {
  return team === '' ? [] : teams.putMember({ team_id: team, user_id: userId, role: 'member', created_at: now });
}

/** Whether a role may give what an invitation gives besides a role: plans and teams are for administrators to give. */
function mayGive(role: string, { plan, team }: Pick<InvitationRow, 'plan' | 'team'>): boolean {
  return isAdminRole(role) || (plan === '' && team === '');
}

/** Whether the author of an invitation may give now what it gives. */
export async function isStillBacked(
  invitation: InvitationRow,
  { users, userObjects, blacklist }: Pick<AccountsCore, 'users' | 'userObjects' | 'blacklist'>,
): Promise<boolean> {
  const author = await users.byId(invitation.created_by);
  if (author === undefined || author.active !== 1 || (await blacklist.has(author.email))) return false;
  const matrix: PermissionMatrix = await userObjects.matrix();
  return (
    holdsPermission(author.role, 'admin.users.role.write', matrix) &&
    mayActOn(author.role, invitation.role) &&
    mayGive(author.role, invitation)
  );
}

function describe(row: InvitationRow): Invitation {
  return {
    id: row.id,
    email: row.email === '' ? null : row.email,
    mailed: row.mailed === 1,
    role: row.role,
    plan: row.plan === '' ? null : row.plan,
    team: row.team === '' ? null : row.team,
    createdBy: row.created_by,
    createdAt: timeText(row.created_at),
    expiresAt: timeText(row.expires_at),
  };
}

function linkOf(frontendUrl: string, token: string): string {
  return `${frontendUrl}/accept-invitation#token=${token}`;
}
