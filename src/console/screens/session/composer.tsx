import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useId, useState } from 'react';
import type { SessionView } from '../../../bridge/contract/workbench.ts';
import { changeSession, keyOf, listAgents, type SessionName, steerSession, trestle } from '../../data/bridge.ts';
import {
  BY_MODE,
  keepPermissionChoice,
  PERMISSIONS,
  type PermissionChoice,
  permissionChoice,
  routingOf,
} from '../../data/permission-choice.ts';
import { ErrorBox } from '../../parts/parts.tsx';
import { visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';
import { useTeamOf } from '../teams/own-teams.ts';
import { onTurnFailure, rememberTurn } from './running-turns.ts';

interface ComposerProps {
  readonly name: SessionName;
  readonly isRunning: boolean;
  /** Undefined until the session is known. */
  readonly view: SessionView | undefined;
}

/** What is known of the agent of a session. */
export function useAgent(providerId: string | undefined) {
  const agents = useQuery({ queryKey: ['agents'], queryFn: listAgents });
  return agents.data?.find((agent) => agent.providerId === providerId);
}

/**
 * The next message, with the mode and the model of the next turns. While a turn runs, messages wait for it, or go to the
 * agent immediately where it takes them. A draft is kept until it is sent.
 */
export function Composer({ name, isRunning, view }: ComposerProps) {
  const { system } = useConsole();
  const { sessionId, owner } = name;
  const team = useTeamOf(owner);
  const key = keyOf(name);
  const draft = `trestle.draft.${key}`;
  const id = useId();
  const agent = useAgent(view?.session.providerId);
  /** Whether a mode decides what the agent may do. Modes that an agent offers by itself do not. */
  const hasFixedModes = agent !== undefined && agent.modes.length > 0;
  const [permissions, setPermissions] = useState(() => permissionChoice(key));
  const [text, setText] = useState(() => sessionStorage.getItem(draft) ?? '');
  const [problem, setProblem] = useState<unknown>();
  const [isSending, setSending] = useState(false);
  useEffect(() => onTurnFailure(key, setProblem), [key]);
  function write(next: string): void {
    setText(next);
    sessionStorage.setItem(draft, next);
  }
  function choosePermissions(choice: PermissionChoice): void {
    setPermissions(choice);
    keepPermissionChoice(key, choice);
  }
  async function send(isSteering = false): Promise<void> {
    const message = text.trim();
    if (message === '' || isSending) return;
    setSending(true);
    setProblem(undefined);
    try {
      const session = trestle(system.signIn, team).session(sessionId, { routing: routingOf(permissions) });
      if (isSteering) await steerSession(name, message);
      else await rememberTurn(key, session.message(message));
      write('');
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
      <div className="sends">
        {isRunning && agent?.steer === 'yes' ? (
          <button
            type="button"
            disabled={isSending || text.trim() === ''}
            title="The agent sees it now, in the running turn"
            onClick={() => void send(true)}
          >
            Steer
          </button>
        ) : null}
        <button type="submit" className="primary" disabled={isSending || text.trim() === ''}>
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
}

interface SessionChoicesProps {
  readonly name: SessionName;
  readonly view: SessionView;
  readonly onMode: (mode: string) => void;
  readonly onProblem: (problem: unknown) => void;
}

/** Mode and model of the next turns. An agent that does not list its models takes any name. */
function SessionChoices({ name, view, onMode, onProblem }: SessionChoicesProps) {
  const queries = useQueryClient();
  const { session, modes, models } = view;
  const [model, setModel] = useState<string>();
  async function choose(changes: { readonly mode?: string; readonly model?: string }): Promise<void> {
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
