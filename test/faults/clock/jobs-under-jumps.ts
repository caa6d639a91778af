import { setTimeout as sleep } from 'node:timers/promises';
import { getJob, hasEnded, submit } from '../../kit/bridge/job-client.ts';
import type { JobOperation } from './check-operations.ts';

const LOOK_EVERY_MS = 100;
/** So long after its time a job is watched. */
const LATE_LIMIT_MS = 20_000;

interface WantedJob {
  readonly name: string;
  /** What the scripted agent is to do. */
  readonly taskPrompt: string;
  readonly timeoutMs: number;
}

/** The first two run until their time is up; the others wait behind them, one of them in vain. */
const JOBS: readonly WantedJob[] = [
  { name: 'a running job', taskPrompt: 'wait', timeoutMs: 9000 },
  { name: 'another running job', taskPrompt: 'wait', timeoutMs: 12_000 },
  { name: 'a waiting job with little time', taskPrompt: 'say late', timeoutMs: 6000 },
  { name: 'a waiting job with enough time', taskPrompt: 'say in time', timeoutMs: 60_000 },
];

/** Submits the jobs of one cycle and follows them to their ends. */
export async function followJobs(url: string, cycle: string, note: (operation: JobOperation) => void): Promise<void> {
  const followed: Promise<void>[] = [];
  for (const job of JOBS) {
    const startedAt = performance.now();
    const jobId = await submit(url, { taskPrompt: job.taskPrompt, timeoutMs: job.timeoutMs });
    followed.push(follow(url, cycle, job, jobId, startedAt).then(note));
  }
  await Promise.all(followed);
}

async function follow(
  url: string,
  cycle: string,
  { name, timeoutMs }: WantedJob,
  jobId: string,
  startedAt: number,
): Promise<JobOperation> {
  for (;;) {
    const job = await getJob(url, jobId);
    const ms = performance.now() - startedAt;
    const known = { kind: 'job', name: `${name} (${cycle})`, timeoutMs, ms } as const;
    if (hasEnded(job)) return { ...known, status: job.status, errorCode: job.errorCode };
    if (ms > timeoutMs + LATE_LIMIT_MS) return { ...known, status: 'open', errorCode: null };
    await sleep(LOOK_EVERY_MS);
  }
}
