import { type Clock, pause } from '../../platform/clock/clock.ts';
import type { WakeUps } from '../../platform/database/postgres/wake-ups.ts';
import { isStoreFault } from '../../platform/database/statement.ts';
import { ownersSought, ownFirst, type Principal } from '../../platform/identity/principal.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { SessionName } from '../contract/session.ts';
import { principalOf, requireMay } from '../principal.ts';
import { unlessBusy } from '../sessions/housekeeping.ts';
import type { SessionOrchestrator } from '../sessions/session-orchestrator.ts';
import type { JobDeliveryRow, JobRow } from '../storage/bridge-schema.ts';
import type { JobReportStore } from '../storage/job-report-store.ts';
import type { JobSearchStore } from '../storage/job-search-store.ts';
import type { JobStore } from '../storage/job-store.ts';
import { endingOfTurn, type JobEnding, requestOf, retryTime, STOPPED } from './job-record.ts';

/** Stores how jobs end. Only this makes a job completed or failed. */
export interface JobEnds {
  /** False when the job has ended already, or has changed since the caller read it. Waits while the store is unavailable. */
  end(job: JobRow, ending: JobEnding): Promise<boolean>;
  /** Lets a job whose agent failed wait until it is run again. False as above. */
  retry(job: JobRow, retryAt: number): Promise<boolean>;
  /** Stops waiting for the store. */
  stop(): void;
}

interface JobEndsOptions extends Pick<Runtime, 'clock' | 'makeId' | 'logger'> {
  readonly store: Pick<JobStore, 'end' | 'retry'>;
  /** Called when there is something to deliver. */
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

  /** Retries until the store has accepted the write. */
  async function persist(jobId: string, write: () => Promise<boolean>): Promise<boolean> {
    for (;;) {
      try {
        return await write();
      } catch (problem) {
        // A lasting error would fail each time; the job is settled when the bridge starts again.
        if (!isStoreFault(problem) || stopped.signal.aborted) throw problem;
        logger.warn({ err: problem, jobId }, 'the end of a job could not be stored; it is tried again');
        await pause(clock, PAUSE_MS, stopped.signal);
      }
    }
  }

  return {
    retry: (job, retryAt) => persist(job.id, () => store.retry(job, retryAt)),
    async end(job, { status, providerId, result, error, errorCode: code }) {
      const outcome = JSON.stringify({ result, error, errorCode: code });
      const deliveries = deliveriesOf(job);
      const end = { status, providerId: providerId || job.provider_id, outcome, now: clock.now() };
      const isEnded = await persist(job.id, () => store.end(job, end, deliveries));
      if (isEnded && deliveries.length > 0) onEnded();
      return isEnded;
    },
    stop: () => stopped.abort(),
  };
}

interface AbandonmentParts {
  readonly store: Pick<JobStore, 'requeue'>;
  readonly search: Pick<JobSearchStore, 'abandoned' | 'endedTurn'>;
  readonly ends: JobEnds;
  readonly instance: string;
  readonly clock: Pick<Clock, 'now'>;
}

const PAGE = 100;

/**
 * Settles jobs that were running on a bridge that has ended. A job whose turn has ended ends as its turn did, because the bridge ended
 * before it could store that. The others fail as JOB_INTERRUPTED, because an agent's work is not repeated by default, unless they
 * were submitted with `retryOnRestart`. Returns how many were settled.
 */
export async function settleAbandoned(parts: AbandonmentParts, given?: readonly JobRow[]): Promise<number> {
  const { store, search, ends, instance, clock } = parts;
  async function settleOne(job: JobRow): Promise<boolean> {
    const turn = await search.endedTurn(job);
    const ending = turn === undefined ? STOPPED.interrupted : endingOfTurn(job, turn);
    if (ending.errorCode === STOPPED.interrupted.errorCode && job.retry_on_restart === 1) return store.requeue(job);
    const retryAt = retryTime(job, ending, clock.now());
    return retryAt === undefined ? ends.end(job, ending) : ends.retry(job, retryAt);
  }
  for (let total = 0; ; ) {
    const jobs = given ?? (await search.abandoned(instance, PAGE));
    let settled = 0;
    for (const job of jobs) {
      if (await settleOne(job)) settled += 1;
    }
    total += settled;
    if (given !== undefined || jobs.length < PAGE || settled === 0) return total;
  }
}

/** Ends jobs whose deadline passed while they waited. */
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
  hasOwnSession(principal: Principal, name: SessionName): Promise<boolean>;
}

