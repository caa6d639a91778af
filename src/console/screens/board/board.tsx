import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link, useSearchParams } from 'wouter';
import type { Summary } from '../../../bridge/contract/workbench.ts';
import { listSessions, sessionAddress } from '../../data/bridge.ts';
import { ownerOfTeam } from '../../data/teams.ts';
import { ErrorBox, Since } from '../../parts/parts.tsx';
import { countText, moneyText, shortPath, visible } from '../../parts/text.ts';
import { useConsole, useOwnName } from '../../shell/console-context.ts';
import { keysText, SHORTCUTS } from '../../shell/shortcuts.ts';
import { useOwnerText, useOwnTeams } from '../teams/own-teams.ts';
import { FirstSteps } from './first-steps.tsx';
import { NewSessionForm } from './new-session.tsx';

const COLUMNS = [
  { state: 'needs_you', title: 'Needs you', count: 'needsYou' },
  { state: 'running', title: 'Running', count: 'running' },
  { state: 'waiting', title: 'Waiting', count: 'waiting' },
  { state: 'idle', title: 'Done', count: 'idle' },
] as const;

const POLL_MS = 3000;

/** What runs, what waits, and what needs a person. */
export default function Board() {
  const { live } = useConsole();
  const [search, setSearch] = useState('');
  const [view, setView] = useState<'board' | 'list'>('board');
  const [given, setGiven] = useSearchParams();
  const owner = given.get('owner') ?? '';
  const { data, error } = useQuery({
    queryKey: ['sessions', search, owner],
    queryFn: () => listSessions({ limit: 200, ...(search !== '' && { search }), ...(owner !== '' && { owner }) }),
    // The rows stay while new ones are read.
    placeholderData: (before) => before,
    ...(live === undefined && { refetchInterval: POLL_MS }),
  });
  const sessions = data?.sessions ?? [];
  const isEmpty = data !== undefined && sessions.length === 0 && search === '' && owner === '';
  return (
    <>
      <header className="bar">
        <h1>Board</h1>
        <fieldset className="choice">
          <legend className="hidden-label">View</legend>
          {(['board', 'list'] as const).map((name) => (
            <button key={name} type="button" aria-pressed={view === name} onClick={() => setView(name)}>
              {name === 'board' ? 'Board' : 'List'}
            </button>
          ))}
        </fieldset>
        <OwnerChoice
          owner={owner}
          onChange={(chosen) => setGiven(chosen === '' ? {} : { owner: chosen }, { replace: true })}
        />
        <input
          type="search"
          aria-label="Search sessions"
          placeholder="Search"
          value={search}
          onChange={(event) => setSearch(event.target.value)}
        />
        <Link href="/console/new" className="button primary">
          New session <kbd>{keysText(SHORTCUTS.newSession.keys)}</kbd>
        </Link>
      </header>
      <ErrorBox error={error} />
      <FirstSteps isEmpty={isEmpty} />
      {isEmpty ? (
        <Empty />
      ) : view === 'board' ? (
        <Columns sessions={sessions} counts={owner === '' ? data?.counts : undefined} />
      ) : (
        <List sessions={sessions} />
      )}
    </>
  );
}

/** Whose sessions are shown, for those who see more than their own. */
function OwnerChoice({ owner, onChange }: { readonly owner: string; readonly onChange: (owner: string) => void }) {
  const teams = useOwnTeams();
  const own = useOwnName();
  const known = [{ owner: own, name: 'mine' }, ...teams.map(({ id, name }) => ({ owner: ownerOfTeam(id), name }))];
  if (teams.length === 0 && owner === '') return null;
  const others = owner === '' || known.some((one) => one.owner === owner) ? [] : [{ owner, name: owner }];
  return (
    <select aria-label="Whose sessions" value={owner} onChange={({ target }) => onChange(target.value)}>
      <option value="">all sessions</option>
      {[...known, ...others].map((one) => (
        <option key={one.owner} value={one.owner}>
          {visible(one.name)}
        </option>
      ))}
    </select>
  );
}

const EXAMPLES = [
  'What is in this folder?',
  'Write a README for this project',
  'Find a bug, and explain it without changing anything',
];

function Empty() {
  return (
    <section className="empty">
      <h2>No sessions yet</h2>
      <p>
        Say what to do, and an agent does it in a folder of this machine. Without a model key the built-in agent answers
        with your own words, which shows how everything works.
      </p>
      <p className="examples">
        Try:{' '}
        {EXAMPLES.map((example) => (
          <Link key={example} href={`/console/new?prompt=${encodeURIComponent(example)}`}>
            {example}
          </Link>
        ))}
      </p>
      <NewSessionForm />
    </section>
  );
}

interface ColumnsProps {
  readonly sessions: readonly Summary[];
  readonly counts: Readonly<Record<(typeof COLUMNS)[number]['count'], number>> | undefined;
}

function Columns({ sessions, counts }: ColumnsProps) {
  return (
    <div className="columns">
      {COLUMNS.map(({ state, title, count }) => {
        const cards = sessions.filter((session) => session.state === state);
        return (
          <section key={state} className={`column ${state}`} aria-label={title}>
            <h2>
              {title} <small>{counts?.[count] ?? ''}</small>
            </h2>
            {cards.map((session) => (
              <Card key={`${session.owner}/${session.sessionId}`} session={session} />
            ))}
          </section>
        );
      })}
    </div>
  );
}

function Card({ session }: { readonly session: Summary }) {
  const own = useOwnName();
  const ownerText = useOwnerText();
  const { title, providerId, doing, state, updatedAt, lastTurn, costUsd, folder, queuedTurns } = session;
  const failed = state === 'idle' && lastTurn !== null && lastTurn.status !== 'completed';
  const line = doing !== '' ? doing : failed ? `${lastTurn.status} ${lastTurn.code}` : shortPath(folder);
  return (
    <Link href={sessionAddress(session, own)} className="card">
      <span className="title">{visible(title)}</span>
      <span className="quiet">{providerId}</span>
      <span className={failed ? 'failed' : ''}>{visible(line)}</span>
      <span className="quiet">
        {queuedTurns > 0 ? `${queuedTurns} waiting · ` : ''}
        {costUsd === null || costUsd === 0 ? '' : `${moneyText(costUsd)} · `}
        <Since at={updatedAt} />
      </span>
      {session.owner === own ? null : <span className="quiet">{ownerText(session.owner)}</span>}
    </Link>
  );
}

function List({ sessions }: { readonly sessions: readonly Summary[] }) {
  const own = useOwnName();
  return (
    <div className="scrolls">
      <table className="list">
        <thead>
          <tr>
            {['Session', 'State', 'Agent', 'Folder', 'Turns', 'Tokens', 'Cost', 'Changed'].map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {sessions.map((session) => (
            <tr key={`${session.owner}/${session.sessionId}`}>
              <td>
                <Link href={sessionAddress(session, own)}>{visible(session.title)}</Link>
              </td>
              <td>{session.state.replace('_', ' ')}</td>
              <td>{session.providerId}</td>
              <td title={session.folder}>{visible(shortPath(session.folder))}</td>
              <td className="number">{session.turns}</td>
              <td className="number">{countText(session.usage.totalTokens)}</td>
              <td className="number">{session.costUsd === null ? '' : moneyText(session.costUsd)}</td>
              <td>
                <Since at={session.updatedAt} /> ago
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
