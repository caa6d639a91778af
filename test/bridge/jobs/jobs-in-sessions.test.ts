import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { endedJob, getJob, hasEnded, jobWhen, refusal, submit, submitted } from '../../kit/bridge/job-client.ts';
import { bearer, call } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN, REVIEW_TOKEN, startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider, endless, type TurnScript } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

const MAX_QUEUED_TURNS = 32;

/** Notes what was asked in which conversation, and how often it was used before; holds those whose prompt is `hold`. */
function startNoting() {
  const told: string[] = [];
  const held = Promise.withResolvers<void>();
  const script: TurnScript = async ({ prompt, reference, count }) => {
    told.push(`${prompt} ${reference} ${count}`);
    if (prompt.startsWith('hold')) await held.promise;
    return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
  };
  return { agent: createScriptedProvider('one', script), told, release: () => held.resolve() };
}

describe('DB-6: a job is a durable turn in the queue of its session', () => {
  test('DB-6: a second job on a session waits for the first, and both continue one conversation', async (context) => {
    const { agent, told, release } = startNoting();
    const { url } = await startBridge(context, { providers: [agent] });
    const first = await submit(url, { sessionId: 's', taskPrompt: 'hold' });
    await until('the first job to run', () => agent.running() === 1);
    const second = await submit(url, { sessionId: 's', taskPrompt: 'b' });
    const third = await submit(url, { sessionId: 's', taskPrompt: 'c' });
    assert.equal((await getJob(url, second)).status, 'pending');
    release();
    for (const jobId of [first, second, third]) assert.equal((await endedJob(url, jobId)).status, 'completed');
    assert.deepEqual(told, ['hold one-conversation-1 0', 'b one-conversation-1 1', 'c one-conversation-1 2']);
    assert.deepEqual(agent.closed, [], 'no conversation was given up');
  });

  test('DB-6: a job on an open session waits behind its running turn and continues its conversation', async (context) => {
    const { agent, told, release } = startNoting();
    const { url } = await startBridge(context, { providers: [agent] });
    await call(url, 'session.start', { sessionId: 's', taskPrompt: 'a' });
    const running = call(url, 'session.message', { sessionId: 's', taskPrompt: 'hold' });
    await until('the turn to run', () => agent.running() === 1);
    const jobId = await submit(url, { sessionId: 's', taskPrompt: 'job' });
    release();
    assert.equal((await running).result?.status, 'completed');
    assert.equal((await endedJob(url, jobId)).status, 'completed');
    const later = await call(url, 'session.message', { sessionId: 's', taskPrompt: 'later' });
    assert.equal(later.result?.status, 'completed');
    assert.deepEqual(
      told.map((line) => line.split(' ').slice(1).join(' ')),
      [0, 1, 2, 3].map((count) => `one-conversation-1 ${count}`),
    );
  });

  test('DB-6: newSession starts the session again instead', async (context) => {
    const { agent, told } = startNoting();
    const { url } = await startBridge(context, { providers: [agent] });
    await call(url, 'session.start', { sessionId: 's', taskPrompt: 'a' });
    const job = await endedJob(url, await submit(url, { sessionId: 's', taskPrompt: 'b', newSession: true }));
    assert.equal(job.status, 'completed');
    assert.deepEqual(told, ['a one-conversation-1 0', 'b one-conversation-2 0']);
    assert.deepEqual(agent.closed, ['one-conversation-1']);
  });

  test('DB-6: a job whose agent has lost the conversation fails, and opens no new one', async (context) => {
    const { agent, told } = startNoting();
    const { url } = await startBridge(context, { providers: [agent] });
    await call(url, 'session.start', { sessionId: 's', taskPrompt: 'a' });
    agent.forget();
    const job = await endedJob(url, await submit(url, { sessionId: 's', taskPrompt: 'b' }));
    assert.deepEqual([job.status, job.errorCode], ['failed', 'SESSION_CONTINUATION_UNAVAILABLE']);
    assert.equal(told.length, 1);
  });

  test('DB-6: a job after a closed or failed beginning starts the session', async (context) => {
    const { agent } = startNoting();
    const { url } = await startBridge(context, { providers: [agent] });
    await call(url, 'session.start', { sessionId: 's', taskPrompt: 'a' });
    await call(url, 'session.close', { sessionId: 's' });
    assert.equal((await endedJob(url, await submit(url, { sessionId: 's' }))).status, 'completed');
  });

  test('DB-6: jobs that wait for a session do not count towards its queue, and hold no place of running ones', async (context) => {
    const { agent, release } = startNoting();
    const { url } = await startBridge(context, { providers: [agent], settings: 'jobs: { max_running: 2 }\n' });
    const running = call(url, 'session.start', { sessionId: 's', taskPrompt: 'hold' });
    await until('the turn to run', () => agent.running() === 1);
    const jobs = [];
    for (let count = 0; count < 40; count += 1)
      jobs.push(await submit(url, { sessionId: 's', taskPrompt: `${count}` }));
    const others = [];
    for (let count = 0; count < 4; count += 1) others.push(await submit(url, { taskPrompt: 'elsewhere' }));
    for (const jobId of others) assert.equal((await endedJob(url, jobId)).status, 'completed');
    const queued = Array.from({ length: MAX_QUEUED_TURNS }, (_, index) =>
      call(url, 'session.message', { sessionId: 's', taskPrompt: `message ${index}` }),
    );
    await until('the queue to be full', async () => {
      const extra = await call(url, 'session.message', { sessionId: 's', taskPrompt: 'too many' });
      return extra.error?.data.code === 'SESSION_BUSY';
    });
    for (const jobId of jobs) assert.equal((await getJob(url, jobId)).status, 'pending');
    release();
    await running;
    for (const answer of await Promise.all(queued)) assert.equal(answer.result?.status, 'completed');
    for (const jobId of jobs) assert.equal((await endedJob(url, jobId)).status, 'completed');
  });

  test('DB-6: the time of a job counts from its submit, also while it waits for its session', async (context) => {
    const { agent, release } = startNoting();
    const { url } = await startBridge(context, { providers: [agent] });
    const running = call(url, 'session.start', { sessionId: 's', taskPrompt: 'hold' });
    await until('the turn to run', () => agent.running() === 1);
    const job = await endedJob(url, await submit(url, { sessionId: 's', timeoutMs: 1000 }));
    assert.deepEqual([job.errorCode, job.startedAt], ['JOB_TIMEOUT', null]);
    release();
    assert.equal((await running).result?.status, 'completed', 'the turn before it goes on');
  });

  test('DB-6: a job that runs out of time is cancelled alone: turns that wait behind it run', async (context) => {
    const script: TurnScript = async (turn) => {
      if (turn.prompt === 'endless') return endless(turn);
      return { kind: 'completed', output: turn.prompt, stopReason: 'end_turn' };
    };
    const agent = createScriptedProvider('one', script);
    const { url } = await startBridge(context, { providers: [agent] });
    await call(url, 'session.start', { sessionId: 's', taskPrompt: 'a' });
    const jobId = await submit(url, { sessionId: 's', taskPrompt: 'endless', timeoutMs: 1500 });
    await jobWhen(url, jobId, ({ status }) => status === 'running');
    const behind = call(url, 'session.message', { sessionId: 's', taskPrompt: 'behind' });
    assert.equal((await endedJob(url, jobId)).errorCode, 'JOB_TIMEOUT');
    assert.equal((await behind).result?.status, 'completed');
  });

  test('DB-6: a job that waits for its session is kept over a restart, and then continues the conversation', async (context) => {
    const { agent, told } = startNoting();
    const first = await startBridge(context, { providers: [agent] });
    await call(first.url, 'session.start', { sessionId: 's', taskPrompt: 'a' });
    const running = call(first.url, 'session.message', { sessionId: 's', taskPrompt: 'hold' }).catch(() => undefined);
    await until('the turn to run', () => agent.running() === 1);
    const jobId = await submit(first.url, { sessionId: 's', taskPrompt: 'job' });
    await Promise.all([first.stop(), running]);
    const second = await startBridge(context, { providers: [agent], after: first });
    assert.equal((await endedJob(second.url, jobId)).status, 'completed');
    assert.equal(told.at(-1), 'job one-conversation-1 2');
  });
});

