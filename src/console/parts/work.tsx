import { type FormEvent, type MouseEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { type LoginAnswer, logIn, logInWithPasskey, proveSecondFactor } from '../data/accounts.ts';
import { replaceLogin } from '../data/own-account.ts';
import { BASE, curlOf, Problem } from '../data/request.ts';
import { useConsole } from '../shell/console-context.ts';
import { CopyButton, Dialog, ErrorBox, Field } from './parts.tsx';

/** An action that a person starts: one at a time, with its failure, and asked again after a fresh login where it needs one. */
export interface Work {
  readonly isBusy: boolean;
  readonly problem: unknown;
  /** The action that waits for a fresh login. */
  readonly waiting: (() => Promise<void>) | undefined;
  run(action: () => Promise<void>): void;
  /** Shows a problem that the page itself has found. */
  refuse(problem: unknown): void;
  forget(): void;
}

export function useWork(): Work {
  const [state, setState] = useState<Pick<Work, 'isBusy' | 'problem' | 'waiting'>>(IDLE);
  async function attempt(action: () => Promise<void>): Promise<void> {
    setState({ ...IDLE, isBusy: true });
    try {
      await action();
      setState(IDLE);
    } catch (error) {
      const isLoginOld = error instanceof Problem && error.code === 'reauthentication_required';
      setState(isLoginOld ? { ...IDLE, waiting: action } : { ...IDLE, problem: error });
    }
  }
  return {
    ...state,
    run: (action) => void attempt(action),
    refuse: (problem) => setState({ ...IDLE, problem }),
    forget: () => setState(IDLE),
  };
}

const IDLE = { isBusy: false, problem: undefined, waiting: undefined };

/** What went wrong with an action, or the question for the password that it needs. */
export function WorkNotes({ work }: { readonly work: Work }) {
  const { problem, waiting } = work;
  return (
    <>
      <ErrorBox error={problem} />
      {waiting === undefined ? null : <ConfirmLogin onConfirmed={() => work.run(waiting)} onClose={work.forget} />}
    </>
  );
}

interface ConfirmProps {
  readonly onConfirmed: () => void;
  readonly onClose: () => void;
}

/** Logs the same person in again, because the login is more than five minutes old. */
function ConfirmLogin({ onConfirmed, onClose }: ConfirmProps) {
  const { person } = useConsole();
  const [password, setPassword] = useState('');
  const [code, setCode] = useState('');
  const [ticket, setTicket] = useState<string>();
  const [problem, setProblem] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  async function attempt(work: () => Promise<LoginAnswer>): Promise<void> {
    setBusy(true);
    setProblem(undefined);
    try {
      const answer = await replaceLogin(work);
      if (answer.mfaRequired) setTicket(answer.mfaTicket);
      else if (answer.user.id === person?.id) onConfirmed();
      // A passkey of another account was chosen: everything on this page belongs to someone else now.
      else location.assign(`${BASE}/console`);
    } catch (error) {
      setProblem(error);
    }
    setBusy(false);
  }
  function submit(event: FormEvent): void {
    event.preventDefault();
    void attempt(() =>
      ticket === undefined ? logIn(person?.email ?? '', password) : proveSecondFactor(ticket, proofOf(code)),
    );
  }
  return (
    <Dialog title="Confirm that it is you" onClose={onClose}>
      <form className="stack" onSubmit={submit}>
        {ticket === undefined ? (
          <Field
            key="password"
            label="Password"
            type="password"
            value={password}
            onChange={setPassword}
            autoComplete="current-password"
            required
            autoFocus
            hint="Your last login is more than five minutes ago, and this changes who can use your account."
          />
        ) : (
          <Field
            key="code"
            label="Code of your authenticator app, or a recovery code"
            value={code}
            onChange={setCode}
            autoComplete="one-time-code"
            required
            autoFocus
          />
        )}
        <ErrorBox error={problem} />
        <div className="answers">
          <button type="submit" className="primary" disabled={isBusy}>
            Continue
          </button>
          <button type="button" disabled={isBusy} onClick={() => void attempt(() => logInWithPasskey(ticket))}>
            Use a passkey
          </button>
        </div>
        <p className="quiet">
          If you have neither a password nor a passkey, log out and log in again in the usual way.
        </p>
      </form>
    </Dialog>
  );
}

/** Codes of apps are six digits; everything else is a recovery code. */
export function proofOf(code: string): { readonly code: string } | { readonly recoveryCode: string } {
  const digits = code.replaceAll(' ', '');
  return /^\d{6}$/.test(digits) ? { code: digits } : { recoveryCode: code.trim() };
}

/** A text that is shown once: to copy, and to download where a name for the file is given. */
export function ShownOnce(props: { label: string; text: string; file?: string }) {
  const { label, text, file } = props;
  return (
    <div className="shown-once">
      <p>{label}</p>
      <pre>{text}</pre>
      <div className="answers">
        <CopyButton text={text} />
        {file === undefined ? null : (
          <a
            className="button"
            download={file}
            href={`data:text/plain;charset=utf-8,${encodeURIComponent(`${text}\n`)}`}
          >
            Download
          </a>
        )}
      </div>
    </div>
  );
}

/** Copies the call that reads a thing. Where nobody logs in, only what belongs to people needs a token. */
export function CopyCurl({ path, body }: { readonly path: string; readonly body?: unknown }) {
  const { system, person } = useConsole();
  const isOpen = system.signIn === 'open' && (person === undefined || /^\/(?:api\/bridge|acp)\//.test(path));
  return <CopyButton key={path} label="Copy as curl" text={curlOf(path, isOpen, body)} />;
}

/** Asks before something that cannot be undone. */
export function Confirm(props: {
  readonly title: string;
  readonly text: string;
  readonly action: string;
  readonly onYes: () => void;
  readonly onClose: () => void;
}) {
  const { title, text, action, onYes, onClose } = props;
  return (
    <Dialog title={title} onClose={onClose}>
      <p>{text}</p>
      <div className="answers">
        <button
          type="button"
          className="danger"
          onClick={() => {
            onYes();
            onClose();
          }}
        >
          {action}
        </button>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </div>
    </Dialog>
  );
}

interface MenuProps {
  readonly label: string;
  readonly children: ReactNode;
}

/** A menu behind a button. What is chosen in it closes it, and so do Escape, a click elsewhere, and a focus elsewhere. */
export function Menu({ label, children }: MenuProps) {
  const element = useRef<HTMLDetailsElement>(null);
  const button = useRef<HTMLElement>(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (!isOpen) return;
    function leave({ target }: Event): void {
      if (target instanceof Node && element.current?.contains(target) !== true) setOpen(false);
    }
    function press(event: KeyboardEvent): void {
      if (event.key !== 'Escape') return;
      // Otherwise it would count as the first of two that stop what runs.
      event.stopPropagation();
      setOpen(false);
      button.current?.focus();
    }
    addEventListener('pointerdown', leave);
    addEventListener('focusin', leave);
    addEventListener('keydown', press, { capture: true });
    return () => {
      removeEventListener('pointerdown', leave);
      removeEventListener('focusin', leave);
      removeEventListener('keydown', press, { capture: true });
    };
  }, [isOpen]);
  /** The browser says some time after a click that the menu is open. A key pressed until then would not close it. */
  function toggle(event: MouseEvent): void {
    event.preventDefault();
    setOpen(!isOpen);
  }
  function choose({ target }: MouseEvent): void {
    const chosen = target instanceof Element ? target.closest('button, a') : null;
    // A button that answers in its own place, such as by "Copied", stays in sight.
    if (chosen === null || chosen.hasAttribute('data-answers')) return;
    setOpen(false);
    // A dialog that was chosen returns the focus to where it is now.
    button.current?.focus();
  }
  return (
    <details ref={element} className="menu" open={isOpen}>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: a summary is a button */}
      <summary ref={button} aria-label={label} onClick={toggle}>
        ⋯
      </summary>
      <div onClickCapture={choose}>{children}</div>
    </details>
  );
}
