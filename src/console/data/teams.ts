import type { Member, NewMember, NewTeam, Team, TeamChange } from '../../accounts/contract/teams.ts';
import { auth } from './accounts.ts';

/** Teams: people see those that they are in, administrators see all. */

interface TeamPage {
  readonly teams: readonly Team[];
  readonly nextCursor: string | null;
}
export interface MemberPage {
  readonly members: readonly Member[];
  readonly nextCursor: string | null;
}

const LIMIT = 200;
const TEAM = 'team:';
const place = (id: string) => `teams/${encodeURIComponent(id)}`;

/** The owner of what is done for a team. */
export const ownerOfTeam = (id: string) => `${TEAM}${id}`;
/** The id of the team that an owner is. Undefined: the owner is not a team. */
export const teamOfOwner = (owner: string) => (owner.startsWith(TEAM) ? owner.slice(TEAM.length) : undefined);

export const listOwnTeams = () => auth<TeamPage>('GET', 'teams').then(({ teams }) => teams);
/** For administrators. */
export const listAllTeams = (cursor: string) =>
  auth<TeamPage>('GET', 'teams', undefined, {
    query: { all: '1', limit: LIMIT, ...(cursor !== '' && { cursor }) },
  });

/** Looks in the own teams first, which name the own role, then for administrators in all. Undefined: not found. */
export async function findTeam(id: string, isAdmin: boolean): Promise<Team | undefined> {
  const own = (await listOwnTeams()).find((team) => team.id === id);
  if (own !== undefined || !isAdmin) return own;
  let cursor: string | null = '';
  while (cursor !== null) {
    const page: TeamPage = await listAllTeams(cursor);
    const found = page.teams.find((team) => team.id === id);
    if (found !== undefined) return found;
    cursor = page.nextCursor;
  }
  return undefined;
}

export const createTeam = (given: NewTeam) => auth<{ team: Team }>('POST', 'teams', given).then(({ team }) => team);
export const changeTeam = (id: string, given: TeamChange) => auth<{ team: Team }>('PATCH', place(id), given);
export const removeTeam = (id: string) => auth<void>('DELETE', place(id));

export const listMembers = (id: string, cursor: string) =>
  auth<MemberPage>('GET', `${place(id)}/members`, undefined, {
    query: { limit: LIMIT, ...(cursor !== '' && { cursor }) },
  });
/** Adds someone, or gives a member another role. */
export const putMember = (id: string, given: NewMember) =>
  auth<{ member: Member }>('POST', `${place(id)}/members`, given);
export const removeMember = (id: string, userId: string) =>
  auth<void>('DELETE', `${place(id)}/members/${encodeURIComponent(userId)}`);
