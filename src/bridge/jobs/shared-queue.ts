import type { PgBoss } from 'pg-boss';
import type { Clock } from '../../platform/clock/clock.ts';
import type { Logger } from '../../platform/log/logger.ts';
import { createBatcher } from '../../platform/queue/batcher.ts';
import type { JobRow } from '../storage/bridge-schema.ts';
import type { JobSearchStore } from '../storage/job-search-store.ts';
import type { JobStore } from '../storage/job-store.ts';
import { createRotation, type JobQueue } from './job-queue.ts';

/** Where several bridges share a PostgreSQL database: the queue has a schema of its own in it. */
export interface SharedQueueLocation {
  readonly url: string;
  readonly schema: string;
}

export interface SharedQueueOptions {
  readonly location: SharedQueueLocation;
  readonly store: Pick<JobStore, 'find' | 'claim'>;
  readonly search: Pick<JobSearchStore, 'waitingProviders'>;
  /** Finds jobs that wait although the queue knows nothing of them. */
  readonly leftOver: Pick<JobQueue, 'take'>;
  readonly instance: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

type Announcement = Pick<JobRow, 'id' | 'provider_id'>;

const CONNECTIONS = 3;
const MOST_ANNOUNCEMENTS = 10_000;
const BATCH = 500;
const BATCH_DELAY_MS = 5;
const CONNECT_TIMEOUT_MS = 5000;
/** A message is taken off the queue as soon as its job is claimed: whoever needs longer has died. */
const TAKEN_FOR_SECONDS = 60;

/**
 * Spreads jobs over bridges with pg-boss, one queue for each agent. A message is only a hint that a job waits: the stored
 * job decides who runs it, and a job whose message was lost is found in the table.
 */
export function createSharedQueue(options: SharedQueueOptions): JobQueue {
  const { location, store, search, leftOver, instance, clock, logger } = options;
  const takeTurns = createRotation();
  const queues = new Map<string, Promise<string>>();
  let started: Promise<PgBoss> | undefined;
  let isStopped = false;

  function start(): Promise<PgBoss> {
    started ??= open(location, logger).catch((error: unknown) => {
      started = undefined;
      throw error;
    });
    return started;
  }

  /** Made when it is first needed; a queue that is there already is left as it is. */
  function queueOf(boss: PgBoss, provider: string): Promise<string> {
    const known = queues.get(provider);
    if (known !== undefined) return known;
    const name = `jobs.${provider || 'any'}`;
    const made = boss
      .createQueue(name, { expireInSeconds: TAKEN_FOR_SECONDS, retryLimit: 1 })
      .then(() => name)
      .catch((error: unknown) => {
        queues.delete(provider);
        throw error;
      });
    queues.set(provider, made);
    return made;
  }

  const announcements = createBatcher<Announcement>({
    capacity: MOST_ANNOUNCEMENTS,
    maxBatch: BATCH,
    maxDelayMs: BATCH_DELAY_MS,
    clock,
    onDropped: () => undefined,
    async write(batch) {
      const boss = await start();
      for (const [provider, jobs] of Map.groupBy(batch, (job) => job.provider_id)) {
        const messages = jobs.map(({ id }) => ({ data: { jobId: id } }));
        await boss.insert(await queueOf(boss, provider), messages);
      }
    },
  });

  async function takeAnnounced(): Promise<JobRow | undefined> {
    const providers = await search.waitingProviders();
    if (providers.length === 0) return undefined;
    const boss = await start();
    for (const provider of takeTurns(providers)) {
      const queue = await queueOf(boss, provider);
      for (;;) {
        const [message] = await boss.fetch<{ readonly jobId: string }>(queue);
        if (message === undefined) break;
        const job = await store.find(message.data.jobId);
        const claimed = job === undefined ? undefined : await store.claim(job, instance, clock.now());
        await boss.deleteJob(queue, message.id);
        if (claimed !== undefined) return claimed;
      }
    }
    return undefined;
  }

  return {
    announce: (job) => void announcements.add(job),
    async take() {
      try {
        const job = await takeAnnounced();
        if (job !== undefined) return job;
      } catch (error) {
        if (!isStopped) logger.warn({ err: error }, 'the queue of jobs cannot be used; they are taken from the table');
      }
      return leftOver.take();
    },
    async stop() {
      isStopped = true;
      await announcements.close();
      await (await started?.catch(() => undefined))?.stop({ graceful: false });
    },
  };
}

async function open({ url, schema }: SharedQueueLocation, logger: Logger): Promise<PgBoss> {
  const { PgBoss } = await import('pg-boss');
  const boss = new PgBoss({
    connectionString: url,
    schema,
    max: CONNECTIONS,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    application_name: 'trestle jobs',
    schedule: false,
  });
  boss.on('error', (error) => logger.warn({ err: error }, 'the queue of jobs has a problem'));
  await boss.start();
  return boss;
}
