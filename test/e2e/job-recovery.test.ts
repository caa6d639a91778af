import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { endedJob, getJob, jobWhen, submit } from '../kit/bridge/job-client.ts';
import { startBridge } from '../kit/bridge/start-bridge.ts';
import { type RunningProgram, type Scope, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { createScriptedProvider, endless } from '../kit/scripted-provider.ts';

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
  await first.stop('SIGKILL');

  const second = await startOn(context, folder);
  const readyAt = Date.now();
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
  assert.ok(ended >= deadline && ended < Math.max(deadline, readyAt) + 5000, `it took ${late.elapsedMs} ms`);
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
  assert.ok(late.elapsedMs >= 2000 && late.elapsedMs < 6000);
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
