import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { SubmitJobParams } from '../../../src/bridge/contract/jobs.ts';
import type { SessionResult } from '../../../src/bridge/contract/session.ts';
import { createJobs, type JobsOptions, maxJobsOfOneOwner } from '../../../src/bridge/jobs/create-jobs.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import type { BridgeGroups } from '../../../src/bridge/settings.ts';
import { bridgeMigrations } from '../../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema, JobRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { createJobStore } from '../../../src/bridge/storage/job-store.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { Owner, OwnerTeam } from '../../../src/platform/identity/owner.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import { makeId, waitingJob } from '../../kit/bridge/job-rows.ts';
import { databasePlaces } from '../../kit/database-engines.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { until } from '../../kit/until.ts';

const REVIEW = principalOf('review');
const SETTINGS: JobsOptions['settings'] = {
  ...{ max_running: 4, max_waiting_per_owner: 1000, max_schedules_per_owner: 10, min_schedule_interval: 60_000 },
  callback_allow: [],
};
const team = (id: string): OwnerTeam => ({
  ...{ id, allowed: undefined, bridge: true, plan: '', budget: undefined },
  bucket: { id: `team:${id}`, name: 'the team', limits: {} },
});
const person = (id: string, changes: Partial<Owner> = {}): Owner => ({
  ...{ id, state: 'active', role: 'user', plan: '', allowed: undefined, buckets: [], bridge: true, revision: 1 },
  teams: [team('t')],
  ...changes,
});
const ofTeam: Principal = { ...principalOf('team:t'), member: principalOf('user:a') };
const done = { status: 'completed', resolvedProviderId: 'one', resolvedGatewayProviderId: '', output: 'x' };

