import { setTimeout as sleep } from 'node:timers/promises';
import type { JobList, JobRecord, JobStatistics } from '../../../src/bridge/contract/jobs.ts';
import { call } from '../../kit/bridge/session-client.ts';
import type { CheckedStore, SeenJob, SubmitOperation } from './check-operations.ts';

const PAGE = 1000;
const AT_ONCE = 8;
/** A submit is answered or refused long before. */
const SUBMIT_LIMIT_MS = 60_000;
/** Without one more job that has ended. How long all of them take depends on what else the machine does. */
const MAX_STILL_MS = 120_000;

/** Submits of one run: a key that comes again comes with the same parameters, and with those of this run. */
export interface JobSubmits {
  /** Notes the parameters of a key that is submitted elsewhere. */
  noteParams(key: string, params: object): void;
  /** One submit, and what is known after it. */
  submitJob(url: string, key: string, given?: object): Promise<SubmitOperation>;
  /** Waits while jobs end, until none is open, and gives what is stored then; jobs by their keys, as repeating the submits tells. */
  storedJobs(url: string, keys: readonly string[]): Promise<CheckedStore>;
}

export function createJobSubmits(): JobSubmits {
  const paramsOfKey = new Map<string, object>();
  const submitJob: JobSubmits['submitJob'] = (url, key, given) => {
    const params = paramsOfKey.get(key) ?? given ?? {};
    paramsOfKey.set(key, params);
    return submitWith(url, key, params);
  };
  return {
    noteParams: (key, params) => void paramsOfKey.set(key, params),
    submitJob,
    storedJobs: (url, keys) => storedAtTheEnd(url, keys, submitJob),
  };
}

async function submitWith(url: string, key: string, params: object): Promise<SubmitOperation> {
  const startedAt = performance.now();
  const told = (rest: Pick<SubmitOperation, 'outcome' | 'jobId' | 'problem'>): SubmitOperation => ({
    kind: 'submit',
    key,
    startedAt,
    endedAt: performance.now(),
    ...rest,
  });
  try {
    const asked = call(url, 'app.jobs.submit', { taskPrompt: 'hello', idempotencyKey: key, ...params });
    const { result, error } = await Promise.race([asked, tooLate()]);
    if (result === undefined) return told({ outcome: 'fail', problem: String(error?.message) });
    return told({ outcome: 'ok', jobId: String(result.jobId) });
  } catch (error) {
    return told({ outcome: 'unknown', problem: String(error) });
  }
}

async function tooLate(): Promise<never> {
  await sleep(SUBMIT_LIMIT_MS, undefined, { ref: false });
  throw new Error(`no answer after ${SUBMIT_LIMIT_MS} ms`);
}

async function storedAtTheEnd(
  url: string,
  keys: readonly string[],
  submitJob: JobSubmits['submitJob'],
): Promise<CheckedStore> {
  let least = Number.POSITIVE_INFINITY;
  for (let lastEndAt = performance.now(); least > 0 && performance.now() - lastEndAt < MAX_STILL_MS; await sleep(200)) {
    const open = await openJobs(url);
    if (open < least) lastEndAt = performance.now();
    least = Math.min(least, open);
  }
  const jobs = await listJobs(url);
  const jobOfKey = new Map<string, string>();
  const left = keys.values();
  const repeat = async (): Promise<void> => {
    for (const key of left) {
      const { jobId } = await submitJob(url, key);
      if (jobId !== undefined) jobOfKey.set(key, jobId);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, repeat));
  return { jobs, jobOfKey };
}

async function openJobs(url: string): Promise<number> {
  const { result } = await call(url, 'app.jobs.stats', {});
  const { pending, running } = (result as unknown as JobStatistics).summary;
  return pending + running;
}

async function listJobs(url: string): Promise<SeenJob[]> {
  const all: SeenJob[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const { result } = await call(url, 'app.jobs.list', { limit: PAGE, ...(cursor !== '' && { cursor }) });
    const page = result as unknown as JobList;
    all.push(...page.jobs.map(seenOf));
    cursor = page.nextCursor;
  }
  return all;
}

export function seenOf({ jobId, status, completedAt, errorCode }: JobRecord): SeenJob {
  return { jobId, status, completedAt, errorCode };
}
