import { type FormEvent, useState } from 'react';
import { useLocation } from 'wouter';
import { acceptInvitation, logIn } from '../../data/accounts.ts';
import { Problem } from '../../data/request.ts';
import { ErrorBox, Field } from '../../parts/parts.tsx';
import { NewPasswordField, passwordProblem, useToken } from './new-password.tsx';

/** Refusals after which an address has to be given: the invitation names none, or another one. */
const EMAIL_PROBLEMS: ReadonlySet<string> = new Set(['missing_credentials', 'invalid_email']);

/** Creates the account that an invitation is for, and logs in. */
export default function AcceptInvitation() {
  const [, go] = useLocation();
  const token = useToken();
  const [name, setName] = useState('');
  const [email, setEmail] = useState('');
  const [password, setPassword] = useState('');
  const [problem, setProblem] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  if (token === '') {
    return (
      <>
        <h1>Invitation</h1>
        <p>Open the complete link of the invitation: the part after the “#” is missing.</p>
      </>
    );
  }
  async function submit(event: FormEvent): Promise<void> {
    event.preventDefault();
    const weak = passwordProblem(password);
    setProblem(weak);
    if (weak !== undefined) return;
    setBusy(true);
    try {
      const { user } = await acceptInvitation({ token, name, password, ...(email !== '' && { email }) });
      await logIn(user.email, password);
      go('/console');
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  }
  const asksForEmail = problem instanceof Problem && EMAIL_PROBLEMS.has(problem.code);
  return (
    <>
      <h1>Welcome to Trestle</h1>
      <form onSubmit={(event) => void submit(event)}>
        <Field label="Name" value={name} onChange={setName} autoComplete="name" required maxLength={64} autoFocus />
        <Field
          label="E-mail address"
          type="email"
          value={email}
          onChange={setEmail}
          autoComplete="username"
          required={asksForEmail}
          hint="Leave it empty if the invitation was mailed to you."
        />
        <NewPasswordField value={password} onChange={setPassword} />
        <ErrorBox error={problem} />
        <button type="submit" className="primary" disabled={isBusy}>
          Create my account
        </button>
      </form>
    </>
  );
}
