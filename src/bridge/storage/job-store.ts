import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Statement, unlessConflict } from '../../platform/database/statement.ts';
import { TENANT } from '../principal.ts';
import type { BridgeSchema, DeliveryAttemptRow, JobDeliveryRow, JobRow, JobStatus } from './bridge-schema.ts';
import { countJob, createJobCounts } from './job-report-store.ts';

/** How a job ended. */
interface JobEnd {
  readonly status: Extract<JobStatus, 'completed' | 'failed'>;
  readonly providerId: string;
  /** As JSON text. */
  readonly outcome: string;
  readonly now: number;
}

/**
 * Jobs and their moves from state to state. Each move happens only if the job is still as the caller knows it; the answer
 * tells whether it did. Therefore a job ends once, even if several bridges try to end it.
 */
export interface JobStore {
  /** Whether other bridges may change the same rows. */
  readonly isShared: boolean;
  /** Fails with STORAGE_DUPLICATE when the owner has used the idempotency key. */
  add(job: JobRow, more?: readonly Statement[]): Promise<void>;
  find(id: string): Promise<JobRow | undefined>;
  findByKey(owner: string, idempotencyKey: string): Promise<JobRow | undefined>;
  /** From pending to running. */
  claim(job: JobRow, instance: string, now: number): Promise<JobRow | undefined>;
  /** From running back to pending: the bridge that ran it is gone. */
  requeue(job: JobRow): Promise<boolean>;
  /** From running back to pending: its agent failed, and it is run again then. */
  retry(job: JobRow, retryAt: number): Promise<boolean>;
  /** From pending or running to the end, and with it whatever is to be told about it. */
  end(job: JobRow, end: JobEnd, deliveries: readonly JobDeliveryRow[]): Promise<boolean>;
  /** Asks the bridge that runs it to stop it. */
  requestStop(id: string): Promise<void>;
  /** The wall clock was set: moves the deadlines of open jobs along, but for those that were submitted since. */
  moveDeadlines(step: { readonly byMs: number; readonly now: number; readonly sinceMs: number }): Promise<void>;
}

