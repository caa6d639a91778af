// Shows, with checks, that kill -9 loses nothing: an account and its key, an agent whose model calls go through our own /v1 and
// are metered, a sequence of agents, a signed webhook, kill -9, and the state after the restart.
//   npx node examples/nothing-lost.ts [--agent opencode|codex|builtin]
// It starts its own Trestle with its own data, and removes both. Without --agent, it uses OpenCode or Codex if installed,
// otherwise the built-in agent. The model is demo/echo, so nothing leaves this machine.
import { randomBytes } from 'node:crypto';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { createTrestleClient } from '../src/client/trestle-client.ts';
import { issueKey, logIn, register, statusOfChat, usageOf } from './whole-story/account.ts';
import { killedAndBack } from './whole-story/killed-and-back.ts';
import { chapter, expect, perform, say, until } from './whole-story/narration.ts';
import { dataDirectoryOf, endEveryTrestle, startTrestle } from './whole-story/running-trestle.ts';
import {
  findAgent,
  KEY_VARIABLE,
  PATIENT_MODEL,
  QUICK_MODEL,
  type StoryAgent,
  setUpAgent,
} from './whole-story/story-agents.ts';
import { isSigned, startWebhookReceiver } from './whole-story/webhook-receiver.ts';

const USAGE_LIMIT_MS = 30_000;
const WEBHOOK_LIMIT_MS = 120_000;
const account = { email: 'ann@example.org', password: 'copper kettle 47' };
const token = randomBytes(24).toString('hex');
const webhookSecret = randomBytes(24).toString('hex');
const cleanUps: (() => unknown)[] = [];

