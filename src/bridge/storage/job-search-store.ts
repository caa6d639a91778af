import type { Database } from '../../platform/database/database.ts';
import type { BridgeSchema, JobRow } from './bridge-schema.ts';

/** Finds the open jobs that somebody has to do something about. */
export interface JobSearchStore {
  /** The agents for which jobs wait. */
  waitingProviders(): Promise<readonly string[]>;
  /** The job that has waited longest for an agent, of those that were submitted before that moment. */
  nextWaiting(providerId: string, before: number): Promise<JobRow | undefined>;
  /** Jobs that have waited past their deadline. */
  overdue(now: number, limit: number): Promise<readonly JobRow[]>;
  /** The open jobs of a session, or of a thread; of all owners when none is given. */
  ofSession(name: { readonly sessionId: string } | { readonly threadId: string }, owner?: string): Promise<JobRow[]>;
  /** What the store says of the jobs that this bridge runs. */
  runningOn(instance: string): Promise<readonly Pick<JobRow, 'id' | 'attempt' | 'stop_requested'>[]>;
  /** Running jobs of bridges that are on the list no more. */
  abandoned(own: string, limit: number): Promise<readonly JobRow[]>;
}

export function createJobSearchStore(database: Database<BridgeSchema>): JobSearchStore {
  const waitingProviders = database.statement((query) =>
    query
      .selectFrom('job_counts')
      .select('provider_id')
      .groupBy('provider_id')
      .having((having) => having.fn.sum<number>('pending'), '>', 0)
      .orderBy('provider_id'),
  );
  const nextWaiting = database.statement((query, given: { providerId: string; before: number }) =>
    query
      .selectFrom('jobs')
      .selectAll()
      .where('provider_id', '=', given.providerId)
      .where('instance', 'is', null)
      .where('completed_at', 'is', null)
      .where('created_at', '<=', given.before)
      .orderBy('id')
      .limit(1),
  );
  const overdue = database.statement((query, given: { now: number; limit: number }) =>
    query
      .selectFrom('jobs')
      .selectAll()
      .where('completed_at', 'is', null)
      .where('deadline_at', '<=', given.now)
      .where('instance', 'is', null)
      .orderBy('deadline_at')
      .limit(given.limit),
  );
  const ofSession = database.statement((query, given: { sessionId: string }) =>
    query.selectFrom('jobs').selectAll().where('session_id', '=', given.sessionId).where('completed_at', 'is', null),
  );
  const ofThread = database.statement((query, given: { threadId: string }) =>
    query.selectFrom('jobs').selectAll().where('thread_id', '=', given.threadId).where('completed_at', 'is', null),
  );
  const runningOn = database.statement((query, given: { instance: string }) =>
    query.selectFrom('jobs').select(['id', 'attempt', 'stop_requested']).where('instance', '=', given.instance),
  );
  const abandoned = database.statement((query, given: { own: string; limit: number }) =>
    query
      .selectFrom('jobs')
      .selectAll()
      .where('instance', 'is not', null)
      .where('instance', '!=', given.own)
      .where('instance', 'not in', query.selectFrom('instances').select('id'))
      // Not by their ids alone: SQLite would walk through all jobs in that order.
      .orderBy('instance')
      .orderBy('id')
      .limit(given.limit),
  );
  return {
    async waitingProviders() {
      return (await database.readKeyed(waitingProviders())).map((row) => row.provider_id);
    },
    nextWaiting: async (providerId, before) => (await database.readKeyed(nextWaiting({ providerId, before })))[0],
    overdue: (now, limit) => database.readKeyed(overdue({ now, limit })),
    async ofSession(name, owner) {
      const found = await database.readKeyed('sessionId' in name ? ofSession(name) : ofThread(name));
      return owner === undefined ? found : found.filter((job) => job.owner === owner);
    },
    runningOn: (instance) => database.readKeyed(runningOn({ instance })),
    abandoned: (own, limit) => database.readKeyed(abandoned({ own, limit })),
  };
}
