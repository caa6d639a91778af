import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useCallback, useDeferredValue, useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react';
import { Link, useLocation, useParams, useSearchParams } from 'wouter';
import type { Permission } from '../../../bridge/contract/workbench.ts';
import type { Live } from '../../../client/trestle-client.ts';
import { forkSession, keyOf, listTurns, readSession, type SessionName, type Turn } from '../../data/bridge.ts';
import { Problem } from '../../data/request.ts';
import type { Item } from '../../live/fold-updates.ts';
import { openSessionStream, type SessionStream } from '../../live/session-stream.ts';
import type { FileChange } from '../../parts/diff-lines.ts';
import { ErrorBox } from '../../parts/parts.tsx';
import { countOf, visible } from '../../parts/text.ts';
import { useConsole } from '../../shell/console-context.ts';
import { useSavedChanges, useWorkMark } from './changes-pane.tsx';
import { Composer, useAgent } from './composer.tsx';
import { Conversation } from './conversation.tsx';
import type { TurnActions } from './entries.tsx';
import { useSend } from './next-message.ts';
import { PermissionCard } from './permission-card.tsx';
import { QuestionCard } from './question-card.tsx';
import { SessionHeader } from './session-header.tsx';
import { SidePane } from './side-pane.tsx';
import { UndoDialog } from './turn-dialogs.tsx';

const POLL_MS = 2000;
const NO_TURNS: readonly Turn[] = [];
/** What an agent is sent whose turn was interrupted. */
const CONTINUE = 'You were interrupted. Continue where you stopped.';

