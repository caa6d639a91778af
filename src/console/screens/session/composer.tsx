import { useEffect, useId, useState } from 'react';
import { type SessionName, trestle } from '../../data/bridge.ts';
import { keepPermissionChoice, PERMISSIONS, permissionChoice } from '../../data/permission-choice.ts';
import { ErrorBox } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';
import { onTurnFailure, rememberTurn } from './running-turns.ts';

interface ComposerProps {
  readonly name: SessionName;
  readonly isRunning: boolean;
  readonly queued: readonly { readonly turnId: string; readonly prompt: string }[];
}

/** The next message. While a turn runs, messages wait for it. A draft is kept until it is sent. */
export function Composer({ name, isRunning, queued }: ComposerProps) {
  const { system } = useConsole();
  const { sessionId, owner } = name;
  const draft = `trestle.draft.${sessionId}`;
  const id = useId();
  const [permissions, setPermissions] = useState(() => permissionChoice(sessionId));
  const [text, setText] = useState(() => sessionStorage.getItem(draft) ?? '');
  const [problem, setProblem] = useState<unknown>();
  const [isSending, setSending] = useState(false);
  useEffect(() => onTurnFailure(sessionId, setProblem), [sessionId]);
  function write(next: string): void {
    setText(next);
    sessionStorage.setItem(draft, next);
  }
  async function send(): Promise<void> {
    const message = text.trim();
    if (message === '' || isSending) return;
    setSending(true);
    setProblem(undefined);
    try {
      const session = trestle(system.signIn).session(sessionId, { routing: { permissions } });
      await rememberTurn(sessionId, session.message(message));
      write('');
    } catch (error) {
      setProblem(error);
    }
    setSending(false);
  }
  // A message goes to the own session of this name.
  if (owner !== undefined) return <p className="quiet composer">This session belongs to {visible(owner)}.</p>;
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {queued.length > 0 ? (
        <ul className="queued" aria-label="Messages that wait">
          {queued.map(({ turnId, prompt }) => (
            <li key={turnId}>{visible(prompt)}</li>
          ))}
        </ul>
      ) : null}
      <ErrorBox error={problem} />
      <label htmlFor={id} className="hidden-label">
        Message
      </label>
      <textarea
        id={id}
        rows={2}
        value={text}
        placeholder={isRunning ? 'Queue a message for when this turn ends …' : 'Message …'}
        onChange={(event) => write(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            void send();
          }
        }}
      />
      <select
        aria-label="Before it runs commands or changes files"
        value={permissions}
        onChange={({ target }) => {
          const choice = PERMISSIONS.find(({ value }) => value === target.value)?.value ?? 'ask';
          setPermissions(choice);
          keepPermissionChoice(sessionId, choice);
        }}
      >
        {PERMISSIONS.map(({ value, label }) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      <button type="submit" className="primary" disabled={isSending || text.trim() === ''}>
        {isRunning ? 'Queue' : 'Send'}
      </button>
    </form>
  );
}
