import { keepPreviousData, useInfiniteQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useLocation, useSearchParams } from 'wouter';
import type { Team } from '../../../accounts/contract/teams.ts';
import { createTeam, listAllTeams, listOwnTeams } from '../../data/teams.ts';
import { budgetText } from '../../parts/budget-bar.tsx';
import { ErrorBox, Moment, More } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';
import { TeamForm } from './team-form.tsx';

export const teamAddress = (id: string) => `/console/teams/${encodeURIComponent(id)}`;

/** Only administrators create and change teams, because other apps may trust their names. */
export function useIsAdmin(): boolean {
  const { person } = useConsole();
  return person?.role === 'root' || person?.role === 'admin';
}

/** The teams that the person is in; for administrators all of them, too. */
export default function Teams() {
  const [given, setGiven] = useSearchParams();
  const [, go] = useLocation();
  const queries = useQueryClient();
  const isAdmin = useIsAdmin();
  const [isNew, setNew] = useState(false);
  const isAll = isAdmin && given.get('show') !== 'mine';
  const pages = useInfiniteQuery({
    queryKey: ['teams', isAll ? 'all' : 'mine'],
    queryFn: async ({ pageParam }) =>
      isAll ? listAllTeams(pageParam) : { teams: await listOwnTeams(), nextCursor: null },
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
    placeholderData: keepPreviousData,
  });
  const { data, error } = pages;
  const teams = data?.pages.flatMap((page) => page.teams) ?? [];
  return (
    <>
      <header className="bar">
        <h1>Teams</h1>
        {isAdmin ? (
          <>
            <fieldset className="choice">
              <legend className="hidden-label">Which teams</legend>
              {(['all', 'mine'] as const).map((name) => (
                <button
                  key={name}
                  type="button"
                  aria-pressed={isAll === (name === 'all')}
                  onClick={() => setGiven(name === 'all' ? {} : { show: name }, { replace: true })}
                >
                  {name === 'all' ? 'All' : 'Mine'}
                </button>
              ))}
            </fieldset>
            <button type="button" className="button primary" onClick={() => setNew(true)}>
              New team
            </button>
          </>
        ) : null}
      </header>
      <ErrorBox error={error} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data !== undefined && teams.length === 0 ? (
        <section className="empty">
          <h2>{isAll ? 'No teams yet' : 'You are not in a team'}</h2>
          <p>
            The members of a team share its sessions and its budget.{' '}
            {isAdmin
              ? 'Create one with “New team”.'
              : 'An administrator creates teams, and an owner of a team adds you.'}
          </p>
        </section>
      ) : null}
      {teams.length === 0 ? null : <Table teams={teams} hasRoles={!isAll} />}
      <More of={pages}>More teams</More>
      {isNew ? (
        <TeamForm
          title="New team"
          action="Create"
          onClose={() => setNew(false)}
          onSave={async (team) => {
            const { id } = await createTeam(team);
            await queries.invalidateQueries({ queryKey: ['teams'] });
            go(teamAddress(id));
          }}
        />
      ) : null}
    </>
  );
}

function Table({ teams, hasRoles }: { readonly teams: readonly Team[]; readonly hasRoles: boolean }) {
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {['Name', ...(hasRoles ? ['You are'] : []), 'Plan', 'Budget', 'Since'].map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {teams.map(({ id, name, role, plan, budget, createdAt }) => (
            <tr key={id}>
              <td>
                <Link href={teamAddress(id)}>{visible(name)}</Link>
              </td>
              {hasRoles ? <td data-name="You are">{role}</td> : null}
              <td data-name="Plan">{plan ?? 'none'}</td>
              <td data-name="Budget">{budget === null ? 'no limit' : budgetText(budget)}</td>
              <td data-name="Since">
                <Moment at={createdAt} shown="day" />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
