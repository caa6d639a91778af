import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { endedJob, submit } from '../../kit/bridge/job-client.ts';
import { call } from '../../kit/bridge/session-client.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';
import { until } from '../../kit/until.ts';

/** Agents that say what they were asked; `hanging` is the prompt that one of them hangs at, until that is taken back. */
function createTeam() {
  const heard: string[] = [];
  const state = { hanging: '' };
  const providers = ['alpha', 'beta'].map((id) =>
    createScriptedProvider(id, async ({ prompt, count, signal }) => {
      heard.push(`${id}${count} ${prompt}`);
      if (state.hanging === '' || !prompt.startsWith(state.hanging)) {
        return { kind: 'completed', output: `${id} did ${prompt}`, stopReason: 'end_turn', usage: { totalTokens: 5 } };
      }
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
      return { kind: 'cancelled', output: '' };
    }),
  );
  return { heard, state, providers };
}

interface Result {
  readonly output: string;
  readonly usage: object;
  readonly steps: readonly { readonly index: number; readonly status: string }[];
}

/** Runs a job until an agent hangs, restarts the bridge, and returns what the agents heard afterwards, with the result. */
async function interrupt(t: TestContext, hanging: string, task: object, retryOnRestart = true) {
  const team = createTeam();
  team.state.hanging = hanging;
  const first = await startBridge(t, { providers: team.providers });
  const jobId = await submit(first.url, {
    taskPrompt: 'go',
    multiAgent: true,
    sessionId: 's',
    retryOnRestart,
    ...task,
  });
  await until('an agent to hang', () => team.heard.some((one) => one.includes(` ${hanging}`)));
  // The others finish what they were asked at the same time.
  await until('the others', () => team.providers.reduce((sum, one) => sum + one.running(), 0) === 1);
  await first.stop();
  const before = team.heard.splice(0);
  team.state.hanging = '';
  for (const one of team.providers) one.closed.length = 0;
  const second = await startBridge(t, { providers: team.providers, after: first });
  const job = await endedJob(second.url, jobId);
  return { ...team, before, url: second.url, job, result: job.result as unknown as Result };
}

const SEQUENCE = [
  { providerId: 'alpha', prompt: 'begin', outputAs: 'plan' },
  { providerId: 'beta', prompt: 'check' },
  { providerId: 'alpha', prompt: 'end {{plan}}' },
];

test('a sequence goes on at the step that had not finished, which begins again', async (t) => {
  const { heard, result, job, url, providers } = await interrupt(t, 'check', { routing: { steps: SEQUENCE } });
  assert.equal(job.status, 'completed');
  assert.deepEqual(heard, ['beta0 check', 'alpha0 end alpha did begin']);
  assert.equal(result.output, 'alpha did end alpha did begin');
  assert.deepEqual(
    result.steps.map(({ index, status }) => `${index} ${status}`),
    ['0 completed', '1 completed', '2 completed'],
  );
  assert.deepEqual(result.usage, { totalTokens: 15 }, 'what the finished step used is counted once');
  await until('the session that was cut off is closed', () => providers[1]?.closed.length === 1);
  // The next message continues the session of each step, and nothing is left of the interruption.
  heard.length = 0;
  await call(url, 'session.message', { sessionId: 's', taskPrompt: 'more' });
  assert.deepEqual(heard, ['alpha1 more', 'beta1 more', 'alpha1 end alpha did more']);
});

test('a session that the job is to start again is not started twice', async (t) => {
  const { heard } = await interrupt(t, 'check', { routing: { steps: SEQUENCE }, newSession: true });
  assert.deepEqual(heard, ['beta0 check', 'alpha0 end alpha did begin']);
});

test('of steps at the same time only those that had not finished are asked again', async (t) => {
  const steps = [
    { providerId: 'alpha', prompt: 'one' },
    { providerId: 'beta', prompt: 'two' },
  ];
  const { heard, result } = await interrupt(t, 'two', { routing: { orchestrationMode: 'parallel', steps } });
  assert.deepEqual(heard, ['beta0 two']);
  assert.equal(result.output, '[alpha]: alpha did one\n\n[beta]: beta did two');
});

test('a conversation goes on with the speaker that was interrupted, in the sessions that it has', async (t) => {
  const routing = { orchestrationMode: 'conversation', participants: ['alpha', 'beta'], maxTurns: 4 };
  const hanging = '[beta]: beta did go';
  const { heard, result } = await interrupt(t, hanging, { routing });
  assert.deepEqual(
    heard.map((one) => one.split(' ')[0]),
    ['alpha2', 'beta1'],
    'alpha repeats its second speech, beta holds its second one',
  );
  assert.equal(result.steps.length, 4);
});

test('without retryOnRestart the job has failed, and keeps nothing', async (t) => {
  const { heard, job } = await interrupt(t, 'check', { routing: { steps: SEQUENCE } }, false);
  assert.deepEqual([job.status, job.errorCode, heard], ['failed', 'JOB_INTERRUPTED', []]);
});