async function tell(agent: StoryAgent): Promise<void> {
  // Agents compare paths as text.
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-nothing-lost-')));
  cleanUps.push(() => rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
  cleanUps.push(endEveryTrestle);
  const secrets = {
    BRIDGE_AUTH_TOKEN: token,
    BRIDGE_WEBHOOK_SECRET: webhookSecret,
    COMPLETIONS_MASTER_KEY: randomBytes(24).toString('hex'),
  };

  chapter('An account, and a key for the models');
  let trestle = await startTrestle({ folder, listen: '127.0.0.1:0', settings: {}, secrets });
  const { url } = trestle;
  say(`Trestle runs at ${url}, with its data in ${folder}`);
  await register(url, dataDirectoryOf(folder), account);
  const login = await logIn(url, account);
  say(`${account.email} has registered with a mailed code, and logged in`);
  const { id: keyId, key } = await issueKey(url, login);
  say(`${keyId} is hers: ${key.slice(0, 8)}...`);
  const refused = await statusOfChat(url, '');
  expect(refused === 401, '/v1 refuses a call without a key', refused);
  const { total: unused } = await usageOf(url, key);
  expect(unused.requests === 0, 'nothing was used with the key yet', unused);

  chapter(`${agent.id} at work, its model calls through our own /v1 with that key`);
  const settings = {
    agents: await setUpAgent(agent, join(folder, 'agent'), `${url}/v1`),
    completions: {
      models: [
        { name: QUICK_MODEL, targets: [{ model: 'demo/echo' }] },
        { name: PATIENT_MODEL, targets: [{ model: 'demo/echo?delay=100' }] },
      ],
    },
    // The plan of registered users: both aliases, which cost nothing here.
    accounts: { default_plan: 'story' },
    plans: { story: { models: [QUICK_MODEL, PATIENT_MODEL, 'demo/*'], budget: { usd: 1, period: 'month' } } },
    jobs: { max_running: 2, callback_allow: ['127.0.0.1/32'] },
  };
  const start = () =>
    startTrestle({ folder, listen: new URL(url).host, settings, secrets: { ...secrets, [KEY_VARIABLE]: key } });
  const stopped = await trestle.end('SIGTERM');
  expect(stopped === 0, 'Trestle ends in good order when asked to', stopped);
  trestle = await start();
  say('and is back, with an agent in its settings');
  const client = createTrestleClient({ url, token });
  cleanUps.push(() => client.close());
  const onAgent = { routing: { explicitProviderId: agent.id } };
  const turn = client.session('first').start('Hello from this example', onAgent);
  const pieces: string[] = [];
  for await (const { delta } of turn) if (delta !== undefined) pieces.push(delta);
  say(`${agent.id} says, in ${pieces.length} pieces: "${pieces.join('')}"`);
  const first = await turn.result;
  const isDone = first.status === 'completed' && first.resolvedProviderId === agent.id;
  expect(isDone && first.output.includes('this example'), `the turn is completed by ${agent.id}`, first);
  await sayUsage(url, key, 1);

  chapter('Two agents in sequence, the second works on what the first one said');
  const team = client.session('team').start('the tide', {
    multiAgent: true,
    routing: {
      orchestrationMode: 'sequence',
      steps: [
        { providerId: agent.id, prompt: 'One line about {{input}}', outputAs: 'draft' },
        { providerId: 'builtin', prompt: 'Make this better: {{draft}}' },
      ],
    },
  });
  for await (const { event, message } of team) if (event.startsWith('multi_agent_')) say(`${event}: ${message}`);
  const { status, steps = [], output } = await team.result;
  const draft = steps[0]?.output ?? '';
  expect(draft.includes('One line about the tide'), `the first says "${draft}"`, steps);
  expect(status === 'completed' && output === `Make this better: ${draft}`, `the second says "${output}"`, steps);

  chapter('A background job that ends with a signed webhook');
  const receiver = await startWebhookReceiver(webhookSecret);
  cleanUps.push(() => receiver.stop());
  const task = { providerId: agent.id, taskPrompt: 'Hello from the background', callbackUrl: receiver.url };
  const { jobId, status: submitted } = await client.jobs.submit(task);
  say(`${jobId} is ${submitted}`);
  const told = await until('the webhook has come', WEBHOOK_LIMIT_MS, () => receiver.deliveries[0]);
  const { job } = told;
  expect(job.jobId === jobId && job.status === 'completed', `${told.event}: "${job.result?.output}"`, told);
  expect(told.isGenuine, 'its signature is right', told.signature);
  const isForged = isSigned(webhookSecret, told.signature, told.body.replace('completed', 'forged'));
  expect(!isForged, 'the same signature does not fit another body', told.signature);
  const calls = await sayUsage(url, key, 4);

  chapter('kill -9 in the middle of a turn and of a job, and back');
  await killedAndBack({
    client,
    agent,
    receiver,
    async kill() {
      await trestle.end('SIGKILL');
    },
    async startAgain() {
      trestle = await start();
    },
  });
  await sayUsage(url, key, calls + 3);
  const code = await trestle.end('SIGTERM');
  expect(code === 0, 'Trestle ends in good order', code);
}

/** Prints the usage, which is written about once a second, and returns the number of calls. */
async function sayUsage(url: string, key: string, atLeast: number): Promise<number> {
  const { data, total } = await until(`${atLeast} calls are metered on the key`, USAGE_LIMIT_MS, async () => {
    const report = await usageOf(url, key);
    return report.total.requests >= atLeast ? report : undefined;
  });
  for (const { group, requests, prompt_tokens, completion_tokens } of data) {
    say(`model ${group}: ${requests} calls, ${prompt_tokens} tokens in, ${completion_tokens} out`);
  }
  const isMetered = total.prompt_tokens > 0 && total.completion_tokens > 0;
  expect(isMetered, `${total.requests} calls are metered on her key`, total);
  return total.requests;
}

const { agent: asked } = parseArgs({ options: { agent: { type: 'string' } } }).values;
const agent = findAgent(asked, process.env);

await perform(
  cleanUps,
  async () => {
    if (agent === undefined)
      throw new Error(`there is no "${asked}" here; npm run test:agents installs OpenCode and Codex`);
    const why = asked === undefined ? 'neither OpenCode nor Codex is installed here' : 'as asked';
    console.log(`Nothing is lost, with ${agent.id} (${agent.command === '' ? why : agent.command})`);
    await tell(agent);
  },
  (steps, seconds) => `Nothing was lost: ${steps} steps with ${agent?.id}, ${seconds} s`,
);
