import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { endedJob, getJob, jobWhen, listJobs, submit } from '../kit/bridge/job-client.ts';
import { startBridge } from '../kit/bridge/start-bridge.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { createScriptedProvider, endless } from '../kit/scripted-provider.ts';
import { timeLimit } from '../kit/time.ts';
import { until } from '../kit/until.ts';

const AGENT = fileURLToPath(new URL('../kit/scripted-acp-agent.ts', import.meta.url));

/** Starts the program with the scripted agent on a folder that another run may have used. */
function startOn(scope: Scope, folder: string): Promise<RunningProgram> {
  const args = ['bridge', '--config', join(folder, 'trestle.yaml'), '--log-level', 'error'];
  return startProgram(scope, { args, dataDirectory: join(folder, 'data') });
}

async function prepareFolder(scope: Scope): Promise<string> {
  const folder = await temporaryFolder(scope);
  const agent = { id: 'scripted', command: process.execPath, args: [AGENT] };
  const agents = { catalog: ['scripted'], default: 'scripted', custom: [agent] };
  await writeFile(join(folder, 'trestle.yaml'), JSON.stringify({ agents, jobs: { max_running: 2 } }));
  return folder;
}

test('B-68: a job that was acknowledged is there after kill -9, and each is settled as the contract says', async (context) => {
  const folder = await prepareFolder(context);
  const first = await startOn(context, folder);
  const interrupted = await submit(first.url, { taskPrompt: 'wait' });
  const repeated = await submit(first.url, { taskPrompt: 'wait', retryOnRestart: true, timeoutMs: 8000 });
  for (const jobId of [interrupted, repeated]) await jobWhen(first.url, jobId, ({ status }) => status === 'running');
  const waiting = await submit(first.url, { taskPrompt: 'say waited', idempotencyKey: 'once' });
  const notBefore = new Date(Date.now() + 3_600_000).toISOString();
  const options = { retries: 2, priority: 'high', notBefore, timeoutMs: 5000 };
  const later = await submit(first.url, { taskPrompt: 'say later', ...options });
  await first.stop('SIGKILL');

  const second = await startOn(context, folder);
  const readyAt = Date.now();
  const kept = await getJob(second.url, later);
  assert.equal(kept.status, 'pending');
  assert.deepEqual(
    { retries: kept.retries, priority: kept.priority, notBefore: kept.notBefore, timeoutMs: kept.timeoutMs },
    options,
  );
  const failed = await getJob(second.url, interrupted);
  assert.deepEqual([failed.status, failed.errorCode], ['failed', 'JOB_INTERRUPTED']);
  const done = await endedJob(second.url, waiting);
  assert.deepEqual([done.status, (done.result as { output?: string }).output], ['completed', 'waited']);
  assert.equal(await submit(second.url, { taskPrompt: 'say waited', idempotencyKey: 'once' }), waiting);
  // B-70: it runs again, and its time is still that of the submit.
  const late = await endedJob(second.url, repeated);
  assert.deepEqual([late.status, late.errorCode], ['failed', 'JOB_TIMEOUT']);
  const deadline = Date.parse(late.createdAt) + 8000;
  const ended = Date.parse(late.completedAt ?? '');
  assert.ok(ended >= deadline && ended < Math.max(deadline, readyAt) + timeLimit(5000), `it took ${late.elapsedMs} ms`);
});

