import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link } from 'wouter';
import type { SessionQuery, Summary } from '../../../bridge/contract/workbench.ts';
import { listAgents, listSessions, sessionAddress } from '../../data/bridge.ts';
import { ownerOfTeam } from '../../data/teams.ts';
import { ErrorBox, More, Since, useFilters } from '../../parts/parts.tsx';
import { countText, moneyText, shortPath, titleText, visible } from '../../parts/text.ts';
import { useConsole, useOwnName } from '../../shell/console-context.ts';
import { keysText, SHORTCUTS } from '../../shell/shortcuts.ts';
import { useOwnTeams } from '../teams/own-teams.ts';
import { Card, Swiped, useQuestions } from './card.tsx';
import { FirstSteps } from './first-steps.tsx';
import { NewSessionForm } from './new-session.tsx';

const COLUMNS = [
  { state: 'needs_you', title: 'Needs you', count: 'needsYou' },
  { state: 'running', title: 'Running', count: 'running' },
  { state: 'waiting', title: 'Waiting', count: 'waiting' },
  { state: 'idle', title: 'Done', count: 'idle' },
] as const;

const POLL_MS = 3000;
const PAGE = 200;
/** The server counts no further. */
const MAX_COUNTED = 1000;
const VIEWS = [
  { name: 'board', label: 'Board' },
  { name: 'list', label: 'List' },
  { name: 'folders', label: 'Folders' },
] as const;
const STATES: readonly NonNullable<SessionQuery['state']>[] = ['needs_you', 'running', 'waiting', 'idle', 'archived'];

/** What runs, what waits, and what needs a person. View and filters are in the address. */
export default function Board() {
  const { live } = useConsole();
  const [given, change] = useFilters();
  const search = given.get('search') ?? '';
  const owner = given.get('owner') ?? '';
  const agent = given.get('agent') ?? '';
  const folder = given.get('folder') ?? '';
  const state = STATES.find((one) => one === given.get('state'));
  const view = VIEWS.find(({ name }) => name === given.get('view'))?.name ?? 'board';
  const [swiped, setSwiped] = useState<Summary>();
  const pages = useInfiniteQuery({
    queryKey: ['sessions', 'board', search, owner, agent, folder, state],
    queryFn: ({ pageParam }) =>
      listSessions({
        limit: PAGE,
        ...(pageParam !== '' && { cursor: pageParam }),
        ...(search !== '' && { search }),
        ...(owner !== '' && { owner }),
        ...(agent !== '' && { providerId: agent }),
        ...(folder !== '' && { folder }),
        ...(state !== undefined && { state }),
      }),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
    // The rows stay while new ones are read.
    placeholderData: (before) => before,
    ...(live === undefined && { refetchInterval: POLL_MS }),
  });
  const { data, error, hasNextPage, isFetching, fetchNextPage } = pages;
  const sessions = data?.pages.flatMap((page) => page.sessions) ?? [];
  const isFiltered = search !== '' || owner !== '' || agent !== '' || folder !== '' || state !== undefined;
  const isEmpty = data !== undefined && sessions.length === 0 && !hasNextPage;
  // A page may have nothing that the filters let through, and one after it something. One that is refused is not asked for again.
  const isSearching = sessions.length === 0 && hasNextPage && !isFetching && error === null;
  useEffect(() => {
    if (isSearching) void fetchNextPage();
  }, [isSearching, fetchNextPage]);
  return (
    <>
      <header className="bar">
        <h1>Board</h1>
        <fieldset className="choice">
          <legend className="hidden-label">View</legend>
          {VIEWS.map(({ name, label }) => (
            <button
              key={name}
              type="button"
              aria-pressed={view === name}
              onClick={() => change('view', name === 'board' ? '' : name)}
            >
              {label}
            </button>
          ))}
        </fieldset>
        <OwnerChoice owner={owner} onChange={(chosen) => change('owner', chosen)} />
        <AgentChoice agent={agent} onChange={(chosen) => change('agent', chosen)} />
        <FolderChoice folder={folder} sessions={sessions} onChange={(chosen) => change('folder', chosen)} />
        <select aria-label="State" value={state ?? ''} onChange={({ target }) => change('state', target.value)}>
          <option value="">any state</option>
          {STATES.map((one) => (
            <option key={one} value={one}>
              {one.replace('_', ' ')}
            </option>
          ))}
        </select>
        <input
          type="search"
          aria-label="Search sessions"
          placeholder="Search"
          value={search}
          onChange={(event) => change('search', event.target.value)}
        />
        <Link href="/console/new" className="button primary">
          New session <kbd>{keysText(SHORTCUTS.newSession.keys)}</kbd>
        </Link>
      </header>
      <ErrorBox error={error} />
      {swiped === undefined ? null : (
        <Swiped
          key={`${swiped.owner}/${swiped.sessionId}`}
          session={swiped}
          onDone={() => setSwiped((now) => (now === swiped ? undefined : now))}
        />
      )}
      <FirstSteps isEmpty={isEmpty && !isFiltered} />
      {data === undefined ? (
        error === null && <p className="quiet loading">Loading …</p>
      ) : isEmpty && !isFiltered ? (
        <Empty />
      ) : isEmpty ? (
        <p className="empty">No session matches.</p>
      ) : view === 'list' ? (
        <List sessions={sessions} />
      ) : view === 'folders' ? (
        <Folders sessions={sessions} />
      ) : (
        <Columns
          sessions={sessions}
          isArchive={state === 'archived'}
          counts={isFiltered ? undefined : data.pages[0]?.counts}
          onSwiped={setSwiped}
        />
      )}
      <More of={pages}>Older sessions</More>
    </>
  );
}

