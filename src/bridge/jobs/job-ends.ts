import { pause } from '../../platform/clock/clock.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { JobDeliveryRow, JobRow } from '../storage/bridge-schema.ts';
import type { JobStore } from '../storage/job-store.ts';
import type { JobEnding } from './job-outcome.ts';
import { requestOf } from './job-record.ts';

/** Writes down how jobs end: the one place from which a job becomes completed or failed. */
export interface JobEnds {
  /** False when the job has ended already, or is no longer as the caller knows it. Waits while the store is away. */
  end(job: JobRow, ending: JobEnding): Promise<boolean>;
  /** Waits for the store no longer. */
  stop(): void;
}

export interface JobEndsOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly store: Pick<JobStore, 'end'>;
  /** Told when there is something to deliver. */
  onEnded(): void;
}

const PAUSE_MS = 1000;

export function createJobEnds({ store, clock, makeId, logger, onEnded }: JobEndsOptions): JobEnds {
  const stopped = new AbortController();

  function deliveriesOf(job: JobRow): JobDeliveryRow[] {
    const kinds: JobDeliveryRow['kind'][] = [];
    if (job.webhook_url !== '') kinds.push('webhook');
    if (requestOf(job).card !== undefined) kinds.push('card');
    return kinds.map((kind) => ({ id: makeId('dlv_'), job_id: job.id, kind, attempts: 0, due_at: clock.now() }));
  }

  return {
    async end(job, { status, providerId, result, error, errorCode: code }) {
      const outcome = JSON.stringify({ result, error, errorCode: code });
      const deliveries = deliveriesOf(job);
      const end = { status, providerId: providerId || job.provider_id, outcome, now: clock.now() };
      for (;;) {
        try {
          const isEnded = await store.end(job, end, deliveries);
          if (isEnded && deliveries.length > 0) onEnded();
          return isEnded;
        } catch (problem) {
          // What is not a fault of the moment would fail for ever; the job is settled when the bridge starts again.
          if (!errorCode(problem).startsWith('STORAGE_') || stopped.signal.aborted) throw problem;
          logger.warn({ err: problem, jobId: job.id }, 'the end of a job could not be stored; it is tried again');
          await pause(clock, PAUSE_MS, stopped.signal);
        }
      }
    },
    stop: () => stopped.abort(),
  };
}
