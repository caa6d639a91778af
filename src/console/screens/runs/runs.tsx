import { useQuery } from '@tanstack/react-query';
import { Link } from 'wouter';
import type { Summary } from '../../../bridge/contract/workbench.ts';
import { listSessions, sessionAddress } from '../../data/bridge.ts';
import { ErrorBox, Since, useFilters } from '../../parts/parts.tsx';
import { countText, titleText } from '../../parts/text.ts';
import { useConsole, useOwnName } from '../../shell/console-context.ts';
import { useOwnerText } from '../teams/own-teams.ts';

const MULTI_AGENT = 'multi-agent';
const POLL_MS = 3000;

/** Several agents as one turn: the sessions whose agent is a run. */
export default function Runs() {
  const { live } = useConsole();
  const [given, change] = useFilters();
  const search = given.get('search') ?? '';
  const { data, error } = useQuery({
    queryKey: ['sessions', 'runs', search],
    queryFn: () => listSessions({ providerId: MULTI_AGENT, limit: 200, ...(search !== '' && { search }) }),
    placeholderData: (before) => before,
    ...(live === undefined && { refetchInterval: POLL_MS }),
  });
  const runs = data?.sessions ?? [];
  return (
    <>
      <header className="bar">
        <h1>Runs</h1>
        <input
          type="search"
          aria-label="Search runs"
          placeholder="Search"
          maxLength={200}
          value={search}
          onChange={(event) => change('search', event.target.value)}
        />
        <Link href="/console/runs/new" className="button primary">
          New run
        </Link>
      </header>
      <ErrorBox error={error} />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {data !== undefined && runs.length === 0 ? <Empty isFiltered={search !== ''} /> : null}
      {runs.length === 0 ? null : <Table runs={runs} />}
    </>
  );
}

function Empty({ isFiltered }: { readonly isFiltered: boolean }) {
  if (isFiltered) return <p className="empty">No run matches.</p>;
  return (
    <section className="empty">
      <h2>No runs yet</h2>
      <p>
        In a run several agents work on one task: one after the other, at the same time, against each other, or in a
        conversation.
      </p>
      <p>
        <Link href="/console/runs/new">Start one</Link>
      </p>
    </section>
  );
}

function Table({ runs }: { readonly runs: readonly Summary[] }) {
  const own = useOwnName();
  const ownerText = useOwnerText();
  const isShared = runs.some(({ owner }) => owner !== own);
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {['Task', 'State', 'Last run', 'Runs', 'Tokens', 'Changed', ...(isShared ? ['Owner'] : [])].map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={`${run.owner}/${run.sessionId}`}>
              <td>
                <Link href={sessionAddress(run, own).replace('/sessions/', '/runs/')}>{titleText(run.title)}</Link>
              </td>
              <td>
                <span className={`chip ${run.state}`}>{run.state.replace('_', ' ')}</span>
              </td>
              <td data-name="Last run">{run.lastTurn === null ? '' : `${run.lastTurn.status} ${run.lastTurn.code}`}</td>
              <td data-name="Runs">{run.turns}</td>
              <td data-name="Tokens">{countText(run.usage.totalTokens)}</td>
              <td>
                <Since at={run.updatedAt} /> ago
              </td>
              {isShared ? <td data-name="Owner">{ownerText(run.owner)}</td> : null}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