describe('jobs on sqlite', () => {
  const places = databasePlaces('sqlite');

  /** Jobs whose turns the test ends, by their prompts; a cancelled turn ends by itself. */
  async function start(changes: Partial<JobsOptions> = {}, stored: readonly JobRow[] = []) {
    const clock = createFakeClock();
    const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
    for (const row of stored) await createJobStore(database).add(row);
    const people = new Map<string, Owner>();
    const running = new Map<string, (result: object) => void>();
    const events: string[] = [];
    let idle: () => void = () => undefined;
    const jobs = await createJobs({
      database,
      instance: 'own',
      lease: { hasChanged: () => false },
      agentIds: ['one'],
      gatewayId: 'far',
      settings: SETTINGS,
      maxRunningOfOwner: () => 4,
      hasRoom: () => true,
      keptMs: 0,
      network: { lookUp: async () => [], ownAddresses: () => [], send: async () => 200 },
      orchestrator: {
        close: async () => undefined,
        hasOwn: async () => false,
        isBusy: () => false,
        onIdle(listener) {
          idle = listener;
        },
      },
      sessionCalls: {
        turn: () => Promise.reject(new Error('not a job')),
        jobTurn({ params: { taskPrompt = '' } }, signal) {
          const { promise, resolve } = Promise.withResolvers<SessionResult>();
          running.set(taskPrompt, (result) => {
            running.delete(taskPrompt);
            resolve({ ...done, ...result } as unknown as SessionResult);
          });
          signal.addEventListener('abort', () => running.get(taskPrompt)?.({ status: 'cancelled' }));
          return promise;
        },
        async cancel({ sessionId = '' }) {
          events.push(`session ${sessionId} cancelled`);
          return { accepted: true };
        },
        async close({ sessionId = '' }) {
          events.push(`session ${sessionId} closed`);
          return { accepted: true };
        },
      },
      ownerOf: async (id) => people.get(id),
      principalFor: async (owner) => principalOf(owner),
      async invokeTool(tool, action, args) {
        events.push(`${tool} ${action} ${JSON.stringify(args)}`);
      },
      checkGatewayOwner: () => undefined,
      isOpen: () => true,
      webhookSecret: () => '',
      route: async () => ({ resolvedProviderId: 'one', resolvedGatewayProviderId: '' }) as never,
      checkDirectory: async () => undefined,
      keepFiles: async () => ({}),
      serverBox: { seal: () => '', open: () => [] },
      checkServers: () => undefined,
      clock,
      makeId,
      logger: silentLogger,
      ...changes,
    });
    const submit = async (taskPrompt: string, principal: Principal = MAIN, more: SubmitJobParams = {}) =>
      (await jobs.submit({ taskPrompt, ...more }, principal)).jobId;
    const runs = (...names: readonly string[]) =>
      until(`${names.join()} to run`, () => names.every((name) => running.has(name)) && running.size === names.length);
    const ended = (jobId: string) =>
      until('the job to end', async () => {
        const job = await jobs.read(jobId);
        return job?.completedAt === null ? undefined : job;
      });
    const finish = (name: string, result: object = {}) => running.get(name)?.(result);
    const stop = async () => {
      for (const end of running.values()) end({});
      await jobs.stop();
    };
    return { jobs, clock, people, running, events, submit, runs, ended, finish, stop, database, idle: () => idle() };
  }

  test('a job runs for its owner, and each change of it is announced by its id', async () => {
    const { jobs, submit, runs, ended, finish, stop } = await start();
    const changed: string[] = [];
    jobs.onChange((jobId) => changed.push(jobId));
    const jobId = await submit('work');
    await runs('work');
    assert.ok(changed.length >= 2 && changed.every((id) => id === jobId), 'stored, and taken');
    const before = changed.length;
    finish('work');
    const job = await ended(jobId);
    assert.deepEqual([job.status, job.providerId, 'result' in job], ['completed', 'one', false]);
    assert.ok(changed.length > before);
    assert.equal(await jobs.read('job-none'), undefined);
    await stop();
  });

  test('no job runs for someone who is paused, or for a team that its member has left', async () => {
    const { people, submit, ended, runs, stop } = await start();
    people.set('user:paused', person('user:paused', { state: 'paused' }));
    people.set('user:a', person('user:a'));
    const paused = await ended(await submit('paused', principalOf('user:paused')));
    assert.deepEqual(
      [paused.errorCode, paused.error],
      ['JOB_CANCELLED', 'The owner of the job is paused, or has left.'],
    );
    await submit('of the team', ofTeam);
    await runs('of the team');
    people.set('user:a', person('user:a', { teams: [] }));
    assert.equal((await ended(await submit('left', ofTeam))).errorCode, 'JOB_CANCELLED');
    people.delete('user:a');
    assert.equal((await ended(await submit('gone', ofTeam))).errorCode, 'JOB_CANCELLED');
    people.set('team:t', person('team:t', { bridge: false }));
    people.set('user:a', person('user:a'));
    assert.equal((await ended(await submit('without bridge', ofTeam))).errorCode, 'JOB_CANCELLED');
    await stop();
  });

  test('the jobs of an owner who may not work end, however many wait, and those of others go on', async () => {
    let hasRoom = true;
    const { jobs, submit, runs, ended, stop } = await start({ hasRoom: () => hasRoom });
    const kept = await submit('kept', REVIEW);
    const running = await submit('running', principalOf('user:a'));
    await runs('kept', 'running');
    hasRoom = false;
    const waiting: string[] = [];
    for (let count = 0; count < 120; count += 1) waiting.push(await submit(`${count}`, principalOf('user:a')));
    await jobs.endAllOf('user:a');
    assert.equal((await ended(running)).errorCode, 'JOB_CANCELLED');
    for (const jobId of waiting) assert.equal((await jobs.read(jobId))?.errorCode, 'JOB_CANCELLED');
    assert.equal((await jobs.read(kept))?.status, 'running');
    await stop();
  });

  test('the running jobs that a person has submitted for a team they left are stopped, and no others', async () => {
    const { jobs, people, submit, runs, ended, stop } = await start();
    people.set('user:a', person('user:a'));
    const own = await submit('own', principalOf('user:a'));
    const left = await submit('of the team', ofTeam);
    await runs('own', 'of the team');
    jobs.endLeft(person('user:a'));
    await runs('own', 'of the team');
    jobs.endLeft(person('user:b', { teams: [] }));
    await runs('own', 'of the team');
    jobs.endLeft(person('user:a', { teams: [] }));
    assert.equal((await ended(left)).errorCode, 'JOB_CANCELLED');
    assert.equal((await jobs.read(own))?.status, 'running');
    await stop();
  });

  test('who is paused loses the running jobs of teams too', async () => {
    const { jobs, people, submit, runs, ended, stop } = await start();
    people.set('user:a', person('user:a'));
    const forTeam = await submit('of the team', ofTeam);
    await runs('of the team');
    await jobs.endAllOf('user:a');
    assert.equal((await ended(forTeam)).errorCode, 'JOB_CANCELLED');
    await stop();
  });

  test('a bridge that leaves begins nothing but takes jobs, and one that drains takes none', async () => {
    const { jobs, submit, runs, clock, stop, running } = await start();
    await submit('first');
    await runs('first');
    jobs.leave();
    const waiting = await submit('second');
    await clock.advance(5000);
    assert.deepEqual([(await jobs.read(waiting))?.status, running.has('second')], ['pending', false]);
    jobs.settle();
    await assert.rejects(jobs.submit({ taskPrompt: 'third' }, MAIN), { code: 'SHUTTING_DOWN' });
    await stop();
    const stopped = await start();
    await stopped.stop();
    await assert.rejects(stopped.jobs.submit({ taskPrompt: 'x' }, MAIN), { code: 'SHUTTING_DOWN' });
  });

  test('session.cancel and session.close end the jobs of a session, and the session unless only jobs are meant', async () => {
    const { jobs, submit, runs, ended, events, stop } = await start();
    const call = { caller: { caller: { principal: MAIN } } } as never;
    for (const [method, word] of [
      ['cancel', 'cancelled'],
      ['close', 'closed'],
    ] as const) {
      const own = await submit(method, MAIN, { sessionId: method });
      await runs(method);
      assert.deepEqual(await jobs.sessionCalls[method]({ sessionId: method }, call), { accepted: true });
      assert.equal((await ended(own)).errorCode, 'JOB_CANCELLED');
      assert.deepEqual(events, [], 'the job of that name was its own, so no session of others is meant');
      await jobs.sessionCalls[method]({ sessionId: 'talk' }, call);
      assert.deepEqual(events.splice(0), [`session talk ${word}`]);
    }
    const other = await submit('of others', REVIEW, { sessionId: 's' });
    await runs('of others');
    assert.equal(await jobs.endOf(MAIN, 'session.cancel', { sessionId: 's' }), true);
    assert.equal((await ended(other)).errorCode, 'JOB_CANCELLED');
    await stop();
  });

  test('the result of a job is sent as a card, once, and a card that fails or hangs is given up', async () => {
    const card = { target: 'who', channel: 'where' };
    const sent = await start();
    const jobId = await sent.submit('work', MAIN, card);
    await sent.runs('work');
    sent.finish('work');
    await until('the card', async () => (await sent.jobs.read(jobId))?.cardSent);
    assert.equal(sent.events.length, 1);
    assert.match(
      sent.events[0] ?? '',
      /^message send \{"target":"who","channel":"where","accountId":"","message":"\*\*Job job-/,
    );
    await sent.stop();

    const attemptOf = async (changes: Partial<JobsOptions>, waitMs: number) => {
      const { jobs, submit, runs, finish, clock, stop } = await start(changes);
      const id = await submit('work', MAIN, card);
      await runs('work');
      finish('work');
      const attempt = await until('the card to be given up', async () => {
        const job = await jobs.reports.get(MAIN, id);
        const [first] = 'deliveries' in job ? job.deliveries : [];
        if (first !== undefined && first.result === 'unknown') await clock.advance(waitMs);
        return first !== undefined && first.result !== 'unknown' ? first : undefined;
      });
      assert.equal((await jobs.read(id))?.cardSent, false);
      await stop();
      return [attempt.result, attempt.detail];
    };
    const refused = () => {
      throw new AppError('GATEWAY_NOT_FOR_PEOPLE');
    };
    let calls = 0;
    const checkLater = () => {
      calls += 1;
      if (calls > 1) refused();
    };
    const givenUp = ['failed', 'the tools proxy did not take it'];
    assert.deepEqual(await attemptOf({ checkGatewayOwner: checkLater }, 0), givenUp);
    assert.deepEqual(await attemptOf({ invokeTool: () => Promise.reject(new Error('no')) }, 0), givenUp);
    assert.deepEqual(await attemptOf({ invokeTool: () => new Promise(() => undefined) }, 10_000), givenUp);
  });

  test('what a bridge that died has left is settled at the start, and what waits runs', async () => {
    const lost = { status: 'running', instance: 'dead', attempt: 1, started_at: 1000, deadline_at: 9e15 } as const;
    const [plain, again, waits] = [
      waitingJob({ ...lost }),
      waitingJob({ ...lost, retry_on_restart: 1, request: JSON.stringify({ taskPrompt: 'again', routing: {} }) }),
      waitingJob({ deadline_at: 9e15, request: JSON.stringify({ taskPrompt: 'waits', routing: {} }) }),
    ];
    const { jobs, runs, stop } = await start({}, [plain, again, waits]);
    assert.equal((await jobs.read(plain.id))?.errorCode, 'JOB_INTERRUPTED');
    await runs('again', 'waits');
    await stop();
  });

  test('a job whose time is up while it waits ends with the next second', async () => {
    let hasRoom = false;
    const { jobs, submit, clock, stop } = await start({ hasRoom: () => hasRoom });
    const jobId = await submit('late', MAIN, { timeoutMs: 1000 });
    await until('it to end', async () => {
      await clock.advance(1000);
      return (await jobs.read(jobId))?.errorCode === 'JOB_TIMEOUT';
    });
    hasRoom = true;
    await stop();
  });

  test('a job that found no room runs when a session becomes idle', async () => {
    let hasRoom = false;
    const { submit, runs, idle, stop, running } = await start({ hasRoom: () => hasRoom });
    await submit('work');
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(running.size, 0);
    hasRoom = true;
    idle();
    await runs('work');
    await stop();
  });

  test('old jobs are removed after their time, and with it 0 never', async () => {
    for (const keptMs of [0, 1000]) {
      const { jobs, submit, runs, finish, ended, clock, stop } = await start({ keptMs });
      const jobId = await submit('work');
      await runs('work');
      finish('work');
      await ended(jobId);
      if (keptMs > 0) {
        await until('it to be removed', async () => {
          await clock.advance(600_000);
          return (await jobs.read(jobId)) === undefined;
        });
      } else {
        await clock.advance(1_200_000);
        assert.equal((await jobs.read(jobId))?.status, 'completed');
      }
      await stop();
    }
  });
});

test('one owner has all places where there is no other, otherwise all but one, or what is set', () => {
  const most = (changes: { bridge?: object; jobs?: object; distributed?: object }, owner = 'main') =>
    maxJobsOfOneOwner({
      bridge: { review_auth_token: '', ...changes.bridge },
      jobs: { max_running: 4, max_running_per_owner: 0, ...changes.jobs },
      distributed: { task_forward_token: '', nodes: [], ...changes.distributed },
    } as unknown as BridgeGroups)(owner);
  assert.equal(most({}), 4);
  for (const owner of ['user:usr_1', 'service:svc_1', 'team:team_1']) {
    assert.equal(most({}, owner), 3, 'where there is a person, there may be others');
    assert.equal(most({ jobs: { max_running: 1 } }, owner), 1);
    assert.equal(most({ jobs: { max_running_per_owner: 4 } }, owner), 4);
  }
  assert.equal(most({ bridge: { review_auth_token: 'x' } }), 3);
  assert.equal(most({ distributed: { task_forward_token: 'x' } }), 3);
  assert.equal(most({ distributed: { nodes: [{}] } }), 3);
  assert.equal(most({ bridge: { review_auth_token: 'x' }, jobs: { max_running: 1 } }), 1);
  assert.equal(most({ jobs: { max_running_per_owner: 2 } }), 2);
  assert.equal(most({ jobs: { max_running_per_owner: 9 } }), 4);
});
