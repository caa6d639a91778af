import type { Clock } from '../../platform/clock/clock.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import { createRounds } from '../../platform/queue/batcher.ts';
import type { Runtime } from '../../platform/runtime/runtime.ts';
import type { BridgeEvent } from '../contract/surface.ts';
import type { ServerBox } from '../sessions/mcp-servers.ts';
import type { JobCall, SessionCalls } from '../sessions/session-calls.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobSearchStore, NextJob } from '../storage/job-search-store.ts';
import type { JobStore } from '../storage/job-store.ts';
import type { JobEnds } from './job-ends.ts';
import { endingOf, endingOfError, isPutOff, type JobEnding, requestOf, retryTime, STOPPED } from './job-record.ts';

/** Runs waiting jobs, as many at a time as it may. */
interface JobRunner {
  /** Claims and runs waiting jobs, while there is room. */
  look(): Promise<void>;
  /** Called when a session has become idle: looks for jobs if the last search left some waiting. */
  sessionIdle(): void;
  /** Compares the jobs that run here with the store, because other bridges may want them stopped or may have taken them. */
  compare(): Promise<void>;
  /** Stops a job as cancelled; false when it does not run here. */
  cancel(jobId: string): boolean;
  /** Stops all jobs that run here and are meant. */
  cancelWhere(isMeant: (job: Pick<JobRow, 'owner' | 'member'>) => boolean): void;
  /** Takes no more jobs. */
  settle(): void;
  /** Resolves when the jobs that ran have ended. The orchestrator ends their turns. */
  stop(): Promise<void>;
}

interface JobRunnerOptions extends Pick<Runtime, 'clock' | 'logger'> {
  readonly queue: JobQueue;
  readonly search: Pick<JobSearchStore, 'runningOn'>;
  readonly ends: JobEnds;
  readonly instance: string;
  readonly maxRunning: number;
  /** How many jobs of an owner may run at this moment, so that other owners do not wait until all of them have ended. */
  maxRunningOfOwner(owner: string): number;
  readonly runTurn: SessionCalls['jobTurn'];
  readonly serverBox: Pick<ServerBox, 'open'>;
  /** Whether agents may work for an owner, at this moment. */
  mayWork(job: Pick<JobRow, 'owner' | 'member'>): Promise<boolean>;
  /** Posts an event to webhooks. Undefined: there are none. */
  readonly announce?: ((event: BridgeEvent) => void) | undefined;
  /** Makes a job wait again that has not begun: another bridge runs it, or this one after a restart. */
  putBack(job: JobRow): Promise<void>;
  /** A job that is stored as running here, but is not. */
  release(jobId: string): Promise<void>;
}

interface ActiveJob {
  readonly job: JobRow;
  /** Cancels its turn. */
  readonly stopped: AbortController;
  /** Set once; the first reason counts. */
  stopReason: 'timeout' | 'cancelled' | 'lost' | undefined;
  /** Set when storing its end begins. */
  ended: Promise<void> | undefined;
}

