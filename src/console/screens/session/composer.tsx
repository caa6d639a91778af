import { useQuery, useQueryClient } from '@tanstack/react-query';
import { memo, useEffect, useId, useRef, useState } from 'react';
import { Link } from 'wouter';
import type { SessionView } from '../../../bridge/contract/workbench.ts';
import {
  changeSession,
  keyOf,
  listAgents,
  type SessionName,
  steerSession,
  type Turn,
  withdrawTurn,
} from '../../data/bridge.ts';
import {
  BY_MODE,
  keepPermissionChoice,
  PERMISSIONS,
  type PermissionChoice,
  permissionChoice,
} from '../../data/permission-choice.ts';
import { teamOfOwner } from '../../data/teams.ts';
import { codeOf, ErrorBox, NotSentYet } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { useShortcuts } from '../../shell/shortcuts.ts';
import { useTeamOf } from '../teams/own-teams.ts';
import { AttachButton, AttachedFiles, takesFiles } from './attachments.tsx';
import { addFiles, changeDraft, useDraft, useSend } from './next-message.ts';
import { onTurnFailure, useIsUntaken } from './running-turns.ts';

interface ComposerProps {
  readonly name: SessionName;
  readonly isRunning: boolean;
  /** Undefined until the session is known. */
  readonly view: SessionView | undefined;
  /** Newest first: their messages can be called back. */
  readonly turns: readonly Turn[];
}

/** What is known of the agent of a session. */
export function useAgent(providerId: string | undefined) {
  const agents = useQuery({ queryKey: ['agents'], queryFn: listAgents });
  return agents.data?.find((agent) => agent.providerId === providerId);
}

/**
 * The next message, with the mode, the model and the thinking of the next turns. While a turn runs, messages wait for it, or go to the
 * agent immediately where it takes them. A draft is kept until it is sent.
 */
export const Composer = memo(function Composer({ name, isRunning, view, turns }: ComposerProps) {
  const { owner } = name;
  const team = useTeamOf(owner);
  const key = keyOf(name);
  const id = useId();
  const field = useRef<HTMLTextAreaElement>(null);
  const agent = useAgent(view?.session.providerId);
  /** Whether a mode decides what the agent may do. Modes that an agent offers by itself do not. */
  const hasFixedModes = agent !== undefined && agent.modes.length > 0;
  const [permissions, setPermissions] = useState(() => permissionChoice(key));
  const { text, files } = useDraft(key);
  /** How many messages back the one in the field is; 0: none was called back. */
  const [recalled, setRecalled] = useState(0);
  const [problem, setProblem] = useState<unknown>();
  const [isSending, setSending] = useState(false);
  const [isUploading, setUploading] = useState(false);
  const isUntaken = useIsUntaken(key);
  const sendMessage = useSend(name);
  useEffect(() => onTurnFailure(key, setProblem), [key]);
  useShortcuts({ write: () => field.current?.focus() });
  function write(next: string): void {
    setRecalled(0);
    changeDraft(key, { text: next });
  }
  /** Calls back an earlier message. A text of one's own is not replaced. */
  function recall(steps: number): boolean {
    if (text !== '' && recalled === 0) return false;
    const place = recalled + steps;
    const prompt = place === 0 ? '' : turns[place - 1]?.prompt;
    if (prompt === undefined || place < 0) return false;
    changeDraft(key, { text: prompt });
    setRecalled(place);
    return true;
  }
  function choosePermissions(choice: PermissionChoice): void {
    setPermissions(choice);
    keepPermissionChoice(key, choice);
  }
  async function attach(given: Iterable<File>): Promise<void> {
    setProblem(undefined);
    setUploading(true);
    await addFiles(name, team, [...given]).catch(setProblem);
    setUploading(false);
  }
  async function send(isSteering = false): Promise<void> {
    const message = text.trim();
    if (message === '' || isSending || isUploading) return;
    setSending(true);
    setProblem(undefined);
    try {
      if (isSteering) await steerSession(name, message);
      else await sendMessage(message, files);
      setRecalled(0);
      changeDraft(key, isSteering ? { text: '' } : { text: '', files: [] });
    } catch (error) {
      setProblem(error);
    }
    setSending(false);
  }
  const { queued = [] } = view ?? {};
  const choices = hasFixedModes ? [...PERMISSIONS, BY_MODE] : PERMISSIONS;
  // A message goes to the session of this name that is the caller's, or that of a team that the caller is in.
  if (owner !== undefined && team === undefined)
    return <p className="quiet composer">This session belongs to {visible(owner)}.</p>;
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
      {...takesFiles((given) => void attach(given))}
    >
      <QueuedMessages name={name} queued={queued} onProblem={setProblem} />
      <ErrorBox error={problem}>
        {codeOf(problem) === LOST ? (
          <p>
            The agent has lost the conversation, which you can still read here.{' '}
            <Link href={`/console/new?${startQuery(view, text)}`}>Start a new session with this message</Link>
          </p>
        ) : null}
      </ErrorBox>
      <NotSentYet isWaiting={isUntaken} />
      <AttachedFiles
        files={files}
        isUploading={isUploading}
        onRemove={(removed) => changeDraft(key, { files: files.filter((file) => file !== removed) })}
      />
      <label htmlFor={id} className="hidden-label">
        Message
      </label>
      <textarea
        id={id}
        ref={field}
        rows={2}
        value={text}
        placeholder={isRunning ? 'Queue a message for when this turn ends …' : 'Message …'}
        onChange={(event) => write(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            void send();
          } else if (event.key === 'ArrowUp' && recall(1)) event.preventDefault();
          else if (event.key === 'ArrowDown' && recalled > 0 && recall(-1)) event.preventDefault();
        }}
      />
      <div className="sends">
        <AttachButton isBusy={isUploading} onFiles={(given) => void attach(given)} />
        {isRunning && agent?.steer === 'yes' ? (
          <button
            type="button"
            disabled={isSending || text.trim() === ''}
            title="Sends the message to the running turn"
            onClick={() => void send(true)}
          >
            Steer
          </button>
        ) : null}
        <button type="submit" className="primary" disabled={isSending || isUploading || text.trim() === ''}>
          {isRunning ? 'Queue' : 'Send'}
        </button>
      </div>
      <div className="turn-choices">
        <select
          aria-label="Before it runs commands or changes files"
          value={permissions}
          onChange={({ target }) =>
            choosePermissions(choices.find(({ value }) => value === target.value)?.value ?? 'ask')
          }
        >
          {choices.map(({ value, label }) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
        {view === undefined ? null : (
          <SessionChoices
            name={name}
            view={view}
            onMode={(mode) => hasFixedModes && choosePermissions(mode === '' ? 'ask' : BY_MODE.value)}
            onProblem={setProblem}
          />
        )}
      </div>
    </form>
  );
});