describe('DB-20: an idempotency key stands for one request', () => {
  test('DB-20: a submit with a used key and other params is refused, also after a restart', async (context) => {
    const agent = createScriptedProvider('one');
    const first = await startBridge(context, { providers: [agent] });
    const routing = { explicitProviderId: 'one', explicitModel: 'm' };
    const jobId = await submit(first.url, { idempotencyKey: 'key', taskPrompt: 'a', timeoutMs: 5000, routing });
    const same = { timeoutMs: 5000, routing: { explicitModel: 'm', explicitProviderId: 'one' }, taskPrompt: 'a' };
    assert.equal((await submitted(first.url, { ...same, idempotencyKey: 'key' })).jobId, jobId);
    await endedJob(first.url, jobId);
    await first.stop();
    const { url } = await startBridge(context, { providers: [agent], after: first });
    assert.equal((await submitted(url, { ...same, idempotencyKey: 'key' })).jobId, jobId);
    for (const other of [{ taskPrompt: 'b' }, { timeoutMs: 6000 }, { routing: {} }, { sessionId: 's' }]) {
      const error = await refusal(url, { ...same, ...other, idempotencyKey: 'key' });
      assert.deepEqual([error?.code, error?.data.code, error?.data.jobId], [-32602, 'IDEMPOTENCY_KEY_REUSED', jobId]);
    }
    assert.equal(agent.asked.length, 1);
  });

  test('DB-20: of two submits at the same moment with one key and different params one is refused', async (context) => {
    const { url } = await startBridge(context, { providers: [createScriptedProvider('one')] });
    const answers = await Promise.all(
      ['a', 'b'].map((taskPrompt) => call(url, 'app.jobs.submit', { taskPrompt, idempotencyKey: 'key' })),
    );
    assert.deepEqual(
      answers.map(({ error }) => error?.data.code).filter((code) => code !== undefined),
      ['IDEMPOTENCY_KEY_REUSED'],
    );
  });
});

