import type { Clock } from '../../platform/clock/clock.ts';
import { pause } from '../../platform/clock/pause.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { JobReportStore } from '../storage/job-report-store.ts';

export interface SweepJobsOptions {
  readonly store: Pick<JobReportStore, 'deleteEnded'>;
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
    const deleted = await store.deleteEnded(before, STEP);
    for (const { id, owner, session_id: sessionId } of deleted) {
      if (sessionId === id) await closeSession(owner, { sessionId });
    }
    if (deleted.length < STEP) return;
    await pause(clock, PAUSE_MS, signal);
  }
}
