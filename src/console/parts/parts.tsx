import { type ReactNode, useEffect, useId, useLayoutEffect, useRef, useState, useSyncExternalStore } from 'react';
import { Link, useLocation, useSearch, useSearchParams } from 'wouter';
import { onAway, Problem, whyAway } from '../data/request.ts';
import { momentText, type Shown, spanText, titleText, visible, zonedText } from './text.ts';

interface CopyProps {
  /** What is copied, or a function that reads it when it is wanted. */
  readonly text: string | (() => Promise<string>);
  readonly label?: string;
  /** Looks like a link. */
  readonly isPlain?: boolean;
}

export function CopyButton({ text, label = 'Copy', isPlain = false }: CopyProps) {
  const [done, setDone] = useState<'Copied' | 'Not copied'>();
  // Browsers offer it on secure addresses only.
  if (!('clipboard' in navigator)) return null;
  return (
    <button
      type="button"
      className={isPlain ? 'plain' : ''}
      data-answers
      onClick={() =>
        void Promise.resolve(typeof text === 'string' ? text : text())
          .then((copied) => navigator.clipboard.writeText(copied))
          .then(
            () => setDone('Copied'),
            () => setDone('Not copied'),
          )
      }
    >
      {done ?? label}
    </button>
  );
}

/** What happened, what to do, and what to tell the operator of the server. */
export function ErrorBox({ error, children }: { readonly error: unknown; readonly children?: ReactNode }) {
  if (error === undefined || error === null) return null;
  const message = error instanceof Error ? error.message : String(error);
  const code = codeOf(error);
  const requestId = error instanceof Problem ? error.requestId : '';
  const facts = [code, requestId === '' ? '' : `request ${requestId}`].filter(Boolean).join(' · ');
  // The server says how a program logs in.
  if (code === 'session_token_required') {
    return (
      <div className="error" role="alert">
        <p>
          You need to log in to see this. <LogIn />
        </p>
        {children}
      </div>
    );
  }
  return (
    <div className="error" role="alert">
      <p>{message}</p>
      {facts === '' ? null : (
        <p className="quiet">
          {facts}{' '}
          {requestId === '' ? null : (
            <CopyButton key={requestId} text={() => Promise.resolve(reportOf(message, facts))} label="Copy" isPlain />
          )}
        </p>
      )}
      {children}
    </div>
  );
}

/** The stable word of a refusal, of the console's own calls or of the client's; empty where there is none. */
export function codeOf(error: unknown): string {
  const { code } = (error ?? {}) as { readonly code?: unknown };
  return typeof code === 'string' ? code : '';
}

/** An error as the operator of the server needs it: with the page and the time. */
const reportOf = (message: string, facts: string) =>
  `${message}\n${facts}\n${location.href}\n${new Date().toISOString()}`;

/** Where this screen is, with its filters and the owner of what it shows. */
export function useHere(): string {
  const [location] = useLocation();
  const search = useSearch();
  return search === '' ? location : `${location}?${search}`;
}

/** Leads to the login, and from there back to this screen. */
export function LogIn() {
  return <Link href={`/login?next=${encodeURIComponent(useHere())}`}>Log in</Link>;
}

/** Says that the server is away while what was sent is tried again. */
export function NotSentYet({ isWaiting }: { readonly isWaiting: boolean }) {
  const why = useSyncExternalStore(onAway, whyAway);
  if (!isWaiting || why === undefined) return null;
  return (
    <p className="notice" role="status">
      Not sent yet. {why.message} The page tries again until the server accepts it.
    </p>
  );
}

export interface FieldProps {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly type?: 'text' | 'email' | 'password';
  readonly autoComplete?: string;
  readonly hint?: string | undefined;
  readonly required?: boolean;
  readonly autoFocus?: boolean;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly inputMode?: 'numeric';
}

/** A labelled input; a password can be shown. */
export function Field({ label, value, onChange, type = 'text', hint, autoFocus = false, ...rest }: FieldProps) {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [isShown, setShown] = useState(false);
  useEffect(() => {
    if (autoFocus) input.current?.focus();
  }, [autoFocus]);
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <div className="with-button">
        <input
          id={id}
          ref={input}
          type={type === 'password' && isShown ? 'text' : type}
          value={value}
          onChange={(event) => onChange(event.target.value)}
          aria-describedby={hint === undefined ? undefined : `${id}-hint`}
          spellCheck={type === 'text'}
          {...rest}
        />
        {type === 'password' ? (
          <button type="button" className="plain" aria-pressed={isShown} onClick={() => setShown(!isShown)}>
            {isShown ? 'Hide' : 'Show'}
          </button>
        ) : null}
      </div>
      {hint === undefined ? null : (
        <p className="quiet" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  );
}

/** What an agent is to do. */
export function TaskField({ value, onChange }: Pick<FieldProps, 'value' | 'onChange'>) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>What should be done?</label>
      <textarea id={id} rows={4} required value={value} onChange={({ target }) => onChange(target.value)} />
    </div>
  );
}

