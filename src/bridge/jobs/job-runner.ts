import type { Clock } from '../../platform/clock/clock.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { Logger } from '../../platform/log/logger.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobSearchStore } from '../storage/job-search-store.ts';
import type { JobEnds } from './job-ends.ts';
import { endingOf, endingOfError, type JobEnding, STOPPED } from './job-outcome.ts';
import type { JobQueue } from './job-queue.ts';
import type { RunJobTurn } from './job-turn.ts';

/** Runs waiting jobs, as many at a time as it may. */
export interface JobRunner {
  /** Takes what waits, while there is room. */
  look(): Promise<void>;
  /** Compares what runs here with what the store says of it: others may want it stopped, or have taken it over. */
  compare(): Promise<void>;
  /** Stops a job that runs here, as cancelled; false when it does not. */
  cancel(jobId: string): boolean;
  /** Takes no more jobs. */
  settle(): void;
  /** Resolves when the jobs that ran have ended. Their turns are ended by whoever runs turns. */
  stop(): Promise<void>;
}

export interface JobRunnerOptions {
  readonly queue: Pick<JobQueue, 'take'>;
  readonly search: Pick<JobSearchStore, 'runningOn'>;
  readonly ends: JobEnds;
  readonly instance: string;
  readonly maxRunning: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly runTurn: RunJobTurn;
  cancelTurn(job: JobRow): Promise<void>;
  /** Lets a job wait again of which nothing was done: another bridge runs it, or the next run of this one. */
  putBack(job: JobRow): Promise<void>;
  /** A job that the store thinks is run here, though it is not. */
  release(jobId: string): Promise<void>;
}

interface ActiveJob {
  readonly job: JobRow;
  /** Set once; the first reason counts. */
  stopReason: 'timeout' | 'cancelled' | 'lost' | undefined;
  /** Set as soon as its end is being stored. */
  ended: Promise<void> | undefined;
}

export function createJobRunner(options: JobRunnerOptions): JobRunner {
  const { queue, search, ends, instance, maxRunning, clock, logger, runTurn } = options;
  const active = new Map<string, ActiveJob>();
  const underWay = new Set<Promise<void>>();
  let isDraining = false;
  let looking: Promise<void> | undefined;
  let lookAgain = false;

  function look(): Promise<void> {
    lookAgain = looking !== undefined;
    looking ??= takeAll().finally(() => {
      looking = undefined;
      if (lookAgain) void look();
    });
    return looking;
  }

  async function takeAll(): Promise<void> {
    try {
      while (!isDraining && active.size < maxRunning) {
        const job = await queue.take();
        if (job === undefined) return;
        const run = runJob(job).finally(() => {
          underWay.delete(run);
          void look();
        });
        underWay.add(run);
      }
    } catch (error) {
      logger.warn({ err: error }, 'waiting jobs could not be looked for');
    }
  }

  async function runJob(job: JobRow): Promise<void> {
    const one: ActiveJob = { job, stopReason: undefined, ended: undefined };
    active.set(job.id, one);
    // Never longer than it was given, should the clock have been set back since the submit.
    const leftMs = Math.min(job.timeout_ms, Math.max(0, job.deadline_at - clock.now()));
    const stopTimer = clock.after(leftMs, () => stopJob(one, 'timeout'));
    const ending = await runTurn(job).then(
      (result) => endingOf(result, one.stopReason === 'cancelled'),
      (error: unknown) => (wasNotBegun(one, error) ? undefined : endingOfError(error, one.stopReason === 'cancelled')),
    );
    stopTimer();
    try {
      if (ending === undefined) await options.putBack(job);
      else await conclude(one, ending);
    } catch (error) {
      logger.error({ err: error, jobId: job.id }, 'the end of a job could not be stored');
    }
    active.delete(job.id);
  }

  /** It was taken while the bridge began to shut down, and its turn was refused. */
  function wasNotBegun({ stopReason }: ActiveJob, error: unknown): boolean {
    return stopReason === undefined && errorCode(error) === 'SHUTTING_DOWN';
  }

  function stopJob(one: ActiveJob, reason: NonNullable<ActiveJob['stopReason']>): void {
    if (one.stopReason !== undefined || one.ended !== undefined) return;
    one.stopReason = reason;
    // The time is up now, however long the agent takes to be quiet.
    if (reason === 'timeout') conclude(one, STOPPED.timeout).catch(() => undefined);
    options.cancelTurn(one.job).catch((error: unknown) => {
      logger.warn({ err: error, jobId: one.job.id }, 'the turn of a job could not be cancelled');
    });
  }

  /** Stores the end; of two reasons for it the first counts. */
  function conclude(one: ActiveJob, ending: JobEnding): Promise<void> {
    one.ended ??= store(one, ending);
    return one.ended;
  }

  async function store({ job, stopReason }: ActiveJob, ending: JobEnding): Promise<void> {
    if (stopReason === 'lost') return;
    // It stays as it is, and whoever comes next runs it again.
    if (ending.errorCode === 'JOB_INTERRUPTED' && job.retry_on_restart === 1) return;
    if (!(await ends.end(job, ending))) logger.warn({ jobId: job.id }, 'a job was ended by another bridge');
  }

  return {
    look,
    async compare() {
      // While a job is being taken it runs for the store and not yet here.
      await looking;
      const before = [...active.values()];
      const known = await search.runningOn(instance);
      const byId = new Map(known.map((row) => [row.id, row]));
      for (const one of before) {
        const row = byId.get(one.job.id);
        if (row?.attempt !== one.job.attempt) stopJob(one, 'lost');
        else if (row.stop_requested === 1) stopJob(one, 'cancelled');
      }
      if (looking !== undefined) return;
      for (const { id } of known) if (!active.has(id)) await options.release(id);
    },
    cancel(jobId) {
      const one = active.get(jobId);
      if (one !== undefined) stopJob(one, 'cancelled');
      return one !== undefined;
    },
    settle() {
      isDraining = true;
    },
    async stop() {
      isDraining = true;
      await looking;
      await Promise.all(underWay);
    },
  };
}
