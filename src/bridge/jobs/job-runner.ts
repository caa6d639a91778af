import { errorCode } from '../../platform/errors/app-error.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { JobCall, SessionCalls } from '../sessions/session-calls.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobSearchStore } from '../storage/job-search-store.ts';
import type { JobEnds } from './job-ends.ts';
import type { JobQueue } from './job-queue.ts';
import { endingOf, endingOfError, type JobEnding, requestOf, STOPPED } from './job-record.ts';

/** Runs waiting jobs, as many at a time as it may. */
export interface JobRunner {
  /** Takes what waits, while there is room. */
  look(): Promise<void>;
  /** A session has become idle: looks if jobs were left behind. */
  sessionIdle(): void;
  /** Compares what runs here with what the store says of it: others may want it stopped, or have taken it over. */
  compare(): Promise<void>;
  /** Stops a job that runs here, as cancelled; false when it does not. */
  cancel(jobId: string): boolean;
  /** Takes no more jobs. */
  settle(): void;
  /** Resolves when the jobs that ran have ended. Their turns are ended by whoever runs turns. */
  stop(): Promise<void>;
}

export interface JobRunnerOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly queue: JobQueue;
  readonly search: Pick<JobSearchStore, 'runningOn'>;
  readonly ends: JobEnds;
  readonly instance: string;
  readonly maxRunning: number;
  /** Of one owner, at this moment: other owners must not wait until all of its jobs have ended. */
  maxRunningOfOwner(): number;
  readonly runTurn: SessionCalls['jobTurn'];
  /** Lets a job wait again of which nothing was done: another bridge runs it, or the next run of this one. */
  putBack(job: JobRow): Promise<void>;
  /** A job that the store thinks is run here, though it is not. */
  release(jobId: string): Promise<void>;
}

interface ActiveJob {
  readonly job: JobRow;
  /** Cancels its turn. */
  readonly stopped: AbortController;
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
        const job = await queue.take(hasRoom);
        if (job === undefined) return;
        const run = runJob(job).then((hasEnded) => {
          underWay.delete(run);
          // A job that was put back waits for its session, and whatever runs there tells when it has ended.
          if (hasEnded) void look();
        });
        underWay.add(run);
      }
    } catch (error) {
      logger.warn({ err: error }, 'waiting jobs could not be looked for');
    }
  }

  function hasRoom(owner: string): boolean {
    let running = 0;
    for (const { job } of active.values()) if (job.owner === owner) running += 1;
    return running < options.maxRunningOfOwner();
  }

  /** False when nothing was done, and the job waits again. Never rejects. */
  async function runJob(job: JobRow): Promise<boolean> {
    const one: ActiveJob = { job, stopped: new AbortController(), stopReason: undefined, ended: undefined };
    active.set(job.id, one);
    // Never longer than it was given, should the clock have been set back since the submit.
    const leftMs = Math.min(job.timeout_ms, Math.max(0, job.deadline_at - clock.now()));
    const stopTimer = clock.after(leftMs, () => stopJob(one, 'timeout'));
    const ending = await runTurn(turnOf(job), one.stopped.signal).then(
      (result) => (result === undefined ? notBegun(one) : endingOf(result, one.stopReason === 'cancelled')),
      (error: unknown) => (isRefusal(error) ? notBegun(one) : endingOfError(error, one.stopReason === 'cancelled')),
    );
    stopTimer();
    try {
      if (ending === undefined) await options.putBack(job);
      else await conclude(one, ending);
    } catch (error) {
      logger.error({ err: error, jobId: job.id }, 'the end of a job could not be stored');
    }
    active.delete(job.id);
    return ending !== undefined;
  }

  /** The turn was not begun: the job waits again, unless it was stopped in the meantime. */
  function notBegun({ stopReason }: ActiveJob): JobEnding | undefined {
    return stopReason === undefined ? undefined : STOPPED[stopReason === 'timeout' ? 'timeout' : 'cancelled'];
  }

  function stopJob(one: ActiveJob, reason: NonNullable<ActiveJob['stopReason']>): void {
    if (one.stopReason !== undefined || one.ended !== undefined) return;
    one.stopReason = reason;
    // The time is up now, however long the agent takes to be quiet.
    if (reason === 'timeout') conclude(one, STOPPED.timeout).catch(() => undefined);
    one.stopped.abort();
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
    sessionIdle() {
      if (queue.hasLeft()) void look();
    },
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

/** The bridge is about to stop, or another bridge has just begun a turn of the session. */
function isRefusal(error: unknown): boolean {
  return errorCode(error) === 'SHUTTING_DOWN' || errorCode(error) === 'SESSION_BUSY';
}

function turnOf(job: JobRow): JobCall {
  const { card: _card, newSession = false, ...request } = requestOf(job);
  return {
    jobId: job.id,
    owner: job.owner,
    params: { ...request, sessionId: job.session_id, threadId: job.thread_id },
    newSession,
    isRetry: job.attempt > 1,
  };
}
