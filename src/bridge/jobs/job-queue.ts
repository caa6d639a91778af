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

export interface JobQueueOptions {
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
