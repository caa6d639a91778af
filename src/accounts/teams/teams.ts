import type { Runnable } from '../../platform/database/statement.ts';
import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import { actorOf, type UserCall, type UserCaller } from '../access.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { pageOf } from '../contract/conventions.ts';
import type { Member, NewMember, NewTeam, Team, TeamBudget, TeamChange } from '../contract/teams.ts';
import { securityNoticeMail } from '../mail/messages.ts';
import { budgetOf, requirePlan } from '../owners.ts';
import { isAdminRole } from '../permissions.ts';
import { nameKey, normalizeEmail, normalizeName } from '../registration/new-user.ts';
import type { FoundUser, TeamRow } from '../storage/accounts-schema.ts';
import { MAX_TEAMS_OF_ONE } from '../storage/team-store.ts';
import { timeText } from '../user-object.ts';

/**
 * Teams. Administrators create, change and remove them, because other apps may trust the names in `groups`; the owners of a
 * team say who is in it. A team that the caller is not in looks like one that does not exist.
 */
interface Teams {
  list(
    query: { cursor?: string; limit?: number; all?: '1' },
    call: UserCall,
  ): Promise<{ teams: Team[]; nextCursor: string | null }>;
  create(given: NewTeam, call: UserCall): Promise<{ team: Team }>;
  change(id: string, given: TeamChange, call: UserCall): Promise<{ team: Team }>;
  remove(id: string, call: UserCall): Promise<void>;
  members(
    id: string,
    query: { cursor?: string; limit?: number },
    call: UserCall,
  ): Promise<{ members: Member[]; nextCursor: string | null }>;
  put(id: string, given: NewMember, call: UserCall): Promise<{ member: Member }>;
  drop(id: string, userId: string, call: UserCall): Promise<void>;
}

