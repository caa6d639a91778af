import { countFigure, type FaultFigure, longestFigure, neverFigure, workFigure } from '../fault-suite.ts';

/** A submit: acknowledged, refused, or with an answer that never came. Times are of the monotonic clock. */
export interface SubmitOperation {
  readonly kind: 'submit';
  readonly key: string;
  readonly startedAt: number;
  readonly endedAt: number;
  readonly outcome: 'ok' | 'fail' | 'unknown';
  readonly jobId?: string;
  readonly problem?: string;
}

/** What was done and seen, one line of the log each. */
export type Operation =
  | SubmitOperation
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

/** Goals for killing a bridge under submits: 100,000 acknowledged in 500 kills, ready in time after each. */
const ACKNOWLEDGED_PER_KILL = 200;
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
    }
  }
  for (const job of jobs) violations.push(...noteEnd(ends, job));
  for (const job of jobs) if (!isEnd(job)) violations.push(`job ${job.jobId} is still ${job.status}`);
  return violations;
}

/** What the run came to, by its log and by what is stored at its end. */
export function figuresOf(operations: readonly Operation[], { jobs }: CheckedStore): FaultFigure[] {
  const ready = operations.flatMap((one) => (one.kind === 'ready' ? [one.ms] : []));
  // It is started once more after the last kill.
  const kills = ready.length - 1;
  const least = kills * ACKNOWLEDGED_PER_KILL;
  const acknowledged = operations.filter((one) => one.kind === 'submit' && one.outcome === 'ok').length;
  return [
    workFigure('kills under load', kills),
    {
      name: 'acknowledged for each kill',
      value: `${Math.round(acknowledged / Math.max(1, kills))}`,
      goal: `≥ ${ACKNOWLEDGED_PER_KILL}`,
      met: acknowledged >= least,
    },
    ...submitFigures(operations, jobs),
    countFigure('webhooks received', operations.filter(({ kind }) => kind === 'callback').length),
    longestFigure('ready after a kill, at most', ready.slice(1), READY_MS),
  ];
}

/** What every run with submits tells. */
export function submitFigures(operations: readonly Operation[], jobs: readonly SeenJob[]): FaultFigure[] {
  const submits = operations.filter((one) => one.kind === 'submit');
  const withOutcome = (wanted: SubmitOperation['outcome']) => submits.filter(({ outcome }) => outcome === wanted);
  const stored = new Set(jobs.map(({ jobId }) => jobId));
  return [
    workFigure('submits acknowledged', withOutcome('ok').length),
    countFigure('submits refused', withOutcome('fail').length),
    countFigure('submits without an answer', withOutcome('unknown').length),
    neverFigure('acknowledged jobs lost', withOutcome('ok').filter(({ jobId = '' }) => !stored.has(jobId)).length),
    neverFigure('jobs that ended in two ways', secondEnds(operations, jobs)),
  ];
}

function secondEnds(operations: readonly Operation[], jobs: readonly SeenJob[]): number {
  const ends = new Map<string, SeenJob>();
  const seen = operations.flatMap((one) => (one.kind === 'seen' ? [one.job] : []));
  return [...seen, ...jobs].flatMap((job) => noteEnd(ends, job)).length;
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
