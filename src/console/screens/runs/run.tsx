import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useMemo, useState, useSyncExternalStore } from 'react';
import { Link, useLocation, useParams, useSearchParams } from 'wouter';
import { keyOf, listTurns, readSession, type SessionName, sessionPath, trestle } from '../../data/bridge.ts';
import { foldRuns, RUN_KINDS, type Run, type RunPart } from '../../live/fold-run.ts';
import { openSessionStream } from '../../live/session-stream.ts';
import { CompareDialog } from '../../parts/diff.tsx';
import { Markdown } from '../../parts/markdown.tsx';
import { ErrorBox, Part } from '../../parts/parts.tsx';
import { momentText, titleText, visible } from '../../parts/text.ts';
import { CopyCurl, useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole } from '../../shell/console-context.ts';
import { Conversation } from '../session/conversation.tsx';
import { addToDraft } from '../session/next-message.ts';
import { useNow } from '../session/permission-card.tsx';
import { useTeamOf } from '../teams/own-teams.ts';
import { readRunUpdates, type Update } from './earlier-run.ts';
import { durationText, RunPicture, stateText } from './run-picture.tsx';

const POLL_MS = 2000;
/** The runs of a session as they happen. */
function useRuns(name: SessionName) {
  const { live } = useConsole();
  const polled = live === undefined ? { refetchInterval: POLL_MS } : {};
  const { data, error } = useQuery({ queryKey: ['run', name], queryFn: () => readRunUpdates(name), ...polled });
  const [fresh, setFresh] = useState<readonly Update[]>([]);
  useEffect(() => {
    setFresh([]);
    if (data === undefined) return;
    return live?.follow(
      name.sessionId,
      (update) => {
        if (RUN_KINDS.includes(update.kind)) setFresh((before) => [...before, update as Update]);
      },
      { owner: name.owner, afterSeq: data.lastSeq },
    );
  }, [data, live, name]);
  const runs = useMemo(() => foldRuns([...(data?.updates ?? []), ...fresh]), [data, fresh]);
  return { runs, isLoading: data === undefined, error };
}

const NO_ACTIONS = () => ({});

/** One run: its picture, its steps, and what each of them did. */
export default function RunScreen() {
  const { sessionId = '' } = useParams<{ sessionId: string }>();
  const [given, setGiven] = useSearchParams();
  const owner = given.get('owner') ?? undefined;
  const name = useMemo<SessionName>(() => ({ sessionId, ...(owner !== undefined && { owner }) }), [sessionId, owner]);
  const { runs, isLoading, error } = useRuns(name);
  const run = runs.find(({ turnId }) => turnId === given.get('turn')) ?? runs.at(-1);
  const now = useNow();
  function addressWith(members: Readonly<Record<string, string>>): URLSearchParams {
    const next = new URLSearchParams(given);
    for (const [member, value] of Object.entries(members)) next.set(member, value);
    return next;
  }
  const chosen = given.get('step') === null ? undefined : Number(given.get('step')) - 1;
  const step = run?.steps.find(({ index }) => index === chosen);
  return (
    <>
      <Header name={name} run={run} />
      <ErrorBox error={error} />
      {isLoading && error === null ? <p className="quiet loading">Loading …</p> : null}
      {!isLoading && run === undefined ? <p className="empty">No run has begun in this session.</p> : null}
      {run === undefined ? null : (
        <div className="run">
          {runs.length < 2 ? null : (
            <label className="run-choice">
              Run{' '}
              <select
                value={run.turnId}
                onChange={({ target }) => setGiven(addressWith({ turn: target.value }), { replace: true })}
              >
                {runs.map(({ turnId, startedAt }, place) => (
                  <option key={turnId} value={turnId}>
                    {place + 1} · {momentText(startedAt)}
                  </option>
                ))}
              </select>
            </label>
          )}
          <p className="quiet">
            {visible(run.mode)} · {run.endedAt === undefined ? 'running' : stateText(run.stopReason)} ·{' '}
            {durationText((run.endedAt ?? Math.max(now, run.startedAt)) - run.startedAt)}
          </p>
          <RunPicture
            run={run}
            now={now}
            addressOf={(index) => `?${addressWith({ step: `${index + 1}` })}`}
            onStep={(index) => setGiven(addressWith({ step: `${index + 1}` }), { replace: true })}
          />
          {step === undefined ? (
            <Outputs name={name} run={run} onStep={(index) => setGiven(addressWith({ step: `${index + 1}` }))} />
          ) : (
            <StepView
              key={`${run.turnId}/${step.index}`}
              name={name}
              run={run}
              index={step.index}
              onClose={() => {
                const next = new URLSearchParams(given);
                next.delete('step');
                setGiven(next);
              }}
            />
          )}
        </div>
      )}
    </>
  );
}