export function createTeams(parts: AccountsCore): Teams {
  const { database, teams: store, users, owners, audit, mail, limiter, clock, makeId } = parts;

  const entryOf = (event: string, id: string, call: UserCall, details: Readonly<Record<string, unknown>> = {}) => {
    const { id: actor, head } = actorOf(call);
    return audit.statement({ event, actor, subject: id, ...(head !== undefined && { head }), details });
  };

  function requireName(given: string): string {
    const name = normalizeName(given);
    if (name === undefined) throw new AppError('NAME_REQUIRED');
    return name;
  }

  /** The team, and what the caller is in it. Throws TEAM_NOT_FOUND for anyone who is neither in it nor an administrator. */
  async function find(given: string, { caller }: UserCall) {
    const id = given.slice(0, 64);
    const [team, role] = await Promise.all([store.byId(id), store.roleOf(id, caller.user.id)]);
    if (team === undefined || (role === undefined && !isAdmin(caller))) throw new AppError('TEAM_NOT_FOUND');
    return { team, role };
  }

  /** Returns the statements that undo the batch unless the caller still owns the team. Throws FORBIDDEN. */
  function asOwner({ id }: TeamRow, role: string | undefined, { caller }: UserCall): readonly Runnable[] {
    if (isAdmin(caller)) return [];
    if (role !== 'owner') throw new AppError('FORBIDDEN');
    return [store.expectMember(id, caller.user.id, 'owner')];
  }

  async function personFor({ userId, email }: NewMember, { caller }: UserCall): Promise<FoundUser> {
    // By address only for administrators, because the response shows whether the address has an account.
    if (email !== undefined && !isAdmin(caller)) throw new AppError('FORBIDDEN');
    if ((userId === undefined) === (email === undefined)) {
      throw new AppError('MISSING_CREDENTIALS', { fields: 'userId or email' });
    }
    const found =
      email === undefined ? await users.byId(userId ?? '') : await users.byEmail(normalizeEmail(email) ?? '');
    if (found === undefined) throw new AppError('USER_NOT_FOUND');
    return found;
  }

  const withMail = async (
    statements: readonly Runnable[],
    conflict: 'FORBIDDEN' | 'MEMBER_NOT_FOUND',
    userId: string,
  ) => {
    await database.write(statements, { conflict });
    mail.wake();
    await owners.refresh(userId);
  };

  return {
    async list({ cursor, limit, all }, { caller }) {
      if (all === undefined) {
        const own = await store.teamsOf(caller.user.id);
        return { teams: own.map((team) => describeTeam(team, team.member_role)), nextCursor: null };
      }
      if (!isAdmin(caller)) throw new AppError('FORBIDDEN');
      const { rows, nextCursor } = await pageOf(limit, (most) => store.list(cursor, most));
      return { teams: rows.map((row) => describeTeam(row, undefined)), nextCursor };
    },
    async create(given, call) {
      const name = requireName(given.name);
      const now = clock.now();
      const team: TeamRow = {
        id: makeId('team_'),
        name,
        name_key: nameKey(name),
        plan: requirePlan(given.plan ?? '', parts.settings()),
        budget: budgetText(given.budget),
        created_at: now,
        updated_at: now,
      };
      const details = { name, plan: team.plan, budget: given.budget ?? null };
      const entry = entryOf('team.created', team.id, call, details);
      await database.write([store.add(team), entry], { duplicate: 'NAME_ALREADY_EXISTS' });
      return { team: describeTeam(team, undefined) };
    },
    async change(id, given, call) {
      const { team, role } = await find(id, call);
      const name = given.name === undefined ? undefined : requireName(given.name);
      const change = {
        ...(name !== undefined && { name, name_key: nameKey(name) }),
        ...(given.plan !== undefined && { plan: requirePlan(given.plan ?? '', parts.settings()) }),
        ...(given.budget !== undefined && { budget: budgetText(given.budget) }),
        updated_at: clock.now(),
      };
      const entry = entryOf('team.changed', team.id, call, { ...given });
      const refusals = { conflict: 'TEAM_NOT_FOUND', duplicate: 'NAME_ALREADY_EXISTS' } as const;
      await database.write([store.change(team.id, change), entry], refusals);
      await owners.refreshTeam(team.id);
      return { team: describeTeam({ ...team, ...change }, role) };
    },
    async remove(id, call) {
      const { team } = await find(id, call);
      const entry = entryOf('team.removed', team.id, call, { name: team.name });
      await database.write([...store.remove(team.id), entry], { conflict: 'TEAM_NOT_FOUND' });
      // Finds the members in memory instead of reading them before, because someone may have joined since.
      await owners.refreshTeam(team.id);
    },
    async members(id, { cursor = '', limit }, call) {
      const { team } = await find(id, call);
      const page = await pageOf(
        limit,
        (most) => store.members(team.id, cursor, most),
        ({ user_id: userId }) => userId,
      );
      const members = page.rows.map((row) => ({
        userId: row.user_id,
        name: row.name,
        role: roleText(row.role),
        createdAt: timeText(row.created_at),
      }));
      return { members, nextCursor: page.nextCursor };
    },
    async put(id, given, call) {
      const { team, role: own } = await find(id, call);
      const allowed = asOwner(team, own, call);
      const person = await personFor(given, call);
      const before = await store.roleOf(team.id, person.id);
      const role = given.role ?? 'member';
      // Removing someone is never refused, and needs an addition before it.
      if (before !== role) await limiter.takeAll([{ policy: 'team_member', key: `${team.id} ${person.id}` }]);
      const now = clock.now();
      const row = { team_id: team.id, user_id: person.id, role, created_at: now };
      const entry = entryOf('team.member_put', team.id, call, { user: person.id, role });
      const joined = role === 'owner' ? 'teamOwner' : 'teamMember';
      const notice =
        before === role ? [] : [mail.enqueue(securityNoticeMail(person.email, joined, { team: team.name }))];
      const statements = [...allowed, ...store.putMember(row), entry, ...notice];
      await withMail(statements, 'FORBIDDEN', person.id).catch(async (error) => {
        if (errorCode(error) !== 'FORBIDDEN' || before !== undefined) throw error;
        const isFull = (await store.teamsOf(person.id)).length >= MAX_TEAMS_OF_ONE;
        throw isFull ? new AppError('TOO_MANY_TEAMS', { most: MAX_TEAMS_OF_ONE }) : error;
      });
      return { member: { userId: person.id, name: person.name, role, createdAt: timeText(now) } };
    },
    async drop(id, given, call) {
      const userId = given.slice(0, 64);
      const { team, role } = await find(id, call);
      const allowed = userId === call.caller.user.id ? [] : asOwner(team, role, call);
      const person = (await store.roleOf(team.id, userId)) === undefined ? undefined : await users.byId(userId);
      if (person === undefined) throw new AppError('MEMBER_NOT_FOUND');
      const entry = entryOf('team.member_removed', team.id, call, { user: userId });
      const notice = mail.enqueue(securityNoticeMail(person.email, 'teamLeft', { team: team.name }));
      const statements = [...allowed, ...store.removeMember(team.id, userId), entry, notice];
      await withMail(statements, 'MEMBER_NOT_FOUND', userId);
    },
  };
}

export function describeTeam(team: TeamRow, role: string | undefined): Team {
  return {
    id: team.id,
    name: team.name,
    plan: team.plan === '' ? null : team.plan,
    budget: budgetOf(team) ?? null,
    role: role === undefined ? null : roleText(role),
    createdAt: timeText(team.created_at),
  };
}

/** An access token without the scope `admin` acts as that of anyone, also for an administrator. */
function isAdmin({ user, token }: UserCaller): boolean {
  return isAdminRole(token === undefined ? user.role : token.principal.role);
}

function budgetText(budget: TeamBudget | null | undefined): string {
  return budget === undefined || budget === null ? '' : JSON.stringify(budget);
}

function roleText(role: string): 'owner' | 'member' {
  return role === 'owner' ? 'owner' : 'member';
}
