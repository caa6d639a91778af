import { type FormEvent, useState } from 'react';
import { type DeviceRequest, decideDevice, logOut, readDeviceRequest } from '../../data/accounts.ts';
import { Problem } from '../../data/request.ts';
import { ErrorBox, Field } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { LoginSteps } from './login.tsx';

const ABILITIES: Readonly<Record<DeviceRequest['scopes'][number], string>> = {
  bridge: 'run agents for you, and see your sessions and jobs',
  completions: 'use models at your cost, within your plan',
  account: 'see your account and its tokens, and revoke tokens and keys',
};
const LOGIN_ERRORS: readonly string[] = ['session_token_required', 'invalid_session', 'reauthentication_required'];

type Step = 'code' | 'login' | 'decision' | 'approved' | 'denied';

/** Lets a person approve the code of a device: code, login where it is needed, then what the device asks for. */
export default function Device() {
  const [step, setStep] = useState<Step>('code');
  const [code, setCode] = useState('');
  const [asked, setAsked] = useState<DeviceRequest>();
  /** Whether this page has opened the login session: then it ends the session, too. */
  const [isOwnLogin, setOwnLogin] = useState(false);
  const [problem, setProblem] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);

  async function attempt(work: () => Promise<Step>): Promise<void> {
    setBusy(true);
    setProblem(undefined);
    try {
      setStep(await work());
    } catch (error) {
      const refused = error instanceof Problem ? error.code : '';
      if (LOGIN_ERRORS.includes(refused)) setStep('login');
      else {
        if (refused === 'device_code_not_found') setStep('code');
        setProblem(error);
      }
    }
    setBusy(false);
  }

  const look = () =>
    attempt(async () => {
      const letters = code.toUpperCase().replaceAll(/[^A-Z]/g, '');
      if (letters === '') throw new Error('Type the code that the program shows: eight letters.');
      setAsked(await readDeviceRequest(letters));
      return 'decision';
    });
  const decide = (approve: boolean) =>
    attempt(async () => {
      await decideDevice(code.toUpperCase().replaceAll(/[^A-Z]/g, ''), approve);
      if (isOwnLogin) await logOut();
      return approve ? 'approved' : 'denied';
    });
  function onCode(event: FormEvent): void {
    event.preventDefault();
    void look();
  }

  if (step === 'login') {
    return (
      <LoginSteps
        title="Log in"
        above={<p>Log in: approving needs a login from the last five minutes.</p>}
        onLoggedIn={() => {
          setOwnLogin(true);
          void look();
        }}
      />
    );
  }
  return (
    <>
      <h1>Log in a device</h1>
      {step === 'code' ? (
        <form onSubmit={onCode}>
          <p>
            A program on another machine or in a terminal asks to act for you. Type the code that it shows. If nobody
            next to you started this, close the page: somebody else would get in.
          </p>
          <Field
            label="Code"
            value={code}
            onChange={setCode}
            autoComplete="off"
            required
            autoFocus
            maxLength={20}
            hint="Eight letters, as in XXXX-XXXX."
          />
          <ErrorBox error={problem} />
          <button type="submit" className="primary" disabled={isBusy}>
            Continue
          </button>
        </form>
      ) : null}
      {step === 'decision' && asked !== undefined ? (
        <>
          <p>This program asks for access to your account:</p>
          <dl className="facts">
            <dt>Program</dt>
            <dd>{visible(asked.client)}</dd>
            <dt>Address</dt>
            <dd>{asked.address}</dd>
            <dt>Token</dt>
            <dd>{visible(asked.name)}</dd>
          </dl>
          <p>If you approve, it can:</p>
          <ul>
            {asked.scopes.map((scope) => (
              <li key={scope}>{ABILITIES[scope]}</li>
            ))}
          </ul>
          <ErrorBox error={problem} />
          <div className="others">
            <button type="button" className="primary" disabled={isBusy} onClick={() => void decide(true)}>
              Approve
            </button>
            <button type="button" disabled={isBusy} onClick={() => void decide(false)}>
              Deny
            </button>
          </div>
        </>
      ) : null}
      {step === 'approved' ? <p role="status">Approved. The program continues; you can close this page.</p> : null}
      {step === 'denied' ? <p role="status">Denied. The program has no access; you can close this page.</p> : null}
    </>
  );
}