export function createJobStore(database: Database<BridgeSchema>): JobStore {
  const changeCounts = createJobCounts(database);
  const insert = database.statement((query, given: JobRow) => query.insertInto('jobs').values({ ...given }));
  const find = database.statement((query, given: { id: string }) =>
    query.selectFrom('jobs').selectAll().where('id', '=', given.id),
  );
  /** Names all columns of the index: by the owner alone, each submit would read all jobs of the owner. */
  const findByKey = database.statement((query, given: { owner: string; key: string }) =>
    query
      .selectFrom('jobs')
      .selectAll()
      .where('owner', '=', given.owner)
      .where('tenant', '=', TENANT)
      .where('idempotency_key', '=', given.key),
  );
  /** The attempt is the fencing token: with the state, it identifies one run on one bridge. */
  const change = database.statement((query, given: JobMove) =>
    query
      .updateTable('jobs')
      .set({
        status: given.status,
        provider_id: given.provider_id,
        instance: given.instance,
        attempt: given.attempt,
        started_at: given.started_at,
        completed_at: given.completed_at,
        stop_requested: 0,
        outcome: given.outcome,
        retried: given.retried,
        retry_at: given.retry_at,
      })
      .where('id', '=', given.id)
      .where('status', '=', given.fromStatus)
      .where('attempt', '=', given.fromAttempt),
  );
  const requestStop = database.statement((query, given: { id: string }) =>
    query.updateTable('jobs').set({ stop_requested: 1 }).where('id', '=', given.id).where('completed_at', 'is', null),
  );
  const moveDeadlines = database.statement(
    (query, given: { byMs: number; from: number; to: number; waitingFrom: number }) =>
      query
        .updateTable('jobs')
        .set((set) => ({ deadline_at: set('deadline_at', '+', given.byMs) }))
        .where('completed_at', 'is', null)
        .where('not_before', '<=', given.waitingFrom)
        .where((where) => where.or([where('created_at', '<', given.from), where('created_at', '>', given.to)])),
  );
  /** The clock was set past the moment that these waited for: their time begins now. */
  const restartTime = database.statement((query, given: { now: number; waitingFrom: number }) =>
    query
      .updateTable('jobs')
      .set((set) => ({ deadline_at: set('timeout_ms', '+', given.now) }))
      .where('completed_at', 'is', null)
      .where('not_before', '>', given.waitingFrom)
      .where('not_before', '<=', given.now),
  );
  const addDelivery = database.statement((query, given: JobDeliveryRow) =>
    query.insertInto('job_deliveries').values({ ...given }),
  );

  /** Moves a job, with the counts and whatever else belongs to the same moment. */
  function moveJob(from: JobRow, to: JobRow, more: readonly Statement[] = []): Promise<boolean> {
    const moved = expectChanges(change({ ...to, fromStatus: from.status, fromAttempt: from.attempt }), 1);
    return unlessConflict(database.write([moved, ...changeCounts([countJob(from, -1), countJob(to, 1)]), ...more]));
  }

  return {
    isShared: database.engine === 'postgres',
    async add(job, more = []) {
      await database.write([...more, insert(job), ...changeCounts([countJob(job, 1)])]);
    },
    find: async (id) => (await database.readKeyed(find({ id })))[0],
    findByKey: async (owner, key) => (await database.readKeyed(findByKey({ owner, key })))[0],
    async claim(job, instance, now) {
      const claimed: JobRow = { ...job, status: 'running', instance, attempt: job.attempt + 1, started_at: now };
      return job.status === 'pending' && (await moveJob(job, claimed)) ? claimed : undefined;
    },
    async requeue(job) {
      return job.status === 'running' && moveJob(job, { ...job, status: 'pending', instance: null, started_at: null });
    },
    async retry(job, retryAt) {
      const waiting: JobRow = { ...job, status: 'pending', instance: null, started_at: null };
      return job.status === 'running' && moveJob(job, { ...waiting, retried: job.retried + 1, retry_at: retryAt });
    },
    async end(job, { status, providerId, outcome, now }, deliveries) {
      // What has not run cannot be complete.
      if (job.completed_at !== null || (job.status === 'pending' && status === 'completed')) return false;
      // A clock that was set back must not lead to a negative duration.
      const completed_at = Math.max(now, job.started_at ?? job.created_at);
      const ended = { ...job, status, provider_id: providerId, instance: null, completed_at, outcome };
      return moveJob(job, ended, deliveries.map(addDelivery));
    },
    async requestStop(id) {
      await database.write([requestStop({ id })]);
    },
    async moveDeadlines({ byMs, now, sinceMs }) {
      // A job that waits for a moment of the wall clock has its time from that moment on.
      const waitingFrom = Math.max(0, Math.min(now, now - byMs));
      await database.write([
        moveDeadlines({ byMs, from: now - sinceMs, to: now, waitingFrom }),
        restartTime({ now, waitingFrom }),
      ]);
    },
  };
}

type JobMove = JobRow & { readonly fromStatus: JobStatus; readonly fromAttempt: number };

/** The deliveries of ended jobs. A row stays until it was sent or given up. */
export interface JobDeliveryStore {
  /** Those that have waited until `now`, then those that would wait past `latest`. */
  due(now: number, latest: number, limit: number): Promise<readonly JobDeliveryRow[]>;
  /**
   * Counts one more attempt before it is made, and puts the next one off until then: if this bridge dies before that, that
   * is when another goes on. False when another bridge was faster.
   */
  beginAttempt(delivery: JobDeliveryRow, now: number, dueAt: number): Promise<boolean>;
  /** The attempt failed, and the next one is due then. Changes nothing when another bridge has begun the next one already. */
  postpone(delivery: JobDeliveryRow, dueAt: number, end: AttemptEnd): Promise<void>;
  /**
   * Ends the delivery: it was sent, or this was the last attempt. A failure changes nothing when another bridge has begun a
   * later attempt. Without `end` the last attempt ended with its bridge.
   */
  finish(delivery: JobDeliveryRow, wasSent: boolean, end?: AttemptEnd): Promise<void>;
  /** All attempts about a job, in order. */
  attempts(jobId: string): Promise<readonly DeliveryAttemptRow[]>;
}

type AttemptEnd = Pick<DeliveryAttemptRow, 'detail'> & { readonly now: number };

