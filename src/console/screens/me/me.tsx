import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { Link } from 'wouter';
import { listKeys } from '../../data/completions.ts';
import { changePassword, rename } from '../../data/own-account.ts';
import { ALWAYS_STALE, BASE, Problem } from '../../data/request.ts';
import { BudgetBar } from '../../parts/budget-bar.tsx';
import { Field, LogIn, Moment, Part } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';
import { NewPasswordField, passwordProblem } from '../sign-in/new-password.tsx';
import { AccessTokens } from './access-tokens.tsx';
import { DeleteAccount } from './delete-account.tsx';
import { Logins, Passkeys } from './logins.tsx';
import { SecondFactor } from './second-factor.tsx';
import { Subscriptions } from './subscriptions.tsx';

/** The own account: what it is called, and everything that lets someone into it. */
export default function Me() {
  const { person } = useConsole();
  if (person === undefined) {
    return (
      <section className="page">
        <h1>You are not logged in</h1>
        <p>
          This server works without a login here, so there is no account to show. <LogIn />
        </p>
      </section>
    );
  }
  return (
    <>
      <header className="bar">
        <h1>{visible(person.name)}</h1>
        <span className="quiet">{visible(person.email)}</span>
        <span className="chip">{person.role}</span>
      </header>
      <div className="page settings">
        <Profile id={person.id} name={person.name} />
        <Password />
        <SecondFactor />
        <Passkeys />
        <Logins />
        <AccessTokens />
        <OwnKeys />
        <Subscriptions />
        <Part title="Your data" text="Everything that is stored about you and your keys, as JSON.">
          <a className="button" href={`${BASE}/api/auth/export`} download="my-data.json">
            Download my data
          </a>
        </Part>
        <DeleteAccount person={person} />
      </div>
    </>
  );
}

/** The own keys, and what each has spent; absent where there are none. */
function OwnKeys() {
  const { system } = useConsole();
  const { data = [] } = useQuery({
    queryKey: ['keys'],
    queryFn: listKeys,
    enabled: system.services.includes('completions'),
    ...ALWAYS_STALE,
  });
  if (data.length === 0) return null;
  return (
    <Part
      title="Keys"
      text={
        <>
          For programs that call models for you. <Link href="/console/keys">Change them</Link>
        </>
      }
    >
      <ul className="rows">
        {data.map(({ id, name, hint, enabled, budget, spent, last_used_at: usedAt }) => (
          <li key={id}>
            <div>
              <b>{visible(name)}</b> <code>{hint}…</code> {enabled ? null : <span className="chip">disabled</span>}
              <p className="quiet">
                {usedAt === null ? (
                  'not used yet'
                ) : (
                  <>
                    last used <Moment at={usedAt} />
                  </>
                )}
              </p>
              {budget === null ? null : (
                <p>
                  <BudgetBar spent={spent?.usd ?? 0} budget={budget} />
                </p>
              )}
            </div>
          </li>
        ))}
      </ul>
    </Part>
  );
}

function Profile({ id, name: current }: { readonly id: string; readonly name: string }) {
  const queries = useQueryClient();
  const work = useWork();
  const [name, setName] = useState(current);
  const [isSaved, setSaved] = useState(false);
  function submit(event: FormEvent): void {
    event.preventDefault();
    setSaved(false);
    work.run(async () => {
      const { user } = await rename(name.trim());
      queries.setQueryData(['person'], user);
      setName(user.name);
      setSaved(true);
    });
  }
  return (
    <Part title="Profile">
      <form className="line" onSubmit={submit}>
        <Field label="Name" value={name} onChange={setName} autoComplete="name" required maxLength={64} />
        <button type="submit" disabled={work.isBusy || name.trim() === '' || name === current}>
          Save
        </button>
      </form>
      {isSaved ? <p role="status">Your name was saved.</p> : null}
      <p className="quiet">
        Your id, by which an owner of a team adds you: <code>{id}</code>
      </p>
      <WorkNotes work={work} />
    </Part>
  );
}

function Password() {
  const work = useWork();
  const [current, setCurrent] = useState('');
  const [next, setNext] = useState('');
  const [isDone, setDone] = useState(false);
  function submit(event: FormEvent): void {
    event.preventDefault();
    setDone(false);
    const weak = passwordProblem(next);
    if (weak !== undefined) {
      work.refuse(weak);
      return;
    }
    work.run(async () => {
      try {
        await changePassword(current, next);
      } catch (error) {
        const isWrong = error instanceof Problem && error.code === 'reauthentication_required';
        throw isWrong ? new Error('The current password is wrong.') : error;
      }
      setCurrent('');
      setNext('');
      setDone(true);
    });
  }
  return (
    <Part title="Password" text="A new password ends all your other logins.">
      <form className="stack" onSubmit={submit}>
        <Field
          label="Current password"
          type="password"
          value={current}
          onChange={setCurrent}
          autoComplete="current-password"
          required
        />
        <NewPasswordField label="New password" value={next} onChange={setNext} />
        <button type="submit" disabled={work.isBusy}>
          Change the password
        </button>
      </form>
      {isDone ? <p role="status">Your password was changed, and your other logins have ended.</p> : null}
      <WorkNotes work={work} />
    </Part>
  );
}
