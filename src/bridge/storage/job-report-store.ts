import type { Database } from '../../platform/database/database.ts';
import type { Statement } from '../../platform/database/statement.ts';
import { expectChanges } from '../../platform/database/statement.ts';
import type { BridgeSchema, JobCountRow, JobRow, JobStatus } from './bridge-schema.ts';
import { countJob, createJobCounts } from './job-counts.ts';

/** The counts of one agent, over all shards and owners that were asked for. */
export type ProviderCounts = Omit<JobCountRow, 'owner' | 'tenant' | 'shard'>;

export interface JobPage {
  /** Of all owners when none is given. */
  readonly owner: string | undefined;
  readonly status: JobStatus | undefined;
  /** Jobs older than this one; empty: from the newest on. */
  readonly before: string;
  readonly limit: number;
}

export interface JobReportStore {
  /** Newest first. */
  list(page: JobPage): Promise<readonly JobRow[]>;
  /** Costs the same however many jobs there are. */
  counts(owner: string | undefined): Promise<readonly ProviderCounts[]>;
  /** How many jobs of an owner are pending. */
  countPending(owner: string): Promise<number>;
  oldestPending(owner: string | undefined): Promise<JobRow | undefined>;
  /** Jobs that ended before that moment, the longest ago first. */
  ended(before: number, limit: number): Promise<readonly EndedJob[]>;
  /** Takes them away; fails with STORAGE_CONFLICT when another bridge has. */
  remove(jobs: readonly EndedJob[]): Promise<void>;
}

export type EndedJob = Pick<
  JobRow,
  'id' | 'owner' | 'tenant' | 'provider_id' | 'session_id' | 'status' | 'started_at' | 'completed_at'
>;

/** After every id of a job. */
const NEWEST = 'job-~';

export function createJobReportStore(database: Database<BridgeSchema>): JobReportStore {
  const changeCounts = createJobCounts(database);
  const page = (hasOwner: boolean, hasStatus: boolean) =>
    database.statement((query, given: PageParameters) => {
      let jobs = query.selectFrom('jobs').selectAll().where('id', '<', given.before);
      if (hasOwner) jobs = jobs.where('owner', '=', given.owner);
      if (hasStatus) jobs = jobs.where('status', '=', given.status);
      return jobs.orderBy('id', 'desc').limit(given.limit);
    });
  const pages = {
    all: page(false, false),
    owner: page(true, false),
    status: page(false, true),
    both: page(true, true),
  };
  const sums = (hasOwner: boolean) =>
    database.statement((query, given: { owner: string }) => {
      const counts = query
        .selectFrom('job_counts')
        .select(({ fn }) => [
          'provider_id',
          fn.sum<number>('pending').as('pending'),
          fn.sum<number>('running').as('running'),
          fn.sum<number>('completed').as('completed'),
          fn.sum<number>('failed').as('failed'),
          fn.sum<number>('ended_runs').as('ended_runs'),
          fn.sum<number>('run_ms').as('run_ms'),
        ])
        .groupBy('provider_id')
        .orderBy('provider_id');
      return hasOwner ? counts.where('owner', '=', given.owner) : counts;
    });
  const sumsOfAll = sums(false);
  const sumsOfOwner = sums(true);
  const oldest = (hasOwner: boolean) =>
    database.statement((query, given: { owner: string; status: JobStatus }) => {
      const jobs = query.selectFrom('jobs').selectAll().where('status', '=', given.status);
      return (hasOwner ? jobs.where('owner', '=', given.owner) : jobs).orderBy('id').limit(1);
    });
  const oldestOfAll = oldest(false);
  const oldestOfOwner = oldest(true);
  const ended = database.statement((query, given: { before: number; limit: number }) =>
    query
      .selectFrom('jobs')
      .select(['id', 'owner', 'tenant', 'provider_id', 'session_id', 'status', 'started_at', 'completed_at'])
      .where('completed_at', '<', given.before)
      .orderBy('completed_at')
      .limit(given.limit),
  );

  return {
    list({ owner = '', status, before, limit }) {
      const choose = owner === '' ? (status ? pages.status : pages.all) : status ? pages.both : pages.owner;
      return database.read(choose({ owner, status: status ?? 'pending', before: before || NEWEST, limit }));
    },
    counts: (owner) => database.readKeyed(owner === undefined ? sumsOfAll({ owner: '' }) : sumsOfOwner({ owner })),
    async countPending(owner) {
      const rows = await database.readKeyed(sumsOfOwner({ owner }));
      return rows.reduce((sum, { pending }) => sum + pending, 0);
    },
    async oldestPending(owner) {
      const choose = owner === undefined ? oldestOfAll : oldestOfOwner;
      return (await database.readKeyed(choose({ owner: owner ?? '', status: 'pending' })))[0];
    },
    ended: (before, limit) => database.read(ended({ before, limit })),
    async remove(jobs) {
      const ids = jobs.map(({ id }) => id);
      const removal: Statement = expectChanges(
        database.query.deleteFrom('jobs').where('id', 'in', ids).compile(),
        ids.length,
      );
      await database.write([removal, ...changeCounts(jobs.map((job) => countJob(job, -1)))]);
    },
  };
}

interface PageParameters {
  readonly owner: string;
  readonly status: JobStatus;
  readonly before: string;
  readonly limit: number;
}
