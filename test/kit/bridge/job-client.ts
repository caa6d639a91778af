import { setTimeout as sleep } from 'node:timers/promises';
import type { JobList, JobRecord, JobWithDeliveries } from '../../../src/bridge/contract/jobs.ts';
import type { Envelope } from './bridge-client.ts';
import { call, type Headers } from './session-client.ts';

/** Submits a job and gives its id. */
export async function submit(url: string, params: object, headers: Headers = {}): Promise<string> {
  return String((await submitted(url, params, headers)).jobId);
}

/** The whole answer to a submit that is taken. */
export async function submitted(url: string, params: object, headers: Headers = {}): Promise<Record<string, unknown>> {
  const answer = await call(url, 'app.jobs.submit', { taskPrompt: 'hello', ...params }, headers);
  if (answer.result === undefined) throw new Error(JSON.stringify(answer.error));
  return answer.result;
}

/** The error of a submit that is refused. */
export async function refusal(url: string, params: object, headers: Headers = {}): Promise<Envelope['error']> {
  const answer = await call(url, 'app.jobs.submit', { taskPrompt: 'hello', ...params }, headers);
  if (answer.error === undefined) throw new Error(`it was taken: ${JSON.stringify(answer.result)}`);
  return answer.error;
}

export async function getJob(url: string, jobId: string, headers: Headers = {}): Promise<JobWithDeliveries> {
  return (await call(url, 'app.jobs.get', { jobId }, headers)).result as unknown as JobWithDeliveries;
}

const LIMIT_MS = 30_000;

/** The job, once it fits. */
export async function jobWhen(
  url: string,
  jobId: string,
  fits: (job: JobRecord) => boolean,
  headers: Headers = {},
): Promise<JobWithDeliveries> {
  for (const end = Date.now() + LIMIT_MS; ; await sleep(10)) {
    const job = await getJob(url, jobId, headers);
    if (fits(job)) return job;
    if (Date.now() > end) throw new Error(`the job stays as it is: ${JSON.stringify(job)}`);
  }
}

export const hasEnded = ({ status }: JobRecord): boolean => status === 'completed' || status === 'failed';

export function endedJob(url: string, jobId: string, headers: Headers = {}): Promise<JobWithDeliveries> {
  return jobWhen(url, jobId, hasEnded, headers);
}

export async function listJobs(url: string, params: object = {}, headers: Headers = {}): Promise<readonly JobRecord[]> {
  return ((await call(url, 'app.jobs.list', params, headers)).result as unknown as JobList).jobs;
}
