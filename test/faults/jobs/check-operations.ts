/** What was done and seen, one line of the log each. */
export type Operation =
  /** A submit: acknowledged, refused, or with an answer that never came. */
  | {
      readonly kind: 'submit';
      readonly key: string;
      readonly outcome: 'ok' | 'fail' | 'unknown';
      readonly jobId?: string;
    }
  /** A job as somebody saw it, in a list or in a webhook. */
  | { readonly kind: 'seen'; readonly job: SeenJob }
  | { readonly kind: 'callback'; readonly jobId: string; readonly delivery: string }
  | { readonly kind: 'ready'; readonly ms: number };

export interface SeenJob {
  readonly jobId: string;
  readonly status: string;
  readonly completedAt: string | null;
  readonly errorCode: string | null;
}

export interface CheckedStore {
  /** All jobs at the end. */
  readonly jobs: readonly SeenJob[];
  /** Keys of submits by the job that they belong to, as repeating them told. */
  readonly jobOfKey: ReadonlyMap<string, string>;
}

const READY_MS = 2000;

/** Judges a whole run by its log and by what is stored at its end. */
export function checkOperations(operations: readonly Operation[], { jobs, jobOfKey }: CheckedStore): string[] {
  const stored = new Map(jobs.map((job) => [job.jobId, job]));
  const violations: string[] = [];
  const ends = new Map<string, SeenJob>();
  const deliveries = new Map<string, string>();
  for (const operation of operations) {
    switch (operation.kind) {
      case 'submit': {
        const { outcome, key, jobId = '' } = operation;
        if (outcome !== 'ok') break;
        if (!stored.has(jobId)) violations.push(`the acknowledged job ${jobId} is lost`);
        const known = jobOfKey.get(key);
        if (known !== jobId) violations.push(`the key ${key} stands for ${known} and was acknowledged as ${jobId}`);
        break;
      }
      case 'seen':
        violations.push(...noteEnd(ends, operation.job));
        break;
      case 'callback': {
        const { jobId, delivery } = operation;
        const known = deliveries.get(jobId) ?? delivery;
        deliveries.set(jobId, known);
        if (known !== delivery) violations.push(`job ${jobId} was delivered as ${known} and as ${delivery}`);
        break;
      }
      case 'ready':
        if (operation.ms > READY_MS) violations.push(`it was ready only after ${Math.round(operation.ms)} ms`);
        break;
    }
  }
  for (const job of jobs) violations.push(...noteEnd(ends, job));
  for (const job of jobs) if (!isEnd(job)) violations.push(`job ${job.jobId} is still ${job.status}`);
  return violations;
}

function noteEnd(ends: Map<string, SeenJob>, job: SeenJob): string[] {
  const known = ends.get(job.jobId);
  if (known === undefined) {
    if (isEnd(job)) ends.set(job.jobId, job);
    return [];
  }
  const isSame =
    known.status === job.status && known.completedAt === job.completedAt && known.errorCode === job.errorCode;
  return isSame ? [] : [`job ${job.jobId} had ended as ${endOf(known)}, and then was ${endOf(job)}`];
}

function isEnd({ status }: SeenJob): boolean {
  return status === 'completed' || status === 'failed';
}

function endOf({ status, completedAt, errorCode }: SeenJob): string {
  return `${status} ${errorCode ?? ''} ${completedAt ?? ''}`;
}
