import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type PointerEvent, useEffect, useRef, useState } from 'react';
import { Link } from 'wouter';
import type { Permission, Summary } from '../../../bridge/contract/workbench.ts';
import {
  answerPermission,
  changeSession,
  listPermissions,
  type SessionName,
  sessionAddress,
  trestle,
} from '../../data/bridge.ts';
import { CloseDialog, ErrorBox, RenameForm, Since } from '../../parts/parts.tsx';
import { countOf, moneyText, shortPath, titleText, visible } from '../../parts/text.ts';
import { Menu, useWork } from '../../parts/work.tsx';
import { useConsole, useOwnName } from '../../shell/console-context.ts';
import { useOwnerText, useTeamOf } from '../teams/own-teams.ts';

const NONE: readonly Permission[] = [];

/** The open questions, read while a session of the list waits for an answer. */
export function useQuestions(sessions: readonly Summary[]): readonly Permission[] {
  const open = sessions.reduce((sum, { openPermissions }) => sum + openPermissions, 0);
  const { data } = useQuery({ queryKey: ['sessions', 'questions', open], queryFn: listPermissions, enabled: open > 0 });
  return open === 0 ? NONE : (data ?? NONE);
}

interface CardProps {
  readonly session: Summary;
  readonly questions: readonly Permission[];
  /** Shows the state, where no column says it. */
  readonly hasState?: boolean;
  /** A finger has moved the card to the left. */
  readonly onSwiped?: (session: Summary) => void;
}

/** A finger that moves a card so far to the left means it. */
const SWIPE_PIXELS = 96;

/** Moves an element with a finger, to the left only, and reports when it was moved far enough. */
function useSwipe(onSwiped: (() => void) | undefined) {
  const element = useRef<HTMLElement>(null);
  const from = useRef<number>(undefined);
  function place(pixels: number): void {
    if (element.current !== null) element.current.style.transform = pixels === 0 ? '' : `translateX(${pixels}px)`;
  }
  function end(event: PointerEvent, isMeant: boolean): void {
    if (from.current === undefined) return;
    const moved = event.clientX - from.current;
    from.current = undefined;
    place(0);
    if (isMeant && moved <= -SWIPE_PIXELS) onSwiped?.();
  }
  if (onSwiped === undefined) return { ref: element };
  return {
    ref: element,
    onPointerDown(event: PointerEvent) {
      if (event.pointerType === 'touch') from.current = event.clientX;
    },
    onPointerMove(event: PointerEvent) {
      if (from.current !== undefined) place(Math.min(0, event.clientX - from.current));
    },
    onPointerUp: (event: PointerEvent) => end(event, true),
    // The finger scrolls the page instead.
    onPointerCancel: (event: PointerEvent) => end(event, false),
  };
}

/** Whether a turn of the session runs or waits, which can be stopped. */
const isStoppable = ({ state }: Summary) => state === 'running' || state === 'waiting' || state === 'needs_you';

const UNDO_MS = 6000;

interface SwipedProps {
  readonly session: Summary;
  readonly onDone: () => void;
}

/** Stops or archives the session that was swiped. A session is archived right away; one is stopped when nobody has said no. */
export function Swiped({ session, onDone }: SwipedProps) {
  const { sessionId, owner, title } = session;
  const { system } = useConsole();
  const own = useOwnName();
  const queries = useQueryClient();
  const work = useWork();
  const team = useTeamOf(owner);
  const [isStopping] = useState(() => isStoppable(session));
  const name: SessionName = { sessionId, ...(owner !== own && { owner }) };
  const act = (action: () => Promise<unknown>, isLast: boolean) =>
    work.run(async () => {
      await action();
      await queries.invalidateQueries({ queryKey: ['sessions'] });
      if (isLast) onDone();
    });
  const archive = (archived: boolean) => act(() => changeSession(name, { archived }), !archived);
  const stop = () => act(() => trestle(system.signIn, team).session(sessionId).cancel({ owner }), true);
  const isDecided = useRef(false);
  function undo(): void {
    isDecided.current = true;
    if (isStopping) onDone();
    else archive(false);
  }
  function end(): void {
    if (isDecided.current) return;
    isDecided.current = true;
    if (isStopping) stop();
    else onDone();
  }
  const steps = useRef({ archive, end });
  useEffect(() => {
    const { archive: keepAway, end: decide } = steps.current;
    if (!isStopping) keepAway(true);
    const timer = setTimeout(decide, UNDO_MS);
    return () => {
      clearTimeout(timer);
      // Another card was swiped, or the page is left: nobody has said no.
      decide();
    };
  }, [isStopping]);
  return (
    <div className="notice" role="status">
      {isStopping ? 'Stopping' : 'Archived'} “{titleText(title)}”.{' '}
      <button type="button" disabled={work.isBusy} onClick={undo}>
        Undo
      </button>
      <ErrorBox error={work.problem} />
    </div>
  );
}

