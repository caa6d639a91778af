import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JobList, JobStatistics } from '../../../src/bridge/contract/jobs.ts';
import { endedJob, getJob, jobWhen, listJobs, refusal, submit, submitted } from '../../kit/bridge/job-client.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, endless, telling } from '../../kit/scripted-provider.ts';
import { timeLimit } from '../../kit/time.ts';

test('a job runs as a turn of its own session, and its record tells all about it', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const answer = await submitted(url, { taskPrompt: 'say this' });
  const jobId = String(answer.jobId);
  assert.match(jobId, /^job-[0-9a-z]{26}$/);
  assert.deepEqual(answer, { jobId, status: 'pending', sessionId: jobId, providerId: 'one' });
  const { createdAt, startedAt, completedAt, elapsedMs, durationMs, result, ...rest } = await endedJob(url, jobId);
  assert.deepEqual(rest, {
    jobId,
    owner: 'main',
    status: 'completed',
    taskPrompt: 'say this',
    priority: 'normal',
    retries: 0,
    retried: 0,
    notBefore: null,
    scheduleId: null,
    retryOf: null,
    sessionId: jobId,
    threadId: jobId,
    providerId: 'one',
    timeoutMs: 600_000,
    webhookSent: false,
    webhookTries: 0,
    cardSent: false,
    error: null,
    errorCode: null,
    deliveries: [],
  });
  assert.equal((result as { output?: string }).output, 'say this');
  const [created, started, completed] = [createdAt, startedAt, completedAt].map((moment) => Date.parse(moment ?? ''));
  assert.equal(elapsedMs, Number(completed) - Number(created));
  assert.equal(durationMs, Number(completed) - Number(started));
});

test('the session of a job can be continued, and its updates were kept', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const jobId = await submit(url, { sessionId: 'mine', threadId: 'thread' });
  await endedJob(url, jobId);
  const answer = await call(url, 'session.message', { sessionId: 'mine', taskPrompt: 'and more' });
  assert.equal(answer.result?.output, 'and more');
  assert.equal(answer.result?.threadId, 'thread');
});

test('an unknown job is a normal result', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  for (const jobId of ['job-01h00000000000000000000000', 'nonsense', 'job-\u0000', '\ud800']) {
    assert.deepEqual((await call(url, 'app.jobs.get', { jobId })).result, {
      jobId,
      status: 'not_found',
    });
  }
});

test('a failed turn fails its job with the code of the turn', async (context) => {
  const failing = telling([], { kind: 'failed', code: 'AGENT_EXITED', error: 'gone', output: 'half' });
  const silent = telling([], { kind: 'completed', output: '', stopReason: 'end_turn' });
  const providers = [createScriptedProvider('failing', failing), createScriptedProvider('silent', silent)];
  const { url } = await startBridge(context, { providers });
  const failed = await endedJob(url, await submit(url, { providerId: 'failing' }));
  assert.deepEqual([failed.status, failed.errorCode, failed.error], ['failed', 'AGENT_EXITED', 'gone']);
  const empty = await endedJob(url, await submit(url, { providerId: 'silent' }));
  assert.deepEqual([empty.status, empty.errorCode], ['failed', 'EMPTY_OUTPUT']);
});

test('what cannot be run is refused immediately, and nothing is stored', async (context) => {
  const { url, root } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const refused: [object, string][] = [
    [{ providerId: 'nobody' }, 'PROVIDER_UNKNOWN'],
    [{ routing: { explicitProviderId: 'nobody' } }, 'PROVIDER_UNKNOWN'],
    [{ providerId: 'one', routing: { explicitProviderId: 'two' } }, 'INVALID_PARAMS'],
    [{ workingDirectory: '/etc' }, 'WORKING_DIRECTORY_REFUSED'],
    [{ taskPrompt: '' }, 'INVALID_PARAMS'],
    [{ sessionId: '\ud800' }, 'INVALID_PARAMS'],
    [{ callbackUrl: 'http://127.0.0.1:1/a', webhookUrl: 'http://127.0.0.1:1/b' }, 'INVALID_PARAMS'],
    [{ routing: { explicitExecutionTarget: 'gateway' } }, 'GATEWAY_PROVIDER_REQUIRED'],
    [
      { multiAgent: true, routing: { explicitExecutionTarget: 'gateway', preferredGatewayProviderId: 'openclaw' } },
      'GATEWAY_MULTI_AGENT_CONFLICT',
    ],
    [{ multiAgent: true }, 'MULTI_AGENT_STEPS_REQUIRED'],
    [{ mode: 'multi-agent', routing: { steps: [{ providerId: 'nobody' }] } }, 'PROVIDER_UNKNOWN'],
  ];
  for (const [params, code] of refused) {
    const error = await refusal(url, params);
    assert.deepEqual([error?.code, error?.data.code], [-32602, code], JSON.stringify(params));
  }
  assert.equal((await submitted(url, { workingDirectory: root })).status, 'pending');
  assert.equal((await listJobs(url)).length, 1);
});

