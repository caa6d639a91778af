import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createJobReports, jobMethods } from '../../../src/bridge/jobs/job-reports.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import type { DeliveryAttemptRow, JobRow } from '../../../src/bridge/storage/bridge-schema.ts';
import type { JobFilters, JobPage, ProviderCounts } from '../../../src/bridge/storage/job-report-store.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import { idTime } from '../../../src/platform/ids/sortable-id.ts';
import { endedRow, makeId, waitingJob } from '../../kit/bridge/job-rows.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const clock = createFakeClock();
const NOW = clock.now();
const REVIEW = principalOf('review');
const MEMBER: Principal = { ...principalOf('user:a'), teams: ['t'] };
const none = { pending: 0, running: 0, completed: 0, failed: 0, ended_runs: 0, run_ms: 0 };

interface Stored {
  readonly jobs?: readonly JobRow[];
  readonly counts?: Readonly<Record<string, readonly ProviderCounts[]>>;
  readonly attempts?: readonly DeliveryAttemptRow[];
  /** How many jobs a filtered look sees at most. */
  readonly seen?: number;
}

function startReports({ jobs = [], counts = {}, attempts = [], seen = Number.POSITIVE_INFINITY }: Stored) {
  const newest = jobs.toSorted((one, other) => (one.id < other.id ? 1 : -1));
  const pages: JobPage[] = [];
  const filtered: JobFilters[] = [];
  const of = ({ owner, status, before }: JobPage) =>
    newest.filter(
      (job) =>
        (owner === undefined || job.owner === owner) &&
        (status === undefined || job.status === status) &&
        (before === '' || job.id < before),
    );
  const reports = createJobReports({
    jobs: { find: async (id) => jobs.find((job) => job.id === id) },
    reports: {
      async list(page) {
        pages.push(page);
        return of(page).slice(0, page.limit);
      },
      async search(page, filters) {
        filtered.push(filters);
        const looked = of(page).slice(0, seen);
        const found = looked.filter(({ provider_id }) => [undefined, provider_id].includes(filters.providerId));
        const isMore = looked.length < of(page).length;
        return { jobs: found.slice(0, page.limit), seenUntil: isMore ? (looked.at(-1)?.id ?? '') : '' };
      },
      counts: async (owner) => (owner === undefined ? Object.values(counts).flat() : (counts[owner] ?? [])),
      async oldestPending(owner, now) {
        assert.equal(now, NOW);
        return newest.findLast((job) => job.status === 'pending' && (owner === undefined || job.owner === owner));
      },
    },
    deliveries: { attempts: async () => [...attempts] },
    clock,
  });
  return { reports, pages, filtered };
}

const many = (count: number, changes: Partial<JobRow> = {}) => Array.from({ length: count }, () => endedRow(changes));
const newestFirst = (jobs: readonly JobRow[]) =>
  jobs
    .map(({ id }) => id)
    .toSorted()
    .toReversed();

test('a job is shown to those who see its owner, with its deliveries, and is not there for others', async () => {
  const job = endedRow({ owner: 'review' });
  const attempt = { kind: 'webhook', attempt: 1, started_at: NOW, ended_at: null, result: 'unknown', detail: '' };
  const { reports } = startReports({ jobs: [job], attempts: [attempt as DeliveryAttemptRow] });
  for (const principal of [MAIN, REVIEW]) {
    const found = (await reports.get(principal, job.id)) as { jobId: string; deliveries: unknown[] };
    assert.equal(found.jobId, job.id);
    assert.deepEqual(found.deliveries, [
      {
        kind: 'webhook',
        attempt: 1,
        startedAt: new Date(NOW).toISOString(),
        endedAt: null,
        result: 'unknown',
        detail: '',
      },
    ]);
  }
  assert.deepEqual(await reports.get(MEMBER, job.id), { jobId: job.id, status: 'not_found' });
});

test('what is not the id of a job is never looked for', async () => {
  const stray = [
    waitingJob({ id: 'stray' }),
    waitingJob({ id: `x${makeId('job-')}` }),
    waitingJob({ id: `${makeId('job-')}x` }),
  ];
  const { reports } = startReports({ jobs: stray });
  for (const { id } of stray) assert.deepEqual(await reports.get(MAIN, id), { jobId: id, status: 'not_found' });
  for (const cursor of ['nonsense', `x${makeId('job-')}`, `${makeId('job-')}x`]) {
    await assert.rejects(reports.list(MAIN, { cursor }), { code: 'INVALID_PARAMS' });
  }
});