/** Only the sessions of one agent. */
function AgentChoice({ agent, onChange }: { readonly agent: string; readonly onChange: (agent: string) => void }) {
  const { data = [] } = useQuery({ queryKey: ['agents'], queryFn: listAgents });
  const ids = [...new Set([...data.map(({ providerId }) => providerId), ...(agent === '' ? [] : [agent])])];
  return (
    <select aria-label="Agent" value={agent} onChange={({ target }) => onChange(target.value)}>
      <option value="">any agent</option>
      {ids.map((id) => (
        <option key={id}>{visible(id)}</option>
      ))}
    </select>
  );
}

interface FolderChoiceProps {
  readonly folder: string;
  readonly sessions: readonly Summary[];
  readonly onChange: (folder: string) => void;
}

/** Only the sessions of one folder: of those that the board has shown so far. */
function FolderChoice({ folder, sessions, onChange }: FolderChoiceProps) {
  const [known, setKnown] = useState<readonly string[]>([]);
  const shown = [...sessions.map((session) => session.folder), folder];
  const all = [...new Set([...known, ...shown])].filter((one) => one !== '').sort();
  // The list of one folder does not name the others.
  if (all.length > known.length) setKnown(all);
  if (all.length < 2 && folder === '') return null;
  return (
    <select aria-label="Folder" title={folder} value={folder} onChange={({ target }) => onChange(target.value)}>
      <option value="">any folder</option>
      {all.map((one) => (
        <option key={one} value={one}>
          {visible(shortPath(one))}
        </option>
      ))}
    </select>
  );
}

/** Whose sessions are shown, for those who see more than their own. */
function OwnerChoice({ owner, onChange }: { readonly owner: string; readonly onChange: (owner: string) => void }) {
  const teams = useOwnTeams();
  const own = useOwnName();
  const { person } = useConsole();
  const seesOthers = person?.permissions.includes('admin.bridge.read') === true;
  const known = [{ owner: own, name: 'mine' }, ...teams.map(({ id, name }) => ({ owner: ownerOfTeam(id), name }))];
  if (teams.length === 0 && owner === '' && !seesOthers) return null;
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
        Describe a task, and an agent works on it in a folder of this machine. Without the key of a model API, the
        built-in agent repeats your words, which is enough to try everything.
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
  /** The sessions are archived: they have one column. */
  readonly isArchive: boolean;
  readonly counts: Readonly<Record<(typeof COLUMNS)[number]['count'], number>> | undefined;
  readonly onSwiped: (session: Summary) => void;
}