test('a run of several agents goes on after kill -9 with the first step that had not finished', async (context) => {
  const folder = await prepareFolder(context);
  const first = await startOn(context, folder);
  const [ran, began] = [join(folder, 'ran'), join(folder, 'began')];
  // The second step hangs the first time.
  const hangs = `sh if test -e ${began}; then echo second; else touch ${began}; sleep 600; fi`;
  const steps = [
    { providerId: 'scripted', prompt: `sh echo x >> ${ran}; echo first`, outputAs: 'start' },
    { providerId: 'scripted', prompt: hangs },
    { providerId: 'scripted', prompt: 'echo {{start}} and {{previousOutput}}' },
  ];
  const task = { taskPrompt: 'work', multiAgent: true, routing: { steps }, retryOnRestart: true, timeoutMs: 120_000 };
  const jobId = await submit(first.url, task);
  await until('the second step to run', () => existsSync(began));
  await first.stop('SIGKILL');

  const second = await startOn(context, folder);
  const job = await endedJob(second.url, jobId);
  const { output, steps: told } = job.result as { output: string; steps: { index: number; status: string }[] };
  assert.equal(job.status, 'completed', JSON.stringify(job));
  assert.equal(output, 'first\n[0] and second\n[0]');
  assert.deepEqual(
    told.map(({ index, status }) => [index, status]),
    [
      [0, 'completed'],
      [1, 'completed'],
      [2, 'completed'],
    ],
  );
  assert.equal(readFileSync(ran, 'utf8'), 'x\n', 'the first step ran once');
});

test('B-70: a job that waited through a restart keeps its deadline', async (context) => {
  const provider = () => createScriptedProvider('one', endless);
  const settings = 'jobs: { max_running: 1 }\n';
  const first = await startBridge(context, { providers: [provider()], settings });
  const running = await submit(first.url, { retryOnRestart: true });
  await jobWhen(first.url, running, ({ status }) => status === 'running');
  const waiting = await submit(first.url, { timeoutMs: 2000 });
  await first.stop();
  const second = await startBridge(context, { providers: [provider()], settings, after: first });
  const late = await endedJob(second.url, waiting);
  assert.deepEqual([late.status, late.errorCode, late.startedAt], ['failed', 'JOB_TIMEOUT', null]);
  assert.ok(late.elapsedMs >= 2000 && late.elapsedMs < timeLimit(6000));
  assert.equal((await jobWhen(second.url, running, ({ status }) => status === 'running')).status, 'running');
});

test('a stop in good order ends running jobs as interrupted, and keeps those that are to be run again', async (context) => {
  const first = await startBridge(context, { providers: [createScriptedProvider('one', endless)] });
  const [plain, repeated] = [await submit(first.url, {}), await submit(first.url, { retryOnRestart: true })];
  for (const jobId of [plain, repeated]) await jobWhen(first.url, jobId, ({ status }) => status === 'running');
  await first.stop();
  const second = await startBridge(context, { providers: [createScriptedProvider('one')], after: first });
  assert.equal((await getJob(second.url, plain)).errorCode, 'JOB_INTERRUPTED');
  assert.equal((await endedJob(second.url, repeated)).status, 'completed');
});

test('a schedule is there after kill -9, fires once for what it missed, and not again after another kill', async (context) => {
  const folder = await prepareFolder(context);
  const first = await startOn(context, folder);
  const response = await fetch(`${first.url}/api/bridge/schedules`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'n', cron: '0 0 1 1 *', catchUp: 'one', task: { taskPrompt: 'say scheduled' } }),
  });
  const { schedule } = (await response.json()) as { schedule: { scheduleId: string } };
  await first.stop('SIGKILL');
  const database = new DatabaseSync(join(folder, 'data', 'bridge.db'));
  database.prepare('update schedules set next_at = ?').run(Date.now() - 3_600_000);
  database.close();

  const second = await startOn(context, folder);
  const jobsOf = async (url: string) => await listJobs(url, { scheduleId: schedule.scheduleId });
  const [job] = await until('the schedule to fire', async () => {
    const jobs = await jobsOf(second.url);
    return jobs.length > 0 ? jobs : undefined;
  });
  await second.stop('SIGKILL');

  const third = await startOn(context, folder);
  const done = await endedJob(third.url, String(job?.jobId));
  assert.ok(done.status === 'completed' || done.errorCode === 'JOB_INTERRUPTED', String(done.errorCode));
  assert.equal((await jobsOf(third.url)).length, 1);
  const shown = await fetch(`${third.url}/api/bridge/schedules/${schedule.scheduleId}`);
  const { schedule: now } = (await shown.json()) as { schedule: { nextAt: number; lastJobId: string } };
  assert.deepEqual([now.lastJobId, now.nextAt > Date.now()], [job?.jobId, true]);
});