test('a list has a hundred jobs unless told otherwise, and its cursor leads to the rest', async () => {
  const jobs = many(230);
  const { reports, pages } = startReports({ jobs });
  const first = await reports.list(MAIN, {});
  assert.deepEqual(
    first.jobs.map(({ jobId }) => jobId),
    newestFirst(jobs).slice(0, 100),
  );
  assert.equal(first.nextCursor, first.jobs.at(-1)?.jobId);
  const second = await reports.list(MAIN, { limit: 130, cursor: String(first.nextCursor) });
  assert.deepEqual(
    second.jobs.map(({ jobId }) => jobId),
    newestFirst(jobs).slice(100),
  );
  assert.equal(second.nextCursor, null, 'the last one ends the list');
  assert.deepEqual(
    pages.map(({ limit }) => limit),
    [101, 101, 31],
    'they are read in pieces, with one more to see whether there are more',
  );
});

test('a page with long results ends early, and its cursor leads on', async () => {
  const outcome = JSON.stringify({ result: { output: 'x'.repeat(100_000) }, error: null, errorCode: null });
  const jobs = many(250, { outcome });
  const { reports } = startReports({ jobs });
  const page = await reports.list(MAIN, { limit: 250 });
  assert.equal(page.jobs.length, 100);
  const rest = await reports.list(MAIN, { limit: 250, cursor: String(page.nextCursor) });
  assert.deepEqual(
    rest.jobs.map(({ jobId }) => jobId),
    newestFirst(jobs).slice(100, 200),
  );
});

test('a list with filters returns what was found as soon as much was looked at, and leads on from there', async () => {
  const jobs = [...many(5, { provider_id: 'one' }), ...many(5, { provider_id: 'two' })];
  const { reports, filtered } = startReports({ jobs, seen: 6 });
  const page = await reports.list(MAIN, { providerId: 'one', limit: 4 });
  assert.equal(page.jobs.length, 1);
  assert.equal(page.nextCursor, page.jobs[0]?.jobId);
  const rest = await reports.list(MAIN, { providerId: 'one', limit: 4, cursor: String(page.nextCursor) });
  assert.deepEqual([rest.jobs.length, rest.nextCursor], [4, null]);
  assert.deepEqual(filtered[0], { providerId: 'one', scheduleId: undefined, words: undefined, from: '' });
});

test('each filter makes it a search, with words in lower case and moments as ids', async () => {
  const from = '2030-01-02T00:00:00Z';
  const first = `job-${idTime(Date.parse(from))}`;
  for (const [params, expected] of [
    [{ scheduleId: 'sch_1' }, { scheduleId: 'sch_1' }],
    [{ search: 'Deploy IT' }, { words: 'deploy it' }],
    [{ from }, { from: first }],
  ] as const) {
    const { reports, filtered, pages } = startReports({ jobs: many(1) });
    await reports.list(MAIN, params);
    const plain = { providerId: undefined, scheduleId: undefined, words: undefined, from: '' };
    assert.deepEqual([filtered, pages], [[{ ...plain, ...expected }], []]);
  }
  const { reports } = startReports({});
  for (const field of ['from', 'to']) {
    await assert.rejects(reports.list(MAIN, { [field]: '2030-13-01T00:00:00Z' }), (error: { details?: unknown }) => {
      assert.match(JSON.stringify(error.details), new RegExp(`"/${field}".*is not a moment that exists`));
      return true;
    });
  }
});

test('a list ends at the moment that was given, or at the cursor where that comes first', async () => {
  const to = '2030-01-02T00:00:00Z';
  const end = `job-${idTime(Date.parse(to))}`;
  const early = `job-${idTime(Date.parse('2029-01-01T00:00:00Z'))}${'0'.repeat(16)}`;
  const late = `job-${idTime(Date.parse('2031-01-01T00:00:00Z'))}${'0'.repeat(16)}`;
  for (const [params, before] of [
    [{}, ''],
    [{ to }, end],
    [{ cursor: early }, early],
    [{ to, cursor: early }, early],
    [{ to, cursor: late }, end],
  ] as const) {
    const { reports, pages } = startReports({});
    await reports.list(MAIN, params);
    assert.equal(pages[0]?.before, before, JSON.stringify(params));
  }
});