export function createJobDeliveryStore(database: Database<BridgeSchema>): JobDeliveryStore {
  const due = database.statement((query, given: { now: number; limit: number }) =>
    query
      .selectFrom('job_deliveries')
      .selectAll()
      .where('due_at', '<=', given.now)
      .orderBy('due_at')
      .limit(given.limit),
  );
  const tooLate = database.statement((query, given: { latest: number; limit: number }) =>
    query.selectFrom('job_deliveries').selectAll().where('due_at', '>', given.latest).limit(given.limit),
  );
  const begin = database.statement((query, given: { id: string; attempts: number; begun: number; dueAt: number }) =>
    query
      .updateTable('job_deliveries')
      .set({ attempts: given.begun, due_at: given.dueAt })
      .where('id', '=', given.id)
      .where('attempts', '=', given.attempts),
  );
  const postpone = database.statement((query, given: { id: string; attempts: number; dueAt: number }) =>
    query
      .updateTable('job_deliveries')
      .set({ due_at: given.dueAt })
      .where('id', '=', given.id)
      .where('attempts', '=', given.attempts),
  );
  const remove = database.statement((query, given: { id: string }) =>
    query.deleteFrom('job_deliveries').where('id', '=', given.id),
  );
  const giveUp = database.statement((query, given: { id: string; attempts: number }) =>
    query.deleteFrom('job_deliveries').where('id', '=', given.id).where('attempts', '=', given.attempts),
  );
  const setTries = database.statement((query, given: { jobId: string; tries: number }) =>
    query.updateTable('jobs').set({ webhook_tries: given.tries }).where('id', '=', given.jobId),
  );
  const setSent = (column: 'webhook_sent' | 'card_sent') =>
    database.statement((query, given: { jobId: string }) =>
      query.updateTable('jobs').set(column, 1).where('id', '=', given.jobId),
    );
  const notes = { webhook: setSent('webhook_sent'), card: setSent('card_sent') };
  const addAttempt = database.statement((query, given: Omit<DeliveryAttemptRow, 'ended_at' | 'result' | 'detail'>) =>
    query.insertInto('job_delivery_attempts').values({
      ...given,
      ended_at: null,
      result: 'unknown',
      detail: '',
    }),
  );
  const endAttempt = database.statement((query, given: EndedAttempt) =>
    query
      .updateTable('job_delivery_attempts')
      .set({ ended_at: given.now, result: given.result, detail: given.detail })
      .where('delivery_id', '=', given.id)
      .where('attempt', '=', given.attempt),
  );
  const attemptsOf = database.statement((query, given: { jobId: string }) =>
    query
      .selectFrom('job_delivery_attempts')
      .selectAll()
      .where('job_id', '=', given.jobId)
      .orderBy('started_at')
      .orderBy('attempt'),
  );
  const ended = ({ id, attempts }: JobDeliveryRow, result: DeliveryAttemptRow['result'], end: AttemptEnd) =>
    endAttempt({ id, attempt: attempts + 1, result, ...end });
  return {
    attempts: (jobId) => database.readKeyed(attemptsOf({ jobId })),
    async due(now, latest, limit) {
      const found = await database.readKeyed(due({ now, limit }));
      if (found.length === limit) return found;
      return [...found, ...(await database.readKeyed(tooLate({ latest, limit: limit - found.length })))];
    },
    beginAttempt({ id, job_id: jobId, kind, attempts }, now, dueAt) {
      const begun = attempts + 1;
      const tries = kind === 'webhook' ? [setTries({ jobId, tries: begun })] : [];
      const noted = addAttempt({ delivery_id: id, attempt: begun, job_id: jobId, kind, started_at: now });
      return unlessConflict(database.write([expectChanges(begin({ id, attempts, begun, dueAt }), 1), noted, ...tries]));
    },
    async postpone(delivery, dueAt, end) {
      const { id, attempts } = delivery;
      await database.write([postpone({ id, attempts: attempts + 1, dueAt }), ended(delivery, 'failed', end)]);
    },
    async finish(delivery, wasSent, end) {
      const { id, job_id: jobId, kind, attempts } = delivery;
      const made = end === undefined ? attempts : attempts + 1;
      const attempt = end === undefined ? [] : [ended(delivery, wasSent ? 'sent' : 'failed', end)];
      const done = wasSent ? [remove({ id }), notes[kind]({ jobId })] : [giveUp({ id, attempts: made })];
      await database.write([...done, ...attempt]);
    },
  };
}

interface EndedAttempt extends AttemptEnd, Pick<DeliveryAttemptRow, 'attempt' | 'result'> {
  readonly id: string;
}
