import { sql } from 'kysely';
import type { Database } from '../../platform/database/database.ts';
import { expectChanges, type Statement } from '../../platform/database/statement.ts';
import { isPersons } from '../principal.ts';
import type { BridgeSchema, JobCountRow, JobRow, JobStatus } from './bridge-schema.ts';

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

/** Filters without an index: the jobs are checked one by one, at most MAX_SCANNED for a page. */
export interface JobFilters {
  readonly providerId: string | undefined;
  readonly scheduleId: string | undefined;
  /** In lower case. */
  readonly words: string | undefined;
  /** No job with a lower id. */
  readonly from: string;
}

interface FilteredJobs {
  readonly jobs: readonly JobRow[];
  /** The last job that was checked, if there may be more; empty otherwise. */
  readonly seenUntil: string;
}

export interface JobReportStore {
  /** Newest first. */
  list(page: JobPage): Promise<readonly JobRow[]>;
  /** Newest first, those that fit. */
  search(page: JobPage, filters: JobFilters): Promise<FilteredJobs>;
  /** Costs the same however many jobs there are. */
  counts(owner: string | undefined): Promise<readonly ProviderCounts[]>;
  /** How many jobs of an owner wait, and how many run, with those that a person has submitted for teams. */
  countOpen(owner: string): Promise<{ readonly pending: number; readonly running: number }>;
  /** Of those that may run by now. */
  oldestPending(owner: string | undefined, now: number): Promise<JobRow | undefined>;
  /** Jobs that ended before that moment, the longest ago first. */
  ended(before: number, limit: number): Promise<readonly EndedJob[]>;
  /** Deletes jobs; fails with STORAGE_CONFLICT when another bridge has deleted one of them. */
  remove(jobs: readonly EndedJob[]): Promise<void>;
}

type EndedJob = Pick<
  JobRow,
  'id' | 'owner' | 'tenant' | 'provider_id' | 'session_id' | 'status' | 'started_at' | 'completed_at'
>;

/** After every id of a job. */
const NEWEST = 'job-~';
/** The maximum number of jobs checked for one page. */
const MAX_SCANNED = 2000;

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
  const submittedFor = database.statement((query, given: { member: string }) =>
    query
      .selectFrom('jobs')
      .select(({ fn }) => ['status', fn.countAll<number>().as('count')])
      .where('member', '=', given.member)
      .where('member', '!=', sql.lit(''))
      .where('completed_at', 'is', null)
      .groupBy('status'),
  );
  const oldest = (hasOwner: boolean) =>
    database.statement((query, given: { owner: string; status: JobStatus; now: number }) => {
      const jobs = query
        .selectFrom('jobs')
        .selectAll()
        .where('status', '=', given.status)
        .where('not_before', '<=', given.now);
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
    async search({ owner, status, before, limit }, { providerId, scheduleId, words, from }) {
      const { query } = database;
      let scanned = query
        .selectFrom('jobs')
        .select(['id', 'provider_id', 'search_text'])
        .where('id', '<', before || NEWEST)
        .where('id', '>=', from)
        .orderBy('id', 'desc')
        .limit(MAX_SCANNED);
      if (owner !== undefined) scanned = scanned.where('owner', '=', owner);
      if (status !== undefined) scanned = scanned.where('status', '=', status);
      if (scheduleId !== undefined) {
        scanned = scanned.where('schedule_id', '=', scheduleId).where('schedule_id', '!=', sql.lit(''));
      }
      let fitting = query.selectFrom(scanned.as('scanned')).select('scanned.id');
      if (providerId !== undefined) fitting = fitting.where('scanned.provider_id', '=', providerId);
      if (words !== undefined) {
        const pattern = `%${words.replaceAll(/[\\%_]/g, '\\$&')}%`;
        fitting = fitting.where(sql<boolean>`scanned.search_text like ${pattern} escape '\\'`);
      }
      const found = await database.read(fitting.orderBy('scanned.id', 'desc').limit(limit).compile());
      const ids = found.map(({ id }) => id);
      const jobs =
        ids.length === 0
          ? []
          : await database.read(
              query.selectFrom('jobs').selectAll().where('id', 'in', ids).orderBy('id', 'desc').compile(),
            );
      if (ids.length === limit) return { jobs, seenUntil: ids.at(-1) ?? '' };
      const last = await database.read(
        scanned
          .limit(1)
          .offset(MAX_SCANNED - 1)
          .compile(),
      );
      return { jobs, seenUntil: last[0]?.id ?? '' };
    },
    counts: (owner) => database.readKeyed(owner === undefined ? sumsOfAll({ owner: '' }) : sumsOfOwner({ owner })),
    async countOpen(owner) {
      const ofTeams = isPersons(owner) ? database.readKeyed(submittedFor({ member: owner })) : [];
      const [rows, more] = await Promise.all([database.readKeyed(sumsOfOwner({ owner })), ofTeams]);
      const ofState = (state: 'pending' | 'running') => {
        const submitted = more.find(({ status }) => status === state)?.count ?? 0;
        return rows.reduce((sum, row) => sum + row[state], Number(submitted));
      };
      return { pending: ofState('pending'), running: ofState('running') };
    },
    async oldestPending(owner, now) {
      const choose = owner === undefined ? oldestOfAll : oldestOfOwner;
      return (await database.readKeyed(choose({ owner: owner ?? '', status: 'pending', now })))[0];
    },
    ended: (before, limit) => database.read(ended({ before, limit })),
    async remove(jobs) {
      const ids = jobs.map(({ id }) => id);
      const removal: Statement = expectChanges(
        database.query.deleteFrom('jobs').where('id', 'in', ids).compile(),
        ids.length,
      );
      const attempts = database.query.deleteFrom('job_delivery_attempts').where('job_id', 'in', ids).compile();
      await database.write([removal, attempts, ...changeCounts(jobs.map((job) => countJob(job, -1)))]);
    },
  };
}

interface PageParameters {
  readonly owner: string;
  readonly status: JobStatus;
  readonly before: string;
  readonly limit: number;
}

/** A change to the counts of one owner and one agent. */
type JobCountChange = JobCountRow;

/** The counts change in the transaction that changes the jobs, so that they always agree. */
type ChangeJobCounts = (changes: readonly JobCountChange[]) => readonly Statement[];

/** PostgreSQL runs transactions in parallel: those that change different shards do not wait for each other. */
const SHARDS = { sqlite: 1, postgres: 8 } as const;

export function createJobCounts(database: Database<BridgeSchema>): ChangeJobCounts {
  const shards = SHARDS[database.engine];
  const add = database.statement((query, given: JobCountChange) =>
    query
      .insertInto('job_counts')
      .values({ ...given })
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

/** Returns the change of the counts for one job more or, with -1, one job less. */
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

/** Returns one change for each row, always in the same order, so that transactions do not deadlock. */
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
