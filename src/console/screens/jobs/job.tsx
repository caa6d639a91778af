import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { Link, useParams } from 'wouter';
import type { JobDetails } from '../../../client/trestle-client.ts';
import { jobAddress, sessionAddress, trestle } from '../../data/bridge.ts';
import { Markdown } from '../../parts/markdown.tsx';
import { ErrorBox, Moment, Since } from '../../parts/parts.tsx';
import { countOf, countText, spanText, titleText, visible } from '../../parts/text.ts';
import { Confirm, CopyCurl, useWork, WorkNotes } from '../../parts/work.tsx';
import { useConsole, useOwnName } from '../../shell/console-context.ts';
import { RunAgain } from './job-form.tsx';
import { JobState } from './jobs.tsx';

const POLL_MS = 1000;

/** What the codes of failures mean; those of turns come with a text of their own. */
const ENDS: Readonly<Record<string, string>> = {
  JOB_TIMEOUT: 'The job reached its time limit.',
  JOB_CANCELLED: 'The job was stopped.',
  JOB_INTERRUPTED: 'The server stopped while the job ran.',
};

/** One job: what was asked, when what happened, how it ended, and where its result was sent. */
export default function JobScreen() {
  const { system } = useConsole();
  const { jobId = '' } = useParams<{ jobId: string }>();
  const client = trestle(system.signIn);
  const { data: job, error } = useQuery({
    queryKey: ['job', jobId],
    queryFn: () => client.jobs.get(jobId),
    refetchInterval: ({ state }) => (isEnded(state.data?.status) ? false : POLL_MS),
  });
  if (job === undefined)
    return error === null ? <p className="quiet loading">Loading …</p> : <ErrorBox error={error} />;
  if (job.status === 'not_found') {
    return (
      <section className="page">
        <h1>There is no job “{visible(jobId)}”</h1>
        <p>Its retention period has ended, or it belongs to someone else.</p>
        <p>
          <Link href="/console/jobs">To the jobs</Link>
        </p>
      </section>
    );
  }
  return (
    <>
      <Header job={job} />
      <ErrorBox error={error} />
      <Details job={job} />
    </>
  );
}

function isEnded(status: string | undefined): boolean {
  return status === 'completed' || status === 'failed' || status === 'not_found';
}

function Header({ job }: { readonly job: JobDetails }) {
  const { system } = useConsole();
  const own = useOwnName();
  const queries = useQueryClient();
  const work = useWork();
  const [isStopping, setStopping] = useState(false);
  const [isAgain, setAgain] = useState(false);
  const client = trestle(system.signIn);
  const stop = () =>
    work.run(async () => {
      await client.session(job.sessionId).cancel(isElsewhere ? {} : { owner: job.owner });
      await queries.invalidateQueries({ queryKey: ['job', job.jobId] });
    });
  const hasOwnSession = job.sessionId === job.jobId;
  /** Another node has its own names for owners. */
  const isElsewhere = job.nodeId !== undefined;
  return (
    <header className="bar">
      <h1>{titleText(job.taskPrompt.split('\n')[0] ?? '') || job.jobId}</h1>
      <JobState job={job} />
      {isEnded(job.status) ? (
        job.owner === own ? (
          <button type="button" className="button primary" onClick={() => setAgain(true)}>
            Run again …
          </button>
        ) : null
      ) : job.owner === own || !isElsewhere ? (
        <button
          type="button"
          className="stop"
          disabled={work.isBusy}
          onClick={() => (hasOwnSession ? stop() : setStopping(true))}
        >
          Stop
        </button>
      ) : null}
      <CopyCurl
        path="/acp/rpc"
        body={{ jsonrpc: '2.0', id: 1, method: 'app.jobs.get', params: { jobId: job.jobId } }}
      />
      <WorkNotes work={work} />
      {isAgain ? <RunAgain job={job} onClose={() => setAgain(false)} /> : null}
      {isStopping ? (
        <Confirm
          title="Stop the job?"
          text={`Everything that runs or waits in the session “${visible(job.sessionId)}” is stopped.`}
          action="Stop it"
          onYes={stop}
          onClose={() => setStopping(false)}
        />
      ) : null}
    </header>
  );
}

