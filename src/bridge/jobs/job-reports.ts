import { Type } from 'typebox';
import type { Clock } from '../../platform/clock/clock.ts';
import { AppError } from '../../platform/errors/app-error.ts';
import { defineMethod, type MethodCall, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { BridgeClient } from '../bridge-client.ts';
import {
  JobList,
  JobName,
  JobRecord,
  JobStatistics,
  type JobSummary,
  ListJobsParams,
  SubmitJobParams,
  SubmittedJob,
  UnknownJob,
} from '../contract/jobs.ts';
import { sees, seesAll } from '../principal.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobReportStore, ProviderCounts } from '../storage/job-report-store.ts';
import type { JobStore } from '../storage/job-store.ts';
import { toRecord } from './job-record.ts';
import type { SubmitJob } from './submit-job.ts';

/** What a principal may know of jobs: its own, and `main` all (contract/bridge 11). */
export interface JobReports {
  get(principal: string, jobId: string): Promise<JobRecord | { jobId: string; status: 'not_found' }>;
  list(principal: string, params: ListJobsParams): Promise<JobList>;
  statistics(principal: string): Promise<JobStatistics>;
}

interface JobReportsOptions {
  readonly jobs: Pick<JobStore, 'find'>;
  readonly reports: Pick<JobReportStore, 'list' | 'counts' | 'oldestPending'>;
  readonly clock: Pick<Clock, 'now'>;
}

const DEFAULT_LIMIT = 100;
/** Results may be long: a page ends when it has this much of them, and its cursor leads on. */
const MOST_CHARACTERS = 8 * 1024 * 1024;
const READ_AT_ONCE = 100;
const JOB_ID = /^job-[0-9a-z]{26}$/;

export function createJobReports({ jobs, reports, clock }: JobReportsOptions): JobReports {
  const ownerFor = (principal: string) => (seesAll(principal) ? undefined : principal);

  return {
    async get(principal, jobId) {
      const job = JOB_ID.test(jobId) ? await jobs.find(jobId) : undefined;
      if (job === undefined || !sees(principal, job.owner)) return { jobId, status: 'not_found' };
      return toRecord(job, clock.now());
    },
    async list(principal, { status, limit = DEFAULT_LIMIT, cursor = '' }) {
      if (cursor !== '' && !JOB_ID.test(cursor)) {
        throw new AppError('INVALID_PARAMS', { reason: 'cursor is not the nextCursor of an earlier page' });
      }
      const owner = ownerFor(principal);
      const found: JobRow[] = [];
      let before = cursor;
      let isMore = true;
      for (let characters = 0; isMore && found.length < limit && characters < MOST_CHARACTERS; ) {
        const wanted = Math.min(READ_AT_ONCE, limit - found.length);
        const rows = await reports.list({ owner, status, before, limit: wanted + 1 });
        const taken = rows.slice(0, wanted);
        found.push(...taken);
        isMore = rows.length > wanted;
        before = taken.at(-1)?.id ?? before;
        characters += taken.reduce((sum, row) => sum + row.outcome.length, 0);
      }
      const now = clock.now();
      return {
        jobs: found.map((job) => toRecord(job, now)),
        summary: summarise(await reports.counts(owner)),
        nextCursor: isMore ? before : null,
      };
    },
    async statistics(principal) {
      const owner = ownerFor(principal);
      const counts = await reports.counts(owner);
      const oldest = await reports.oldestPending(owner);
      const runs = sumOf(counts, 'ended_runs');
      return {
        summary: summarise(counts),
        byProvider: Object.fromEntries(
          counts.map((row) => [row.provider_id, summarise([row])] as const).filter(([, { total }]) => total > 0),
        ),
        oldestPendingMs: oldest === undefined ? 0 : Math.max(0, clock.now() - oldest.created_at),
        averageDurationMs: runs === 0 ? 0 : Math.round(sumOf(counts, 'run_ms') / runs),
      };
    },
  };
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

/** Jobs exist as methods only (spec/bridge 4.4). */
export function jobMethods(submit: SubmitJob, reports: JobReports): readonly MethodRow<BridgeClient>[] {
  return [
    defineMethod({
      name: 'app.jobs.submit',
      summary: 'Puts a task into the queue; the answer comes when it is stored, before it runs.',
      params: SubmitJobParams,
      result: SubmittedJob,
      handle: (params, call: Call) => submit(params, principalOf(call)),
    }),
    defineMethod({
      name: 'app.jobs.get',
      summary: 'A job, and its result when it has ended.',
      params: JobName,
      result: Type.Union([JobRecord, UnknownJob]),
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
      summary: 'How many jobs are in which state, in all and for each agent.',
      params: Type.Object({}),
      result: JobStatistics,
      handle: (_params, call: Call) => reports.statistics(principalOf(call)),
    }),
  ];
}
