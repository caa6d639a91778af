import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useId, useState } from 'react';
import type { PlanView } from '../../../accounts/contract/own-data.ts';
import type { Invitation } from '../../../accounts/contract/registration.ts';
import { invite, listInvitations, listPlans, revokeInvitation } from '../../data/administration.ts';
import { ErrorBox, Field, Moment, Since } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { Confirm, ShownOnce, useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';

export const ROLES: readonly string[] = ['root', 'admin', 'operator', 'user', 'readonly'];

/** The others have no plan, unless an administrator gives them one. */
const PLANNED: readonly string[] = ['user', 'readonly'];

function planText(name: string, plan: PlanView | undefined): string {
  return plan === undefined ? name : `${name}, ${plan.bridge ? 'with agents' : 'without agents'}`;
}

/** The roles that someone may give: never above the own one, and root only on the command line. */
export function rolesFor(role: string): readonly string[] {
  const from = ROLES.indexOf(role);
  return from < 0 ? [] : ROLES.slice(Math.max(1, from));
}

/** Invites people, and lists the invitations that nobody has accepted yet: all, or those into a team. */
export function Invitations({ team }: { readonly team?: string }) {
  const { person } = useConsole();
  const queries = useQueryClient();
  const id = useId();
  const invitations = useQuery({ queryKey: ['invitations'], queryFn: listInvitations });
  const work = useWork();
  const [link, setLink] = useState<string>();
  const [revoked, setRevoked] = useState<Invitation>();
  const mayInvite = person?.permissions.includes('admin.users.role.write') === true;
  const refresh = () => queries.invalidateQueries({ queryKey: ['invitations'] });
  const shown = invitations.data?.filter((one) => team === undefined || one.team === team);
  return (
    <section className="page settings" aria-labelledby={id}>
      <h2 id={id}>Invitations</h2>
      <ErrorBox error={invitations.error} />
      {shown?.length === 0 ? <p className="quiet">There are no open invitations.</p> : null}
      <ul className="rows">
        {(shown ?? []).map((invitation) => (
          <li key={invitation.id}>
            <div>
              <b>{visible(invitation.email ?? 'anyone who has the link')}</b> as {invitation.role}
              <p className="quiet">
                made <Since at={Date.parse(invitation.createdAt)} /> ago · until{' '}
                <Moment at={invitation.expiresAt} shown="day" /> · {invitation.mailed ? 'mailed' : 'by link'}
              </p>
            </div>
            {mayInvite ? (
              <button type="button" disabled={work.isBusy} onClick={() => setRevoked(invitation)}>
                Revoke …
              </button>
            ) : null}
          </li>
        ))}
      </ul>
      <WorkNotes work={work} />
      {!mayInvite ? null : link === undefined ? (
        <NewInvitationForm
          team={team}
          onMade={(made) => {
            setLink(made);
            void refresh();
          }}
        />
      ) : (
        <div className="stack">
          <ShownOnce label="Send this link to the person. It is not shown again, and it works once." text={link} />
          <button type="button" onClick={() => setLink(undefined)}>
            Done
          </button>
        </div>
      )}
      {revoked === undefined ? null : (
        <Confirm
          title="Revoke the invitation?"
          text={`The link of ${visible(revoked.email ?? 'this invitation')} no longer works.`}
          action="Revoke it"
          onClose={() => setRevoked(undefined)}
          onYes={() =>
            work.run(async () => {
              await revokeInvitation(revoked.id);
              await refresh();
            })
          }
        />
      )}
    </section>
  );
}

interface NewInvitationProps {
  readonly team: string | undefined;
  /** Gets the link, or undefined where it was mailed. */
  readonly onMade: (link: string | undefined) => void;
}

function NewInvitationForm({ team, onMade }: NewInvitationProps) {
  const { person } = useConsole();
  const id = useId();
  const work = useWork();
  const [email, setEmail] = useState('');
  const [role, setRole] = useState('user');
  const [plan, setPlan] = useState('');
  const plans = useQuery({ queryKey: ['plans'], queryFn: listPlans });
  const isPlanned = PLANNED.includes(role);
  const [isMailed, setMailed] = useState(true);
  const [sentTo, setSentTo] = useState('');
  function submit(event: FormEvent): void {
    event.preventDefault();
    setSentTo('');
    work.run(async () => {
      const { link } = await invite({
        role,
        ...(isPlanned && plan !== '' && { plan }),
        ...(team !== undefined && { team }),
        ...(email !== '' && { email, mail: isMailed }),
      });
      if (link === undefined) setSentTo(email);
      setEmail('');
      onMade(link);
    });
  }
  return (
    <>
      <form className="stack" onSubmit={submit}>
        <h3>{team === undefined ? 'Invite someone' : 'Invite someone who has no account yet'}</h3>
        <Field
          label="E-mail address"
          type="email"
          value={email}
          onChange={setEmail}
          autoComplete="off"
          hint="Leave empty so that anyone who has the link can use it."
        />
        {email === '' ? null : (
          <label className="check">
            <input type="checkbox" checked={isMailed} onChange={(event) => setMailed(event.target.checked)} /> Mail the
            link, which also verifies the address
          </label>
        )}
        <div className="field">
          <label htmlFor={`${id}-role`}>Role of the new account</label>
          <select id={`${id}-role`} value={role} onChange={(event) => setRole(event.target.value)}>
            {rolesFor(person?.role ?? '').map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </div>
        {isPlanned ? (
          <div className="field">
            <label htmlFor={`${id}-plan`}>Plan of the new account</label>
            <select
              id={`${id}-plan`}
              aria-describedby={`${id}-plan-hint`}
              value={plan}
              onChange={(event) => setPlan(event.target.value)}
            >
              <option value="">
                {planText(
                  'the default',
                  plans.data?.find(({ isDefault }) => isDefault),
                )}
              </option>
              {plans.data?.map((one) => (
                <option key={one.name} value={one.name}>
                  {planText(visible(one.name), one)}
                </option>
              ))}
            </select>
            <p className="quiet" id={`${id}-plan-hint`}>
              The settings define the plans.
            </p>
          </div>
        ) : null}
        <button type="submit" disabled={work.isBusy}>
          Invite
        </button>
      </form>
      {sentTo === '' ? null : <p role="status">The link was mailed to {visible(sentTo)}.</p>}
      <WorkNotes work={work} />
    </>
  );
}
