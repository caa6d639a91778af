import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Envelope } from '../../kit/bridge/bridge-client.ts';
import { endedJob, getJob, jobWhen, listJobs, refusal, submit, submitted } from '../../kit/bridge/job-client.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { startScriptedHttp } from '../../kit/scripted-http.ts';
import { createScriptedProvider, endless, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const firstPath = (error: Envelope['error']) =>
  String((error?.data.issues as { readonly path: string }[] | undefined)?.[0]?.path);
const ONE_PLACE = 'jobs: { max_running: 1 }\n';

/** Notes the prompts in the order of their turns; holds the one that is `hold`. */
function startNoting(id = 'one', told: string[] = []) {
  const held = Promise.withResolvers<void>();
  const script: TurnScript = async ({ prompt }) => {
    told.push(prompt);
    if (prompt === 'hold') await held.promise;
    return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
  };
  return { agent: createScriptedProvider(id, script), told, release: () => held.resolve() };
}

test('jobs of an owner run by priority, over its sessions and agents, and then in the order of their submits', async (context) => {
  const { agent, told, release } = startNoting();
  const other = startNoting('two', told);
  const { url } = await startBridge(context, { providers: [agent, other.agent], settings: ONE_PLACE });
  const first = await submit(url, { taskPrompt: 'hold' });
  await until('the first job to run', () => agent.running() === 1);
  const rest = [
    await submit(url, { taskPrompt: 'low', priority: 'low' }),
    await submit(url, { taskPrompt: 'normal in s', sessionId: 's' }),
    await submit(url, { taskPrompt: 'high in s', sessionId: 's', priority: 'high' }),
    await submit(url, { taskPrompt: 'high of two', providerId: 'two', priority: 'high' }),
    await submit(url, { taskPrompt: 'normal', priority: 'normal' }),
  ];
  release();
  for (const jobId of [first, ...rest]) await endedJob(url, jobId);
  assert.deepEqual(told.slice(0, 3).toSorted(), ['high in s', 'high of two', 'hold']);
  assert.deepEqual(told.slice(3), ['normal in s', 'normal', 'low']);
  assert.equal((await getJob(url, rest[0] ?? '')).priority, 'low');
});

test('a job does not run before its moment, keeps no other from running, and has its time from then on', async (context) => {
  const clock = createFakeClock();
  const { agent, told } = startNoting();
  const { url } = await startBridge(context, { providers: [agent], clock });
  const notBefore = new Date(clock.now() + 3_600_000).toISOString();
  const later = await submit(url, { taskPrompt: 'later', sessionId: 's', notBefore, timeoutMs: 60_000 });
  const now = await submit(url, { taskPrompt: 'now', sessionId: 's' });
  await endedJob(url, now);
  await clock.sleep(3_599_000);
  const waiting = await getJob(url, later);
  assert.deepEqual([waiting.status, waiting.notBefore, waiting.startedAt], ['pending', notBefore, null]);
  await clock.advance(1000);
  await until('the job to end', async () => {
    await clock.advance(1000);
    return (await getJob(url, later)).status === 'completed';
  });
  assert.deepEqual(told, ['now', 'later']);
});

test('a clock that is set forwards past the moment of a job, or backwards, takes no time from it', async (context) => {
  for (const step of [7_200_000, -7_200_000]) {
    const clock = createFakeClock();
    const { agent } = startNoting();
    const { url } = await startBridge(context, { providers: [agent], clock });
    const notBefore = new Date(clock.now() + 3_600_000).toISOString();
    const jobId = await submit(url, { notBefore, timeoutMs: 60_000 });
    clock.stepWall(step);
    await clock.advance(2000);
    if (step < 0) {
      assert.equal((await getJob(url, jobId)).status, 'pending');
      await clock.sleep(3_600_000 - step);
    }
    await until('the job to end', async () => {
      await clock.advance(1000);
      return (await getJob(url, jobId)).status === 'completed';
    });
  }
});

test('a job whose agent exits is run again with pauses, continues its session in order, and says how often', async (context) => {
  const clock = createFakeClock();
  const began = clock.now();
  const tries: number[] = [];
  const agent = createScriptedProvider('one', async ({ prompt }) => {
    tries.push(prompt === 'flaky' ? clock.now() - began : -1);
    if (prompt === 'flaky' && tries.length < 3)
      return { kind: 'failed', code: 'AGENT_EXITED', error: 'gone', output: '' };
    return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
  });
  const { url } = await startBridge(context, { providers: [agent], clock });
  const flaky = await submit(url, { taskPrompt: 'flaky', sessionId: 's', retries: 3 });
  const after = await submit(url, { taskPrompt: 'after', sessionId: 's' });
  await until('both jobs to end', async () => {
    await clock.advance(1000);
    return (await getJob(url, after)).status === 'completed';
  });
  const job = await getJob(url, flaky);
  assert.deepEqual([job.status, job.retries, job.retried, job.error], ['completed', 3, 2, null]);
  assert.equal(tries.length, 4);
  assert.equal(tries[3], -1, 'a later job of the session waits for its place');
  assert.ok((tries[1] ?? 0) >= 5000 && (tries[2] ?? 0) - (tries[1] ?? 0) >= 10_000, tries.join(' '));
});

test('retries end with the last failure when they are used up, and session.cancel ends a job that waits for one', async (context) => {
  const clock = createFakeClock();
  const agent = createScriptedProvider('one', async () => ({
    kind: 'failed',
    code: 'AGENT_EXITED',
    error: 'gone',
    output: '',
  }));
  const { url } = await startBridge(context, { providers: [agent], clock });
  const spent = await submit(url, { retries: 1 });
  const cancelled = await submit(url, { retries: 5 });
  await jobWhen(url, cancelled, ({ retried, status }) => retried === 1 && status === 'pending');
  await call(url, 'session.cancel', { sessionId: cancelled });
  assert.equal((await getJob(url, cancelled)).errorCode, 'JOB_CANCELLED');
  await until('the other job to end', async () => {
    await clock.advance(1000);
    return (await getJob(url, spent)).status === 'failed';
  });
  const job = await getJob(url, spent);
  assert.deepEqual([job.errorCode, job.error, job.retried], ['AGENT_EXITED', 'gone', 1]);
  assert.equal(agent.asked.length, 3);
});

test('retryOf runs an ended job again, as it was, for its owner', async (context) => {
  const { agent, told } = startNoting();
  const { url, root } = await startBridge(context, { providers: [agent], isGuarded: true });
  const [main, review] = [bearer(MAIN_TOKEN), bearer(REVIEW_TOKEN)];
  const options = { taskPrompt: 'task', workingDirectory: root, timeoutMs: 50_000, retries: 2, priority: 'low' };
  const first = await submit(url, options, review);
  await endedJob(url, first, review);
  const answer = await call(url, 'app.jobs.submit', { retryOf: first, priority: 'high', idempotencyKey: 'k' }, review);
  const again = String(answer.result?.jobId);
  const job = await endedJob(url, again, review);
  assert.deepEqual(
    [job.retryOf, job.timeoutMs, job.retries, job.priority, job.sessionId, job.taskPrompt],
    [first, 50_000, 2, 'high', again, 'task'],
  );
  const repeated = await call(
    url,
    'app.jobs.submit',
    { retryOf: first, priority: 'high', idempotencyKey: 'k' },
    review,
  );
  assert.equal(repeated.result?.jobId, again);
  const byMain = await call(url, 'app.jobs.submit', { retryOf: first }, main);
  const third = await endedJob(url, String(byMain.result?.jobId), review);
  assert.equal(third.owner, job.owner, 'it is a job of the same owner');
  assert.deepEqual(told, ['task', 'task', 'task']);

  const named = await submit(url, { taskPrompt: 'named', sessionId: 's' }, main);
  await endedJob(url, named, main);
  const continued = (await call(url, 'app.jobs.submit', { retryOf: named }, main)).result;
  assert.equal(continued?.sessionId, 's');
  const refused: [object, RegExp][] = [
    [{ retryOf: 'job-nothing' }, /^\/retryOf/],
    [{ retryOf: named }, /^\/retryOf/],
    [{ retryOf: first, taskPrompt: 'other' }, /^\/taskPrompt/],
    [{ retryOf: first, sessionId: 's' }, /^\/sessionId/],
  ];
  for (const [params, path] of refused) {
    const { error } = await call(url, 'app.jobs.submit', params, review);
    assert.equal(error?.data.code, 'INVALID_PARAMS', JSON.stringify(params));
    assert.match(firstPath(error), path);
  }
});

test('a job that has not ended cannot be run again', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one', endless)] });
  const jobId = await submit(url, {});
  const { error } = await call(url, 'app.jobs.submit', { retryOf: jobId });
  assert.match(String(error?.message), /retryOf names a job that has not ended/);
});