const ARCHIVE = [{ state: 'archived', title: 'Archived', count: 'idle' }] as const;

function Columns({ sessions, isArchive, counts, onSwiped }: ColumnsProps) {
  const questions = useQuestions(sessions);
  return (
    <div className="columns">
      {(isArchive ? ARCHIVE : COLUMNS).map(({ state, title, count }) => (
        <section key={state} className={`column ${state}`} aria-label={title}>
          <h2>
            {title} <small>{counts === undefined ? '' : countedText(counts[count])}</small>
          </h2>
          {sessions
            .filter((session) => session.state === state)
            .map((session) => (
              <Card
                key={`${session.owner}/${session.sessionId}`}
                session={session}
                questions={questions}
                {...(!isArchive && { onSwiped })}
              />
            ))}
        </section>
      ))}
    </div>
  );
}

const countedText = (count: number) => `${countText(count)}${count < MAX_COUNTED ? '' : '+'}`;

/** The same cards, by the folder that the agents work in. */
function Folders({ sessions }: { readonly sessions: readonly Summary[] }) {
  const questions = useQuestions(sessions);
  const folders = [...new Set(sessions.map(({ folder }) => folder))].sort();
  return (
    <div className="columns">
      {folders.map((folder) => (
        <section key={folder} className="column" aria-label={folder === '' ? 'Private folders' : folder}>
          <h2 title={folder}>{folder === '' ? 'Private folders' : visible(shortPath(folder))}</h2>
          {sessions
            .filter((session) => session.folder === folder)
            .map((session) => (
              <Card key={`${session.owner}/${session.sessionId}`} session={session} questions={questions} hasState />
            ))}
        </section>
      ))}
    </div>
  );
}

/** THE TABLE of the list: what a column shows, and what it is sorted by. */
const LIST: readonly { readonly name: string; readonly by: (session: Summary) => string | number }[] = [
  { name: 'Session', by: ({ title }) => titleText(title).toLowerCase() },
  { name: 'State', by: ({ state }) => STATES.indexOf(state) },
  { name: 'Agent', by: ({ providerId }) => providerId },
  { name: 'Folder', by: ({ folder }) => folder },
  { name: 'Turns', by: ({ turns }) => turns },
  { name: 'Tokens', by: ({ usage }) => usage.totalTokens },
  { name: 'Cost', by: ({ costUsd }) => costUsd ?? 0 },
  { name: 'Changed', by: ({ updatedAt }) => updatedAt },
];

function List({ sessions }: { readonly sessions: readonly Summary[] }) {
  const own = useOwnName();
  const [given, change] = useFilters();
  const sort = given.get('sort') ?? '';
  const isDown = sort.startsWith('-');
  const column = LIST.find(({ name }) => name === sort.replace('-', ''));
  const sorted = column === undefined ? sessions : sortedBy(sessions, column.by, isDown);
  return (
    <div className="scrolls">
      <table className="list">
        <thead>
          <tr>
            {LIST.map(({ name }) => {
              const isSorted = name === column?.name;
              return (
                <th key={name} aria-sort={isSorted ? (isDown ? 'descending' : 'ascending') : undefined}>
                  <button
                    type="button"
                    className="plain"
                    onClick={() => change('sort', !isSorted ? name : isDown ? '' : `-${name}`)}
                  >
                    {name} {isSorted ? (isDown ? '↓' : '↑') : ''}
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {sorted.map((session) => (
            <tr key={`${session.owner}/${session.sessionId}`}>
              <td>
                <Link href={sessionAddress(session, own)}>{titleText(session.title)}</Link>
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

function sortedBy(sessions: readonly Summary[], by: (session: Summary) => string | number, isDown: boolean) {
  return sessions.toSorted((one, other) => {
    const [left, right] = isDown ? [by(other), by(one)] : [by(one), by(other)];
    return left < right ? -1 : left > right ? 1 : 0;
  });
}
