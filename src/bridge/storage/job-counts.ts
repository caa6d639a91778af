import type { Database } from '../../platform/database/database.ts';
import type { Statement } from '../../platform/database/statement.ts';
import type { BridgeSchema, JobCountRow, JobRow } from './bridge-schema.ts';

/** A change to the counts of one owner and one agent. */
export type JobCountChange = JobCountRow;

/** The counts change in the transaction that changes the jobs, so that they are always true. */
export type ChangeJobCounts = (changes: readonly JobCountChange[]) => readonly Statement[];

/** PostgreSQL runs transactions side by side: those that count into different rows need not wait for each other. */
const SHARDS = { sqlite: 1, postgres: 8 } as const;

export function createJobCounts(database: Database<BridgeSchema>): ChangeJobCounts {
  const shards = SHARDS[database.engine];
  const add = database.statement((query, given: JobCountChange) =>
    query
      .insertInto('job_counts')
      .values({
        owner: given.owner,
        tenant: given.tenant,
        provider_id: given.provider_id,
        shard: given.shard,
        pending: given.pending,
        running: given.running,
        completed: given.completed,
        failed: given.failed,
        ended_runs: given.ended_runs,
        run_ms: given.run_ms,
      })
      .onConflict((conflict) =>
        conflict.columns(['owner', 'tenant', 'provider_id', 'shard']).doUpdateSet((row) => ({
          pending: row('job_counts.pending', '+', row.ref('excluded.pending')),
          running: row('job_counts.running', '+', row.ref('excluded.running')),
          completed: row('job_counts.completed', '+', row.ref('excluded.completed')),
          failed: row('job_counts.failed', '+', row.ref('excluded.failed')),
          ended_runs: row('job_counts.ended_runs', '+', row.ref('excluded.ended_runs')),
          run_ms: row('job_counts.run_ms', '+', row.ref('excluded.run_ms')),
        })),
      ),
  );
  return (changes) => mergeChanges(changes, shards).map(add);
}

type CountedJob = Pick<JobRow, 'id' | 'owner' | 'tenant' | 'provider_id' | 'status' | 'started_at' | 'completed_at'>;

/** That there is one job more (or, with -1, one less) of this kind. */
export function countJob(job: CountedJob, by: 1 | -1): JobCountChange {
  const { id, owner, tenant, provider_id, status, started_at: start, completed_at: end } = job;
  const hasRun = start !== null && end !== null;
  return {
    owner,
    tenant,
    provider_id,
    shard: id.charCodeAt(id.length - 1),
    pending: status === 'pending' ? by : 0,
    running: status === 'running' ? by : 0,
    completed: status === 'completed' ? by : 0,
    failed: status === 'failed' ? by : 0,
    ended_runs: hasRun ? by : 0,
    run_ms: hasRun ? by * (end - start) : 0,
  };
}

/** One change for each row, in one order everywhere: transactions that lock several rows never wait in a circle. */
function mergeChanges(changes: readonly JobCountChange[], shards: number): JobCountChange[] {
  const merged = new Map<string, JobCountChange>();
  for (const change of changes) {
    const shard = change.shard % shards;
    const key = JSON.stringify([change.owner, change.tenant, change.provider_id, shard]);
    const known = merged.get(key);
    merged.set(key, known === undefined ? { ...change, shard } : sum(known, change));
  }
  return [...merged].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, change]) => change);
}

function sum(a: JobCountChange, b: JobCountChange): JobCountChange {
  return {
    ...a,
    pending: a.pending + b.pending,
    running: a.running + b.running,
    completed: a.completed + b.completed,
    failed: a.failed + b.failed,
    ended_runs: a.ended_runs + b.ended_runs,
    run_ms: a.run_ms + b.run_ms,
  };
}
