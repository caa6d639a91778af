import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, type ReactNode, useEffect, useState } from 'react';
import { Link, useLocation, useSearchParams } from 'wouter';
import {
  exchangeCode,
  forgetBearer,
  type LoginAnswer,
  logIn,
  logInWithPasskey,
  proveSecondFactor,
  readMethods,
} from '../../data/accounts.ts';
import { BASE } from '../../data/request.ts';
import { ErrorBox, Field } from '../../parts/parts.tsx';

const OAUTH_PROBLEMS: Readonly<Record<string, string>> = {
  invalid_state: 'The login took too long, or was started in another window. Try again.',
  access_denied: 'The login was cancelled at the provider.',
  email_unverified: 'The provider has not verified your e-mail address.',
  account_exists: 'An account with this address exists already. Log in with its password, then link the provider.',
};

/** Logs in by password, passkey or provider. */
export default function Login() {
  const [, go] = useLocation();
  const [given, setGiven] = useSearchParams();
  const methods = useQuery({ queryKey: ['methods'], queryFn: readMethods });
  const oauthError = given.get('error');
  const [oauthCode] = useState(given.get('exchange_code'));
  const next = safePath(given.get('next'));
  // biome-ignore lint/correctness/useExhaustiveDependencies: the code is exchanged once, and must not stay in the address bar
  useEffect(() => {
    if (oauthCode !== null) setGiven({}, { replace: true });
  }, []);
  return (
    <LoginSteps
      title="Log in to Trestle"
      onLoggedIn={() => go(next, { replace: true })}
      {...(oauthCode !== null && { first: () => exchangeCode(oauthCode) })}
      above={oauthError === null ? null : <ErrorBox error={oauthProblem(oauthError)} />}
      others={(methods.data?.providers ?? []).map(({ id, label }) => (
        <a key={id} className="button" href={`${BASE}/api/auth/oauth/login/${encodeURIComponent(id)}`}>
          Continue with {label}
        </a>
      ))}
    >
      <p className="quiet">
        <Link href="/console/forgot">Forgot the password?</Link>
        {methods.data?.registration === 'open' ? (
          <>
            {' · '}
            <Link href="/register">Create an account</Link>
          </>
        ) : null}
      </p>
    </LoginSteps>
  );
}

interface LoginStepsProps {
  readonly title: string;
  readonly onLoggedIn: () => void;
  /** A login that has begun already: it is attempted when the steps are first shown. */
  readonly first?: () => Promise<LoginAnswer>;
  /** Above and beside the form, and below it. */
  readonly above?: ReactNode;
  readonly others?: ReactNode;
  readonly children?: ReactNode;
}

/** Logs in by password or passkey, and asks for the second factor. */
export function LoginSteps({ title, onLoggedIn, first, above, others, children }: LoginStepsProps) {
  const queries = useQueryClient();
  const [identifier, setIdentifier] = useState('');
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  const [isRecovery, setRecovery] = useState(false);
  const [ticket, setTicket] = useState<{ readonly ticket: string; readonly methods: readonly string[] }>();
  const [problem, setProblem] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);

  async function attempt(work: () => Promise<LoginAnswer>): Promise<void> {
    setBusy(true);
    setProblem(undefined);
    try {
      const answer = await work();
      if (answer.mfaRequired) setTicket({ ticket: answer.mfaTicket, methods: answer.mfaMethods });
      else {
        forgetBearer();
        for (const name of ['person', 'scopes']) queries.removeQueries({ queryKey: [name] });
        onLoggedIn();
        return;
      }
    } catch (error) {
      setProblem(error);
    }
    setBusy(false);
  }

  // biome-ignore lint/correctness/useExhaustiveDependencies: it is attempted once
  useEffect(() => {
    if (first !== undefined) void attempt(first);
  }, []);

  function onPassword(event: FormEvent): void {
    event.preventDefault();
    void attempt(() => logIn(identifier, password));
  }
  function onCode(event: FormEvent): void {
    event.preventDefault();
    if (ticket === undefined) return;
    void attempt(() => proveSecondFactor(ticket.ticket, isRecovery ? { recoveryCode: code } : { code }));
  }

  if (ticket !== undefined) {
    return (
      <>
        <h1>Second factor</h1>
        <form onSubmit={onCode}>
          <Field
            key={String(isRecovery)}
            label={isRecovery ? 'Recovery code' : 'Code of your authenticator app'}
            value={code}
            onChange={setCode}
            autoComplete="one-time-code"
            {...(!isRecovery && { inputMode: 'numeric' as const })}
            required
            autoFocus
          />
          <ErrorBox error={problem} />
          <button type="submit" className="primary" disabled={isBusy}>
            Continue
          </button>
        </form>
        {ticket.methods.includes('passkey') ? (
          <button type="button" onClick={() => void attempt(() => logInWithPasskey(ticket.ticket))}>
            Use a passkey
          </button>
        ) : null}
        <button type="button" className="plain" onClick={() => setRecovery(!isRecovery)}>
          {isRecovery ? 'Use the authenticator app' : 'Use a recovery code'}
        </button>
      </>
    );
  }
  return (
    <>
      <h1>{title}</h1>
      {above}
      <form onSubmit={onPassword}>
        <Field
          label="E-mail address or name"
          value={identifier}
          onChange={setIdentifier}
          autoComplete="username webauthn"
          required
          autoFocus
        />
        <Field
          label="Password"
          type="password"
          value={password}
          onChange={setPassword}
          autoComplete="current-password"
          required
        />
        <ErrorBox error={problem} />
        <button type="submit" className="primary" disabled={isBusy}>
          Log in
        </button>
      </form>
      <div className="others">
        <button type="button" onClick={() => void attempt(() => logInWithPasskey())}>
          Use a passkey
        </button>
        {others}
      </div>
      {children}
    </>
  );
}

/** Only a path of our own: a link must not send someone elsewhere after the login. */
export function safePath(path: string | null): string {
  return path !== null && /^\/console(?:[/?]|$)/.test(path) ? path : '/console';
}

/** Anybody can make an address, so no more of it is shown than the code of an error. */
function oauthProblem(code: string): string {
  const known = Object.hasOwn(OAUTH_PROBLEMS, code) ? OAUTH_PROBLEMS[code] : undefined;
  return known ?? (/^[a-z_]{1,40}$/.test(code) ? `The login failed: ${code}` : 'The login failed. Try again.');
}