function Header({ name, run }: { readonly name: SessionName; readonly run: Run | undefined }) {
  const isRunning = run !== undefined && run.endedAt === undefined;
  const { system } = useConsole();
  const queries = useQueryClient();
  const work = useWork();
  const team = useTeamOf(name.owner);
  const view = useQuery({ queryKey: ['session', name], queryFn: () => readSession(name) });
  const asked = view.data?.permissions.length ?? 0;
  const owner = view.data?.session.owner ?? name.owner;
  const whose = owner === undefined ? {} : { owner };
  // Questions of the steps are answered in the session.
  useEffect(() => {
    if (isRunning) void queries.invalidateQueries({ queryKey: ['session', name] });
  }, [isRunning, name, queries]);
  const { live } = useConsole();
  useEffect(
    () => live?.watch(['permissions'], () => void queries.invalidateQueries({ queryKey: ['session', name] })),
    [live, name, queries],
  );
  const address = addressOf(name);
  return (
    <header className="bar">
      <h1>{titleText(view.data?.session.title ?? name.sessionId)}</h1>
      <Link href={address}>Open the session</Link>
      {asked === 0 ? null : (
        <Link href={address} className="chip needs_you">
          {asked === 1 ? 'A step asks something' : `Steps ask ${asked} things`}
        </Link>
      )}
      {run === undefined || isRunning ? null : (
        <Link href={`/console/runs/new?${againQuery(name, run)}`} className="button">
          Run again …
        </Link>
      )}
      {isRunning ? (
        <button
          type="button"
          className="stop"
          disabled={work.isBusy}
          onClick={() => work.run(() => trestle(system.signIn, team).session(name.sessionId).cancel(whose))}
        >
          Stop
        </button>
      ) : null}
      <CopyCurl path={sessionPath(name)} />
      <WorkNotes work={work} />
    </header>
  );
}

/** Names the run whose task and steps a new one begins with. */
function againQuery({ sessionId, owner }: SessionName, { turnId }: Run): URLSearchParams {
  return new URLSearchParams({ from: sessionId, turn: turnId, ...(owner !== undefined && { owner }) });
}

const nameOf = ({ index, providerId }: Pick<RunPart, 'index' | 'providerId'>) => `${index + 1} ${visible(providerId)}`;

/** Where the session of a run is. */
const addressOf = ({ sessionId, owner }: SessionName) =>
  `/console/sessions/${encodeURIComponent(sessionId)}${owner === undefined ? '' : `?owner=${encodeURIComponent(owner)}`}`;

interface OutputsProps {
  readonly name: SessionName;
  readonly run: Run;
  readonly onStep: (index: number) => void;
}

/** What each step or speech has come to, side by side; two can be compared, and one goes into the next message. */
function Outputs({ name, run, onStep }: OutputsProps) {
  const [, go] = useLocation();
  const [isComparing, setComparing] = useState(false);
  const said = run.parts.filter(({ output }) => output !== '');
  function takeOutput(output: string): void {
    addToDraft(keyOf(name), output);
    go(addressOf(name));
  }
  return (
    <>
      {said.length < 2 ? null : (
        <div className="answers">
          <button type="button" onClick={() => setComparing(true)}>
            Compare …
          </button>
        </div>
      )}
      <ul className="outputs" aria-label="Steps">
        {run.parts.map((part, place) => (
          <li key={`${part.index}-${part.conversationTurn ?? place}`}>
            <button type="button" className="link" onClick={() => onStep(part.index)}>
              {nameOf(part)}
            </button>{' '}
            <span className={`chip ${part.status === 'completed' || part.status === 'running' ? 'running' : 'failed'}`}>
              {stateText(part.status)}
            </span>
            {part.error === '' ? null : <p className="failed">{visible(part.error)}</p>}
            <Markdown text={part.output} />
            {part.output === '' ? null : (
              <button
                type="button"
                title="Puts it into the next message of the session"
                onClick={() => takeOutput(part.output)}
              >
                Use this one
              </button>
            )}
          </li>
        ))}
      </ul>
      {isComparing ? (
        <CompareDialog
          texts={said.map((part, place) => ({ name: `${place + 1}: ${nameOf(part)}`, text: part.output }))}
          onClose={() => setComparing(false)}
        />
      ) : null}
    </>
  );
}

interface StepViewProps {
  readonly name: SessionName;
  readonly run: Run;
  readonly index: number;
  readonly onClose: () => void;
}

/** What one step of a run did, as the session shows it. */
function StepView({ name, run, index, onClose }: StepViewProps) {
  const { live } = useConsole();
  const stream = useMemo(() => openSessionStream(name, live), [name, live]);
  useEffect(() => () => stream.close(), [stream]);
  const { folded, hasEarlier, isLoading, problem } = useSyncExternalStore(stream.onChange, stream.snapshot);
  const turns = useQuery({ queryKey: ['turns', name], queryFn: () => listTurns(name) });
  const items = useMemo(
    () => folded.items.filter((item) => item.turnId === run.turnId && item.stepIndex === index),
    [folded.items, run.turnId, index],
  );
  // The step may have ended long before the last page.
  useEffect(() => {
    if (items.length === 0 && hasEarlier && !isLoading) void stream.loadEarlier();
  }, [items.length, hasEarlier, isLoading, stream]);
  const step = run.steps.find((one) => one.index === index);
  const parts = run.parts.filter((part) => part.index === index);
  const task = turns.data?.turns.find(({ turnId }) => turnId === run.turnId)?.prompt ?? '';
  return (
    <Part title={`Step ${index + 1}: ${visible(step?.providerId ?? '')}`}>
      <div className="answers">
        <button type="button" onClick={onClose}>
          All steps
        </button>
      </div>
      <pre className="prompt">{visible(step?.prompt === '' || step === undefined ? task : step.prompt)}</pre>
      {parts
        .filter(({ error }) => error !== '')
        .map(({ error, conversationTurn }) => (
          <p key={conversationTurn ?? 0} className="failed">
            {visible(error)}
          </p>
        ))}
      <ErrorBox error={problem} />
      <div className="step-stream">
        <Conversation
          items={items}
          turns={[]}
          folder=""
          hasEarlier={hasEarlier}
          isLoading={isLoading}
          isRunning={parts.some(({ endedAt }) => endedAt === undefined)}
          onEarlier={() => void stream.loadEarlier()}
          actionsOf={NO_ACTIONS}
        />
      </div>
    </Part>
  );
}
