import type { Database } from '../../platform/database/database.ts';
import { expectChanges } from '../../platform/database/statement.ts';
import { errorCode } from '../../platform/errors/app-error.ts';
import type { BridgeSchema, JobDeliveryRow } from './bridge-schema.ts';

/** What is to be told about ended jobs. A row stays until it was told, or will not be. */
export interface JobDeliveryStore {
  /** Those that have waited until `now`, then those that would wait past `latest`. */
  due(now: number, latest: number, limit: number): Promise<readonly JobDeliveryRow[]>;
  /**
   * Counts one more attempt before it is made, and puts the next one off until then: if this bridge dies meanwhile, that
   * is when another goes on. False when another bridge was faster.
   */
  beginAttempt(delivery: JobDeliveryRow, dueAt: number): Promise<boolean>;
  postpone(id: string, dueAt: number): Promise<void>;
  finish(delivery: JobDeliveryRow, wasSent: boolean): Promise<void>;
}

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
  const postpone = database.statement((query, given: { id: string; dueAt: number }) =>
    query.updateTable('job_deliveries').set({ due_at: given.dueAt }).where('id', '=', given.id),
  );
  const remove = database.statement((query, given: { id: string }) =>
    query.deleteFrom('job_deliveries').where('id', '=', given.id),
  );
  const setTries = database.statement((query, given: { jobId: string; tries: number }) =>
    query.updateTable('jobs').set({ webhook_tries: given.tries }).where('id', '=', given.jobId),
  );
  const setWebhookSent = database.statement((query, given: { jobId: string; wasSent: number }) =>
    query.updateTable('jobs').set({ webhook_sent: given.wasSent }).where('id', '=', given.jobId),
  );
  const setCardSent = database.statement((query, given: { jobId: string; wasSent: number }) =>
    query.updateTable('jobs').set({ card_sent: given.wasSent }).where('id', '=', given.jobId),
  );
  return {
    async due(now, latest, limit) {
      const found = await database.readKeyed(due({ now, limit }));
      if (found.length === limit) return found;
      return [...found, ...(await database.readKeyed(tooLate({ latest, limit: limit - found.length })))];
    },
    async beginAttempt({ id, job_id: jobId, kind, attempts }, dueAt) {
      const begun = attempts + 1;
      const tries = kind === 'webhook' ? [setTries({ jobId, tries: begun })] : [];
      try {
        await database.write([expectChanges(begin({ id, attempts, begun, dueAt }), 1), ...tries]);
        return true;
      } catch (error) {
        if (errorCode(error) === 'STORAGE_CONFLICT') return false;
        throw error;
      }
    },
    async postpone(id, dueAt) {
      await database.write([postpone({ id, dueAt })]);
    },
    async finish({ id, job_id: jobId, kind }, wasSent) {
      const note = kind === 'webhook' ? setWebhookSent : setCardSent;
      await database.write([remove({ id }), note({ jobId, wasSent: wasSent ? 1 : 0 })]);
    },
  };
}
