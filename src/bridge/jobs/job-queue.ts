import type { Clock } from '../../platform/clock/clock.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobSearchStore } from '../storage/job-search-store.ts';
import type { JobStore } from '../storage/job-store.ts';

/** Hands out waiting jobs, each to one bridge. */
export interface JobQueue {
  /**
   * The next job, now running on this bridge. Owners take turns, and so do the agents of one owner; the jobs of one
   * session run one after the other, in the order of their submits. `hasRoom` says whether an owner may run one more.
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
  /** Whether a turn runs or waits in that session of the owner on this bridge: the store may not know of it yet. */
  isSessionBusy(owner: string, sessionId: string): boolean;
}

/**
 * The stored jobs are the queue, on SQLite and on PostgreSQL (decision 17). With several bridges on one store the claim
 * decides which of them gets a job.
 */
export function createJobQueue({ store, search, instance, clock, isSessionBusy }: JobQueueOptions): JobQueue {
  const rotateOwners = createRotation();
  /** By owner; only of those whose jobs wait. */
  let rotateAgents = new Map<string, Rotation>();
  let hasLeft = false;

  async function takeOne(owner: string, providerId: string): Promise<JobRow | undefined> {
    for (const next of await search.nextOfSessions({ owner, provider_id: providerId })) {
      if (isSessionBusy(owner, next.session_id)) continue;
      const job = await store.find(next.id);
      const claimed = job === undefined ? undefined : await store.claim(job, instance, clock.now());
      if (claimed !== undefined) return claimed;
    }
    return undefined;
  }

  return {
    async take(hasRoom) {
      const waiting = Map.groupBy(await search.waiting(), ({ owner }) => owner);
      hasLeft = waiting.size > 0;
      rotateAgents = new Map([...waiting.keys()].map((owner) => [owner, rotateAgents.get(owner) ?? createRotation()]));
      for (const owner of rotateOwners([...waiting.keys()])) {
        if (!hasRoom(owner)) continue;
        const agents = (waiting.get(owner) ?? []).map(({ provider_id }) => provider_id);
        for (const agent of rotateAgents.get(owner)?.(agents) ?? []) {
          const job = await takeOne(owner, agent);
          if (job !== undefined) return job;
        }
      }
      return undefined;
    },
    hasLeft: () => hasLeft,
  };
}

type Rotation = (names: readonly string[]) => Iterable<string>;

/** Gives the same names each time, beginning after the one that was used last, which is the last one asked for. */
function createRotation(): Rotation {
  let last = '';
  return function* rotate(names) {
    const start = names.findIndex((name) => name > last);
    const order = start === -1 ? names : [...names.slice(start), ...names.slice(0, start)];
    for (const name of order) {
      last = name;
      yield name;
    }
  };
}

/** The wall clock was set. */
export interface ClockStep {
  /** By how much; less than nothing when it was set back. */
  readonly byMs: number;
  /** What it says now. */
  readonly now: number;
  /** How long ago it was last seen to be right: what bears a time since then may have been made after the step. */
  readonly sinceMs: number;
}

/** Less is told by nobody, and a job may end a second too early or too late. */
const LEAST_STEP_MS = 1000;

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
    if (Math.abs(byMs) >= LEAST_STEP_MS) {
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