describe('DB-6: owners share the places of running jobs', () => {
  test('DB-6: owners take turns, however much each has submitted', async (context) => {
    const order: string[] = [];
    const script: TurnScript = async ({ prompt }) => {
      order.push(prompt);
      return { kind: 'completed', output: prompt, stopReason: 'end_turn' };
    };
    const providers = [createScriptedProvider('blocker', endless), createScriptedProvider('one', script)];
    const settings = 'jobs: { max_running: 1 }\n';
    const { url } = await startBridge(context, { providers, settings, isGuarded: true });
    const [main, review] = [bearer(MAIN_TOKEN), bearer(REVIEW_TOKEN)];
    const blocking = await submit(url, { providerId: 'blocker' }, main);
    await jobWhen(url, blocking, ({ status }) => status === 'running', main);
    const jobs = [];
    for (let count = 0; count < 8; count += 1) {
      jobs.push(await submit(url, { providerId: 'one', taskPrompt: 'main' }, main));
    }
    for (let count = 0; count < 2; count += 1) {
      jobs.push(await submit(url, { providerId: 'one', taskPrompt: 'review' }, review));
    }
    await call(url, 'session.cancel', { sessionId: blocking }, main);
    for (const jobId of jobs) assert.equal((await endedJob(url, jobId, main)).status, 'completed');
    assert.deepEqual(order.slice(0, 4).toSorted(), ['main', 'main', 'review', 'review']);
  });

  test('DB-6: with several credentials one place is left for others, with one credential none', async (context) => {
    const agent = createScriptedProvider('one', endless);
    const guarded = await startBridge(context, { providers: [agent], isGuarded: true });
    const [main, review] = [bearer(MAIN_TOKEN), bearer(REVIEW_TOKEN)];
    for (let count = 0; count < 8; count += 1) await submit(guarded.url, {}, review);
    await until('the jobs of one owner to run', () => agent.running() === 3);
    const jobId = await submit(guarded.url, {}, main);
    await jobWhen(guarded.url, jobId, ({ status }) => status === 'running', main);
    await until('the job of the other owner to be with its agent', () => agent.running() === 4);

    const alone = createScriptedProvider('one', endless);
    const open = await startBridge(context, { providers: [alone] });
    const jobs = [];
    for (let count = 0; count < 8; count += 1) jobs.push(await submit(open.url, {}));
    await until('all places to be used', () => alone.running() === 4);
    assert.equal((await Promise.all(jobs.map((id) => getJob(open.url, id)))).filter(hasEnded).length, 0);
  });
});
