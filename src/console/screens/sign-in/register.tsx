import { type FormEvent, useState } from 'react';
import { Link, useLocation } from 'wouter';
import { logIn, register, sendCode } from '../../data/accounts.ts';
import { ErrorBox, Field } from '../../parts/parts.tsx';
import { NewPasswordField, passwordProblem } from './new-password.tsx';

/** An account by an e-mail address that a mailed code verifies. */
export default function Register() {
  const [, go] = useLocation();
  const [name, setName] = useState('');
  const [email, setEmail] = useState('');
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  const [isSent, setSent] = useState(false);
  const [problem, setProblem] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    const weak = passwordProblem(password);
    if (weak !== undefined) {
      setProblem(weak);
      return;
    }
    setBusy(true);
    setProblem(undefined);
    try {
      if (!isSent) {
        await sendCode(email);
        setSent(true);
      } else {
        await register({ name, email, password, code });
        await logIn(email, password);
        go('/console');
      }
    } catch (error) {
      setProblem(error);
    }
    setBusy(false);
  }
  return (
    <>
      <h1>Create an account</h1>
      <form onSubmit={(event) => void submit(event)}>
        <Field label="Name" value={name} onChange={setName} autoComplete="name" required maxLength={64} autoFocus />
        <Field label="E-mail address" type="email" value={email} onChange={setEmail} autoComplete="username" required />
        <NewPasswordField value={password} onChange={setPassword} />
        {isSent ? (
          <Field
            label="Code"
            value={code}
            onChange={setCode}
            autoComplete="one-time-code"
            inputMode="numeric"
            required
            autoFocus
            hint={`It was mailed to ${email}.`}
          />
        ) : null}
        <ErrorBox error={problem} />
        <button type="submit" className="primary" disabled={isBusy}>
          {isSent ? 'Create the account' : 'Mail me a code'}
        </button>
      </form>
      <p className="quiet">
        <Link href="/login">I have an account</Link>
      </p>
    </>
  );
}