test('B-74: a timeout outside one second to one day is refused', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  for (const timeoutMs of [-1, 0, 999, 86_400_001, 1e12, 1.5e3 + 0.5, '5', null, Number.NaN]) {
    const error = await refusal(url, { timeoutMs });
    assert.deepEqual([error?.code, error?.data.code], [-32602, 'INVALID_PARAMS'], String(timeoutMs));
  }
  for (const timeoutMs of [1000, 86_400_000]) {
    assert.equal((await getJob(url, await submit(url, { timeoutMs }))).timeoutMs, timeoutMs);
  }
});

test('a provider that is down when its turn comes fails the job', async (context) => {
  const down = createScriptedProvider('down');
  down.setProbe({ status: 'not_installed', version: '' });
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one'), down] });
  const job = await endedJob(url, await submit(url, { providerId: 'down' }));
  assert.deepEqual([job.status, job.errorCode, job.providerId], ['failed', 'PROVIDER_UNAVAILABLE', 'down']);
});

test('B-69: the same idempotency key gives the same job, one after the other and at the same time', async (context) => {
  const provider = createScriptedProvider('one');
  const { url } = await startBridge(context, { providers: [provider], isGuarded: true });
  const main = bearer(MAIN_TOKEN);
  const first = await submit(url, { idempotencyKey: 'key' }, main);
  const again = await submitted(url, { idempotencyKey: 'key' }, main);
  assert.equal(again.jobId, first);
  const burst = await Promise.all(Array.from({ length: 20 }, () => submit(url, { idempotencyKey: 'burst' }, main)));
  assert.equal(new Set(burst).size, 1);
  const other = await submit(url, { idempotencyKey: 'key' }, bearer(REVIEW_TOKEN));
  assert.notEqual(other, first, 'keys belong to their owners');
  for (const jobId of [first, burst[0] ?? '', other]) await endedJob(url, jobId, main);
  assert.equal(provider.asked.length, 3);
});

test('a principal sees its own jobs only, and main sees all', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')], isGuarded: true });
  const [main, review] = [bearer(MAIN_TOKEN), bearer(REVIEW_TOKEN)];
  const ofMain = await submit(url, {}, main);
  const ofReview = await submit(url, {}, review);
  await Promise.all([endedJob(url, ofMain, main), endedJob(url, ofReview, main)]);
  assert.equal((await getJob(url, ofMain, review)).status, 'not_found' as never);
  assert.equal((await getJob(url, ofReview, main)).status, 'completed');
  const idsFor = async (headers: Record<string, string>) =>
    (await listJobs(url, {}, headers)).map(({ jobId }) => jobId);
  assert.deepEqual(await idsFor(review), [ofReview]);
  assert.deepEqual(await idsFor(main), [ofReview, ofMain]);
  const statistics = (await call(url, 'app.jobs.stats', {}, review)).result;
  assert.deepEqual(statistics?.summary, { pending: 0, running: 0, completed: 1, failed: 0, total: 1 });
});

test('B-70: a job past its timeout fails and its agent is stopped', async (context) => {
  const provider = createScriptedProvider('one', endless);
  const { url } = await startBridge(context, { providers: [provider], settings: 'jobs: { max_running: 1 }\n' });
  const running = await submit(url, { timeoutMs: 1000 });
  const waiting = await submit(url, { timeoutMs: 1000 });
  const job = await endedJob(url, running);
  assert.deepEqual([job.status, job.errorCode], ['failed', 'JOB_TIMEOUT']);
  assert.ok(job.elapsedMs >= 1000 && job.elapsedMs < timeLimit(5000));
  const other = await endedJob(url, waiting);
  assert.deepEqual([other.status, other.errorCode], ['failed', 'JOB_TIMEOUT'], 'the time counts from the submit on');
  assert.equal(provider.cancelled.length, provider.asked.length);
});

