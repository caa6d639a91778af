import type {
  JobList as ContractJobList,
  JobRecord as ContractJobRecord,
  JobStatistics,
  ListJobsParams,
  SubmitJobParams,
  SubmittedJob,
} from '../bridge/contract/jobs.ts';
import type { SessionResult } from '../bridge/contract/session.ts';
import type { CallBridge } from './bridge-transport.ts';
import type { CallOptions } from './call-limits.ts';
import type { MakeCallId } from './make-call-id.ts';

export interface JobRecord extends Omit<ContractJobRecord, 'result'> {
  /** As a turn gives it; null until there is one. */
  readonly result: SessionResult | null;
}

export interface JobList extends Omit<ContractJobList, 'jobs'> {
  /** Newest first. */
  readonly jobs: readonly JobRecord[];
}

/** What a job id that the bridge does not know gives. */
export interface UnknownJob {
  readonly jobId: string;
  readonly status: 'not_found';
}

/** Background jobs (spec/bridge 4.4). */
export interface Jobs {
  /** Resolves once the bridge has stored the job. However often it has to be sent, it becomes one job. */
  submit(params: SubmitJobParams, options?: CallOptions): Promise<SubmittedJob>;
  get(jobId: string, options?: CallOptions): Promise<JobRecord | UnknownJob>;
  list(params?: ListJobsParams, options?: CallOptions): Promise<JobList>;
  stats(options?: CallOptions): Promise<JobStatistics>;
}

export function createJobs(call: CallBridge, makeCallId: MakeCallId): Jobs {
  return {
    submit: (params, options) =>
      call({ method: 'app.jobs.submit', params: { idempotencyKey: makeCallId(), ...params } }, options),
    get: (jobId, options) => call({ method: 'app.jobs.get', params: { jobId } }, options),
    list: (params = {}, options) => call({ method: 'app.jobs.list', params }, options),
    stats: (options) => call({ method: 'app.jobs.stats', params: {} }, options),
  };
}
