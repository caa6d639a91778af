import { Type } from 'typebox';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { ownersSought, type Principal, sees } from '../../platform/identity/principal.ts';
import { idTime } from '../../platform/ids/sortable-id.ts';
import { defineMethod, type MethodCall, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { BridgeClient } from '../bridge-client.ts';
import {
  JobList,
  JobName,
  JobStatistics,
  type JobSummary,
  JobWithDeliveries,
  ListJobsParams,
  SubmitJobParams,
  SubmittedJob,
  UnknownJob,
} from '../contract/jobs.ts';
import { mergedPages } from '../principal.ts';
import { searchText } from '../sessions/session-summaries.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobFilters, JobPage, JobReportStore, ProviderCounts } from '../storage/job-report-store.ts';
import type { JobDeliveryStore, JobStore } from '../storage/job-store.ts';
import { toAttempt, toRecord } from './job-record.ts';
import { invalid, type SubmitJob } from './submit-job.ts';

/** The jobs that a principal sees: its own; `main` sees all. */
export interface JobReports {
  get(principal: Principal, jobId: string): Promise<JobWithDeliveries | { jobId: string; status: 'not_found' }>;
  list(principal: Principal, params: ListJobsParams): Promise<JobList>;
  statistics(principal: Principal): Promise<JobStatistics>;
}

interface JobReportsOptions {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly reports: Pick<JobReportStore, 'list' | 'search' | 'counts' | 'oldestPending'>;
  readonly deliveries: Pick<JobDeliveryStore, 'attempts'>;
  readonly clock: Pick<Clock, 'now'>;
}

const DEFAULT_LIMIT = 100;
/** Results may be long: a page ends when it has this much of them, and its cursor leads on. */
const MAX_CHARACTERS = 8 * 1024 * 1024;
const READ_AT_ONCE = 100;
const JOB_ID = /^job-[0-9a-z]{26}$/;

export function createJobReports({ jobs, reports, deliveries, clock }: JobReportsOptions): JobReports {
  async function readPageOf(page: JobPage, filters: JobFilters | undefined) {
    if (filters !== undefined) return reports.search(page, filters);
    // One more than wanted tells whether there are more.
    const rows = await reports.list({ ...page, limit: page.limit + 1 });
    const taken = rows.slice(0, page.limit);
    return { jobs: taken, seenUntil: rows.length > page.limit ? (taken.at(-1)?.id ?? '') : '' };
  }

  /** Reads one page of several owners. Jobs beyond the point up to which all owners were searched are left to the next page. */
  async function readPage(
    owners: readonly string[] | undefined,
    page: Omit<JobPage, 'owner'>,
    filters: JobFilters | undefined,
  ) {
    const pages = await mergedPages(owners, async (owner) => [await readPageOf({ ...page, owner }, filters)]);
    const [only] = pages;
    if (pages.length === 1 && only !== undefined) return only;
    const seenUntil = pages.map((one) => one.seenUntil).reduce((one, other) => (one > other ? one : other));
    const found = pages.flatMap((one) => one.jobs.filter(({ id }) => id >= seenUntil));
    const taken = found.toSorted((one, other) => (one.id < other.id ? 1 : -1)).slice(0, page.limit);
    return { jobs: taken, seenUntil: taken.length < found.length ? (taken.at(-1)?.id ?? '') : seenUntil };
  }

  return {
    async get(principal, jobId) {
      const job = JOB_ID.test(jobId) ? await jobs.find(jobId) : undefined;
      if (job === undefined || !sees(principal, job.owner)) return { jobId, status: 'not_found' };
      return { ...toRecord(job, clock.now()), deliveries: (await deliveries.attempts(jobId)).map(toAttempt) };
    },
    async list(principal, params) {
      const { status, limit = DEFAULT_LIMIT, cursor = '' } = params;
      if (cursor !== '' && !JOB_ID.test(cursor)) {
        throw new AppError('INVALID_PARAMS', { reason: 'cursor is not the nextCursor of an earlier page' });
      }
      const isSeen = params.owner === undefined || sees(principal, params.owner);
      const owners = isSeen && params.owner !== undefined ? [params.owner] : ownersSought(principal);
      const filters = readFilters(params);
      const found: JobRow[] = [];
      let before = earlier(cursor, readEnd(params.to));
      let isMore = isSeen;
      for (let characters = 0; isMore && found.length < limit && characters < MAX_CHARACTERS; ) {
        const wanted = Math.min(READ_AT_ONCE, limit - found.length);
        const { jobs: taken, seenUntil } = await readPage(owners, { status, before, limit: wanted }, filters);
        found.push(...taken);
        isMore = seenUntil !== '';
        if (isMore) before = seenUntil;
        characters += taken.reduce((sum, row) => sum + row.outcome.length, 0);
        // The search has reached its limit: the caller gets the jobs found so far.
        if (taken.length < wanted) break;
      }
      const now = clock.now();
      return {
        jobs: found.map((job) => toRecord(job, now)),
        summary: summarise(await mergedPages(owners, reports.counts)),
        nextCursor: isMore ? before : null,
      };
    },
    async statistics(principal) {
      const owners = ownersSought(principal);
      const counts = await mergedPages(owners, reports.counts);
      const pending = async (owner: string | undefined) => [await reports.oldestPending(owner, clock.now())];
      const [oldest] = (await mergedPages(owners, pending))
        .filter((job) => job !== undefined)
        .toSorted((one, other) => (one.id < other.id ? -1 : 1));
      const runs = sumOf(counts, 'ended_runs');
      return {
        summary: summarise(counts),
        byProvider: Object.fromEntries(
          [...Map.groupBy(counts, (row) => row.provider_id)]
            .map(([providerId, rows]) => [providerId, summarise(rows)] as const)
            .filter(([, { total }]) => total > 0),
        ),
        oldestPendingMs:
          oldest === undefined ? 0 : Math.max(0, clock.now() - Math.max(oldest.created_at, oldest.not_before)),
        averageDurationMs: runs === 0 ? 0 : Math.round(sumOf(counts, 'run_ms') / runs),
      };
    },
  };
}

/** Returns undefined when an index can serve the page without a filter. */
function readFilters({ providerId, scheduleId, search, from }: ListJobsParams): JobFilters | undefined {
  if ([providerId, scheduleId, search, from].every((filter) => filter === undefined)) return undefined;
  const words = search === undefined ? undefined : searchText(search, '').trimEnd();
  return { providerId, scheduleId, words, from: from === undefined ? '' : firstId('from', from) };
}

function readEnd(to: string | undefined): string {
  return to === undefined ? '' : firstId('to', to);
}

/** No job that was submitted at that moment or later has a lower id. */
function firstId(field: string, moment: string): string {
  const at = Date.parse(moment);
  if (Number.isNaN(at)) throw invalid(field, 'is not a moment that exists');
  return `job-${idTime(at)}`;
}

/** Returns the lower of two ids; an empty one does not count. */
function earlier(one: string, other: string): string {
  return one === '' || (other !== '' && other < one) ? other : one;
}

function summarise(counts: readonly ProviderCounts[]): JobSummary {
  const pending = sumOf(counts, 'pending');
  const running = sumOf(counts, 'running');
  const completed = sumOf(counts, 'completed');
  const failed = sumOf(counts, 'failed');
  return { pending, running, completed, failed, total: pending + running + completed + failed };
}

function sumOf(counts: readonly ProviderCounts[], name: Exclude<keyof ProviderCounts, 'provider_id'>): number {
  return counts.reduce((sum, row) => sum + row[name], 0);
}

type Call = MethodCall<BridgeClient>;

const principalOf = (call: Call) => call.caller.caller.principal;

/** Jobs exist as methods only. */
export function jobMethods(submit: SubmitJob, reports: JobReports): readonly MethodRow<BridgeClient>[] {
  return [
    defineMethod({
      name: 'app.jobs.submit',
      summary: 'Puts a task into the queue. The response is sent when the job is stored, before it runs.',
      params: SubmitJobParams,
      result: SubmittedJob,
      handle: (params, call: Call) => submit(params, principalOf(call)),
    }),
    defineMethod({
      name: 'app.jobs.get',
      summary: 'Returns a job, its result if it has ended, and every attempt to deliver the result.',
      params: JobName,
      result: Type.Union([JobWithDeliveries, UnknownJob]),
      handle: ({ jobId }, call: Call) => reports.get(principalOf(call), jobId),
    }),
    defineMethod({
      name: 'app.jobs.list',
      summary: 'Jobs, newest first, with a summary.',
      params: ListJobsParams,
      result: JobList,
      handle: (params, call: Call) => reports.list(principalOf(call), params),
    }),
    defineMethod({
      name: 'app.jobs.stats',
      summary: 'Counts the jobs by state, in total and for each agent.',
      params: Type.Object({}),
      result: JobStatistics,
      handle: (_params, call: Call) => reports.statistics(principalOf(call)),
    }),
  ];
}
