import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Schedule, SchedulePage } from '../../../src/bridge/contract/schedules.ts';
import type { Owner } from '../../../src/platform/identity/owner.ts';
import { endedJob, getJob, listJobs } from '../../kit/bridge/job-client.ts';
import { bearer, call, type Headers } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createFakeClock, type FakeClock } from '../../kit/fake-clock.ts';
import { createScriptedProvider, endless } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const TASK = { taskPrompt: 'sweep the floor' };

async function send(url: string, method: string, path: string, body?: object, headers: Headers = {}) {
  const response = await fetch(`${url}/api/bridge/schedules${path}`, {
    method,
    headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

async function create(url: string, changes: object = {}, headers: Headers = {}): Promise<Schedule> {
  const answer = await send(url, 'POST', '', { name: 'floor', cron: '0 8 * * *', task: TASK, ...changes }, headers);
  assert.equal(answer.status, 201, JSON.stringify(answer.body));
  return answer.body.schedule as Schedule;
}

async function show(url: string, id: string, headers: Headers = {}): Promise<Schedule> {
  return (await send(url, 'GET', `/${id}`, undefined, headers)).body.schedule as Schedule;
}

const jobsOf = (url: string, scheduleId: string) => listJobs(url, { scheduleId });

/** Lets time pass until the schedule has been due so often. */
async function passTo(clock: FakeClock, url: string, id: string, fits: (schedule: Schedule) => boolean) {
  return until('the schedule to be as expected', async () => {
    await clock.advance(1000);
    const schedule = await show(url, id);
    return fits(schedule) ? schedule : undefined;
  });
}

test('a schedule fires one job at each of its times, which continue a session where it names one', async (context) => {
  const clock = createFakeClock(Date.UTC(2030, 0, 1, 7, 59, 30));
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')], clock });
  const created = await create(url, { task: { ...TASK, sessionId: 'daily', priority: 'high' } });
  assert.equal(created.nextAt, Date.UTC(2030, 0, 1, 8));
  assert.deepEqual(
    [created.upcoming.length, created.overlap, created.catchUp, created.timezone],
    [5, 'skip', 'none', 'UTC'],
  );
  const fired = await passTo(clock, url, created.scheduleId, ({ last }) => last?.result === 'fired');
  assert.equal(fired.nextAt, Date.UTC(2030, 0, 2, 8));
  const [job, ...more] = await jobsOf(url, created.scheduleId);
  assert.deepEqual(more, []);
  assert.deepEqual(
    [job?.jobId, job?.scheduleId, job?.sessionId, job?.priority, job?.taskPrompt],
    [fired.lastJobId, created.scheduleId, 'daily', 'high', TASK.taskPrompt],
  );
  await endedJob(url, String(job?.jobId));
  await clock.sleep(DAY - 60_000);
  await passTo(clock, url, created.scheduleId, ({ nextAt }) => nextAt === Date.UTC(2030, 0, 3, 8));
  assert.equal((await jobsOf(url, created.scheduleId)).length, 2);
});

test('a task brings its own files: each firing has them, an upload is refused, and a check leaves nothing behind', async (context) => {
  const clock = createFakeClock(Date.UTC(2030, 0, 1, 7, 59, 30));
  const { url, folder } = await startBridge(context, { providers: [createScriptedProvider('one')], clock });
  const uploads = () => readdir(join(folder, 'attachments')).catch(() => []);
  const file = { name: 'list.txt', contentType: 'text/plain', data: Buffer.from('dust').toString('base64') };
  const { scheduleId } = await create(url, { task: { ...TASK, attachments: [file] } });
  await send(url, 'PATCH', `/${scheduleId}`, { task: { ...TASK, attachments: [file, file] } });
  assert.deepEqual(await uploads(), [], 'nothing is kept for a task that is checked');
  await passTo(clock, url, scheduleId, ({ lastJobId }) => lastJobId !== null);
  assert.equal((await uploads()).length, 2);
  const uploaded = await fetch(`${url}/api/bridge/attachments`, { method: 'POST', body: 'dust' });
  const { attachmentId } = (await uploaded.json()) as { attachmentId: string };
  const refused = await send(url, 'POST', '', {
    ...{ name: 'floor', cron: '0 8 * * 1' },
    task: { ...TASK, attachments: [file, { attachmentId }] },
  });
  const { issues } = refused.body.details as { issues: { path: string }[] };
  assert.deepEqual(
    [refused.status, refused.body.error, issues.map(({ path }) => path)],
    [400, 'schedule_task_refused', ['/task/attachments/1/attachmentId']],
  );
});

test('while the last job is open, skip fires nothing and queue lets the next one wait', async (context) => {
  for (const overlap of ['skip', 'queue'] as const) {
    const clock = createFakeClock();
    const { url } = await startBridge(context, { providers: [createScriptedProvider('one', endless)], clock });
    const { scheduleId } = await create(url, {
      cron: undefined,
      every: '1m',
      overlap,
      task: { ...TASK, timeoutMs: HOUR },
    });
    await passTo(clock, url, scheduleId, ({ lastJobId }) => lastJobId !== null);
    const before = await show(url, scheduleId);
    const after = await passTo(clock, url, scheduleId, ({ nextAt }) => Number(nextAt) > Number(before.nextAt));
    const jobs = await jobsOf(url, scheduleId);
    if (overlap === 'queue') assert.equal(jobs.length, 2);
    else
      assert.deepEqual(
        [jobs.length, after.last?.result, after.last?.message],
        [1, 'skipped', `Job ${jobs[0]?.jobId} had not ended.`],
      );
  }
});

test('after a stop, catchUp decides whether missed times make no job or one', async (context) => {
  for (const catchUp of ['none', 'one'] as const) {
    const clock = createFakeClock();
    const providers = () => [createScriptedProvider('one')];
    const first = await startBridge(context, { providers: providers(), clock });
    const { scheduleId } = await create(first.url, { cron: '0 * * * *', catchUp });
    await first.stop();
    clock.stepWall(5 * HOUR + 1800_000);
    const { url } = await startBridge(context, { providers: providers(), clock, after: first });
    const schedule = await passTo(clock, url, scheduleId, ({ last }) => last !== null);
    assert.equal(schedule.last?.result, catchUp === 'one' ? 'fired' : 'missed');
    assert.equal((await jobsOf(url, scheduleId)).length, catchUp === 'one' ? 1 : 0);
    assert.ok(Number(schedule.nextAt) > clock.now() && Number(schedule.nextAt) <= clock.now() + HOUR);
  }
});

test('a clock that is set back a little fires no time twice, and one that was wrong by far counts again', async (context) => {
  const clock = createFakeClock(Date.UTC(2030, 0, 1, 11, 59, 50));
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')], clock });
  const { scheduleId } = await create(url, { cron: '0 * * * *' });
  await passTo(clock, url, scheduleId, ({ last }) => last?.result === 'fired');
  clock.stepWall(-30_000);
  await clock.advance(40_000);
  assert.equal((await show(url, scheduleId)).nextAt, Date.UTC(2030, 0, 1, 13));
  assert.equal((await jobsOf(url, scheduleId)).length, 1);
  clock.stepWall(-30 * DAY);
  const again = await passTo(clock, url, scheduleId, ({ nextAt }) => Number(nextAt) < clock.now() + HOUR);
  assert.ok(Number(again.nextAt) > clock.now());
  clock.stepWall(2 * HOUR);
  await passTo(clock, url, scheduleId, ({ last }) => last?.result === 'missed');
  assert.equal((await jobsOf(url, scheduleId)).length, 1);
});

test('a schedule whose task cannot run any more fires nothing and says why', async (context) => {
  const clock = createFakeClock();
  const first = await startBridge(context, {
    providers: [createScriptedProvider('one'), createScriptedProvider('two')],
    clock,
  });
  const { scheduleId } = await create(first.url, {
    cron: undefined,
    every: '1m',
    task: { ...TASK, providerId: 'two' },
  });
  await first.stop();
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')], clock, after: first });
  const schedule = await passTo(clock, url, scheduleId, ({ last }) => last !== null);
  assert.equal(schedule.last?.result, 'refused');
  assert.match(String(schedule.last?.message), /There is no provider "two"/);
  assert.deepEqual(await jobsOf(url, scheduleId), []);
});

test('the schedule of an owner for whom agents may not work fires nothing and says why, until they may again', async (context) => {
  const clock = createFakeClock();
  const owner = { id: 'main', state: 'active' as 'active' | 'paused' | 'gone', bridge: true };
  const listeners = new Set<(owner: Owner) => void>();
  const tell = () => {
    for (const listener of listeners) listener(owner as Owner);
  };
  const owners = {
    ownerOf: () => owner as Owner,
    watch(listener: (owner: Owner) => void) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')], clock, owners });
  const { scheduleId } = await create(url, { cron: undefined, every: '1m' });
  owner.state = 'paused';
  tell();
  const refused = await passTo(clock, url, scheduleId, ({ last }) => last !== null);
  assert.deepEqual(
    [refused.last?.result, refused.last?.message, await jobsOf(url, scheduleId)],
    ['refused', 'The owner of the job is paused, or has left.', []],
  );
  owner.state = 'active';
  owner.bridge = false;
  const before = refused.last?.at ?? 0;
  const still = await passTo(clock, url, scheduleId, ({ last }) => (last?.at ?? 0) > before);
  assert.equal(still.last?.result, 'refused', 'the plan does not open the bridge any more');
  owner.bridge = true;
  await passTo(clock, url, scheduleId, ({ last }) => last?.result === 'fired');
  owner.state = 'gone';
  tell();
  await until('the schedule to be removed', async () => (await send(url, 'GET', `/${scheduleId}`)).status === 404);
  // Of someone of whose end the bridge was not told, because it was stopped then.
  owner.state = 'active';
  owner.bridge = true;
  const { scheduleId: left } = await create(url, { cron: undefined, every: '1m' });
  owner.state = 'gone';
  await clock.advance(2 * 60_000);
  await until('what is left to be removed', async () => (await send(url, 'GET', `/${left}`)).status === 404);
});

test('schedules are paused, changed, run now and removed; each sees and changes its own', async (context) => {
  const clock = createFakeClock();
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')], clock, isGuarded: true });
  const [main, review] = [bearer(MAIN_TOKEN), bearer(REVIEW_TOKEN)];
  const own = await create(url, { name: 'own' }, review);
  const other = await create(url, { name: 'other' }, main);
  const path = `/${own.scheduleId}`;
  const listed = async (query: string, headers: Headers) =>
    ((await send(url, 'GET', query, undefined, headers)).body as unknown as SchedulePage).schedules.map(
      ({ name }) => name,
    );
  assert.deepEqual(await listed('', review), ['own']);
  assert.deepEqual(await listed('', main), ['other', 'own']);
  assert.deepEqual(await listed('?owner=review', main), ['own']);
  assert.deepEqual(await listed('?owner=main', review), []);
  for (const [method, rest] of [
    ['GET', ''],
    ['DELETE', ''],
    ['POST', '/run'],
  ] as const) {
    const answer = await send(url, method, `/${other.scheduleId}${rest}`, undefined, review);
    assert.deepEqual([answer.status, answer.body.error], [404, 'schedule_not_found'], method);
  }
  assert.equal((await send(url, 'GET', path)).status, 401);

  const paused = (await send(url, 'PATCH', path, { enabled: false }, review)).body.schedule as Schedule;
  assert.deepEqual([paused.enabled, paused.nextAt, paused.upcoming], [false, null, []]);
  await clock.sleep(2 * DAY);
  const ran = await send(url, 'POST', `${path}/run`, undefined, review);
  assert.equal(ran.status, 201, 'one that is paused can be run by hand');
  const job = await getJob(url, String(ran.body.jobId), review);
  assert.deepEqual([job.scheduleId, job.owner], [own.scheduleId, 'review']);
  const after = (await send(url, 'GET', path, undefined, review)).body.schedule as Schedule;
  assert.deepEqual([after.lastJobId, after.last], [job.jobId, null], 'it is the last job, and no time of the schedule');
  const changed = (await send(url, 'PATCH', path, { enabled: true, every: '2h', name: 'new' }, review)).body
    .schedule as Schedule;
  assert.deepEqual(
    [changed.name, changed.cron, changed.every, changed.nextAt],
    ['new', null, '2h', clock.now() + 2 * HOUR],
  );
  assert.deepEqual((await send(url, 'DELETE', path, undefined, main)).body, { accepted: true });
  assert.equal((await send(url, 'GET', path, undefined, review)).status, 404);
  assert.equal((await getJob(url, job.jobId, review)).scheduleId, own.scheduleId, 'the jobs stay');
});

test('what is wrong with a schedule is refused by name, and an owner has only so many', async (context) => {
  const settings = 'jobs: { max_schedules_per_owner: 2, min_schedule_interval: 5m }\n';
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')], settings });
  const refused: [object, number, RegExp][] = [
    [{ name: '' }, 400, /name/],
    [{ name: 'x', cron: undefined }, 400, /give cron or every/],
    [{ every: '1h' }, 400, /every cannot be given with cron/],
    [{ cron: '*/2 * * * *' }, 400, /jobs.min_schedule_interval/],
    [{ cron: undefined, every: '30s' }, 400, /every/],
    [{ cron: undefined, every: '9999d' }, 400, /every must be a duration from 1m to 366d/],
    [{ timezone: 'Nowhere' }, 400, /timezone is not known/],
    [{ overlap: 'both' }, 400, /overlap/],
    [{ catchUp: 'all' }, 400, /catchUp/],
    [{ enabled: 'yes' }, 400, /enabled/],
    [{ owner: 'main' }, 400, /owner/],
    [{ task: {} }, 400, /taskPrompt/],
    [{ task: { ...TASK, notBefore: '2030-01-01T00:00:00Z' } }, 400, /notBefore/],
    [{ task: { ...TASK, providerId: 'nobody' } }, 400, /There is no provider "nobody"/],
    [{ task: { ...TASK, workingDirectory: '/etc' } }, 400, /workingDirectory cannot be used/],
    [{ task: { taskPrompt: 'x'.repeat(300_000) } }, 413, /./],
  ];
  for (const [changes, status, words] of refused) {
    const answer = await send(url, 'POST', '', { name: 'n', cron: '0 8 * * *', task: TASK, ...changes });
    assert.equal(answer.status, status, JSON.stringify(changes).slice(0, 200));
    assert.match(`${answer.body.message} ${JSON.stringify(answer.body.details)}`, words);
  }
  assert.equal((await send(url, 'GET', '?cursor=x')).status, 400);
  const { scheduleId } = await create(url);
  assert.equal((await send(url, 'PATCH', `/${scheduleId}`, {})).status, 400);
  assert.equal((await send(url, 'PATCH', `/${scheduleId}`, { cron: 'x' })).status, 400);
  const answers = await Promise.all([1, 2, 3].map(() => send(url, 'POST', '', { name: 'n', every: '1h', task: TASK })));
  assert.deepEqual(answers.map(({ status }) => status).toSorted(), [201, 409, 409]);
  assert.equal(answers.find(({ status }) => status === 409)?.body.error, 'too_many_schedules');
  const first = (await send(url, 'GET', '?limit=1')).body as unknown as SchedulePage;
  const second = (await send(url, 'GET', `?limit=1&cursor=${first.nextCursor}`)).body as unknown as SchedulePage;
  assert.deepEqual([first.schedules.length, second.schedules[0]?.scheduleId, second.nextCursor], [1, scheduleId, null]);
});

test('cancelling the session of a scheduled job ends the job and leaves the schedule', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one', endless)] });
  const { scheduleId } = await create(url);
  const { body } = await send(url, 'POST', `/${scheduleId}/run`);
  await call(url, 'session.cancel', { sessionId: String(body.sessionId) });
  assert.equal((await endedJob(url, String(body.jobId))).errorCode, 'JOB_CANCELLED');
  assert.equal((await show(url, scheduleId)).enabled, true);
});
