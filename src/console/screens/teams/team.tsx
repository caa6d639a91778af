import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import { Link, useLocation, useParams } from 'wouter';
import type { Member, Team } from '../../../accounts/contract/teams.ts';
import { readUsage } from '../../data/completions.ts';
import {
  changeTeam,
  findTeam,
  listMembers,
  ownerOfTeam,
  putMember,
  removeMember,
  removeTeam,
} from '../../data/teams.ts';
import { BudgetBar, budgetText } from '../../parts/budget-bar.tsx';
import { ErrorBox, Field, Moment, Part } from '../../parts/parts.tsx';
import { countText, dayText, moneyText, TIME_ZONE, visible } from '../../parts/text.ts';
import { Confirm, CopyCurl, useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';
import { Invitations } from '../users/invitations.tsx';
import { TeamForm } from './team-form.tsx';
import { useIsAdmin } from './teams.tsx';

const ROLES = ['member', 'owner'] as const;

/** One team: what it may spend, what it has used, and who is in it. */
export default function TeamScreen() {
  const { system, person } = useConsole();
  const { teamId = '' } = useParams<{ teamId: string }>();
  const isAdmin = useIsAdmin();
  const { data: team, error } = useQuery({
    queryKey: ['teams', 'one', teamId],
    queryFn: async () => (await findTeam(teamId, isAdmin)) ?? null,
  });
  if (team === undefined) {
    return error === null ? <p className="quiet loading">Loading …</p> : <ErrorBox error={error} />;
  }
  if (team === null) {
    return (
      <section className="page">
        <h1>There is no such team</h1>
        <p>It was removed, or you are not a member.</p>
        <p>
          <Link href="/console/teams">To the teams</Link>
        </p>
      </section>
    );
  }
  const mayInvite = isAdmin && person?.permissions.includes('admin.users.list.read') === true;
  return (
    <>
      <Header team={team} isAdmin={isAdmin} />
      <div className="page settings">
        {system.services.includes('completions') ? <TeamUsage team={team} /> : null}
        <Members team={team} isAdmin={isAdmin} />
      </div>
      {mayInvite ? <Invitations team={team.id} /> : null}
    </>
  );
}

/** Goes to the list, where everything is read again. This team is not: it is not there any more for this person. */
function useLeave(): () => void {
  const queries = useQueryClient();
  const [, go] = useLocation();
  return () => {
    queries.removeQueries({ queryKey: ['teams'] });
    go('/console/teams');
  };
}

function Header({ team, isAdmin }: { readonly team: Team; readonly isAdmin: boolean }) {
  const queries = useQueryClient();
  const work = useWork();
  const [shown, setShown] = useState<'change' | 'remove'>();
  const refresh = () => queries.invalidateQueries({ queryKey: ['teams'] });
  const leave = useLeave();
  const owner = encodeURIComponent(ownerOfTeam(team.id));
  return (
    <header className="bar">
      <h1>{visible(team.name)}</h1>
      {team.role === null ? null : <span className="chip">you are {team.role}</span>}
      <span className="quiet">
        {team.plan === null ? 'no plan' : `plan ${team.plan}`} ·{' '}
        {team.budget === null ? 'no budget' : budgetText(team.budget)}
      </span>
      <Link href={`/console?owner=${owner}`}>Sessions</Link>
      <CopyCurl path={`/api/auth/teams/${encodeURIComponent(team.id)}/members`} />
      {isAdmin ? (
        <>
          <button type="button" onClick={() => setShown('change')}>
            Change …
          </button>
          <button type="button" className="danger" onClick={() => setShown('remove')}>
            Remove …
          </button>
        </>
      ) : null}
      {team.role === null ? null : (
        <Link href={`/console/new?team=${encodeURIComponent(team.id)}`} className="button primary">
          Work for this team
        </Link>
      )}
      <WorkNotes work={work} />
      {shown === 'change' ? (
        <TeamForm
          title="Change the team"
          action="Save"
          team={team}
          onClose={() => setShown(undefined)}
          onSave={async (given) => {
            await changeTeam(team.id, given);
            await refresh();
            setShown(undefined);
          }}
        />
      ) : null}
      {shown === 'remove' ? (
        <Confirm
          title={`Remove ${visible(team.name)}?`}
          text="Its members lose what the team shares with them, and keys for the team stop working. Accounts stay."
          action="Remove it"
          onClose={() => setShown(undefined)}
          onYes={() =>
            work.run(async () => {
              await removeTeam(team.id);
              leave();
            })
          }
        />
      ) : null}
    </header>
  );
}

/** From when usage is shown. A budget counts days and months in UTC; without one, this month of the browser is shown. */
function countedFrom({ budget, createdAt }: Team): { readonly from: string; readonly tz: string; readonly at: number } {
  if (budget === null) {
    const from = `${dayText(Date.now()).slice(0, 8)}01`;
    return { from, tz: TIME_ZONE, at: Date.parse(`${from}T00:00:00`) };
  }
  const today = new Date().toISOString().slice(0, 10);
  const month = `${today.slice(0, 8)}01`;
  const from = { day: today, month, total: createdAt.slice(0, 10) }[budget.period];
  return { from, tz: 'UTC', at: Date.parse(from) };
}

function TeamUsage({ team }: { readonly team: Team }) {
  const { from, tz, at } = countedFrom(team);
  const { data, error } = useQuery({
    queryKey: ['usage', 'team', team.id, from, tz],
    queryFn: () => readUsage({ owner: ownerOfTeam(team.id), group_by: 'model', from, tz }),
  });
  const total = data?.total;
  return (
    <Part
      title="Usage"
      text={
        <>
          Calls to models since <Moment at={at} />.
        </>
      }
    >
      <ErrorBox error={error} />
      {total === undefined ? null : (
        <>
          <dl className="figures flush">
            {[
              ['Requests', countText(total.requests)],
              ['Tokens', countText(total.prompt_tokens + total.completion_tokens)],
              ['Cost', moneyText(total.cost_usd)],
            ].map(([label, value]) => (
              <div key={label}>
                <dt>{label}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
          {team.budget === null ? null : (
            <p>
              <BudgetBar spent={total.cost_usd} budget={team.budget} />
            </p>
          )}
        </>
      )}
    </Part>
  );
}

function Members({ team, isAdmin }: { readonly team: Team; readonly isAdmin: boolean }) {
  const { person } = useConsole();
  const queries = useQueryClient();
  const leave = useLeave();
  const work = useWork();
  const [leaving, setLeaving] = useState<Member>();
  const { data, error, hasNextPage, fetchNextPage } = useInfiniteQuery({
    queryKey: ['teams', 'members', team.id],
    queryFn: ({ pageParam }) => listMembers(team.id, pageParam),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
  });
  const members = data?.pages.flatMap((page) => page.members) ?? [];
  const mayChange = isAdmin || team.role === 'owner';
  const refresh = () => queries.invalidateQueries({ queryKey: ['teams'] });
  const isSelf = ({ userId }: Member) => userId === person?.id;
  return (
    <Part title="Members">
      <ErrorBox error={error} />
      {data !== undefined && members.length === 0 ? <p className="quiet">This team has no members yet.</p> : null}
      <ul className="rows">
        {members.map((member) => (
          <li key={member.userId}>
            <div>
              <b>{visible(member.name)}</b> {isSelf(member) ? <span className="quiet">this is you</span> : null}
              <p className="quiet">
                {member.role} · since <Moment at={member.createdAt} shown="day" /> · <code>{member.userId}</code>
              </p>
            </div>
            <div className="answers">
              {mayChange && !isSelf(member) ? (
                <select
                  aria-label={`Role of ${visible(member.name)}`}
                  value={member.role}
                  disabled={work.isBusy}
                  onChange={({ target }) =>
                    work.run(async () => {
                      const role = target.value === 'owner' ? 'owner' : 'member';
                      await putMember(team.id, { userId: member.userId, role });
                      await refresh();
                    })
                  }
                >
                  {ROLES.map((role) => (
                    <option key={role}>{role}</option>
                  ))}
                </select>
              ) : null}
              {mayChange || isSelf(member) ? (
                <button type="button" disabled={work.isBusy} onClick={() => setLeaving(member)}>
                  {isSelf(member) ? 'Leave …' : 'Remove …'}
                </button>
              ) : null}
            </div>
          </li>
        ))}
      </ul>
      {hasNextPage ? (
        <button type="button" className="start" onClick={() => void fetchNextPage()}>
          More members
        </button>
      ) : null}
      <WorkNotes work={work} />
      {mayChange ? <NewMember team={team} isAdmin={isAdmin} onAdded={refresh} /> : null}
      {leaving === undefined ? null : (
        <Confirm
          title={isSelf(leaving) ? 'Leave the team?' : `Remove ${visible(leaving.name)}?`}
          text="Work that runs for the team is stopped, and sessions of the team can no longer be seen."
          action={isSelf(leaving) ? 'Leave it' : 'Remove from the team'}
          onClose={() => setLeaving(undefined)}
          onYes={() =>
            work.run(async () => {
              await removeMember(team.id, leaving.userId);
              if (isSelf(leaving) && !isAdmin) leave();
              else await refresh();
            })
          }
        />
      )}
    </Part>
  );
}

interface NewMemberProps {
  readonly team: Team;
  readonly isAdmin: boolean;
  readonly onAdded: () => Promise<void>;
}

/** Owners name people by the id, which people tell them: an address would tell who has an account. */
function NewMember({ team, isAdmin, onAdded }: NewMemberProps) {
  const id = useId();
  const work = useWork();
  const [who, setWho] = useState('');
  const [role, setRole] = useState<Member['role']>('member');
  function submit(event: FormEvent): void {
    event.preventDefault();
    work.run(async () => {
      const given = who.trim();
      await putMember(team.id, { ...(given.includes('@') ? { email: given } : { userId: given }), role });
      await onAdded();
      setWho('');
    });
  }
  return (
    <>
      <form className="line" onSubmit={submit}>
        <Field
          label={isAdmin ? 'E-mail address or id' : 'Id of the person'}
          value={who}
          onChange={setWho}
          required
          maxLength={254}
          autoComplete="off"
          hint={isAdmin ? 'Of someone who has an account here.' : 'It is on the page “My account” of that person.'}
        />
        <div className="field">
          <label htmlFor={`${id}-role`}>Role in the team</label>
          <select
            id={`${id}-role`}
            value={role}
            onChange={({ target }) => setRole(target.value === 'owner' ? 'owner' : 'member')}
          >
            {ROLES.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </div>
        <button type="submit" disabled={work.isBusy}>
          Add
        </button>
      </form>
      <WorkNotes work={work} />
    </>
  );
}
