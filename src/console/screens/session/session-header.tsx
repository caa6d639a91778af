import { useQueryClient } from '@tanstack/react-query';
import { memo, useEffect, useRef, useState } from 'react';
import { useLocation } from 'wouter';
import {
  changeSession,
  exportAddress,
  type readSession,
  type SessionName,
  sessionPath,
  type Turn,
  trestle,
} from '../../data/bridge.ts';
import { CloseDialog, CopyButton, ErrorBox, RenameForm, Since } from '../../parts/parts.tsx';
import { countOf, moneyText, shortPath, titleText } from '../../parts/text.ts';
import { CopyCurl, Menu } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';
import { keysText, SHORTCUTS, tipOf, useShortcuts } from '../../shell/shortcuts.ts';
import { useOwnerText, useTeamOf } from '../teams/own-teams.ts';
import { RememberedAnswers } from './remembered-answers.tsx';
import { MergeDialog, PhoneDialog } from './turn-dialogs.tsx';

interface SessionHeaderProps {
  readonly name: SessionName;
  readonly session: Awaited<ReturnType<typeof readSession>>['session'] | undefined;
  readonly isRunning: boolean;
  readonly usage: { readonly contextUsed?: number; readonly contextSize?: number } | undefined;
  /** Of a run: the steps of its last turn. */
  readonly steps: Turn['steps'];
  readonly onDone: (text: string) => void;
}

const WORKTREES = '/.trestle/worktrees/';

/** What a session is and costs, and what can be done with the whole of it. */
export const SessionHeader = memo(function SessionHeader(props: SessionHeaderProps) {
  const { name, session, isRunning, usage, steps = [], onDone } = props;
  const { system } = useConsole();
  const queries = useQueryClient();
  const [, go] = useLocation();
  const [problem, setProblem] = useState<unknown>();
  const [isClosing, setClosing] = useState(false);
  const [isMerging, setMerging] = useState(false);
  const [isOnPhone, setOnPhone] = useState(false);
  const [showsRules, setShowsRules] = useState(false);
  const apart = steps.filter(({ workingDirectory }) => workingDirectory?.includes(WORKTREES));
  const isApart = apart.length > 0 || session?.folder.includes(WORKTREES) === true;
  const [isRenaming, setRenaming] = useState(false);
  /** Where the focus returns when the title is no field any more. */
  const heading = useRef<HTMLButtonElement>(null);
  const hasRenamed = useRef(false);
  useEffect(() => {
    if (hasRenamed.current && !isRenaming) heading.current?.focus();
    hasRenamed.current = isRenaming;
  }, [isRenaming]);
  const agentSession = trestle(system.signIn, useTeamOf(name.owner)).session(name.sessionId);
  // Others may have a session of the same name.
  const owner = session?.owner ?? name.owner;
  const whose = owner === undefined ? {} : { owner };
  const ownerText = useOwnerText();
  /** From the click until the turn has ended: an agent may take seconds. */
  const [isStopping, setStopping] = useState(false);
  useEffect(() => {
    if (!isRunning) setStopping(false);
  }, [isRunning]);
  function stop(): void {
    setStopping(true);
    setProblem(undefined);
    agentSession.cancel(whose).catch((error: unknown) => {
      setStopping(false);
      setProblem(error);
    });
  }
  useShortcuts({ ...(isRunning && { stop }) });
  async function change(changes: Parameters<typeof changeSession>[1]): Promise<void> {
    try {
      await changeSession(name, changes);
      await queries.invalidateQueries({ queryKey: ['session', name] });
      if (changes.archived === true) go('/console');
    } catch (error) {
      setProblem(error);
    }
  }
  const state = session?.state.replace('_', ' ') ?? '';
  const isArchived = session?.state === 'archived';
  return (
    <header className="bar session-bar">
      {isRenaming ? (
        <RenameForm
          title={session?.title ?? ''}
          onRename={(title) => {
            setRenaming(false);
            void change({ title });
          }}
          onCancel={() => setRenaming(false)}
        />
      ) : (
        <h1>
          <button ref={heading} type="button" className="plain" title="Rename" onClick={() => setRenaming(true)}>
            {titleText(session?.title ?? name.sessionId)}
          </button>
        </h1>
      )}
      {session === undefined ? null : (
        <>
          <span className={`chip ${session.state}`}>
            {state} {isRunning ? <Since at={session.updatedAt} /> : null}
          </span>
          {name.owner === undefined ? null : <span className="chip">{ownerText(name.owner)}</span>}
          <span className="quiet facts">
            {[session.providerId, session.model, shortPath(session.folder), session.branch].filter(Boolean).join(' · ')}
          </span>
          <span className="quiet facts">
            {countOf(session.usage.totalTokens, 'token')}
            {session.costUsd === null ? '' : ` · ${moneyText(session.costUsd)}`}
            {usage?.contextUsed !== undefined && usage.contextSize !== undefined
              ? ` · context ${Math.round((usage.contextUsed / usage.contextSize) * 100)} %`
              : ''}
          </span>
        </>
      )}
      {isRunning ? (
        <button type="button" className="stop" title={tipOf('stop')} onClick={stop}>
          {isStopping ? 'Stopping …' : 'Stop'} <kbd>{keysText(SHORTCUTS.stop.keys)}</kbd>
        </button>
      ) : null}
      <Menu label="More">
        <a href={exportAddress(name, 'markdown')} download={`${name.sessionId}.md`}>
          Export as Markdown
        </a>
        <a href={exportAddress(name, 'json')} download={`${name.sessionId}.json`}>
          Export as JSON
        </a>
        <CopyButton label="Copy link" text={() => Promise.resolve(location.href)} />
        <CopyCurl path={sessionPath(name)} />
        <button type="button" onClick={() => setOnPhone(true)}>
          Follow on a phone …
        </button>
        <button type="button" onClick={() => setShowsRules(true)}>
          Remembered answers …
        </button>
        {isApart && !isRunning ? (
          <button type="button" onClick={() => setMerging(true)}>
            Merge …
          </button>
        ) : null}
        <button type="button" onClick={() => void change({ archived: !isArchived })}>
          {isArchived ? 'Restore from the archive' : 'Archive'}
        </button>
        <button type="button" className="danger" onClick={() => setClosing(true)}>
          Close …
        </button>
      </Menu>
      <ErrorBox error={problem} />
      {isMerging ? <MergeDialog name={name} steps={apart} onDone={onDone} onClose={() => setMerging(false)} /> : null}
      {showsRules && session !== undefined ? (
        <RememberedAnswers session={session} onClose={() => setShowsRules(false)} />
      ) : null}
      {isOnPhone ? <PhoneDialog address={location.href} onClose={() => setOnPhone(false)} /> : null}
      {isClosing ? (
        <CloseDialog
          title={session?.title ?? name.sessionId}
          onConfirmed={() => {
            setClosing(false);
            void agentSession.close(whose).then(() => go('/console'), setProblem);
          }}
          onClose={() => setClosing(false)}
        />
      ) : null}
    </header>
  );
});