test('what is wrong with the options of a job is refused by name', async (context) => {
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const refused: [object, string][] = [
    [{ priority: 'urgent' }, '/priority'],
    [{ retries: 11 }, '/retries'],
    [{ retries: -1 }, '/retries'],
    [{ retries: 1.5 }, '/retries'],
    [{ notBefore: 'tomorrow' }, '/notBefore'],
    [{ notBefore: '2030-01-01T00:00:00' }, '/notBefore'],
    [{ notBefore: '2030-13-01T00:00:00Z' }, '/notBefore'],
    [{ notBefore: '9999-01-01T00:00:00Z' }, '/notBefore'],
    [{ notBefore: 5 }, '/notBefore'],
    [{ retryOf: 7 }, '/retryOf'],
  ];
  for (const [params, path] of refused) {
    const error = await refusal(url, params);
    assert.deepEqual([error?.data.code, firstPath(error)], ['INVALID_PARAMS', path], JSON.stringify(params));
  }
  for (const params of [{ from: 'x' }, { to: '2030-02-30' }, { search: '' }, { owner: 5 }]) {
    assert.equal((await call(url, 'app.jobs.list', params)).error?.data.code, 'INVALID_PARAMS', JSON.stringify(params));
  }
  assert.match(
    String((await refusal(url, { notBefore: 'tomorrow' }))?.message),
    /must be a date and time with an offset/,
  );
  assert.deepEqual(await listJobs(url), []);
});

