import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import type { BridgeSchema, JobRow } from './bridge-schema.ts';

/** Finds open jobs that need work. */
export interface JobSearchStore {
  /** Whose jobs wait for which agent, in the order of both names. */
  waiting(): Promise<readonly WaitingJobs[]>;
  /**
   * The jobs that may run next: of each session in which nothing runs, the one with the highest priority, of these the one
   * that waits longest; in the same order. Reads only the first MAX_SEARCHED jobs, because one owner may have very many that
   * all wait for one session. Jobs whose `notBefore` is in the future are left out.
   */
  nextOfSessions(waiting: WaitingJobs, now: number): Promise<readonly NextJob[]>;
  /** Jobs that have waited past their deadline. */
  overdue(now: number, limit: number): Promise<readonly JobRow[]>;
  /** The open jobs of a session, or of a thread, of these owners or of any. */
  ofSession(
    name: { readonly sessionId: string } | { readonly threadId: string },
    owners?: readonly string[],
  ): Promise<JobRow[]>;
  /** The jobs that this bridge runs, as they are stored. */
  runningOn(instance: string): Promise<readonly Pick<JobRow, 'id' | 'attempt' | 'stop_requested'>[]>;
  /** Whether any bridge has open jobs, deliveries or due schedules; those that are due after `before` do not count. */
  hasWork(before: number): Promise<boolean>;
  /** Running jobs of bridges that are no longer on the list. */
  abandoned(own: string, limit: number): Promise<readonly JobRow[]>;
  /** Returns how and when the turn ended in which the job ran last; undefined if it has not ended, or none was begun. */
  endedTurn(job: JobRow): Promise<EndedTurn | undefined>;
}

export interface EndedTurn {
  readonly outcome: string;
  readonly endedAt: number;
}

export type WaitingJobs = Pick<JobRow, 'owner' | 'provider_id'>;

export type NextJob = Pick<JobRow, 'id' | 'session_id' | 'priority'>;

interface EndedTurnOf {
  readonly owner: string;
  readonly sessionId: string;
  readonly requestId: string;
  readonly since: number;
}

const MAX_SEARCHED = 1000;
const MAX_NEXT = 64;

export function createJobSearchStore(database: Database<BridgeSchema>): JobSearchStore {
  const waiting = database.statement((query) =>
    query
      .selectFrom('job_counts')
      .select(['owner', 'provider_id'])
      .groupBy(['owner', 'provider_id'])
      .having((having) => having.fn.sum<number>('pending'), '>', 0)
      .orderBy('owner')
      .orderBy('provider_id'),
  );
  const nextOfSessions = database.statement((query, given: WaitingJobs & { now: number }) => {
    const oldest = query
      .selectFrom('jobs')
      .select(['id', 'owner', 'session_id', 'priority'])
      .where('owner', '=', given.owner)
      .where('provider_id', '=', given.provider_id)
      .where('instance', 'is', null)
      .where('completed_at', 'is', null)
      .where('not_before', '<=', given.now)
      .orderBy('priority')
      .orderBy('id')
      .limit(MAX_SEARCHED);
    // Few jobs run: this list is read once, by the index on `instance`. Compared as it is, the owner would lead SQLite to its own
    // index, and so through all jobs that the owner has ever had.
    const running = query
      .selectFrom('jobs as running')
      .select('running.session_id')
      .where('running.instance', 'is not', null)
      .where(sql<string>`running.owner || ''`, '=', given.owner);
    // In the same way, the sessions that instances have. Asked about each of the oldest jobs, PostgreSQL would read all sessions.
    const held = query
      .selectFrom('sessions as held')
      .select('held.session_id')
      .where('held.instance', '>', sql.lit(''))
      .where(sql<string>`held.owner || ''`, '=', given.owner);
    return (
      query
        .selectFrom(oldest.as('oldest'))
        // A priority is one digit, so these texts are in the order of both columns.
        .select([sql<string>`min(oldest.priority || oldest.id)`.as('place'), 'oldest.session_id'])
        .where('oldest.session_id', 'not in', running)
        .where('oldest.session_id', 'not in', held)
        .groupBy('oldest.session_id')
        .orderBy('place')
        .limit(MAX_NEXT)
    );
  });
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
  const endedTurn = database.statement((query, given: EndedTurnOf) =>
    query
      .selectFrom('turns')
      .select(['outcome', 'ended_at'])
      .where(
        'session_key',
        'in',
        query
          .selectFrom('sessions')
          .select('key')
          .where('session_id', '=', given.sessionId)
          .where('owner', '=', given.owner),
      )
      // As the index has it: no turn of a job has one.
      .where('request_fingerprint', '=', sql.lit(''))
      .where('request_id', '=', given.requestId)
      .where('created_at', '>=', given.since)
      .orderBy('id', 'desc')
      .limit(1),
  );
  const work = database.statement((query, given: { before: number }) =>
    query.selectNoFrom(({ exists, selectFrom }) => [
      exists(
        selectFrom('jobs')
          .select('jobs.id')
          .where('jobs.completed_at', 'is', null)
          .where('jobs.not_before', '<=', given.before),
      ).as('jobs'),
      exists(selectFrom('job_deliveries').select('job_deliveries.id')).as('deliveries'),
      exists(selectFrom('schedules').select('schedules.id').where('schedules.next_at', '<=', given.before)).as(
        'schedules',
      ),
    ]),
  );
  return {
    async hasWork(before) {
      const [found] = await database.readKeyed(work({ before }));
      // SQLite has no booleans.
      return Object.values(found ?? {}).some(Boolean);
    },
    waiting: () => database.readKeyed(waiting()),
    async nextOfSessions({ owner, provider_id }, now) {
      const found = await database.read(nextOfSessions({ owner, provider_id, now }));
      return found.map(({ place, session_id }) => ({ id: place.slice(1), priority: Number(place[0]), session_id }));
    },
    overdue: (now, limit) => database.readKeyed(overdue({ now, limit })),
    async ofSession(name, owners) {
      const found = await database.readKeyed('sessionId' in name ? ofSession(name) : ofThread(name));
      return owners === undefined ? found : found.filter((job) => owners.includes(job.owner));
    },
    runningOn: (instance) => database.readKeyed(runningOn({ instance })),
    abandoned: (own, limit) => database.readKeyed(abandoned({ own, limit })),
    async endedTurn({ id, owner, session_id: sessionId, started_at: since }) {
      if (since === null) return undefined;
      const turn = endedTurn({ owner, sessionId, since, requestId: JSON.stringify(id) });
      const [last] = await database.readKeyed(turn);
      return last === undefined || last.ended_at === null
        ? undefined
        : { outcome: last.outcome, endedAt: last.ended_at };
    },
  };
}