/** The code of a session that its agent cannot continue. */
const LOST = 'SESSION_CONTINUATION_UNAVAILABLE';

/** What a session that takes the place of a lost one begins with. */
function startQuery(view: SessionView | undefined, prompt: string): URLSearchParams {
  const { providerId = '', folder = '', owner = '' } = view?.session ?? {};
  const team = teamOfOwner(owner);
  return new URLSearchParams({
    prompt,
    ...(providerId !== '' && { agent: providerId }),
    ...(folder !== '' && { folder }),
    ...(team !== undefined && { team }),
  });
}

interface QueuedMessagesProps {
  readonly name: SessionName;
  readonly queued: SessionView['queued'];
  readonly onProblem: (problem: unknown) => void;
}

/** The messages that wait for the running turn. Each of them can be removed until its turn begins. */
function QueuedMessages({ name, queued, onProblem }: QueuedMessagesProps) {
  const queries = useQueryClient();
  const [removing, setRemoving] = useState('');
  if (queued.length === 0) return null;
  async function remove(turnId: string): Promise<void> {
    onProblem(undefined);
    setRemoving(turnId);
    await withdrawTurn(name, turnId).catch(onProblem);
    await queries.invalidateQueries({ queryKey: ['session', name] });
    setRemoving('');
  }
  return (
    <ul className="queued" aria-label="Waiting messages">
      {queued.map(({ turnId, prompt }) => (
        <li key={turnId}>
          <span title={visible(prompt)}>{visible(prompt)}</span>
          <button
            type="button"
            aria-label={`Remove the message ${visible(prompt).slice(0, 80)}`}
            disabled={removing === turnId}
            onClick={() => void remove(turnId)}
          >
            Remove
          </button>
        </li>
      ))}
    </ul>
  );
}

interface SessionChoicesProps {
  readonly name: SessionName;
  readonly view: SessionView;
  readonly onMode: (mode: string) => void;
  readonly onProblem: (problem: unknown) => void;
}

/** Mode, model and thinking of the next turns. An agent that does not list its models takes any name. */
function SessionChoices({ name, view, onMode, onProblem }: SessionChoicesProps) {
  const queries = useQueryClient();
  const { session, modes, models, thinking, thinkingLevels } = view;
  const [model, setModel] = useState<string>();
  async function choose(changes: { mode?: string; model?: string; thinking?: string }): Promise<void> {
    onProblem(undefined);
    try {
      await changeSession(name, changes);
      if (changes.mode !== undefined) onMode(changes.mode);
    } catch (error) {
      onProblem(error);
    }
    await queries.invalidateQueries({ queryKey: ['session', name] });
  }
  return (
    <>
      {modes.length === 0 ? null : (
        <Choice label="Mode" value={session.mode} options={modes} onChange={(mode) => void choose({ mode })} />
      )}
      {models.length > 0 ? (
        <Choice
          label="Model"
          value={session.model}
          options={models}
          onChange={(chosen) => void choose({ model: chosen })}
        />
      ) : (
        <input
          aria-label="Model"
          placeholder="Model"
          maxLength={200}
          value={model ?? session.model}
          onChange={({ target }) => setModel(target.value)}
          onKeyDown={(event) => {
            if (event.key !== 'Enter') return;
            event.preventDefault();
            event.currentTarget.blur();
          }}
          onBlur={() => {
            const chosen = model?.trim();
            setModel(undefined);
            if (chosen !== undefined && chosen !== session.model) void choose({ model: chosen });
          }}
        />
      )}
      {thinkingLevels.length === 0 ? null : (
        <Choice
          label="Thinking"
          value={thinking}
          options={thinkingLevels}
          onChange={(level) => void choose({ thinking: level })}
        />
      )}
    </>
  );
}

interface ChoiceProps {
  readonly label: string;
  readonly value: string;
  readonly options: readonly { readonly id: string; readonly name: string }[];
  readonly onChange: (id: string) => void;
}

function Choice({ label, value, options, onChange }: ChoiceProps) {
  const isKnown = value === '' || options.some(({ id }) => id === value);
  const all = isKnown ? options : [{ id: value, name: value }, ...options];
  return (
    <select aria-label={label} value={value} onChange={({ target }) => onChange(target.value)}>
      <option value="">{label}: as the agent does</option>
      {all.map(({ id, name }) => (
        <option key={id} value={id}>
          {visible(name)}
        </option>
      ))}
    </select>
  );
}
