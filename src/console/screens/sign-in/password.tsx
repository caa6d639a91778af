import { type FormEvent, useState } from 'react';
import { Link } from 'wouter';
import { forgot, resetPassword } from '../../data/accounts.ts';
import { ErrorBox, Field } from '../../parts/parts.tsx';
import { NewPasswordField, passwordProblem, useToken } from './new-password.tsx';

/** A new password by a mailed link; without one, the form that mails the link. */
export default function Password() {
  const token = useToken();
  return token === '' ? <Forgot /> : <Reset token={token} />;
}

function Forgot() {
  const [email, setEmail] = useState('');
  const [isSent, setSent] = useState(false);
  const [problem, setProblem] = useState<unknown>();
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    try {
      await forgot(email);
      setSent(true);
      setProblem(undefined);
    } catch (error) {
      setProblem(error);
    }
  }
  return (
    <>
      <h1>Forgot the password</h1>
      {isSent ? (
        <p role="status">If an account with this address exists, a link was mailed to it.</p>
      ) : (
        <form onSubmit={(event) => void submit(event)}>
          <Field
            label="E-mail address"
            type="email"
            value={email}
            onChange={setEmail}
            autoComplete="username"
            required
            autoFocus
          />
          <ErrorBox error={problem} />
          <button type="submit" className="primary">
            Mail me a link
          </button>
        </form>
      )}
      <p className="quiet">
        <Link href="/login">To the login</Link>
      </p>
    </>
  );
}

function Reset({ token }: { readonly token: string }) {
  const [password, setPassword] = useState('');
  const [isDone, setDone] = useState(false);
  const [problem, setProblem] = useState<unknown>();
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    const weak = passwordProblem(password);
    setProblem(weak);
    if (weak !== undefined) return;
    try {
      await resetPassword(token, password);
      setDone(true);
    } catch (error) {
      setProblem(error);
    }
  }
  if (isDone) {
    return (
      <>
        <h1>Your password is set</h1>
        <p role="status">
          <Link href="/login">Log in</Link> with it.
        </p>
      </>
    );
  }
  return (
    <>
      <h1>Choose a password</h1>
      <form onSubmit={(event) => void submit(event)}>
        <NewPasswordField label="New password" value={password} onChange={setPassword} autoFocus />
        <ErrorBox error={problem} />
        <button type="submit" className="primary">
          Set the password
        </button>
      </form>
    </>
  );
}