function Details({ job }: { readonly job: JobDetails }) {
  const own = useOwnName();
  const { result, error, errorCode, deliveries } = job;
  const output = result?.output ?? '';
  const rows: readonly (readonly [string, ReactNode])[] = [
    ['Submitted', <When key="at" at={job.createdAt} />],
    ['Not before', job.notBefore === null ? null : <When key="at" at={job.notBefore} />],
    ['Started', job.startedAt === null ? null : <When key="at" at={job.startedAt} />],
    ['Ended', job.completedAt === null ? null : <When key="at" at={job.completedAt} />],
    ['Ran', job.durationMs === null ? null : spanText(job.durationMs)],
    ['Time limit', spanText(job.timeoutMs)],
    ['Agent', visible(job.providerId)],
    ['Priority', job.priority],
    ['Run again', job.retries === 0 ? null : `${job.retried} of ${job.retries} times`],
    ['Tokens', result?.usage === undefined ? null : countText(result.usage.totalTokens ?? 0)],
    [
      'Session',
      <Link key="session" href={sessionAddress({ sessionId: job.sessionId, owner: job.owner }, own)}>
        {visible(job.sessionId)}
      </Link>,
    ],
    [
      'Runs again',
      job.retryOf === null ? null : (
        <Link key="of" href={jobAddress(job.retryOf)}>
          {job.retryOf}
        </Link>
      ),
    ],
    ['Owner', job.owner === own ? null : visible(job.owner)],
    ['Node', job.nodeId === undefined ? null : visible(job.nodeId)],
    ['Id', <code key="id">{job.jobId}</code>],
  ];
  return (
    <div className="page settings">
      {errorCode === null ? null : (
        <div className="error">
          <p>{visible(error ?? ENDS[errorCode] ?? 'The job failed.')}</p>
          <p className="quiet">
            {errorCode} {ENDS[errorCode] ?? ''}
          </p>
        </div>
      )}
      <section className="part" aria-label="Request">
        <h2>Request</h2>
        <pre className="prompt">{visible(job.taskPrompt)}</pre>
        {job.taskPrompt.length >= 200 ? (
          <p className="quiet">These are the first 200 characters. The session has the complete task.</p>
        ) : null}
      </section>
      <section className="part" aria-label="Result">
        <h2>Result</h2>
        {output === '' ? <p className="quiet">{isEnded(job.status) ? 'There is no output.' : 'Not yet.'}</p> : null}
        {output === '' ? null : <Markdown text={output} />}
        {(result?.artifacts ?? []).length === 0 ? null : (
          <p className="quiet">{countOf(result?.artifacts.length ?? 0, 'file')}, in the session.</p>
        )}
      </section>
      <section className="part" aria-label="Facts">
        <h2>Facts</h2>
        <dl className="facts-list">
          {rows.map(([name, value]) =>
            value === null || value === '' ? null : (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ),
          )}
        </dl>
      </section>
      <section className="part" aria-label="Deliveries">
        <h2>Deliveries</h2>
        {deliveries.length === 0 ? <p className="quiet">The job has no webhook.</p> : null}
        <ul className="rows">
          {deliveries.map(({ kind, attempt, startedAt, result: outcome, detail }) => (
            <li key={`${kind}${attempt}`}>
              <div>
                <b>
                  {kind} {attempt}
                </b>{' '}
                <span className={outcome === 'failed' ? 'failed' : ''}>{outcome}</span>{' '}
                <span className="quiet">{visible(detail)}</span>
              </div>
              <When at={startedAt} />
            </li>
          ))}
        </ul>
      </section>
    </div>
  );
}

/** A moment, and how long ago it was. */
function When({ at }: { readonly at: string }) {
  return (
    <span>
      <Moment at={at} />{' '}
      {Date.parse(at) > Date.now() ? null : (
        <span className="quiet">
          (<Since at={Date.parse(at)} /> ago)
        </span>
      )}
    </span>
  );
}