/**
 * `session.cancel` and `session.close` end the jobs of the session too, those that wait included. Where several owners use
 * the same name, the principal means its own session and jobs; only where it has neither, those of others that it sees.
 * Resolves with false when the sessions of that name are not meant.
 */
export async function cancelJobs(
  parts: CancelParts,
  principal: Principal,
  method: string,
  name: SessionName,
): Promise<boolean> {
  const { store, search, ends } = parts;
  const { sessionId = '', threadId = '' } = name;
  if (sessionId === '' && threadId === '') return true;
  if (!`${sessionId}${threadId}`.isWellFormed()) return true;
  const owners = ownersSought(principal);
  const isAlone = owners?.length === 1;
  const seen = await search.ofSession(sessionId === '' ? { threadId } : { sessionId }, owners);
  const hasOwnSession = !isAlone && (await parts.hasOwnSession(principal, name));
  const meant = hasOwnSession ? seen.filter((job) => job.owner === principal.id) : ownFirst(principal, seen);
  for (const job of meant) requireMay(principal, method, job.owner);
  for (const job of meant) {
    if (job.status === 'pending' && (await ends.end(job, STOPPED.cancelled))) continue;
    // The job runs, perhaps since a moment ago. The cancelled turn ends it.
    if (!parts.cancelHere(job.id)) await store.requestStop(job.id);
  }
  return isAlone || hasOwnSession || !meant.some((job) => job.owner === principal.id);
}

interface SweepJobsOptions {
  readonly store: Pick<JobReportStore, 'ended' | 'remove'>;
  /** 0 is for ever. */
  readonly keptMs: number;
  readonly clock: Pick<Clock, 'now' | 'after'>;
  readonly signal: AbortSignal;
  readonly closeSession: SessionOrchestrator['close'];
}

const STEP = 200;
/** Others write between two steps. */
const SWEEP_PAUSE_MS = 20;

/** Deletes jobs that ended long ago, in small steps, and closes the sessions that were theirs alone. */
export async function sweepOldJobs({ store, keptMs, clock, signal, closeSession }: SweepJobsOptions): Promise<void> {
  if (keptMs === 0) return;
  const before = clock.now() - keptMs;
  while (!signal.aborted) {
    const jobs = await store.ended(before, STEP);
    if (jobs.length === 0) return;
    // The sessions first: without the jobs, nothing says which sessions were theirs.
    for (const { id, owner, session_id: sessionId } of jobs) {
      if (sessionId === id) await closeSession(principalOf(owner), { sessionId }).catch(unlessBusy);
    }
    await store.remove(jobs);
    if (jobs.length < STEP) return;
    await pause(clock, SWEEP_PAUSE_MS, signal);
  }
}

/** The topic of messages that there is new work. */
const WORK_TOPIC = 'work';
/** The longest rest, in case messages were lost. */
const MAX_REST_MS = 15_000;

interface RestOptions {
  readonly clock: Pick<Clock, 'now'>;
  /** Undefined: no other bridge shares the database. */
  readonly wakeUps: WakeUps | undefined;
  readonly isShared: boolean;
  readonly search: Pick<JobSearchStore, 'hasWork'>;
}

/** Skips the checks of each second while no bridge has any work (decision 137). */
export function createRest({ search, clock, wakeUps, isShared }: RestOptions) {
  let begunAt: number | undefined;
  let ends = 0;
  const endHere = (): void => {
    ends += 1;
    begunAt = undefined;
  };
  const end = (): void => {
    endHere();
    wakeUps?.send(WORK_TOPIC, 'added');
  };
  // While this bridge was not connected, its own messages were lost, too.
  wakeUps?.on(WORK_TOPIC, (subject) => (subject === '' ? end() : endHere()));
  async function begin(since = clock.now()): Promise<boolean> {
    const [before, now] = [ends, clock.now()];
    if (now < since) return false;
    const hasWork = await search.hasWork(now + 2 * MAX_REST_MS);
    begunAt = hasWork || before !== ends ? undefined : now;
    return begunAt !== undefined;
  }
  return {
    /** Work was added. */
    end,
    /** Rests if there is no work, and the clock was not set back since the moment at which all work was looked for. */
    begin,
    async goesOn(): Promise<boolean> {
      const isSentMessages = !isShared || wakeUps?.isListening() === true;
      const restedMs = clock.now() - (begunAt ?? Number.POSITIVE_INFINITY);
      // A clock that was set back ends the rest, too.
      if (!isSentMessages || restedMs < 0) return false;
      return restedMs < MAX_REST_MS || begin();
    },
  };
}
