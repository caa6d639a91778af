import { useQuery } from '@tanstack/react-query';
import type { Team } from '../../../accounts/contract/teams.ts';
import { listOwnTeams, teamOfOwner } from '../../data/teams.ts';
import { visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';

const NONE: readonly Team[] = [];

/** The teams that the person is in. Nobody is in one where nobody logs in. */
export function useOwnTeams(): readonly Team[] {
  const { person, system } = useConsole();
  // An open bridge works for nobody in particular, and so for no team.
  const enabled = person !== undefined && system.signIn === 'session';
  const { data } = useQuery({ queryKey: ['teams', 'own'], queryFn: listOwnTeams, enabled });
  return data ?? NONE;
}

/** The id of the team that an owner is, where the person is in that team and so may work for it. */
export function useTeamOf(owner: string | undefined): string | undefined {
  const teams = useOwnTeams();
  const team = owner === undefined ? undefined : teamOfOwner(owner);
  return teams.some(({ id }) => id === team) ? team : undefined;
}

/** How an owner is shown: a team of the person by its name, everyone else by their id. */
export function useOwnerText(): (owner: string) => string {
  const teams = useOwnTeams();
  return (owner) => visible(teams.find(({ id }) => id === teamOfOwner(owner))?.name ?? owner);
}
