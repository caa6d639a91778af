import { useEffect, useRef, useState } from 'react';
import type { Permission, PermissionAnswer } from '../../../bridge/contract/workbench.ts';
import { answerPermission } from '../../data/bridge.ts';
import { Problem } from '../../data/request.ts';
import { DiffView } from '../../parts/diff.tsx';
import type { FileChange } from '../../parts/diff-lines.ts';
import { ErrorBox } from '../../parts/parts.tsx';
import { shortPath, spanText, visible } from '../../parts/text.ts';
import { useShortcuts } from '../../shell/shortcuts.ts';

interface PermissionCardProps {
  readonly permission: Permission;
  readonly agent: string;
  /** What the agent has said about the change that it wants to make. */
  readonly changes?: readonly FileChange[];
  readonly onAnswered: () => void;
}

/** Keys count only when the card has been seen: a key that was meant for something else must not allow a command. */
const SEEN_MS = 500;

/** Sends the answer to a request of an agent. */
export function useAnswer(permissionId: string, onAnswered: () => void) {
  const [problem, setProblem] = useState<unknown>();
  const [isSending, setSending] = useState(false);
  /** From the first answer until it is refused: a second key may come before the page is drawn again. */
  const isGiven = useRef(false);
  async function answer(given: PermissionAnswer): Promise<void> {
    if (isGiven.current) return;
    isGiven.current = true;
    setSending(true);
    try {
      await answerPermission(permissionId, given);
      onAnswered();
    } catch (error) {
      // Someone else was first, or the turn has ended: the session shows what counts.
      if (error instanceof Problem && (error.status === 409 || error.status === 410)) onAnswered();
      setProblem(error);
      setSending(false);
      isGiven.current = false;
    }
  }
  return { answer, problem, isSending };
}

/** The time, every second. */
export function useNow(): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** A question of an agent: what it wants to do, exactly, and the answers. */
export function PermissionCard({ permission, agent, changes = [], onAnswered }: PermissionCardProps) {
  const { permissionId, title, folder, toolKind, input, expiresAt } = permission;
  const { answer: send, problem, isSending } = useAnswer(permissionId, onAnswered);
  const [isSeen, setSeen] = useState(false);
  const [reason, setReason] = useState<string>();
  const now = useNow();
  const reasonField = useRef<HTMLInputElement>(null);
  const reasonButton = useRef<HTMLButtonElement>(null);
  const hasReason = reason !== undefined;
  // What is typed is the reason, and no key of the page.
  useEffect(() => {
    if (hasReason) reasonField.current?.focus();
  }, [hasReason]);
  useEffect(() => {
    const seen = setTimeout(() => setSeen(true), SEEN_MS);
    return () => clearTimeout(seen);
  }, []);
  const answer = (decision: 'allow' | 'deny', scope: 'once' | 'session' | 'always', why = '') =>
    send({ decision, scope, ...(why !== '' && { reason: why }) });
  useShortcuts(
    isSeen && !hasReason
      ? {
          allow: () => void answer('allow', 'once'),
          allowSession: () => void answer('allow', 'session'),
          deny: () => void answer('deny', 'once'),
        }
      : {},
  );
  const command = commandOf(input) ?? title;
  return (
    <section className="permission" aria-label="The agent asks">
      <div>
        <h2>
          {agent} asks: {toolKind === 'execute' ? 'run a command' : toolKind === 'edit' ? 'change a file' : toolKind}
        </h2>
        <pre>{visible(command)}</pre>
        {changes.map((change) => (
          <DiffView key={change.path} change={change} folder={folder} open />
        ))}
        <p className="quiet">
          in {visible(shortPath(folder))} · {spanText(expiresAt - now)} left
        </p>
      </div>
      <div className="answers">
        <button type="button" className="primary" disabled={isSending} onClick={() => void answer('allow', 'once')}>
          Allow once <kbd>Y</kbd>
        </button>
        <button
          type="button"
          disabled={isSending}
          title="Allows exactly this until the session ends"
          onClick={() => void answer('allow', 'session')}
        >
          This session <kbd>A</kbd>
        </button>
        <button
          type="button"
          disabled={isSending}
          title={`Allows exactly this in ${visible(folder)} for 30 days, also in other sessions`}
          onClick={() => void answer('allow', 'always')}
        >
          This folder
        </button>
        <button type="button" className="danger" disabled={isSending} onClick={() => void answer('deny', 'once')}>
          Deny <kbd>D</kbd>
        </button>
        <button
          ref={reasonButton}
          type="button"
          className="plain"
          aria-expanded={hasReason}
          onClick={() => setReason(hasReason ? undefined : '')}
        >
          Deny and say why
        </button>
      </div>
      {!hasReason ? null : (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void answer('deny', 'once', reason);
          }}
        >
          <input
            ref={reasonField}
            aria-label="Why not"
            value={reason}
            maxLength={2000}
            placeholder="Why not?"
            onChange={(event) => setReason(event.target.value)}
            onKeyDown={(event) => {
              if (event.key !== 'Escape') return;
              // Otherwise it would count as the first of two that stop what runs.
              event.stopPropagation();
              setReason(undefined);
              reasonButton.current?.focus();
            }}
          />
          <button type="submit" className="danger" disabled={isSending}>
            Deny
          </button>
        </form>
      )}
      <ErrorBox error={problem} />
    </section>
  );
}

/** The command of a tool that runs one. */
function commandOf(input: unknown): string | undefined {
  if (typeof input === 'string') return input;
  if (typeof input !== 'object' || input === null) return undefined;
  const { command } = input as { command?: unknown };
  if (typeof command === 'string') return command;
  return Array.isArray(command) ? command.join(' ') : undefined;
}
