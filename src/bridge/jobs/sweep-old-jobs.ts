import { type Clock, pause } from '../../platform/clock/clock.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { JobReportStore } from '../storage/job-report-store.ts';

export interface SweepJobsOptions {
  readonly store: Pick<JobReportStore, 'ended' | 'remove'>;
  /** 0 is for ever. */
  readonly keptMs: number;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  readonly signal: AbortSignal;
  readonly closeSession: SessionOrchestrator['close'];
}

const STEP = 200;
/** Others write between two steps. */
const PAUSE_MS = 20;

/** Deletes jobs that ended long ago, in small steps, and closes the sessions that were theirs alone. */
export async function sweepOldJobs({ store, keptMs, clock, signal, closeSession }: SweepJobsOptions): Promise<void> {
  if (keptMs === 0) return;
  const before = clock.now() - keptMs;
  while (!signal.aborted) {
    const jobs = await store.ended(before, STEP);
    if (jobs.length === 0) return;
    // Before the jobs: nobody could tell afterwards which sessions were theirs.
    for (const { id, owner, session_id: sessionId } of jobs) {
      if (sessionId === id) await closeSession(owner, { sessionId }).catch(unlessBusy);
    }
    await store.remove(jobs);
    if (jobs.length < STEP) return;
    await pause(clock, PAUSE_MS, signal);
  }
}

/** Somebody goes on with it on another bridge. */
function unlessBusy(error: unknown): void {
  if (errorCode(error) !== 'SESSION_BUSY') throw error;
}
