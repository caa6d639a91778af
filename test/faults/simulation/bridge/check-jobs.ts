import type { JobRow } from '../../../../src/bridge/storage/bridge-schema.ts';
import { type CheckedStore, checkOperations, type Operation } from '../../jobs/check-operations.ts';
import { checkProgram, programCounts } from '../check-program.ts';
import { checkEndings, promptOf } from './check-job-endings.ts';
import { checkWebhooks } from './check-webhooks.ts';
import type { JobsEvent, StoredJobs } from './job-events.ts';
import type { RunEvent } from './played-agent.ts';

/** Judges a run by its log and by what is stored at its end. */
export function checkJobs(events: readonly JobsEvent[], stored: StoredJobs): string[] {
  const setUp = events.find((event) => event.kind === 'set-up') ?? { maxRunning: 1, fails: 0, isSlow: 0 };
  return [
    ...checkProgram(events, setUp),
    ...checkOperations(events.filter(isOperation), checkedStore(stored)),
    ...checkRuns(events, stored.jobs, setUp.maxRunning),
    ...checkEndings(events, stored.jobs, setUp),
    ...checkWebhooks(events, stored),
    ...checkCounts(stored),
    ...stored.openTurns.map(({ id }) => `the turn ${id} was never ended`),
  ];
}

export function countsOf(events: readonly JobsEvent[]): Record<string, number> {
  const submits = events.filter((event) => event.kind === 'submit');
  return {
    ...programCounts(events),
    'jobs acknowledged': submits.filter(({ outcome }) => outcome === 'ok').length,
    'jobs refused, or without an answer': submits.filter(({ outcome }) => outcome !== 'ok').length,
    'runs of agents': events.filter((event) => event.kind === 'run' && event.end === undefined).length,
    'webhooks that arrived': events.filter(({ kind }) => kind === 'callback').length,
  };
}

function isOperation(event: JobsEvent): event is Extract<JobsEvent, Operation> {
  return event.kind === 'submit' || event.kind === 'seen' || event.kind === 'callback';
}

function checkedStore({ jobs }: StoredJobs): CheckedStore {
  return {
    jobs: jobs.map((job) => ({
      jobId: job.id,
      status: job.status,
      completedAt: job.completed_at === null ? null : new Date(job.completed_at).toISOString(),
      errorCode: job.outcome === '' ? null : (JSON.parse(job.outcome) as { errorCode: string | null }).errorCode,
    })),
    jobOfKey: new Map(
      jobs.map((job) => [job.idempotency_key === null ? promptOf(job) : `${job.owner} ${job.idempotency_key}`, job.id]),
    ),
  };
}

/** No job runs beside itself, none runs again unasked, and never more at once than may. */
function checkRuns(events: readonly JobsEvent[], jobs: readonly JobRow[], maxRunning: number): string[] {
  const byPrompt = new Map(jobs.map((job) => [promptOf(job), job]));
  const running = new Map<string, RunEvent>();
  const runs = new Map<string, number>();
  return events.flatMap((event) => {
    if (event.kind === 'kill' || event.kind === 'stopped' || event.kind === 'not-started') running.clear();
    if (event.kind !== 'run') return [];
    const { prompt, end } = event;
    if (end !== undefined) {
      running.delete(prompt);
      return [];
    }
    const count = (runs.get(prompt) ?? 0) + 1;
    runs.set(prompt, count);
    const job = byPrompt.get(prompt);
    const problems: string[] = [];
    if (job === undefined) problems.push(`"${prompt}" was run, and no such job is stored`);
    if (running.has(prompt)) problems.push(`"${prompt}" ran beside itself`);
    if (count > 1 && job?.retry_on_restart !== 1) problems.push(`"${prompt}" was run ${count} times unasked`);
    running.set(prompt, event);
    if (running.size > maxRunning) problems.push(`${running.size} jobs ran at once, and ${maxRunning} may`);
    return problems;
  });
}

/** The statistics, which are counted on the side, are those of the jobs. */
function checkCounts({ jobs, counts }: StoredJobs): string[] {
  const names = new Set([...jobs, ...counts].map(groupOf));
  return [...names].flatMap((name) => {
    const own = jobs.filter((job) => groupOf(job) === name);
    const row = counts.filter((count) => groupOf(count) === name);
    const sum = (column: (typeof COUNTED)[number]) => row.reduce((total, count) => total + count[column], 0);
    const runMs = own.map(({ started_at: start, completed_at: end }) =>
      start === null || end === null ? undefined : end - start,
    );
    const expected = {
      pending: own.filter(({ status }) => status === 'pending').length,
      running: own.filter(({ status }) => status === 'running').length,
      completed: own.filter(({ status }) => status === 'completed').length,
      failed: own.filter(({ status }) => status === 'failed').length,
      ended_runs: runMs.filter((ms) => ms !== undefined).length,
      run_ms: runMs.reduce<number>((total, ms) => total + (ms ?? 0), 0),
    };
    return COUNTED.flatMap((column) =>
      sum(column) === expected[column]
        ? []
        : [`${name}: ${column} is counted as ${sum(column)}, and is ${expected[column]}`],
    );
  });
}

const COUNTED = ['pending', 'running', 'completed', 'failed', 'ended_runs', 'run_ms'] as const;

function groupOf({ owner, provider_id: provider }: Pick<JobRow, 'owner' | 'provider_id'>): string {
  return `jobs of ${owner} for ${provider}`;
}
