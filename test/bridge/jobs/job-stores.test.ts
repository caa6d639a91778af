import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema, JobRow, JobStatus, SessionRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { createInstanceStore } from '../../../src/bridge/storage/instance-and-route-stores.ts';
import { createJobReportStore } from '../../../src/bridge/storage/job-report-store.ts';
import { createJobSearchStore } from '../../../src/bridge/storage/job-search-store.ts';
import { createJobStore } from '../../../src/bridge/storage/job-store.ts';
import { createSessionStore } from '../../../src/bridge/storage/session-store.ts';
import { errorCode } from '../../../src/platform/errors/app-error.ts';
import { endedRow, waitingJob } from '../../kit/bridge/job-rows.ts';
import { databasePlaces, engines } from '../../kit/database-engines.ts';
import fc from '../../kit/properties.ts';

const DONE = {
  status: 'completed',
  providerId: 'one',
  outcome: '{"result":null,"error":null,"errorCode":null}',
} as const;

for (const engine of engines) {
  describe(`the stores of jobs on ${engine}`, () => {
    const places = databasePlaces(engine);
    const open = async () => {
      const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
      return {
        database,
        jobs: createJobStore(database),
        search: createJobSearchStore(database),
        reports: createJobReportStore(database),
        instances: createInstanceStore(database),
      };
    };

    test('B-71: whatever happens in whatever order, only legal moves happen and a job ends once', async () => {
      const { jobs, reports } = await open();
      const legal: Readonly<Record<JobStatus, readonly JobStatus[]>> = {
        pending: ['running', 'failed'],
        running: ['pending', 'completed', 'failed'],
        completed: [],
        failed: [],
      };
      const action = fc.record({
        kind: fc.constantFrom('claim', 'requeue', 'complete', 'fail'),
        /** Which of the views of the job that somebody has got is acted upon: an old one may be wrong. */
        view: fc.nat(5),
        instance: fc.constantFrom('a', 'b'),
      });
      const property = fc.asyncProperty(fc.array(action, { maxLength: 12 }), async (actions) => {
        const job = waitingJob();
        await jobs.add(job);
        const views: JobRow[] = [job];
        let terminal: JobRow | undefined;
        for (const { kind, view, instance } of actions) {
          const before = (await jobs.find(job.id)) as JobRow;
          const seen = views[view % views.length] as JobRow;
          if (kind === 'claim') await jobs.claim(seen, instance, 2000);
          else if (kind === 'requeue') await jobs.requeue(seen);
          else await jobs.end(seen, { ...DONE, status: kind === 'fail' ? 'failed' : 'completed', now: 3000 }, []);
          const after = (await jobs.find(job.id)) as JobRow;
          if (after.status !== before.status) assert.ok(legal[before.status].includes(after.status));
          if (terminal !== undefined) assert.deepEqual(after, terminal);
          if (after.completed_at !== null) terminal ??= after;
          assert.ok(after.attempt - before.attempt <= 1);
          views.push(after);
        }
      });
      await fc.assert(property, { numRuns: engine === 'sqlite' ? 60 : 15 });
      const listed = await listAll(reports);
      for (const status of ['pending', 'running', 'completed', 'failed'] as const) {
        const counted = (await reports.counts(undefined)).reduce((sum, row) => sum + row[status], 0);
        assert.equal(counted, listed.filter((row) => row.status === status).length, status);
      }
    });

    test('deadlines follow a clock that was set, but for jobs that were submitted since and those that have ended', async () => {
      const { jobs } = await open();
      const now = 5_000_000;
      const rows = {
        before: waitingJob({ created_at: now - 900_000, deadline_at: now - 300_000 }),
        since: waitingJob({ created_at: now - 10, deadline_at: now + 600_000 }),
        'from the future': waitingJob({ created_at: now + 900_000, deadline_at: now + 1_500_000 }),
        ended: endedRow({ created_at: 1000, deadline_at: 601_000 }),
      };
      for (const row of Object.values(rows)) await jobs.add(row);
      await jobs.moveDeadlines({ byMs: 86_400_000, now, sinceMs: 1000 });
      const moved = async (row: JobRow) => ((await jobs.find(row.id))?.deadline_at ?? 0) - row.deadline_at;
      assert.deepEqual(await Promise.all(Object.values(rows).map(moved)), [86_400_000, 0, 86_400_000, 0]);
      await jobs.moveDeadlines({ byMs: -86_400_000, now, sinceMs: 1000 });
      assert.deepEqual(await Promise.all(Object.values(rows).map(moved)), [0, 0, 0, 0]);
    });

    test('B-72: an end that comes from an earlier run of a job is refused', async () => {
      const { jobs } = await open();
      const job = waitingJob({ retry_on_restart: 1 });
      await jobs.add(job);
      const first = (await jobs.claim(job, 'a', 2000)) as JobRow;
      assert.equal(await jobs.claim(job, 'b', 2000), undefined, 'one bridge gets it');
      assert.equal(await jobs.requeue(first), true);
      const second = (await jobs.claim((await jobs.find(job.id)) as JobRow, 'a', 2500)) as JobRow;
      assert.equal(await jobs.end(first, { ...DONE, now: 3000 }, []), false);
      assert.equal(await jobs.end(second, { ...DONE, now: 4000 }, []), true);
      assert.equal(await jobs.end(second, { ...DONE, status: 'failed', now: 5000 }, []), false);
      const stored = await jobs.find(job.id);
      assert.deepEqual([stored?.status, stored?.completed_at, stored?.attempt], ['completed', 4000, 2]);
    });

    test('B-69: a used idempotency key cannot be stored again for its owner', async () => {
      const { jobs } = await open();
      const first = waitingJob({ idempotency_key: 'key' });
      await jobs.add(first);
      await assert.rejects(
        jobs.add(waitingJob({ idempotency_key: 'key' })),
        (error) => errorCode(error) === 'STORAGE_DUPLICATE',
      );
      await jobs.add(waitingJob({ idempotency_key: 'key', owner: 'review' }));
      await jobs.add(waitingJob());
      await jobs.add(waitingJob());
      assert.equal((await jobs.findByKey('main', 'key'))?.id, first.id);
    });

    test('B-73: pages are stable while jobs come in, and the counts are those of the list', async () => {
      const { jobs, reports } = await open();
      const rows = Array.from({ length: 30 }, (_, index) =>
        (index % 3 === 0 ? endedRow : waitingJob)({
          owner: index % 2 === 0 ? 'main' : 'review',
          provider_id: index % 5 === 0 ? 'two' : 'one',
        }),
      );
      for (const row of rows) await jobs.add(row);
      const seen: string[] = [];
      for (let before = ''; ; ) {
        const page = await reports.list({ owner: undefined, status: undefined, before, limit: 7 });
        seen.push(...page.map(({ id }) => id));
        await jobs.add(waitingJob({ owner: 'late' }));
        if (page.length < 7) break;
        before = page.at(-1)?.id ?? '';
      }
      assert.deepEqual(seen, rows.map(({ id }) => id).reverse());
      for (const owner of [undefined, 'main', 'review']) {
        for (const status of ['pending', 'completed', 'failed'] as const) {
          const listed = await reports.list({ owner, status, before: '', limit: 1000 });
          const counted = (await reports.counts(owner)).reduce((sum, row) => sum + row[status], 0);
          assert.equal(counted, listed.length);
          assert.ok(listed.every((row) => row.status === status && (owner === undefined || row.owner === owner)));
        }
      }
      const [oldest] = rows.filter(({ status, owner }) => status === 'pending' && owner === 'review');
      assert.equal((await reports.oldestPending('review', 5000))?.id, oldest?.id);
    });

    test('a job that changes its agent is counted for the one that did the work', async () => {
      const { jobs, reports } = await open();
      const job = waitingJob();
      await jobs.add(job);
      const claimed = (await jobs.claim(job, 'a', 2000)) as JobRow;
      await jobs.end(claimed, { ...DONE, providerId: 'two', now: 5000 }, []);
      const none = { pending: 0, running: 0, completed: 0, failed: 0, ended_runs: 0, run_ms: 0 };
      assert.deepEqual(await reports.counts(undefined), [
        { provider_id: 'one', ...none },
        { provider_id: 'two', ...none, completed: 1, ended_runs: 1, run_ms: 3000 },
      ]);
    });

    test('waiting jobs are found by owner and agent, and overdue ones by their deadline', async () => {
      const { jobs, search } = await open();
      const rows = [
        waitingJob(),
        waitingJob({ deadline_at: 500 }),
        waitingJob({ provider_id: 'two' }),
        waitingJob({ owner: 'review' }),
      ];
      for (const row of [...rows, endedRow({ provider_id: 'three' })]) await jobs.add(row);
      assert.deepEqual(await search.waiting(), [
        { owner: 'main', provider_id: 'one' },
        { owner: 'main', provider_id: 'two' },
        { owner: 'review', provider_id: 'one' },
      ]);
      assert.deepEqual(
        (await search.overdue(501, 10)).map(({ id }) => id),
        [rows[1]?.id],
      );
    });

    test('DB-6: of the jobs of a session the oldest is next, and none while a turn or a job runs in it', async () => {
      const { jobs, search, database } = await open();
      const [first, second, other] = [
        waitingJob({ session_id: 's' }),
        waitingJob({ session_id: 's' }),
        waitingJob({ session_id: 'other' }),
      ];
      for (const row of [first, second, other, waitingJob({ session_id: 's', owner: 'review' })]) await jobs.add(row);
      const next = async () =>
        (await search.nextOfSessions({ owner: 'main', provider_id: 'one' }, 5000)).map(({ id }) => id);
      assert.deepEqual(await next(), [first.id, other.id]);
      const claimed = (await jobs.claim(first, 'a', 2000)) as JobRow;
      assert.deepEqual(await next(), [other.id], 'the first one runs');
      await jobs.end(claimed, { ...DONE, now: 3000 }, []);
      assert.deepEqual(await next(), [second.id, other.id]);
      const session = sessionRow({ key: 'ses_1', session_id: 's', instance: 'b' });
      await database.write([createSessionStore(database).insert(session)]);
      assert.deepEqual(await next(), [other.id], 'a turn runs in the session');
      await database.write([createSessionStore(database).endTurn('ses_1', 'b', '', 1, 4000)]);
      assert.deepEqual(await next(), [second.id, other.id]);
    });

    test('of the jobs of a session the one with the highest priority is next, and none before its moment', async () => {
      const { jobs, search } = await open();
      const low = waitingJob({ session_id: 's', priority: 2 });
      const high = waitingJob({ session_id: 's', priority: 0 });
      const later = waitingJob({ session_id: 's', priority: 0, not_before: 9000 });
      const normal = waitingJob({ session_id: 'other' });
      for (const row of [low, later, high, normal]) await jobs.add(row);
      const next = async (now: number) =>
        (await search.nextOfSessions({ owner: 'main', provider_id: 'one' }, now)).map(({ id, priority }) => [
          id,
          priority,
        ]);
      assert.deepEqual(await next(5000), [
        [high.id, 0],
        [normal.id, 1],
      ]);
      await jobs.end(high, { ...DONE, status: 'failed', now: 5000 }, []);
      assert.deepEqual(await next(8999), [
        [normal.id, 1],
        [low.id, 2],
      ]);
      assert.deepEqual((await next(9000))[0], [later.id, 0]);
    });

    test('a job that is to be retried waits again, keeps its counts right, and is not retried twice', async () => {
      const { jobs, reports } = await open();
      const job = waitingJob({ retries: 2 });
      await jobs.add(job);
      const claimed = (await jobs.claim(job, 'a', 2000)) as JobRow;
      assert.equal(await jobs.retry(claimed, 7000), true);
      assert.equal(await jobs.retry(claimed, 7000), false);
      const waiting = (await jobs.find(job.id)) as JobRow;
      assert.deepEqual(
        [waiting.status, waiting.retried, waiting.retry_at, waiting.started_at, waiting.instance],
        ['pending', 1, 7000, null, null],
      );
      assert.deepEqual(await reports.countOpen('main'), { pending: 1, running: 0 });
    });

    test('lists find jobs by agent, schedule, words and time, page by page', async () => {
      const { jobs, reports } = await open();
      const rows = Array.from({ length: 12 }, (_, index) =>
        waitingJob({
          provider_id: index % 2 === 0 ? 'one' : 'two',
          schedule_id: index % 3 === 0 ? 'sch_1' : '',
          search_text: `fix 100% of a_b ${index}`,
        }),
      );
      for (const row of rows) await jobs.add(row);
      const none = { providerId: undefined, scheduleId: undefined, words: undefined, from: '' };
      const page = { owner: 'main', status: undefined, before: '', limit: 100 };
      const found = async (filters: object, changes: object = {}) =>
        (await reports.search({ ...page, ...changes }, { ...none, ...filters })).jobs.map(({ id }) =>
          rows.findIndex((row) => row.id === id),
        );
      assert.deepEqual(await found({ providerId: 'two' }), [11, 9, 7, 5, 3, 1]);
      assert.deepEqual(await found({ scheduleId: 'sch_1' }), [9, 6, 3, 0]);
      assert.deepEqual(await found({ scheduleId: 'sch_1', providerId: 'one' }), [6, 0]);
      assert.deepEqual(await found({ words: '100% of a_b 1' }), [11, 10, 1]);
      assert.deepEqual(await found({ words: 'a%b' }), [], 'characters of patterns have no meaning');
      assert.deepEqual(await found({ from: rows[10]?.id ?? '' }), [11, 10]);
      assert.deepEqual(await found({ words: 'fix' }, { owner: 'review' }), []);
      const first = await reports.search({ ...page, limit: 2 }, { ...none, providerId: 'two' });
      assert.equal(first.seenUntil, rows[9]?.id);
      assert.equal((await reports.search(page, { ...none, words: 'fix' })).seenUntil, '');
    });

    test('jobs of a bridge that is off the list are abandoned, and others are not', async () => {
      const { jobs, search, instances } = await open();
      const rows = [waitingJob(), waitingJob(), waitingJob()];
      for (const row of rows) await jobs.add(row);
      const row = { version: '1', address: '', started_at: 1, heartbeat_at: 1 };
      for (const id of ['own', 'dead', 'alive']) await instances.beat({ id, ...row });
      for (const [index, id] of ['own', 'dead', 'alive'].entries()) await jobs.claim(rows[index] as JobRow, id, 2000);
      assert.deepEqual(await search.abandoned('own', 10), []);
      await instances.remove('dead');
      assert.deepEqual(
        (await search.abandoned('own', 10)).map(({ id }) => id),
        [rows[1]?.id],
      );
      await instances.beat({ id: 'dead', ...row, heartbeat_at: 2 });
      assert.deepEqual(await search.abandoned('own', 10), [], 'one that was only slow is on the list again');
    });

    test('open jobs that a person has submitted for teams count for the person and for the team', async () => {
      const { jobs, reports } = await open();
      const ofTeam = { owner: 'team:team_1', member: 'user:ann' };
      const [first, second] = [waitingJob(ofTeam), waitingJob(ofTeam)];
      for (const job of [
        first,
        second,
        waitingJob({ owner: 'user:ann' }),
        waitingJob({ ...ofTeam, member: 'user:bob' }),
      ])
        await jobs.add(job);
      await jobs.claim(first, 'a', 2000);
      assert.deepEqual(await reports.countOpen('user:ann'), { pending: 2, running: 1 });
      assert.deepEqual(await reports.countOpen('user:bob'), { pending: 1, running: 0 });
      assert.deepEqual(await reports.countOpen('team:team_1'), { pending: 2, running: 1 });
      await jobs.end(second, { status: 'failed', providerId: 'one', outcome: '{}', now: 3000 }, []);
      assert.deepEqual(await reports.countOpen('user:ann'), { pending: 1, running: 1 });
    });

    test('a stop that another bridge asks for is seen by the one that runs the job', async () => {
      const { jobs, search } = await open();
      const job = waitingJob({ session_id: 's', thread_id: 't' });
      await jobs.add(job);
      assert.deepEqual(await search.ofSession({ threadId: 't' }, ['review']), []);
      assert.equal((await search.ofSession({ sessionId: 's' }, ['main', 'review'])).length, 1);
      await jobs.claim(job, 'a', 2000);
      await jobs.requestStop(job.id);
      assert.deepEqual(await search.runningOn('a'), [{ id: job.id, attempt: 1, stop_requested: 1 }]);
    });

    test('old jobs are deleted a few at a time, and the counts with them', async () => {
      const { jobs, reports } = await open();
      for (let index = 0; index < 5; index += 1) await jobs.add(endedRow({ completed_at: 3000 + index }));
      await jobs.add(waitingJob());
      for (const count of [3, 1, 0]) {
        const old = await reports.ended(3004, 3);
        assert.equal(old.length, count);
        if (count > 0) await reports.remove(old);
        if (count === 1) await assert.rejects(reports.remove(old), { code: 'STORAGE_CONFLICT' });
      }
      const [counts] = await reports.counts(undefined);
      assert.deepEqual([counts?.completed, counts?.pending, counts?.ended_runs, counts?.run_ms], [1, 1, 1, 1004]);
      assert.equal((await listAll(reports)).length, 2);
    });
  });
}

function listAll(reports: ReturnType<typeof createJobReportStore>): Promise<readonly JobRow[]> {
  return reports.list({ owner: undefined, status: undefined, before: '', limit: 1000 });
}

function sessionRow(changes: Pick<SessionRow, 'key' | 'session_id' | 'instance'>): SessionRow {
  const names = { thread_id: 't', owner: 'main', tenant: 'default', provider_id: 'one', reference: 'r' };
  return {
    ...names,
    working_directory: '',
    mcp_servers: '',
    choices: '',
    home: '',
    epoch: 0,
    reserved_seq: 1,
    created_at: 1,
    updated_at: 1,
    closed_at: null,
    ...changes,
  };
}