test('session.cancel fails the job of the session, whether it runs or waits', async (context) => {
  const provider = createScriptedProvider('one', endless);
  const { url } = await startBridge(context, {
    providers: [provider],
    settings: 'jobs: { max_running: 1 }\n',
    isGuarded: true,
  });
  const [main, review] = [bearer(MAIN_TOKEN), bearer(REVIEW_TOKEN)];
  const running = await submit(url, {}, review);
  await jobWhen(url, running, ({ status }) => status === 'running', main);
  const waiting = await submit(url, { sessionId: 'waits', threadId: 'thread' }, review);
  const ofMain = await submit(url, { sessionId: 'other' }, main);
  await call(url, 'session.cancel', { sessionId: 'other' }, review);
  assert.equal((await getJob(url, ofMain, main)).status, 'pending', 'what is not theirs stays');
  await call(url, 'session.cancel', { threadId: 'thread' }, review);
  const cancelled = await getJob(url, waiting, review);
  assert.deepEqual([cancelled.status, cancelled.errorCode, cancelled.startedAt], ['failed', 'JOB_CANCELLED', null]);
  await call(url, 'session.cancel', { sessionId: running }, main);
  const stopped = await endedJob(url, running, review);
  assert.deepEqual([stopped.status, stopped.errorCode], ['failed', 'JOB_CANCELLED']);
  await jobWhen(url, ofMain, ({ status }) => status === 'running', main);
  await call(url, 'session.close', { sessionId: 'other' }, main);
  assert.equal((await endedJob(url, ofMain, main)).errorCode, 'JOB_CANCELLED');
});

test('no more jobs run at the same time than may, and agents take turns', async (context) => {
  const order: string[] = [];
  const noting = (id: string) =>
    createScriptedProvider(id, async ({ prompt }) => {
      order.push(id);
      await new Promise((resolve) => setImmediate(resolve));
      return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
    });
  const blocker = createScriptedProvider('blocker', endless);
  const providers = [blocker, noting('busy'), noting('rare')];
  const { url } = await startBridge(context, { providers, settings: 'jobs: { max_running: 1 }\n' });
  const first = await submit(url, { providerId: 'blocker' });
  await jobWhen(url, first, ({ status }) => status === 'running');
  const jobs: string[] = [];
  for (let count = 0; count < 6; count += 1) jobs.push(await submit(url, { providerId: 'busy' }));
  for (let count = 0; count < 3; count += 1) jobs.push(await submit(url, { providerId: 'rare' }));
  await call(url, 'session.cancel', { sessionId: first });
  for (const jobId of jobs) assert.equal((await endedJob(url, jobId)).status, 'completed');
  assert.deepEqual(order, ['busy', 'rare', 'busy', 'rare', 'busy', 'rare', 'busy', 'busy', 'busy']);
});

test('B-73: the list is paged by a cursor, newest first, and its summary is that of the statistics', async (context) => {
  const providers = [createScriptedProvider('one'), createScriptedProvider('two', endless)];
  const { url } = await startBridge(context, { providers, settings: 'jobs: { max_running: 1 }\n' });
  const ids: string[] = [];
  for (let count = 0; count < 5; count += 1) ids.push(await submit(url, { providerId: 'one' }));
  for (const jobId of ids) await endedJob(url, jobId);
  for (let count = 0; count < 4; count += 1) ids.push(await submit(url, { providerId: 'two' }));
  await jobWhen(url, ids[5] ?? '', ({ status }) => status === 'running');
  const seen: string[] = [];
  for (let cursor: unknown = ''; cursor !== null; ) {
    const { result } = await call(url, 'app.jobs.list', { limit: 4, cursor });
    const { jobs, nextCursor } = result as unknown as JobList;
    seen.push(...jobs.map(({ jobId }) => jobId));
    cursor = nextCursor;
    await submit(url, { providerId: 'two' });
  }
  assert.deepEqual(seen, ids.toReversed());
  assert.equal((await listJobs(url, { status: 'completed' })).length, 5);
  assert.equal((await listJobs(url, { status: 'running' })).length, 1);
  const { result } = await call(url, 'app.jobs.stats', {});
  const { summary, byProvider, oldestPendingMs, averageDurationMs } = result as unknown as JobStatistics;
  assert.deepEqual(summary, { pending: 6, running: 1, completed: 5, failed: 0, total: 12 });
  assert.deepEqual(byProvider, {
    one: { pending: 0, running: 0, completed: 5, failed: 0, total: 5 },
    two: { pending: 6, running: 1, completed: 0, failed: 0, total: 7 },
  });
  assert.ok(oldestPendingMs > 0 && averageDurationMs >= 0);
  const listed = (await call(url, 'app.jobs.list', {})).result as unknown as JobList;
  assert.deepEqual(listed.summary, summary);
  for (const params of [{ cursor: 'nonsense' }, { limit: 0 }, { limit: 1001 }, { status: 'lost' }]) {
    assert.equal((await call(url, 'app.jobs.list', params)).error?.code, -32602);
  }
});

test('a job can be a multi-agent run', async (context) => {
  const { url } = await startBridge(context, {
    providers: [createScriptedProvider('one'), createScriptedProvider('two')],
  });
  const routing = {
    steps: [
      { providerId: 'one', prompt: 'first' },
      { providerId: 'two', prompt: 'after {{previousOutput}}' },
    ],
  };
  const job = await endedJob(url, await submit(url, { multiAgent: true, routing }));
  assert.equal(job.status, 'completed');
  assert.equal((job.result as { output?: string }).output, 'after first');
});
