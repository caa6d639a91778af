import type { SessionName } from '../contract/session.ts';
import { ownFirst, seesAll } from '../principal.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobSearchStore } from '../storage/job-search-store.ts';
import type { JobStore } from '../storage/job-store.ts';
import type { JobEnds } from './job-ends.ts';
import { STOPPED } from './job-outcome.ts';

interface AbandonmentParts {
  readonly store: Pick<JobStore, 'requeue'>;
  readonly search: Pick<JobSearchStore, 'abandoned'>;
  readonly ends: JobEnds;
  readonly instance: string;
}

const PAGE = 100;

/**
 * Jobs that were running on a bridge that is gone: an agent's work is not repeated unasked, so they fail as
 * JOB_INTERRUPTED, but for those that were submitted with `retryOnRestart` (contract/bridge 7). Answers how many.
 */
export async function settleAbandoned(parts: AbandonmentParts, given?: readonly JobRow[]): Promise<number> {
  const { store, search, ends, instance } = parts;
  for (let total = 0; ; ) {
    const jobs = given ?? (await search.abandoned(instance, PAGE));
    let settled = 0;
    for (const job of jobs) {
      const isRetried = job.retry_on_restart === 1;
      const isSettled = isRetried ? await store.requeue(job) : await ends.end(job, STOPPED.interrupted);
      if (isSettled) settled += 1;
    }
    total += settled;
    if (given !== undefined || jobs.length < PAGE || settled === 0) return total;
  }
}

/** Jobs whose time was up before anybody could run them. */
export async function expireJobs(parts: {
  readonly search: Pick<JobSearchStore, 'overdue'>;
  readonly ends: JobEnds;
  readonly now: number;
}): Promise<void> {
  for (;;) {
    const jobs = await parts.search.overdue(parts.now, PAGE);
    let ended = 0;
    for (const job of jobs) if (await parts.ends.end(job, STOPPED.timeout)) ended += 1;
    if (jobs.length < PAGE || ended === 0) return;
  }
}

interface CancelParts {
  readonly store: Pick<JobStore, 'find' | 'requestStop'>;
  readonly search: Pick<JobSearchStore, 'ofSession'>;
  readonly ends: JobEnds;
  /** False when the job does not run on this bridge. */
  cancelHere(jobId: string): boolean;
  /** Whether the principal has a session of that name or thread itself. */
  hasOwnSession(principal: string, name: SessionName): Promise<boolean>;
}

/**
 * `session.cancel` and `session.close` end the jobs of the session too, those that wait included. Where several owners use
 * the same name, the principal means its own session and jobs; only where it has neither, those of others that it sees.
 * Resolves with false when the sessions of that name are not meant.
 */
export async function cancelJobs(parts: CancelParts, principal: string, name: SessionName): Promise<boolean> {
  const { store, search, ends } = parts;
  const { sessionId = '', threadId = '' } = name;
  if (sessionId === '' && threadId === '') return true;
  if (!`${sessionId}${threadId}`.isWellFormed()) return true;
  const owner = seesAll(principal) ? undefined : principal;
  const seen = await search.ofSession(sessionId === '' ? { threadId } : { sessionId }, owner);
  const hasOwnSession = owner === undefined && (await parts.hasOwnSession(principal, name));
  const meant = hasOwnSession ? seen.filter((job) => job.owner === principal) : ownFirst(principal, seen);
  for (const job of meant) {
    if (job.status === 'pending' && (await ends.end(job, STOPPED.cancelled))) continue;
    // It runs, perhaps only since a moment ago; then its turn is cancelled, and that ends it.
    if (!parts.cancelHere(job.id)) await store.requestStop(job.id);
  }
  return owner !== undefined || hasOwnSession || !meant.some((job) => job.owner === principal);
}