/** One session on the board: what it does, and what can be done with it from here. */
export function Card({ session, questions, hasState = false, onSwiped }: CardProps) {
  const swipe = useSwipe(onSwiped === undefined ? undefined : () => onSwiped(session));
  const own = useOwnName();
  const ownerText = useOwnerText();
  const { sessionId, title, providerId, doing, state, updatedAt, lastTurn, costUsd, folder, queuedTurns } = session;
  const { jobId, nodeId } = session;
  const { files, added, removed } = session.changed;
  const wasStopped = state === 'idle' && lastTurn?.code === 'TURN_CANCELLED';
  const failed = state === 'idle' && lastTurn !== null && lastTurn.status !== 'completed' && !wasStopped;
  const ended = failed ? `${lastTurn.status} ${lastTurn.code}` : wasStopped ? 'stopped' : shortPath(folder);
  const line = doing !== '' ? titleText(doing) : visible(ended);
  const asked = questions.find((one) => one.sessionId === sessionId && one.owner === session.owner);
  return (
    <article className="card" {...swipe}>
      <Link href={sessionAddress(session, own)}>
        <span className="title">{titleText(title)}</span>
        <span className="quiet">
          {[providerId, jobId === '' ? '' : 'job', nodeId === '' ? '' : `on ${visible(nodeId)}`]
            .filter(Boolean)
            .join(' · ')}
        </span>
        <span className={failed ? 'failed' : ''}>{line}</span>
        <span className="quiet">
          {hasState ? `${state.replace('_', ' ')} · ` : ''}
          {queuedTurns > 0 ? `${queuedTurns} waiting · ` : ''}
          {files > 0 ? `${countOf(files, 'file')} +${added} −${removed} · ` : ''}
          {costUsd === null || costUsd === 0 ? '' : `${moneyText(costUsd)} · `}
          <Since at={updatedAt} />
        </span>
        {session.owner === own ? null : <span className="quiet">{ownerText(session.owner)}</span>}
      </Link>
      {asked === undefined ? null : <Question asked={asked} address={sessionAddress(session, own)} />}
      <CardActions session={session} />
    </article>
  );
}

/** The question of an agent, with the answers that need no form. */
function Question({ asked, address }: { readonly asked: Permission; readonly address: string }) {
  const queries = useQueryClient();
  const work = useWork();
  const answer = (decision: 'allow' | 'deny') =>
    work.run(async () => {
      await answerPermission(asked.permissionId, { decision, scope: 'once' });
      await queries.invalidateQueries({ queryKey: ['sessions'] });
    });
  return (
    <div className="asked">
      <code>{visible(asked.title)}</code>
      <div className="answers">
        {asked.form !== null ? (
          <Link href={address}>Answer</Link>
        ) : (
          <>
            <button type="button" disabled={work.isBusy} onClick={() => answer('allow')}>
              Allow once
            </button>
            <button type="button" className="danger" disabled={work.isBusy} onClick={() => answer('deny')}>
              Deny
            </button>
          </>
        )}
      </div>
      <ErrorBox error={work.problem} />
    </div>
  );
}

/** Stop, rename, archive, close. */
function CardActions({ session }: { readonly session: Summary }) {
  const { sessionId, owner, title, state } = session;
  const { system } = useConsole();
  const own = useOwnName();
  const queries = useQueryClient();
  const work = useWork();
  const team = useTeamOf(owner);
  const [isRenaming, setRenaming] = useState(false);
  const [isClosing, setClosing] = useState(false);
  const name: SessionName = { sessionId, ...(owner !== own && { owner }) };
  const act = (action: () => Promise<unknown>) =>
    work.run(async () => {
      await action();
      setRenaming(false);
      await queries.invalidateQueries({ queryKey: ['sessions'] });
    });
  const isRunning = isStoppable(session);
  return (
    <>
      <Menu label={`Actions for ${titleText(title)}`}>
        {isRunning ? (
          <button
            type="button"
            onClick={() => act(() => trestle(system.signIn, team).session(sessionId).cancel({ owner }))}
          >
            Stop
          </button>
        ) : null}
        <button type="button" onClick={() => setRenaming(true)}>
          Rename
        </button>
        <button type="button" onClick={() => act(() => changeSession(name, { archived: state !== 'archived' }))}>
          {state === 'archived' ? 'Restore from the archive' : 'Archive'}
        </button>
        <button type="button" className="danger" onClick={() => setClosing(true)}>
          Close …
        </button>
      </Menu>
      {isRenaming ? (
        <RenameForm
          title={title}
          onRename={(next) => act(() => changeSession(name, { title: next }))}
          onCancel={() => setRenaming(false)}
        />
      ) : null}
      {isClosing ? (
        <CloseDialog
          title={title}
          isBusy={work.isBusy}
          onConfirmed={() => {
            setClosing(false);
            act(() => trestle(system.signIn, team).session(sessionId).close({ owner }));
          }}
          onClose={() => setClosing(false)}
        />
      ) : null}
      <ErrorBox error={work.problem} />
    </>
  );
}