test('the jobs of a person and of their teams are one list, in order, each once over its pages', async () => {
  const jobs = Array.from({ length: 60 }, (_, index) =>
    endedRow({ owner: ['user:a', 'team:t', 'user:b'][index % 3] ?? '', provider_id: index % 4 === 0 ? 'two' : 'one' }),
  );
  const expected = newestFirst(jobs.filter(({ owner }) => owner !== 'user:b'));
  for (const params of [{}, { from: '2000-01-01T00:00:00Z' }]) {
    const { reports } = startReports({ jobs, seen: 5 });
    const seen: string[] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const page: Awaited<ReturnType<typeof reports.list>> = await reports.list(MEMBER, {
        ...params,
        limit: 7,
        cursor,
      });
      assert.ok(page.jobs.length <= 7);
      seen.push(...page.jobs.map(({ jobId }) => jobId));
      cursor = page.nextCursor;
    }
    assert.deepEqual(seen, expected, JSON.stringify(params));
  }
});

test('a list of one owner is for those who see the owner; for others it is empty', async () => {
  const jobs = [...many(2, { owner: 'review' }), ...many(3, { owner: 'main' })];
  const { reports, pages } = startReports({ jobs });
  assert.equal((await reports.list(MAIN, { owner: 'review' })).jobs.length, 2);
  assert.equal((await reports.list(MEMBER, { owner: 'team:t' })).jobs.length, 0);
  const before = pages.length;
  const hidden = await reports.list(REVIEW, { owner: 'main' });
  assert.deepEqual([hidden.jobs, hidden.nextCursor, pages.length], [[], null, before]);
  assert.equal((await reports.list(MAIN, { status: 'pending' })).jobs.length, 0);
});

test('statistics add up the counts of all owners that are seen, for each agent', async () => {
  const counts = {
    'user:a': [
      { ...none, provider_id: 'one', pending: 1, running: 2, completed: 3, failed: 4, ended_runs: 2, run_ms: 100 },
      { ...none, provider_id: 'idle' },
    ],
    'team:t': [{ ...none, provider_id: 'one', pending: 10, completed: 5, ended_runs: 1, run_ms: 50 }],
    'user:b': [{ ...none, provider_id: 'two', failed: 7 }],
  };
  const { reports } = startReports({ counts });
  const { summary, byProvider, oldestPendingMs, averageDurationMs } = await reports.statistics(MEMBER);
  const sum = { pending: 11, running: 2, completed: 8, failed: 4, total: 25 };
  assert.deepEqual([summary, byProvider], [sum, { one: sum }]);
  assert.deepEqual([oldestPendingMs, averageDurationMs], [0, 50]);
  assert.deepEqual((await reports.list(MEMBER, {})).summary, sum);
  assert.equal((await reports.statistics(MAIN)).summary.total, 32);
  assert.equal((await reports.statistics(REVIEW)).averageDurationMs, 0, 'none has run');
});

test('the oldest waiting job counts from its submit, or from the moment before which it must not run', async () => {
  const oldest = async (...jobs: readonly Partial<JobRow>[]) => {
    const { reports } = startReports({ jobs: jobs.map((job) => waitingJob({ owner: 'user:a', ...job })) });
    return (await reports.statistics(MEMBER)).oldestPendingMs;
  };
  assert.equal(await oldest({ created_at: NOW - 5000 }), 5000);
  assert.equal(await oldest({ created_at: NOW - 5000, not_before: NOW - 1000 }), 1000);
  assert.equal(await oldest({ created_at: NOW + 5000 }), 0, 'the clock was set back');
  const [first, second] = [makeId('job-'), makeId('job-')];
  const ofTeam = { id: first, owner: 'team:t', created_at: NOW - 9000 };
  assert.equal(await oldest({ id: second, created_at: NOW - 5000 }, ofTeam), 9000);
});

test('each method of jobs answers for the caller', async () => {
  const asked: string[] = [];
  const note = (what: string) => async (one: unknown, other: unknown) => {
    asked.push(
      `${what} ${[one, other].map((each) => (each as Principal | undefined)?.id ?? JSON.stringify(each)).join(' ')}`,
    );
    return {} as never;
  };
  const rows = jobMethods(note('submit'), { get: note('get'), list: note('list'), statistics: note('stats') } as never);
  for (const { handle } of rows) {
    await handle({ jobId: 'j' } as never, { caller: { caller: { principal: REVIEW } } } as never);
  }
  assert.deepEqual(
    rows.map(({ name }) => name),
    ['app.jobs.submit', 'app.jobs.get', 'app.jobs.list', 'app.jobs.stats'],
  );
  assert.deepEqual(asked, [
    'submit {"jobId":"j"} review',
    'get review "j"',
    'list review {"jobId":"j"}',
    'stats review ',
  ]);
});
