import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import {
  confirmMfa,
  disableMfa,
  type Enrolment,
  provisionMfa,
  readMfa,
  renewRecoveryCodes,
} from '../../data/own-account.ts';
import { Problem } from '../../data/request.ts';
import { Dialog, ErrorBox, Field, Part } from '../../parts/parts.tsx';
import { proofOf, ShownOnce, useWork, WorkNotes } from '../../parts/work.tsx';

/** Switches the second factor on and off, and gives recovery codes. */
export function SecondFactor() {
  const queries = useQueryClient();
  const status = useQuery({ queryKey: ['mfa'], queryFn: readMfa });
  const work = useWork();
  const [enrolment, setEnrolment] = useState<Enrolment>();
  const [codes, setCodes] = useState<readonly string[]>();
  const [asked, setAsked] = useState<'disable' | 'renew'>();
  const refresh = () =>
    Promise.all(['mfa', 'logins', 'person'].map((name) => queries.invalidateQueries({ queryKey: [name] })));
  const text = 'With it, a login needs a code from an app on your phone in addition to the password.';
  if (codes !== undefined) {
    return (
      <Part title="Second factor">
        <RecoveryCodes codes={codes} onStored={() => setCodes(undefined)} />
      </Part>
    );
  }
  if (enrolment !== undefined) {
    return (
      <Part title="Second factor">
        <Enrol
          enrolment={enrolment}
          onCancel={() => setEnrolment(undefined)}
          onDone={(given) => {
            setEnrolment(undefined);
            setCodes(given);
            void refresh();
          }}
        />
      </Part>
    );
  }
  return (
    <Part title="Second factor" text={text}>
      <ErrorBox error={status.error} />
      {status.data === undefined ? null : status.data.enabled ? (
        <>
          <p>
            <span className="chip running">On</span> {status.data.recoveryCodesLeft} recovery codes are left.
          </p>
          <div className="answers">
            <button type="button" onClick={() => setAsked('renew')}>
              New recovery codes …
            </button>
            <button type="button" className="danger" onClick={() => setAsked('disable')}>
              Switch off …
            </button>
          </div>
        </>
      ) : (
        <>
          <p>
            <span className="chip">Off</span>
          </p>
          <div className="answers">
            <button
              type="button"
              disabled={work.isBusy}
              onClick={() => work.run(async () => setEnrolment(await provisionMfa()))}
            >
              Switch on …
            </button>
          </div>
        </>
      )}
      <WorkNotes work={work} />
      {asked === undefined ? null : (
        <ProofDialog
          what={asked}
          onClose={() => setAsked(undefined)}
          onDone={(given) => {
            setAsked(undefined);
            setCodes(given);
            void refresh();
          }}
        />
      )}
    </Part>
  );
}

interface EnrolProps {
  readonly enrolment: Enrolment;
  readonly onCancel: () => void;
  readonly onDone: (codes: readonly string[]) => void;
}

function Enrol({ enrolment, onCancel, onDone }: EnrolProps) {
  const work = useWork();
  const [code, setCode] = useState('');
  function submit(event: FormEvent): void {
    event.preventDefault();
    work.run(async () => {
      const { recoveryCodes } = await confirmMfa(enrolment.mfaToken, code.replaceAll(' ', ''));
      onDone(recoveryCodes);
    });
  }
  return (
    <form className="stack" onSubmit={submit}>
      <p>Scan this with your authenticator app, or type the key into it. Then enter the code that the app shows.</p>
      <img className="qr" src={enrolment.qr} alt="QR code for your authenticator app" width={200} height={200} />
      <p>
        Key: <code>{enrolment.secret.match(/.{1,4}/g)?.join(' ')}</code>
      </p>
      <Field
        label="Code of the app"
        value={code}
        onChange={setCode}
        autoComplete="one-time-code"
        inputMode="numeric"
        required
        autoFocus
      />
      <ErrorBox error={work.problem} />
      <div className="answers">
        <button type="submit" className="primary" disabled={work.isBusy}>
          Switch on
        </button>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      </div>
    </form>
  );
}

function RecoveryCodes({ codes, onStored }: { readonly codes: readonly string[]; readonly onStored: () => void }) {
  const [isStored, setStored] = useState(false);
  return (
    <div className="stack">
      <ShownOnce
        label="If you lose your phone, each of these codes replaces the app once. They are not shown again."
        text={codes.join('\n')}
        file="trestle-recovery-codes.txt"
      />
      <label className="check">
        <input type="checkbox" checked={isStored} onChange={(event) => setStored(event.target.checked)} /> I have stored
        them
      </label>
      <button type="button" className="primary" disabled={!isStored} onClick={onStored}>
        Done
      </button>
    </div>
  );
}

interface ProofProps {
  readonly what: 'disable' | 'renew';
  readonly onClose: () => void;
  readonly onDone: (codes: readonly string[] | undefined) => void;
}

/** Both factors together: a session alone must not be able to do it. */
function ProofDialog({ what, onClose, onDone }: ProofProps) {
  const work = useWork();
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  function submit(event: FormEvent): void {
    event.preventDefault();
    const proof = { password, ...proofOf(code) };
    work.run(async () => {
      try {
        if (what === 'renew') onDone((await renewRecoveryCodes(proof)).recoveryCodes);
        else {
          await disableMfa(proof);
          onDone(undefined);
        }
      } catch (error) {
        const isWrong = error instanceof Problem && error.code === 'reauthentication_required';
        throw isWrong ? new Error('The password or the code is wrong, or the code was used before.') : error;
      }
    });
  }
  return (
    <Dialog title={what === 'renew' ? 'New recovery codes' : 'Switch the second factor off?'} onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        <p>
          {what === 'renew'
            ? 'Your current codes stop working.'
            : 'After that, the password alone is enough to log in.'}
        </p>
        <Field
          label="Your password"
          type="password"
          value={password}
          onChange={setPassword}
          autoComplete="current-password"
          autoFocus
          hint="Leave it empty if you have none and have just logged in."
        />
        <Field
          label="Code of the app, or a recovery code"
          value={code}
          onChange={setCode}
          autoComplete="one-time-code"
          required
        />
        <ErrorBox error={work.problem} />
        <button type="submit" className={what === 'renew' ? 'primary' : 'danger'} disabled={work.isBusy}>
          {what === 'renew' ? 'Make new codes' : 'Switch it off'}
        </button>
      </form>
    </Dialog>
  );
}