/** One session: what was said and done, what the agent asks, and the next message. */
export default function SessionScreen() {
  const { live } = useConsole();
  const { sessionId = '' } = useParams<{ sessionId: string }>();
  const [given] = useSearchParams();
  const owner = given.get('owner') ?? undefined;
  const name = useMemo<SessionName>(() => ({ sessionId, ...(owner !== undefined && { owner }) }), [sessionId, owner]);
  const queries = useQueryClient();
  const stream = useStream(name, live);
  const { folded, hasEarlier, isLoading, problem, caughtUp } = useSyncExternalStore(stream.onChange, stream.snapshot);
  // Many updates a second are drawn in the conversation first.
  const foldedLater = useDeferredValue(folded);
  const polled = live === undefined ? { refetchInterval: POLL_MS } : {};
  const view = useQuery({ queryKey: ['session', name], queryFn: () => readSession(name), ...polled });
  const turns = useQuery({ queryKey: ['turns', name], queryFn: () => listTurns(name) });
  // Turns and questions are read again when the session says that something has changed.
  const mark = folded.items.findLast(({ kind }) => kind === 'start' || kind === 'end')?.key ?? '';
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new mark is the reason to read again
  useEffect(() => {
    void queries.invalidateQueries({ queryKey: ['turns', name] });
    void queries.invalidateQueries({ queryKey: ['session', name] });
  }, [mark, name, queries]);
  useEffect(
    () =>
      live?.watch(['sessions', 'permissions'], (change) => {
        const item = change?.item ?? undefined;
        if (item === undefined || ('sessionId' in item && item.sessionId === sessionId)) {
          void queries.invalidateQueries({ queryKey: ['session', name] });
        }
      }),
    [live, name, sessionId, queries],
  );
  const [, go] = useLocation();
  const [refusal, setRefusal] = useState<unknown>();
  const agent = useAgent(view.data?.session.providerId);
  const newest = turns.data?.turns[0]?.turnId;
  const session = view.data?.session;
  const permissions = view.data?.permissions ?? [];
  const isRunning = session !== undefined && ['running', 'waiting', 'needs_you'].includes(session.state);
  const [undoing, setUndoing] = useState<string>();
  const [done, setDone] = useState('');
  const workMark = useWorkMark(folded.items);
  const newestChanges = useSavedChanges(name, isRunning ? '' : (newest ?? ''), workMark).data;
  const send = useSend(name);
  const fork = useCallback(
    (turnId: string) => {
      setRefusal(undefined);
      // Every agent that copies sessions copies whole ones, and not every one a part.
      forkSession(name, turnId === newest ? undefined : turnId).then(
        (copy) => go(`/console/sessions/${encodeURIComponent(copy.sessionId)}${ownerPart(name)}`),
        setRefusal,
      );
    },
    [name, newest, go],
  );
  const forks = agent?.fork ?? 'no';
  const isForkedAnywhere = agent?.forkFrom === 'any_turn';
  const undoable = newestChanges?.base.source === 'checkpoint' ? newestChanges.files : [];
  const canUndo = !isRunning && undoable.length > 0;
  function continueTurn(): void {
    setRefusal(undefined);
    send(CONTINUE).catch(setRefusal);
  }
  const continues = useRef(continueTurn);
  continues.current = continueTurn;
  const actionsOf = useCallback(
    (turnId: string): TurnActions => ({
      onFork: forks !== 'no' && (isForkedAnywhere || turnId === newest) ? fork : undefined,
      onUndo: canUndo && turnId === newest ? setUndoing : undefined,
      onContinue: !isRunning && turnId === newest ? () => continues.current() : undefined,
    }),
    [forks, isForkedAnywhere, fork, canUndo, isRunning, newest],
  );
  if (view.error instanceof Problem && view.error.status === 404 && folded.items.length === 0) {
    return (
      <section className="page">
        <h1>There is no session “{visible(sessionId)}”</h1>
        <p>It was never started, it was closed, or it belongs to someone else.</p>
        <p>
          <Link href="/console/new">Start a new one</Link>
        </p>
      </section>
    );
  }
  return (
    <div className="session">
      <SessionHeader
        name={name}
        session={session}
        isRunning={isRunning}
        usage={folded.usage}
        steps={turns.data?.turns[0]?.steps}
        onDone={setDone}
      />
      {done === '' ? null : (
        <p className="notice" role="status">
          {done}{' '}
          <button type="button" className="plain" onClick={() => setDone('')}>
            OK
          </button>
        </p>
      )}
      {caughtUp > 0 ? (
        <p className="notice" role="status">
          Connected again: caught up {countOf(caughtUp, 'update')}.
        </p>
      ) : null}
      <ErrorBox
        error={problem ?? (view.error instanceof Problem && view.error.status === 404 ? undefined : view.error)}
      />
      <div className="panes">
        <div className="talk">
          <Conversation
            items={folded.items}
            turns={turns.data?.turns ?? NO_TURNS}
            folder={session?.folder ?? ''}
            hasEarlier={hasEarlier}
            isLoading={isLoading}
            isRunning={isRunning}
            onEarlier={() => void stream.loadEarlier()}
            actionsOf={actionsOf}
          />
          <ErrorBox error={refusal} />
          {permissions.map((permission) => {
            const card = {
              permission,
              agent: session?.providerId ?? 'The agent',
              onAnswered: () => void queries.invalidateQueries({ queryKey: ['session', name] }),
            };
            const { permissionId, form } = permission;
            if (form === null) {
              return <PermissionCard key={permissionId} changes={changesOf(folded.items, permission)} {...card} />;
            }
            return <QuestionCard key={permissionId} form={form} {...card} />;
          })}
          <Composer name={name} isRunning={isRunning} view={view.data} turns={turns.data?.turns ?? NO_TURNS} />
        </div>
        <SidePane
          name={name}
          folded={foldedLater}
          updates={stream.updates()}
          turns={turns.data?.turns ?? NO_TURNS}
          folder={session?.folder ?? ''}
          mark={workMark}
        />
      </div>
      {undoing === undefined ? null : (
        <UndoDialog
          name={name}
          turnId={undoing}
          files={undoable.map(({ path }) => path)}
          onDone={(text) => {
            setDone(text);
            void queries.invalidateQueries({ queryKey: ['changes', name] });
            void queries.invalidateQueries({ queryKey: ['session', name] });
          }}
          onClose={() => setUndoing(undefined)}
        />
      )}
    </div>
  );
}

const NO_CHANGES: readonly FileChange[] = [];

/** The changes that an agent asks for, where it has reported them before. */
function changesOf(items: readonly Item[], { turnId, toolCallId }: Permission): readonly FileChange[] {
  const found = items.findLast(
    (item) => item.kind === 'tool' && item.turnId === turnId && item.call.toolCallId === toolCallId,
  );
  return found?.kind === 'tool' ? (found.call.changes ?? NO_CHANGES) : NO_CHANGES;
}

/** The stream of a screen that React has begun to draw and not shown yet. */
let begun: { readonly key: string; readonly live: Live | undefined; readonly stream: SessionStream } | undefined;

/**
 * Opens the stream while the screen is drawn for the first time. React may begin that several times before the screen is
 * shown, and forgets what it had: all of them get the same stream, so that one reads and follows the session, and it is closed.
 */
function useStream(name: SessionName, live: Live | undefined): SessionStream {
  const stream = useMemo(() => {
    const key = keyOf(name);
    if (begun?.key !== key || begun.live !== live) {
      begun?.stream.close();
      begun = { key, live, stream: openSessionStream(name, live) };
    }
    return begun.stream;
  }, [name, live]);
  useEffect(() => {
    if (begun?.stream === stream) begun = undefined;
    return () => stream.close();
  }, [stream]);
  return stream;
}

const ownerPart = ({ owner }: SessionName) => (owner === undefined ? '' : `?owner=${encodeURIComponent(owner)}`);