test('lists are filtered by agent, words, time and owner, and show the beginning of the prompt', async (context) => {
  const { url } = await startBridge(context, {
    providers: [createScriptedProvider('one'), createScriptedProvider('two')],
    isGuarded: true,
  });
  const [main, review] = [bearer(MAIN_TOKEN), bearer(REVIEW_TOKEN)];
  const long = `Deploy ${'x'.repeat(300)}`;
  const deploy = await submit(url, { taskPrompt: long, providerId: 'two' }, main);
  const test = await submit(url, { taskPrompt: 'run the TESTS', providerId: 'one' }, main);
  const other = await submit(url, { taskPrompt: 'tests of the other' }, review);
  const ids = async (params: object, headers = main) =>
    (await listJobs(url, params, headers)).map(({ jobId }) => jobId);
  assert.deepEqual(await ids({ providerId: 'two' }), [deploy]);
  assert.deepEqual(await ids({ search: 'Tests' }), [other, test]);
  assert.deepEqual(await ids({ search: 'tests', owner: 'main' }), [test]);
  assert.deepEqual(await ids({ owner: 'review' }), [other]);
  assert.deepEqual(await ids({ owner: 'main' }, review), [], 'what is not seen is not listed');
  assert.deepEqual(await ids({ to: '2020-01-01T00:00:00Z' }), []);
  assert.deepEqual(await ids({ from: '2100-01-01T00:00:00Z' }), []);
  assert.equal((await ids({ from: '2020-01-01T00:00:00Z', to: '2100-01-01T00:00:00+02:00' })).length, 3);
  const [listed] = await listJobs(url, { search: 'deploy' }, main);
  assert.deepEqual([listed?.taskPrompt, listed?.scheduleId, listed?.owner], [long.slice(0, 200), null, 'main']);
});

test('app.jobs.get shows every attempt to deliver the result', async (context) => {
  const receiver = await startScriptedHttp(context, ({ response }, index) => {
    response.writeHead(index === 0 ? 503 : 204).end();
  });
  const { url } = await startBridge(context, { providers: [createScriptedProvider('one')] });
  const { jobId } = await submitted(url, { callbackUrl: receiver.url });
  await jobWhen(url, String(jobId), ({ webhookSent }) => webhookSent);
  const { result: job } = await call(url, 'app.jobs.get', { jobId });
  const attempts = job?.deliveries as Record<string, unknown>[];
  assert.deepEqual(
    attempts.map(({ kind, attempt, result, detail }) => [kind, attempt, result, detail]),
    [
      ['webhook', 1, 'failed', 'HTTP 503'],
      ['webhook', 2, 'sent', 'HTTP 204'],
    ],
  );
  assert.ok(attempts.every(({ startedAt, endedAt }) => Date.parse(String(endedAt)) >= Date.parse(String(startedAt))));
  const refusedTo = await submit(url, { callbackUrl: 'http://127.0.0.1:1/' });
  const failed = await jobWhen(url, refusedTo, ({ webhookTries }) => webhookTries === 1);
  const seen = await until('the first attempt to fail', async () => {
    const { result } = await call(url, 'app.jobs.get', { jobId: failed.jobId });
    const first = (result?.deliveries as Record<string, unknown>[] | undefined)?.[0];
    return first?.result === 'failed' ? first : undefined;
  });
  assert.equal(seen.detail, 'ECONNREFUSED');
});
