import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { callBridge, type RpcAnswer } from '../kit/bridge/agent-session.ts';
import { inTime } from '../kit/in-time.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

type Row = Readonly<Record<string, unknown>>;

const AGENT = fileURLToPath(new URL('../kit/scripted-acp-agent.ts', import.meta.url));
const FAR = { explicitProviderId: 'far' };
const PATIENCE_MS = 90_000;

/** For what outlives the test that starts it: within a test, `after` of `node:test` is about that test. */
const ends: (() => unknown)[] = [];
const file = { after: (run: () => unknown) => void ends.unshift(run) };
after(async () => {
  for (const end of ends) await end();
});
const postgres = await startPostgres();
file.after(() => postgres.stop());
const folder = await temporaryFolder(file);
const database = ['--database', postgres.url];
const ofInstances = await configure('instance.yaml', [{ id: 'far', runner_agent: 'scripted', requires: ['gpu'] }]);
const ofRunners = await configure('runner.yaml', [{ id: 'scripted', command: process.execPath, args: [AGENT] }]);
const one = await startProgram(file, { args: [...ofInstances, ...database] });
const two = await startProgram(file, { args: [...ofInstances, ...database] });
const made = await command('runner', 'create', 'single', '--labels', 'gpu', '--json');
assert.equal(made.code, 0, made.stderr);
const { key } = JSON.parse(made.stdout) as { key: string };
/** It stays, as a volume does: what a session has left there does not come back with it. */
const dataDirectory = await temporaryFolder(file);
let runner = await startRunner();

async function configure(name: string, custom: readonly object[]): Promise<readonly string[]> {
  const path = join(folder, name);
  await writeFile(path, JSON.stringify({ agents: { catalog: ['builtin'], custom } }));
  return ['--config', path];
}

async function command(...args: readonly string[]) {
  return runProgram([...args, ...database, '--data-dir', await temporaryFolder(file)]);
}

/** Resolves when both instances give it work. */
async function startRunner(): Promise<RunningProgram> {
  const started = await startProgram(file, {
    command: ['runner'],
    args: [...ofRunners, '--url', one.url, '--once'],
    environment: { RUNNER_KEY: key },
    dataDirectory,
  });
  await until('the runner to be free', async () => (await facts()).once === 'free', PATIENCE_MS);
  for (const instance of [one, two]) {
    await until('the agent to be there', async () => {
      const { agents } = (await read(instance, '/api/bridge/agents')) as { agents: readonly Row[] };
      return agents.some(({ providerId, state }) => providerId === 'far' && state === 'ok');
    });
  }
  return started;
}

async function read({ url }: RunningProgram, path: string): Promise<Row> {
  return (await (await fetch(`${url}${path}`)).json()) as Row;
}

async function facts(): Promise<Row> {
  const { runners } = (await read(two, '/api/system/instances')) as { runners: readonly Row[] };
  return runners.find(({ name }) => name === 'single') ?? {};
}

function call({ url }: RunningProgram, method: string, params: object): Promise<RpcAnswer> {
  return callBridge(url, method, params).answer;
}

const start = (instance: RunningProgram, sessionId: string, taskPrompt: string) =>
  call(instance, 'session.start', { sessionId, taskPrompt, routing: FAR });
const say = (instance: RunningProgram, sessionId: string, taskPrompt: string) =>
  call(instance, 'session.message', { sessionId, taskPrompt, routing: FAR });

async function ended(): Promise<number | null> {
  await until('the runner to end', () => runner.child.exitCode !== null, PATIENCE_MS);
  return runner.child.exitCode;
}

test('a runner for one session has no slots to choose', async () => {
  const { code, stderr } = await command('runner', '--once', '--slots', '2', '--url', one.url, '--key', key);
  assert.equal(code, 2, stderr);
  assert.match(stderr, /'--once' cannot be used with option '--slots <count>'/);
});

test('of two sessions that start at the same time it takes one, serves its turns, and ends when that is closed', async () => {
  const calls = new Map([
    ['a', start(one, 'a', 'say hello')],
    ['b', start(two, 'b', 'say hello')],
  ]);
  const winner = await Promise.race([...calls].map(([id, answer]) => answer.then(() => id)));
  const loser = winner === 'a' ? 'b' : 'a';
  assert.equal((await calls.get(winner))?.result?.output, 'hello');
  let isOver = false;
  void calls.get(loser)?.then(() => {
    isOver = true;
  });
  // It looks for room every half a second, also while no turn runs there.
  await new Promise((resolve) => setTimeout(resolve, 2500));
  assert.equal(isOver, false, 'the other session is not placed there');
  const { once, slots, turns } = await facts();
  assert.deepEqual({ once, slots, turns }, { once: 'taken', slots: 1, turns: 0 });
  assert.match((await command('runner', 'list')).stdout, /single .* 0\/1 once, taken/);
  const second = await say(winner === 'a' ? two : one, winner, 'recall');
  assert.equal(second.result?.output, 'say hello|recall', JSON.stringify(second));
  await call(one, 'session.cancel', { sessionId: loser });
  assert.equal((await calls.get(loser))?.result?.status, 'cancelled');
  assert.equal(runner.child.exitCode, null, 'it serves its session until that is closed');
  await call(one, 'session.close', { sessionId: winner });
  assert.equal(await ended(), 0, runner.stderr());
  assert.equal((await facts()).state, 'away');
});

test('started again with the same key it takes the next session', async () => {
  runner = await startRunner();
  const next = await start(two, 'next', 'say next');
  assert.equal(next.result?.output, 'next', JSON.stringify(next));
  assert.equal((await facts()).once, 'taken');
});

test('one that was killed begins free: its session has ended, and does not come back', async () => {
  const turn = callBridge(one.url, 'session.message', { sessionId: 'next', taskPrompt: 'wait', routing: FAR });
  await turn.until(({ delta }) => String(delta).includes('waiting'));
  await runner.stop('SIGKILL');
  runner = await startRunner();
  const { result } = await inTime('the turn to end', turn.answer, PATIENCE_MS);
  assert.deepEqual([result?.status, result?.code], ['failed', 'AGENT_EXITED'], JSON.stringify(result));
  const again = await say(two, 'next', 'recall');
  assert.equal(again.error?.code, -32002, JSON.stringify(again));
  assert.equal((await facts()).once, 'free');
  const other = await start(one, 'other', 'say other');
  assert.equal(other.result?.output, 'other', JSON.stringify(other));
  await call(one, 'session.close', { sessionId: 'next' });
  assert.equal(
    (await say(two, 'other', 'recall')).result?.output,
    'say other|recall',
    'it still serves its own session',
  );
});

test('SIGTERM ends it as any runner', async () => {
  assert.equal(await runner.stop('SIGTERM'), 0);
  assert.equal((await facts()).state, 'away');
});

test('it does not wait for a session that never comes', async () => {
  runner = await startRunner();
  const client = new Client({ connectionString: postgres.url });
  await client.connect();
  // As an instance leaves it that is killed between the place and the call.
  await client.query("UPDATE bridge.runners SET session = 'remote-lost' WHERE name = 'single'");
  await client.end();
  assert.equal(await ended(), 0, runner.stderr());
});
