import { type Kysely, sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Runnable } from '../../platform/database/statement.ts';
import type { AccountsSchema, TeamMemberRow, TeamRow } from './accounts-schema.ts';

/** A team, as one of its members has it. */
export interface MemberTeam extends TeamRow {
  readonly member_role: string;
}

export interface TeamMember extends TeamMemberRow {
  readonly name: string;
}

/** Teams and who is in them. What changes them is a statement, to be part of a batch. */
export interface TeamStore {
  byId(id: string): Promise<TeamRow | undefined>;
  /** The teams of one person, by name. */
  teamsOf(userId: string): Promise<MemberTeam[]>;
  /** The names of the teams of several people. */
  namesOf(userIds: readonly string[]): Promise<ReadonlyMap<string, string[]>>;
  roleOf(teamId: string, userId: string): Promise<string | undefined>;
  /** Newest first; `before` is the id of the last of the page before. */
  list(before: string | undefined, limit: number): Promise<TeamRow[]>;
  /** By the id of the member; `after` is the last one of the page before. */
  members(teamId: string, after: string, limit: number): Promise<TeamMember[]>;
  add(team: TeamRow): Runnable;
  /** Undoes the batch when there is no such team. */
  change(id: string, change: Partial<Omit<TeamRow, 'id'>>): Runnable;
  /** Removes the team, who is in it, and invitations to it. Undoes the batch when there is no such team. */
  remove(id: string): readonly Runnable[];
  /**
   * Adds someone, or changes their role; undoes the batch when there is no such team or user, or when they are in
   * MAX_TEAMS_OF_ONE teams.
   */
  putMember(member: TeamMemberRow): readonly Runnable[];
  /** Undoes the batch when they are not in the team. */
  removeMember(teamId: string, userId: string): readonly Runnable[];
  /** For the batch of something that only a member with this role may do: undone when they are not that any more. */
  expectMember(teamId: string, userId: string, role: string): Runnable;
}

/** More than anyone is in; it bounds every list of one person's teams. */
export const MAX_TEAMS_OF_ONE = 50;

export function createTeamStore(database: Database<AccountsSchema>): TeamStore {
  const { query } = database;
  const byId = database.statement((select, given: { id: string }) =>
    select.selectFrom('teams').selectAll().where('id', '=', given.id),
  );
  const teamsOf = database.statement((select, given: { userId: string }) =>
    select
      .selectFrom('team_members')
      .innerJoin('teams', 'teams.id', 'team_members.team_id')
      .selectAll('teams')
      .select('team_members.role as member_role')
      .where('team_members.user_id', '=', given.userId)
      .orderBy('teams.name')
      .limit(MAX_TEAMS_OF_ONE),
  );
  const roleOf = database.statement((select, given: { teamId: string; userId: string }) =>
    select
      .selectFrom('team_members')
      .select('role')
      .where('team_id', '=', given.teamId)
      .where('user_id', '=', given.userId),
  );
  /** Known ahead, because every check of a login asks it: building and preparing a query costs more than running it. */
  const namesOfOne = database.statement((select, given: { userId: string }) =>
    selectNames(select).where('team_members.user_id', '=', given.userId),
  );
  const membersOf = (teamId: string) => query.selectFrom('team_members').where('team_id', '=', teamId);
  /** `users.teams` says whether there is anything to read; here it is counted again after a change. */
  const recount = (userIds: readonly string[]): readonly Runnable[] =>
    userIds.length === 0
      ? []
      : [
          sql`update users set teams = (select count(*) from team_members where user_id = users.id) where id in (${sql.join(userIds)})`.compile(
            query,
          ),
        ];

  const isPostgres = database.engine === 'postgres';
  /**
   * Keeps a user from being counted twice at the same time: on PostgreSQL, where transactions do not see each other's
   * rows, the second would count without the team of the first.
   */
  const lockUser = (id: string) =>
    query
      .selectFrom('users')
      .select('id')
      .where('id', '=', id)
      .$if(isPostgres, (select) => select.forUpdate())
      .compile();

  return {
    byId: async (id) => (await database.readKeyed(byId({ id })))[0],
    teamsOf: (userId) => database.readKeyed(teamsOf({ userId })),
    async namesOf(userIds) {
      const names = new Map<string, string[]>();
      const [userId] = userIds;
      if (userId === undefined) return names;
      const rows =
        userIds.length === 1
          ? namesOfOne({ userId })
          : selectNames(query).where('team_members.user_id', 'in', userIds).compile();
      for (const { user_id: id, name } of await database.readKeyed(rows)) {
        names.set(id, [...(names.get(id) ?? []), name]);
      }
      return names;
    },
    roleOf: async (teamId, userId) => (await database.readKeyed(roleOf({ teamId, userId })))[0]?.role,
    list(before, limit) {
      const all = query.selectFrom('teams').selectAll().orderBy('id', 'desc').limit(limit);
      return database.read((before === undefined ? all : all.where('id', '<', before)).compile());
    },
    members: (teamId, after, limit) =>
      database.read(
        query
          .selectFrom('team_members')
          .innerJoin('users', 'users.id', 'team_members.user_id')
          .selectAll('team_members')
          .select('users.name')
          .where('team_members.team_id', '=', teamId)
          .where('team_members.user_id', '>', after)
          .orderBy('team_members.user_id')
          .limit(limit)
          .compile(),
      ),
    add: (team) => query.insertInto('teams').values(team).compile(),
    change: (id, change) => expectChanges(query.updateTable('teams').set(change).where('id', '=', id).compile(), 1),
    remove: (id) => [
      expectChanges(query.deleteFrom('teams').where('id', '=', id).compile(), 1),
      sql`update users set teams = teams - 1 where id in (select user_id from team_members where team_id = ${id})`.compile(
        query,
      ),
      query.deleteFrom('team_members').where('team_id', '=', id).compile(),
      query.deleteFrom('invitations').where('team', '=', id).compile(),
    ],
    putMember: ({ team_id, user_id, role, created_at }) => [
      expectChanges(
        query
          .selectFrom('teams')
          .select('id')
          .where('id', '=', team_id)
          // A team that is being removed at the same time takes its new member along.
          .$if(isPostgres, (select) => select.forShare())
          .compile(),
        1,
      ),
      expectChanges(lockUser(user_id), 1),
      query
        .insertInto('team_members')
        .values({ team_id, user_id, role, created_at })
        .onConflict((conflict) => conflict.columns(['team_id', 'user_id']).doUpdateSet({ role }))
        .compile(),
      ...recount([user_id]),
      expectChanges(
        query
          .selectFrom('users')
          .select('id')
          .where('id', '=', user_id)
          .where('teams', '<=', MAX_TEAMS_OF_ONE)
          .compile(),
        1,
      ),
    ],
    removeMember: (teamId, userId) => [
      lockUser(userId),
      expectChanges(
        query.deleteFrom('team_members').where('team_id', '=', teamId).where('user_id', '=', userId).compile(),
        1,
      ),
      ...recount([userId]),
    ],
    expectMember: (teamId, userId, role) =>
      expectChanges(
        membersOf(teamId).select('user_id').where('user_id', '=', userId).where('role', '=', role).compile(),
        1,
      ),
  };
}

function selectNames(query: Kysely<AccountsSchema>) {
  return query
    .selectFrom('team_members')
    .innerJoin('teams', 'teams.id', 'team_members.team_id')
    .select(['team_members.user_id', 'teams.name'])
    .orderBy('teams.name');
}