export function createJobRunner(options: JobRunnerOptions): JobRunner {
  const { queue, search, ends, instance, maxRunning, clock, logger, runTurn } = options;
  const active = new Map<string, ActiveJob>();
  const underWay = new Set<Promise<void>>();
  let isDraining = false;
  const rounds = createRounds(takeAll);

  async function takeAll(): Promise<void> {
    try {
      while (!isDraining && active.size < maxRunning) {
        const job = await queue.take(hasRoom);
        if (job === undefined) return;
        const run = runJob(job).then((hasEnded) => {
          underWay.delete(run);
          // A job that was put back waits for its session: `sessionIdle` is called when the session is idle.
          if (hasEnded) void rounds.look();
        });
        underWay.add(run);
      }
    } catch (error) {
      logger.warn({ err: error }, 'waiting jobs could not be looked for');
    }
  }

  function hasRoom(owner: string): boolean {
    let running = 0;
    for (const { job } of active.values()) if (job.owner === owner || job.member === owner) running += 1;
    return running < options.maxRunningOfOwner(owner);
  }

  /** Runs a job. False when it has not begun and waits again. Never rejects. */
  async function runJob(job: JobRow): Promise<boolean> {
    const one: ActiveJob = { job, stopped: new AbortController(), stopReason: undefined, ended: undefined };
    active.set(job.id, one);
    // Never longer than its timeout, in case the clock was set back since the submit.
    const leftMs = Math.min(job.timeout_ms, Math.max(0, job.deadline_at - clock.now()));
    const stopTimer = clock.after(leftMs, () => stopJob(one, 'timeout'));
    const ending = await begin(one).then(
      (result) => {
        if (result === 'inactive') return STOPPED.ownerInactive;
        return result === undefined ? notBegun(one) : endingOf(result, one.stopReason === 'cancelled');
      },
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

  /** Runs the turn, unless the owner may not work any more. A job whose owner cannot be looked up waits again. */
  async function begin({ job, stopped }: ActiveJob) {
    const may = await options.mayWork(job).catch((error: unknown) => {
      logger.warn({ err: error, jobId: job.id }, 'the owner of a job could not be looked up');
      return undefined;
    });
    if (may === undefined) return undefined;
    if (!may) return 'inactive';
    const { id: jobId, owner, session_id: sessionId, attempt } = job;
    options.announce?.({ event: 'job.started', data: { jobId, owner, sessionId, attempt } });
    return runTurn(turnOf(job, options.serverBox), stopped.signal);
  }

  /** The turn was not begun: the job waits again, unless it was stopped in the meantime. */
  function notBegun({ stopReason }: ActiveJob): JobEnding | undefined {
    return stopReason === undefined ? undefined : STOPPED[stopReason === 'timeout' ? 'timeout' : 'cancelled'];
  }

  function stopJob(one: ActiveJob, reason: NonNullable<ActiveJob['stopReason']>): void {
    if (one.stopReason !== undefined || one.ended !== undefined) return;
    one.stopReason = reason;
    // The end is stored now, because the agent may take some time to stop.
    if (reason === 'timeout') conclude(one, STOPPED.timeout).catch(() => undefined);
    one.stopped.abort();
  }

  /** Stores the end once: of two reasons, the first one counts. */
  function conclude(one: ActiveJob, ending: JobEnding): Promise<void> {
    one.ended ??= store(one, ending);
    return one.ended;
  }

  async function store({ job, stopReason }: ActiveJob, ending: JobEnding): Promise<void> {
    if (stopReason === 'lost') return;
    // The job stays as it is, and the next bridge that takes it runs it again.
    if (ending.errorCode === 'JOB_INTERRUPTED' && job.retry_on_restart === 1) return;
    const retryAt = retryTime(job, ending, clock.now());
    if (!(await (retryAt === undefined ? ends.end(job, ending) : ends.retry(job, retryAt))))
      logger.warn({ jobId: job.id }, 'a job was ended by another bridge');
  }

  return {
    look: rounds.look,
    sessionIdle() {
      if (queue.hasLeft()) void rounds.look();
    },
    async compare() {
      // While a job is being claimed, it is running in the store and not here yet.
      await rounds.underWay();
      const before = [...active.values()];
      const known = await search.runningOn(instance);
      const byId = new Map(known.map((row) => [row.id, row]));
      for (const one of before) {
        const row = byId.get(one.job.id);
        if (row?.attempt !== one.job.attempt) stopJob(one, 'lost');
        else if (row.stop_requested === 1) stopJob(one, 'cancelled');
      }
      if (rounds.underWay() !== undefined) return;
      for (const { id } of known) if (!active.has(id)) await options.release(id);
    },
    cancel(jobId) {
      const one = active.get(jobId);
      if (one !== undefined) stopJob(one, 'cancelled');
      return one !== undefined;
    },
    cancelWhere(isMeant) {
      for (const one of active.values()) if (isMeant(one.job)) stopJob(one, 'cancelled');
    },
    settle() {
      isDraining = true;
    },
    async stop() {
      isDraining = true;
      await rounds.underWay();
      await Promise.all(underWay);
    },
  };
}

/** The bridge is about to stop, or another bridge has just begun a turn of the session. */
function isRefusal(error: unknown): boolean {
  return errorCode(error) === 'SHUTTING_DOWN' || errorCode(error) === 'SESSION_BUSY';
}

function turnOf(job: JobRow, serverBox: Pick<ServerBox, 'open'>): JobCall {
  const { card: _card, newSession = false, retryOf: _retryOf, sealedServers = '', ...request } = requestOf(job);
  return {
    jobId: job.id,
    owner: job.owner,
    member: job.member,
    params: { ...request, sessionId: job.session_id, threadId: job.thread_id },
    mcpServers: serverBox.open(job.id, sealedServers),
    newSession,
    isRetry: job.attempt > 1,
    survivesRestart: job.retry_on_restart === 1,
  };
}

/** Selects waiting jobs, each for one bridge. */
export interface JobQueue {
  /**
   * The next job, now running on this bridge. Owners take turns. Of the jobs of one owner those with a higher priority go
   * first, and among equal ones its agents take turns; the jobs of one session run one after the other, by priority and
   * in the order of their submits. `hasRoom` says whether an owner, and the member of a team, may run one more.
   */
  take(hasRoom: (owner: string) => boolean): Promise<JobRow | undefined>;
  /** Whether the last `take` left jobs behind that could not run at that moment. */
  hasLeft(): boolean;
}

interface JobQueueOptions {
  readonly store: Pick<JobStore, 'find' | 'claim'>;
  readonly search: Pick<JobSearchStore, 'waiting' | 'nextOfSessions'>;
  readonly instance: string;
  readonly clock: Pick<Clock, 'now'>;
  /** Whether a turn runs or waits in that session on this bridge. The store may not know the turn yet. */
  isSessionBusy(owner: string, sessionId: string): boolean;
  /** Whether another bridge has the session with its agent and files. That bridge runs its jobs. */
  isSessionElsewhere?: ((owner: string, sessionId: string) => Promise<boolean>) | undefined;
}

/**
 * The stored jobs are the queue, on SQLite and on PostgreSQL (decision 17). With several bridges on one store the claim
 * decides which of them gets a job.
 */
export function createJobQueue(options: JobQueueOptions): JobQueue {
  const { store, search, instance, clock, isSessionBusy, isSessionElsewhere } = options;
  const owners = createRotation();
  /** By owner; only of those whose jobs wait. */
  let agentsOf = new Map<string, Rotation>();
  let hasLeft = false;

  async function claim(owner: string, next: NextJob, hasRoom: (owner: string) => boolean): Promise<JobRow | undefined> {
    if (isSessionBusy(owner, next.session_id)) return undefined;
    if (await isSessionElsewhere?.(owner, next.session_id)) return undefined;
    const job = await store.find(next.id);
    if (job === undefined || isPutOff(job, clock.now())) return undefined;
    if (job.member !== '' && !hasRoom(job.member)) return undefined;
    return store.claim(job, instance, clock.now());
  }

  /** The jobs of an owner that may run next: by priority, and among equal ones in the rotation of their agents. */
  async function candidates(owner: string, agents: readonly string[]) {
    const now = clock.now();
    const found = await Promise.all(
      agents.map(async (agent) => {
        const next = await search.nextOfSessions({ owner, provider_id: agent }, now);
        return next.map((job) => ({ agent, job }));
      }),
    );
    return found.flat().toSorted((one, other) => one.job.priority - other.job.priority);
  }

  return {
    async take(hasRoom) {
      const waiting = Map.groupBy(await search.waiting(), ({ owner }) => owner);
      hasLeft = waiting.size > 0;
      agentsOf = new Map([...waiting.keys()].map((owner) => [owner, agentsOf.get(owner) ?? createRotation()]));
      for (const owner of owners.order([...waiting.keys()])) {
        if (!hasRoom(owner)) continue;
        const names = (waiting.get(owner) ?? []).map(({ provider_id }) => provider_id);
        const agents = agentsOf.get(owner);
        for (const { agent, job } of await candidates(owner, agents?.order(names) ?? [])) {
          const claimed = await claim(owner, job, hasRoom);
          if (claimed === undefined) continue;
          owners.used(owner);
          agents?.used(agent);
          return claimed;
        }
      }
      return undefined;
    },
    hasLeft: () => hasLeft,
  };
}

interface Rotation {
  /** The same names, beginning after the one that was used last. */
  order(names: readonly string[]): readonly string[];
  used(name: string): void;
}

function createRotation(): Rotation {
  let last = '';
  return {
    order(names) {
      const start = names.findIndex((name) => name > last);
      return start === -1 ? names : [...names.slice(start), ...names.slice(0, start)];
    },
    used(name) {
      last = name;
    },
  };
}

/** The wall clock was set. */
export interface ClockStep {
  /** By how much; negative when it was set back. */
  readonly byMs: number;
  /** What it says now. */
  readonly now: number;
  /** How long ago the clocks were last compared: a time since then may have been taken after the step. */
  readonly sinceMs: number;
}

/** Smaller steps are not reported, and a job may end a second too early or too late. */
const MIN_STEP_MS = 1000;

/**
 * The deadlines of jobs are stored as times of the wall clock, but a job has its time by the monotonic one. Each look at
 * both finds out whether the wall clock was set, and hands that to `move`, again at the next look when it fails.
 */
export function createFollowClock(
  clock: Pick<Clock, 'now' | 'monotonic'>,
  move: (step: ClockStep) => Promise<void>,
): () => Promise<void> {
  let apart = clock.now() - clock.monotonic();
  let lookedAt = clock.monotonic();
  let moving: Promise<void> | undefined;

  async function follow(): Promise<void> {
    const now = clock.now();
    const monotonic = clock.monotonic();
    const byMs = Math.round(now - monotonic - apart);
    if (Math.abs(byMs) >= MIN_STEP_MS) {
      await move({ byMs, now, sinceMs: Math.ceil(monotonic - lookedAt) });
      apart += byMs;
    }
    lookedAt = monotonic;
  }

  return () => {
    moving ??= follow().finally(() => {
      moving = undefined;
    });
    return moving;
  };
}
