import { useInfiniteQuery, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link, useLocation } from 'wouter';
import type { ListJobsParams } from '../../../bridge/contract/jobs.ts';
import type { JobRecord } from '../../../client/trestle-client.ts';
import { jobAddress, trestle } from '../../data/bridge.ts';
import { ErrorBox, Moment, More, Since, useFilters } from '../../parts/parts.tsx';
import { spanText, titleText, visible } from '../../parts/text.ts';
import { useConsole, useOwnName } from '../../shell/console-context.ts';
import { NewJob } from './job-form.tsx';

const STATES = ['pending', 'running', 'completed', 'failed'] as const;
const PAGE = 50;
/** Jobs of other bridges are not on the live socket: the list is read again too, more often where there is no socket. */
const BUSY_MS = 2000;
const IDLE_MS = 15_000;

/** Work in the background: what waits, what runs, how it ended. */
export default function Jobs() {
  const { system, live } = useConsole();
  const queries = useQueryClient();
  useEffect(() => live?.watch(['jobs'], () => void queries.invalidateQueries({ queryKey: ['jobs'] })), [live, queries]);
  const [given, change] = useFilters();
  const [isNew, setNew] = useState(false);
  const client = trestle(system.signIn);
  const status = STATES.find((state) => state === given.get('state'));
  const search = given.get('search') ?? '';
  const filter: ListJobsParams = { ...(status !== undefined && { status }), ...(search !== '' && { search }) };
  const pages = useInfiniteQuery({
    queryKey: ['jobs', filter],
    queryFn: ({ pageParam }) =>
      client.jobs.list({ ...filter, limit: PAGE, ...(pageParam !== '' && { cursor: pageParam }) }),
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
    // The rows stay while new ones are read.
    placeholderData: (before) => before,
    refetchInterval: ({ state }) => {
      const summary = state.data?.pages[0]?.summary;
      return live === undefined && summary !== undefined && summary.pending + summary.running > 0 ? BUSY_MS : IDLE_MS;
    },
  });
  const { data, error } = pages;
  const summary = data?.pages[0]?.summary;
  const jobs = data?.pages.flatMap((page) => page.jobs) ?? [];
  const missing = data?.pages[0]?.nodes?.filter((node) => node.status === 'unavailable') ?? [];
  return (
    <>
      <header className="bar">
        <h1>Jobs</h1>
        <JobTabs />
        <fieldset className="choice">
          <legend className="hidden-label">State</legend>
          {(['', ...STATES] as const).map((state) => (
            <button
              key={state}
              type="button"
              aria-pressed={(status ?? '') === state}
              onClick={() => change('state', state)}
            >
              {state === '' ? 'all' : state} <small>{summary?.[state === '' ? 'total' : state] ?? ''}</small>
            </button>
          ))}
        </fieldset>
        <input
          type="search"
          aria-label="Search jobs"
          placeholder="Search"
          maxLength={200}
          value={search}
          onChange={(event) => change('search', event.target.value)}
        />
        <button type="button" className="button primary" onClick={() => setNew(true)}>
          New job
        </button>
      </header>
      <ErrorBox error={error} />
      <Statistics />
      {data === undefined && error === null ? <p className="quiet loading">Loading …</p> : null}
      {missing.length === 0 ? null : (
        <p className="notice" role="status">
          These nodes do not answer, so their jobs are missing:{' '}
          {missing.map(({ nodeId }) => visible(nodeId)).join(', ')}
        </p>
      )}
      {data !== undefined && jobs.length === 0 ? <Empty isFiltered={Object.keys(filter).length > 0} /> : null}
      {jobs.length === 0 ? null : <Table jobs={jobs} />}
      <More of={pages}>Older jobs</More>
      {isNew ? <NewJob onClose={() => setNew(false)} /> : null}
    </>
  );
}

/** How long work waits and takes, of all jobs that the person sees. */
function Statistics() {
  const { system } = useConsole();
  const { data } = useQuery({
    queryKey: ['jobs', 'statistics'],
    queryFn: () => trestle(system.signIn).jobs.stats(),
    refetchInterval: IDLE_MS,
  });
  if (data === undefined || data.summary.total === 0) return null;
  const { oldestPendingMs, averageDurationMs } = data;
  return (
    <p className="quiet more">
      {[
        oldestPendingMs === 0 ? 'No job waits' : `The oldest waiting job has waited for ${spanText(oldestPendingMs)}`,
        averageDurationMs === 0 ? '' : `jobs run for ${spanText(averageDurationMs)} on average`,
      ]
        .filter(Boolean)
        .join('; ')}
      .
    </p>
  );
}

/** Jobs, and the schedules that make them. */
export function JobTabs() {
  const [location] = useLocation();
  return (
    <nav className="tabs" aria-label="Jobs and schedules">
      {[
        ['/console/jobs', 'Jobs'],
        ['/console/schedules', 'Schedules'],
      ].map(([path = '', label]) => (
        <Link key={path} href={path} aria-current={location === path ? 'page' : undefined}>
          {label}
        </Link>
      ))}
    </nav>
  );
}

const EXAMPLE = `curl -s ${location.origin}/acp/rpc -H 'content-type: application/json' \\
  -d '{"jsonrpc":"2.0","id":1,"method":"app.jobs.submit","params":{"taskPrompt":"say hello"}}'`;

function Empty({ isFiltered }: { readonly isFiltered: boolean }) {
  if (isFiltered) return <p className="empty">No job matches.</p>;
  return (
    <section className="empty">
      <h2>No jobs yet</h2>
      <p>A job is a task that runs in the background. Start one with “New job”, or from a program:</p>
      <pre className="code">{EXAMPLE}</pre>
    </section>
  );
}

function Table({ jobs }: { readonly jobs: readonly JobRecord[] }) {
  const own = useOwnName();
  const isShared = jobs.some(({ owner }) => owner !== own);
  const names = ['Task', 'State', 'Agent', 'Submitted', 'Ran', 'Delivery', ...(isShared ? ['Owner'] : [])];
  return (
    <div className="scrolls">
      <table className="list stacks">
        <thead>
          <tr>
            {names.map((name) => (
              <th key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.jobId}>
              <td>
                <Link href={jobAddress(job.jobId)}>{titleText(job.taskPrompt) || job.jobId}</Link>
              </td>
              <td>
                <JobState job={job} />
              </td>
              <td data-name="Agent">{visible(job.providerId)}</td>
              <td data-name="Submitted">
                <Since at={Date.parse(job.createdAt)} /> ago
              </td>
              <td data-name="Ran">{job.durationMs === null ? '' : spanText(job.durationMs)}</td>
              <td data-name="Delivery">{deliveryText(job)}</td>
              {isShared ? <td data-name="Owner">{visible(job.owner)}</td> : null}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function JobState({ job }: { readonly job: Pick<JobRecord, 'status' | 'errorCode' | 'notBefore' | 'retried'> }) {
  const { status, errorCode, notBefore, retried } = job;
  const isLater = status === 'pending' && notBefore !== null && Date.parse(notBefore) > Date.now();
  return (
    <>
      <span className={`chip ${status}`}>{status}</span>{' '}
      <span className="quiet">
        {errorCode ?? ''}
        {isLater ? 'from ' : ''}
        {isLater ? <Moment at={notBefore} /> : null}
        {retried > 0 ? ` run again ${retried} times` : ''}
      </span>
    </>
  );
}

function deliveryText({ webhookSent, webhookTries, cardSent }: JobRecord): string {
  if (webhookSent || cardSent) return 'sent';
  return webhookTries > 0 ? `${webhookTries} tries` : '';
}
