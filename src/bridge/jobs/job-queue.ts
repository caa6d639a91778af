import type { Clock } from '../../platform/clock/clock.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobSearchStore } from '../storage/job-search-store.ts';
import type { JobStore } from '../storage/job-store.ts';

/** Hands out waiting jobs, each to one bridge. */
export interface JobQueue {
  /** Says that a job, which is stored, waits. */
  announce(job: Pick<JobRow, 'id' | 'provider_id'>): void;
  /** The next job, now running on this bridge; agents take turns. */
  take(): Promise<JobRow | undefined>;
  stop(): Promise<void>;
}

export interface TableQueueOptions {
  readonly store: Pick<JobStore, 'claim'>;
  readonly search: Pick<JobSearchStore, 'waitingProviders' | 'nextWaiting'>;
  readonly instance: string;
  readonly clock: Pick<Clock, 'now'>;
  /** How long a job must have waited to be taken. */
  readonly waitedMs: number;
}

/** The stored jobs are the queue. With several bridges on one store the claim decides which of them gets a job. */
export function createTableQueue({ store, search, instance, clock, waitedMs }: TableQueueOptions): JobQueue {
  const takeTurns = createRotation();
  return {
    announce() {},
    async take() {
      const before = waitedMs === 0 ? Number.MAX_SAFE_INTEGER : clock.now() - waitedMs;
      for (const provider of takeTurns(await search.waitingProviders())) {
        for (;;) {
          const job = await search.nextWaiting(provider, before);
          if (job === undefined) break;
          const claimed = await store.claim(job, instance, clock.now());
          if (claimed !== undefined) return claimed;
        }
      }
      return undefined;
    },
    async stop() {},
  };
}

/** Gives the same names each time, beginning after the one that was used last, which is the last one asked for. */
export function createRotation(): (names: readonly string[]) => Iterable<string> {
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
