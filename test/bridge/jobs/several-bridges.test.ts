import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { createJobQueue, type JobQueue } from '../../../src/bridge/jobs/job-runner.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../../src/bridge/storage/bridge-schema.ts';
import { createJobSearchStore } from '../../../src/bridge/storage/job-search-store.ts';
import { createJobStore } from '../../../src/bridge/storage/job-store.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import type { Database, DatabaseLocation } from '../../../src/platform/database/database.ts';
import { type SharedPlace, spreadJobs } from '../../faults/jobs/shared-jobs.ts';
import { endedJob, getJob, jobWhen, submit } from '../../kit/bridge/job-client.ts';
import { waitingJob } from '../../kit/bridge/job-rows.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { type BridgeUnderTest, startBridge } from '../../kit/bridge/start-bridge.ts';
import { openServiceDatabase } from '../../kit/open-service-database.ts';
import { type RealPostgres, startPostgres } from '../../kit/real-postgres.ts';
import { createScriptedProvider, endless, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

/** `npm run faults -- shared-jobs` takes 10,000. */
const JOBS = 60;
let server: RealPostgres | undefined;
let places = 0;
after(() => server?.stop());

async function place(): Promise<SharedPlace> {
  server ??= await startPostgres();
  places += 1;
  const schema = `jobs_${places}`;
  const location: DatabaseLocation = { engine: 'postgres', url: server.url, schema };
  return { location };
}

describe('several bridges on one PostgreSQL', () => {
  test('B-72: jobs are spread over them, each runs once, and ends once', async (context) => {
    assert.deepEqual(await spreadJobs(context, await place(), JOBS), []);
  });

  test('B-72: the jobs of a bridge that dies are settled within 15 seconds, and run at most once more', async (context) => {
    const shared = await place();
    const [deaf, other] = [createScriptedProvider('one', endless), createScriptedProvider('one', endless)];
    const first = await startBridge(context, { providers: [deaf], ...shared });
    const plain = await submit(first.url, { taskPrompt: 'plain' });
    const repeated = await submit(first.url, { taskPrompt: 'again', retryOnRestart: true });
    // A job runs for the store before its agent is asked; what is cut off in between may never reach the agent.
    await until('both jobs to be with the agent of the first bridge', () => deaf.asked.length === 2);
    const cut = cutOff(first.database);
    const cutAt = Date.now();
    let second: BridgeUnderTest;
    try {
      second = await startBridge(context, { providers: [other], ...shared });
      const interrupted = await endedJob(second.url, plain);
      assert.equal(interrupted.errorCode, 'JOB_INTERRUPTED');
      assert.ok(Date.parse(interrupted.completedAt ?? '') - cutAt < 15_000);
      await until('the other bridge to run the repeated job', () => other.asked.length > 0);
    } finally {
      cut.restore();
    }
    // The first one has come back: it stops what is no longer its own, and has no say in it.
    await until('the first bridge to stop what it lost', () => deaf.cancelled.length >= 2);
    assert.equal((await getJob(second.url, repeated)).status, 'running');
    await call(second.url, 'session.cancel', { sessionId: repeated });
    assert.equal((await endedJob(second.url, repeated)).errorCode, 'JOB_CANCELLED');
    assert.equal(other.asked.length, 1);
    assert.equal((await getJob(second.url, plain)).errorCode, 'JOB_INTERRUPTED');
  });

  test('a job whose turn has ended before its bridge was lost ends as its turn did, and is not run again', async (context) => {
    const shared = await place();
    const first = await startBridge(context, { providers: [createScriptedProvider('one')], ...shared });
    const jobId = await submit(first.url, { taskPrompt: 'done', retryOnRestart: true });
    const done = await endedJob(first.url, jobId);
    assert.equal(done.status, 'completed');
    // As a bridge leaves it that is lost between the end of the turn and that of the job.
    const lost = { status: 'running', instance: 'lost', outcome: '', completed_at: null } as const;
    await first.database.query.updateTable('jobs').set(lost).where('id', '=', jobId).execute();
    const other = createScriptedProvider('one');
    const second = await startBridge(context, { providers: [other], ...shared });
    const settled = await endedJob(second.url, jobId);
    assert.deepEqual([settled.status, settled.errorCode], ['completed', null]);
    assert.deepEqual(settled.result, done.result);
    assert.equal(other.asked.length, 0);
  });

  test('session.cancel on one bridge stops the job that another one runs', async (context) => {
    const shared = await place();
    const agent = createScriptedProvider('one', endless);
    const first = await startBridge(context, { providers: [agent], ...shared });
    const jobId = await submit(first.url, {});
    await jobWhen(first.url, jobId, ({ status }) => status === 'running');
    const second = await startBridge(context, { providers: [createScriptedProvider('one')], ...shared });
    await call(second.url, 'session.cancel', { sessionId: jobId });
    assert.equal((await endedJob(second.url, jobId)).errorCode, 'JOB_CANCELLED');
    assert.equal(agent.cancelled.length, 1);
  });

  test('DS-3: a bridge whose clock is ahead ends no waiting job early', async (context) => {
    const shared = await place();
    const first = await startBridge(context, { providers: [createScriptedProvider('one', endless)], ...shared });
    const running = await submit(first.url, { sessionId: 'clocks' });
    await jobWhen(first.url, running, ({ status }) => status === 'running');
    const waiting = await submit(first.url, { sessionId: 'clocks', timeoutMs: 60_000 });
    const ahead = { ...systemClock, now: () => Date.now() + 90_000 };
    const second = await startBridge(context, {
      providers: [createScriptedProvider('one')],
      ...shared,
      clock: ahead,
    });
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    assert.equal((await getJob(second.url, waiting)).status, 'pending');
    const other = await submit(second.url, {});
    const { createdAt } = await getJob(second.url, other);
    assert.ok(Math.abs(Date.parse(createdAt) - Date.now()) < 60_000, `created at ${createdAt}`);
  });

  test('B-72: two bridges that look at the same moment never take the same job', async (context) => {
    const { location } = await place();
    const database = await openServiceDatabase<BridgeSchema>({
      name: 'bridge',
      migrations: bridgeMigrations,
      clock: systemClock,
      location,
    });
    context.after(() => database.close());
    const store = createJobStore(database);
    const search = createJobSearchStore(database);
    const isSessionBusy = () => false;
    const [first, second] = ['a', 'b'].map((instance) =>
      createJobQueue({ store, search, instance, clock: systemClock, isSessionBusy }),
    ) as [JobQueue, JobQueue];
    const jobs = Array.from({ length: 20 }, (_, index) => waitingJob({ provider_id: index % 2 === 0 ? 'one' : '' }));
    for (const job of jobs) await store.add(job);
    const taken: string[] = [];
    const takeBoth = () => Promise.all([first.take(() => true), second.take(() => true)]);
    await until('all jobs to be taken', async () => {
      for (const job of await takeBoth()) if (job !== undefined) taken.push(job.id);
      return taken.length >= jobs.length;
    });
    assert.deepEqual(taken.toSorted(), jobs.map(({ id }) => id).toSorted());
    assert.deepEqual(await takeBoth(), [undefined, undefined]);
  });

  test('DB-6: a job waits while another bridge runs a turn of its session, then continues the conversation', async (context) => {
    const { location } = await place();
    const held = Promise.withResolvers<void>();
    const counts: number[] = [];
    const script: TurnScript = async ({ prompt, count }) => {
      counts.push(count);
      if (prompt === 'hold') await held.promise;
      return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
    };
    const agent = createScriptedProvider('one', script);
    const first = await startBridge(context, { providers: [agent], location });
    const second = await startBridge(context, { providers: [agent], location });
    const running = call(first.url, 'session.start', { sessionId: 'shared', taskPrompt: 'hold' });
    await until('the turn to run', () => agent.running() === 1);
    const jobs = [];
    for (const taskPrompt of ['b', 'c']) jobs.push(await submit(second.url, { sessionId: 'shared', taskPrompt }));
    await new Promise((resolve) => setTimeout(resolve, 1500));
    for (const jobId of jobs) assert.equal((await getJob(second.url, jobId)).status, 'pending');
    held.resolve();
    assert.equal((await running).result?.status, 'completed');
    for (const jobId of jobs) assert.equal((await endedJob(second.url, jobId)).status, 'completed');
    assert.deepEqual(counts, [0, 1, 2], 'one conversation, in the order of the submits');
  });
});

/** From now on nothing that the bridge writes arrives, as if its machine had stopped; until it goes on. */
function cutOff(database: Database<BridgeSchema>): { restore(): void } {
  const { write } = database;
  const target = database as { write: typeof write };
  const { promise: restored, resolve } = Promise.withResolvers<void>();
  target.write = async (statements) => {
    await restored;
    return write(statements);
  };
  return {
    restore() {
      target.write = write;
      resolve();
    },
  };
}