interface AgentFieldProps extends Pick<FieldProps, 'value' | 'onChange'> {
  readonly agents: readonly { readonly providerId: string; readonly label: string; readonly enabled: boolean }[];
  /** Whether the choice may be left to the server. */
  readonly isOpen: boolean;
}

/** Which agent does the work. */
export function AgentField({ value, onChange, agents, isOpen }: AgentFieldProps) {
  const id = useId();
  return (
    <div className="field">
      <label htmlFor={id}>Agent</label>
      <select id={id} value={value} onChange={({ target }) => onChange(target.value)}>
        {isOpen ? <option value="">Chosen by the server</option> : null}
        {agents.map(({ providerId, label, enabled }) => (
          <option key={providerId} value={providerId}>
            {visible(label)}
            {enabled ? '' : ' (not available)'}
          </option>
        ))}
      </select>
    </div>
  );
}

/** The time since a moment, counted up while it is shown. */
export function Since({ at, until }: { readonly at: number; readonly until?: number | undefined }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (until !== undefined) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [until]);
  const span = spanText((until ?? now) - at);
  return (
    <time dateTime={new Date(at).toISOString()} title={zonedText(at)}>
      {span}
    </time>
  );
}

interface MomentProps {
  readonly at: number | string;
  readonly shown?: Shown;
  /** Shown on hover, too. */
  readonly note?: string;
}

/** A moment in the zone of the browser, which is named on hover. */
export function Moment({ at, shown, note = '' }: MomentProps) {
  return (
    <time dateTime={new Date(at).toISOString()} title={[zonedText(at), note].filter(Boolean).join(' · ')}>
      {momentText(at, shown)}
    </time>
  );
}

/** One part of a page, with its heading. */
export function Part(props: { readonly title: string; readonly text?: ReactNode; readonly children: ReactNode }) {
  const { title, text, children } = props;
  const id = useId();
  return (
    <section aria-labelledby={id} className="part">
      <h2 id={id}>{title}</h2>
      {text === undefined ? null : <p className="quiet">{text}</p>}
      {children}
    </section>
  );
}

/** A native modal dialog: Escape closes it, the focus stays inside, and returns to where it was. */
export function Dialog(props: { title: string; onClose: () => void; children: ReactNode }) {
  const { title, onClose, children } = props;
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  // Before the effects of what is inside: a field cannot take the focus while the dialog is closed.
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={element} aria-labelledby={id} onClose={onClose}>
      <header>
        <h2 id={id}>{title}</h2>
        <button type="button" className="plain" onClick={() => element.current?.close()} aria-label="Close">
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}

interface CloseDialogProps {
  readonly title: string;
  readonly isBusy?: boolean;
  readonly onConfirmed: () => void;
  readonly onClose: () => void;
}

/** Asks before a session is removed with its history. */
export function CloseDialog({ title, isBusy = false, onConfirmed, onClose }: CloseDialogProps) {
  return (
    <Dialog title="Close this session?" onClose={onClose}>
      <p>This removes “{titleText(title)}” with its history. Files in its folder stay. Archiving only hides it.</p>
      <button type="button" className="danger" disabled={isBusy} onClick={onConfirmed}>
        Remove it
      </button>
    </Dialog>
  );
}

/** The filters of a list are in the address of its page, so that a link shows the same list. An empty value removes a filter. */
export function useFilters(): readonly [given: URLSearchParams, change: (name: string, value: string) => void] {
  const [given, setGiven] = useSearchParams();
  function change(name: string, value: string): void {
    const next = new URLSearchParams(given);
    if (value === '') next.delete(name);
    else next.set(name, value);
    setGiven(next, { replace: true });
  }
  return [given, change];
}

interface Pages {
  readonly hasNextPage: boolean;
  readonly isFetchingNextPage: boolean;
  fetchNextPage(): Promise<unknown>;
}

/** The button below a list that has further pages. */
export function More({ of: pages, children }: { readonly of: Pages; readonly children: ReactNode }) {
  if (!pages.hasNextPage) return null;
  return (
    <p className="more">
      <button type="button" disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
        {children}
      </button>
    </p>
  );
}

interface RenameProps {
  readonly title: string;
  readonly onRename: (title: string) => void;
  readonly onCancel: () => void;
}

/** The title of a session as a field. Escape leaves it as it was. */
export function RenameForm({ title, onRename, onCancel }: RenameProps) {
  const [next, setNext] = useState(title);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    input.current?.focus();
    input.current?.select();
  }, []);
  return (
    <form
      className="with-button"
      onSubmit={(event) => {
        event.preventDefault();
        if (next.trim() === '' || next.trim() === title) onCancel();
        else onRename(next.trim());
      }}
    >
      <input
        ref={input}
        aria-label="Title"
        value={next}
        maxLength={200}
        onChange={({ target }) => setNext(target.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Escape') return;
          // Otherwise it would count as the first of two that stop what runs.
          event.stopPropagation();
          onCancel();
        }}
      />
      <button type="submit">Rename</button>
    </form>
  );
}
