import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { Link, useLocation } from 'wouter';
import type { FirstAdmin } from '../../../accounts/contract/registration.ts';
import { completeSetup, forgetBearer, logIn, readSetup, readSystem } from '../../data/accounts.ts';
import { Problem } from '../../data/request.ts';
import { ErrorBox, Field } from '../../parts/parts.tsx';
import { NewPasswordField, PASSWORD_HINT, passwordProblem, useToken } from './new-password.tsx';

const REGISTRATION = { open: 'Anyone', invite: 'People with an invitation', closed: 'Nobody' } as const;

/** Creates the first administrator, logs them in, and opens the board. */
export default function Setup() {
  const token = useToken();
  const system = useQuery({ queryKey: ['system'], queryFn: readSystem });
  const options = useQuery({
    queryKey: ['setup', token],
    queryFn: () => readSetup(token),
    enabled: token !== '' && system.data?.setupNeeded === true,
    retry: false,
  });
  if (system.data?.setupNeeded === false) {
    return (
      <>
        <h1>First administrator</h1>
        <p>
          An administrator exists already, so this page cannot create one. Ask an administrator for an account, or run
          on the server: <code>trestle user create --email E --name N --role admin</code>
        </p>
        <Link className="button" href="/login">
          Log in
        </Link>
      </>
    );
  }
  const isOver = options.error instanceof Problem && options.error.status !== 0;
  return (
    <>
      <h1>Welcome to Trestle</h1>
      {token === '' ? (
        <p>
          Open the complete link that the program printed when it started. It works once, for 15 minutes. Or run on the
          server: <code>trestle user create --email E --name N --role admin</code>
        </p>
      ) : isOver ? (
        <ErrorBox error={options.error}>
          <p>
            Restart the program to get a new link, or run on the server:{' '}
            <code>trestle user create --email E --name N --role admin</code>
          </p>
        </ErrorBox>
      ) : (
        <SetupForm token={token} options={options.data} />
      )}
    </>
  );
}

interface SetupFormProps {
  readonly token: string;
  /** Undefined: not read yet, or the server did not answer. Then what is left open stays as it is. */
  readonly options: Awaited<ReturnType<typeof readSetup>> | undefined;
}

function SetupForm({ token, options }: SetupFormProps) {
  const [, go] = useLocation();
  const queries = useQueryClient();
  const [name, setName] = useState('');
  const [email, setEmail] = useState('');
  const [password, setPassword] = useState('');
  const [again, setAgain] = useState('');
  const [registration, setRegistration] = useState<FirstAdmin['registration']>();
  const [plan, setPlan] = useState<string>();
  const [problem, setProblem] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);

  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    const wrong = passwordProblem(password) ?? (password === again ? undefined : 'The two passwords differ.');
    setProblem(wrong);
    if (wrong !== undefined) return;
    setBusy(true);
    try {
      const choices = { ...(registration && { registration }), ...(plan !== undefined && { default_plan: plan }) };
      const { user } = await completeSetup({ token, name, email, password, ...choices });
      await logIn(user.email, password);
      forgetBearer();
      await queries.invalidateQueries({ queryKey: ['system'] });
      for (const name of ['person', 'scopes']) queries.removeQueries({ queryKey: [name] });
      go('/console', { replace: true });
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  }

  const { registration: who, default_plan: plans } = options ?? {};
  return (
    <form onSubmit={(event) => void submit(event)}>
      <p>Create the first account. It becomes an administrator with all rights.</p>
      <Field label="Name" value={name} onChange={setName} autoComplete="name" required maxLength={64} autoFocus />
      <Field
        label="E-mail address"
        type="email"
        value={email}
        onChange={setEmail}
        autoComplete="username"
        required
        maxLength={254}
      />
      <NewPasswordField value={password} onChange={setPassword} hint={passwordHint(password)} />
      <NewPasswordField
        label="Password again"
        value={again}
        onChange={setAgain}
        hint={again === '' || again === password ? undefined : 'The two passwords differ.'}
      />
      {who === undefined || plans === undefined ? null : (
        <>
          <label>
            Who may create an account
            <select
              value={registration ?? who.value}
              disabled={who.isConfigured}
              onChange={({ target }) => setRegistration(target.value as FirstAdmin['registration'])}
            >
              {Object.entries(REGISTRATION).map(([value, text]) => (
                <option key={value} value={value}>
                  {text}
                </option>
              ))}
            </select>
          </label>
          <label>
            Plan of new users
            <select
              value={plan ?? plans.value}
              disabled={plans.isConfigured}
              onChange={({ target }) => setPlan(target.value)}
            >
              {plans.plans.map(({ name: planName, pays, bridge }) => (
                <option key={planName} value={planName}>
                  {`${planName} (${pays ? 'paid models' : 'free models only'}${bridge ? ', agents' : ''})`}
                </option>
              ))}
            </select>
          </label>
        </>
      )}
      <ErrorBox error={problem} />
      <button type="submit" className="primary" disabled={isBusy}>
        Create the account
      </button>
    </form>
  );
}

/** What a password that is being typed still needs. */
function passwordHint(password: string): string {
  if (password === '') return PASSWORD_HINT;
  return passwordProblem(password) ?? 'Long enough. The server also refuses common passwords.';
}
