import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { callBridge, type RpcAnswer } from '../kit/bridge/agent-session.ts';
import { startPostgres } from '../kit/real-postgres.ts';
import { type RunningProgram, runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';

type Row = Readonly<Record<string, unknown>>;

const AGENT = fileURLToPath(new URL('../kit/scripted-acp-agent.ts', import.meta.url));
const FAR = { explicitProviderId: 'far' };
const SLOW = { explicitProviderId: 'far-echo', explicitModel: 'demo/echo?delay=50' };
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

async function configure(name: string, custom: readonly object[]): Promise<readonly string[]> {
  const path = join(folder, name);
  await writeFile(path, JSON.stringify({ agents: { catalog: ['builtin'], custom } }));
  return ['--config', path];
}

const ofInstances = await configure('instance.yaml', [
  { id: 'far', runner_agent: 'scripted', requires: ['gpu'] },
  { id: 'far-echo', runner_agent: 'builtin' },
  { id: 'nowhere', runner_agent: 'scripted', requires: ['tpu'] },
]);
const ofRunners = await configure('runner.yaml', [{ id: 'scripted', command: process.execPath, args: [AGENT] }]);
const instances = await Promise.all([1, 2, 3].map(() => startProgram(file, { args: [...ofInstances, ...database] })));
const balancer = await startBalancer();

/** One address for all instances: each connection goes to the next one that accepts it. */
async function startBalancer() {
  const open = new Set<Socket>();
  let next = 0;
  const server = createServer((client) => {
    const forward = (tries: number): void => {
      const { port } = instances[next % instances.length] as RunningProgram;
      next += 1;
      const target = connect(port, '127.0.0.1');
      target.once('error', () => (tries > 1 ? forward(tries - 1) : client.destroy()));
      target.once('connect', () => {
        target.pipe(client).pipe(target);
        target.on('error', () => client.destroy()).on('close', () => client.destroy());
        client.on('close', () => target.destroy());
      });
    };
    open.add(client.on('error', () => undefined));
    forward(instances.length);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  file.after(() => server.close());
  return {
    url: `http://127.0.0.1:${(server.address() as { port: number }).port}`,
    cut() {
      for (const socket of open) socket.destroy();
      open.clear();
    },
  };
}

async function command(...args: readonly string[]) {
  return runProgram([...args, '--json', ...database, '--data-dir', await temporaryFolder(file)]);
}

async function createRunner(name: string, labels: string): Promise<string> {
  const made = await command('runner', 'create', name, '--labels', labels);
  assert.equal(made.code, 0, made.stderr);
  return (JSON.parse(made.stdout) as { key: string }).key;
}

function startRunner(key: string, slots: number, dataDirectory: string): Promise<RunningProgram> {
  return startProgram(file, {
    command: ['runner'],
    args: [...ofRunners, '--url', balancer.url, '--slots', String(slots)],
    environment: { RUNNER_KEY: key },
    dataDirectory,
  });
}

async function read({ url }: RunningProgram, path: string): Promise<Row> {
  return (await (await fetch(`${url}${path}`)).json()) as Row;
}

async function runnerNamed(name: string, instance = instances.at(-1)): Promise<Row | undefined> {
  if (instance === undefined) return undefined;
  const { runners } = (await read(instance, '/api/system/instances')) as { runners: readonly Row[] };
  return runners.find((runner) => runner.name === name);
}

async function inState(name: string, state: string): Promise<Row> {
  return until(
    `${name} to be ${state}`,
    async () => {
      const runner = await runnerNamed(name);
      return runner?.state === state && runner;
    },
    PATIENCE_MS,
  );
}

function call({ url }: RunningProgram, method: string, params: object): Promise<RpcAnswer> {
  return callBridge(url, method, params).answer;
}

function words(count: number): string {
  return Array.from({ length: count }, (_, index) => `word${index}`).join(' ');
}

async function lastTurn(program: RunningProgram, sessionId: string): Promise<Row | undefined> {
  const { turns = [] } = (await read(program, `/api/bridge/sessions/${sessionId}/turns`)) as { turns?: readonly Row[] };
  return turns.at(-1);
}

/** A page ends after so many stored parts, however short they are. */
async function storedText(program: RunningProgram, sessionId: string): Promise<string> {
  let text = '';
  for (let afterSeq = 0; ; ) {
    const path = `/api/bridge/sessions/${sessionId}/updates?afterSeq=${afterSeq}&limit=2000`;
    const { updates } = (await read(program, path)) as { updates: readonly Row[] };
    if (updates.length === 0) return text;
    text += updates.flatMap(({ kind, text: piece }) => (kind === 'text' ? [String(piece)] : [])).join('');
    afterSeq = Number(updates.at(-1)?.seq);
  }
}

const dataDirectory = await temporaryFolder(file);
const key = await createRunner('builder', 'gpu,linux');
let runner = await startRunner(key, 4, dataDirectory);
await inState('builder', 'connected');
for (const instance of instances) {
  await until('all instances to know of the runner', async () => {
    const { agents } = (await read(instance, '/api/bridge/agents')) as { agents: readonly Row[] };
    return agents.filter(({ providerId, state }) => /^far/.test(String(providerId)) && state === 'ok').length === 2;
  });
}

test('a runner with a wrong key is refused, and says what to do', async () => {
  const { code, stderr } = await runProgram(
    ['runner', '--url', balancer.url, '--key', `trk_${'x'.repeat(43)}`, '--data-dir', await temporaryFolder(file)],
    {},
  );
  assert.equal(code, 78, stderr);
  assert.match(stderr, /refuses the key.*trestle runner create/);
  assert.equal((await runProgram(['runner', '--url', 'bridge'])).code, 2);
});

test('all instances serve sessions of one runner, and any instance continues them', async () => {
  for (const [index, instance] of instances.entries()) {
    const sessionId = `of-${index}`;
    const first = await call(instance, 'session.start', { sessionId, taskPrompt: 'say one two', routing: FAR });
    assert.equal(first.result?.output, 'one two', JSON.stringify(first));
    const other = instances[(index + 1) % instances.length] as RunningProgram;
    const second = await call(other, 'session.message', { sessionId, taskPrompt: 'recall' });
    assert.equal(second.result?.output, 'say one two|recall', JSON.stringify(second));
  }
});

test('operators see the runner, its agents and its turns; agents without a runner are not available', async () => {
  const [one] = instances as [RunningProgram];
  const turn = call(one, 'session.start', { sessionId: 'seen', taskPrompt: 'wait', routing: FAR });
  const found = await until('the turn', async () => {
    const listed = await runnerNamed('builder', one);
    return listed?.turns === 1 && listed;
  });
  assert.deepEqual([found.labels, found.slots, found.state], [['gpu', 'linux'], 4, 'connected']);
  const agents = found.agents as readonly Row[];
  assert.equal(agents.find(({ id }) => id === 'scripted')?.state, 'ok', JSON.stringify(agents));
  const listed = JSON.parse((await command('cluster')).stdout) as { runners: readonly Row[] };
  assert.deepEqual(
    listed.runners.map(({ name, turns }) => [name, turns]),
    [['builder', 1]],
  );
  await call(one, 'session.cancel', { sessionId: 'seen' });
  assert.equal((await turn).result?.status, 'cancelled', 'a turn on a runner can be cancelled');
  const none = await call(one, 'session.start', {
    sessionId: 'none',
    taskPrompt: 'say no',
    routing: { explicitProviderId: 'nowhere' },
  });
  assert.equal(none.result?.status, 'unavailable', JSON.stringify(none));
  assert.match(String(none.result?.error), /no runner with tpu is connected/);
});

test('a connection that breaks during a turn loses nothing, and nothing comes twice', async () => {
  const text = words(80);
  const [one] = instances as [RunningProgram];
  const turn = callBridge(one.url, 'session.start', { sessionId: 'cut', taskPrompt: text, routing: SLOW });
  for (const at of [10, 30]) {
    await turn.until(({ delta }) => String(delta).includes(`word${at}`));
    balancer.cut();
  }
  const { result } = await turn.answer;
  assert.deepEqual([result?.status, result?.output], ['completed', text]);
  const deltas = turn.updates.filter(({ type }) => type === 'delta').map(({ delta }) => delta);
  assert.equal(deltas.join(''), text);
  assert.equal(await storedText(one, 'cut'), text);
});

test('a runner takes as many turns as it has slots, and the next one waits', async () => {
  const [one, two] = instances as [RunningProgram, RunningProgram];
  const turns = [0, 1, 2, 3].map((index) =>
    call(index % 2 === 0 ? one : two, 'session.start', {
      sessionId: `slot-${index}`,
      taskPrompt: 'wait',
      routing: FAR,
    }),
  );
  await until('four turns', async () => (await runnerNamed('builder', one))?.turns === 4, PATIENCE_MS);
  let isOver = false;
  const fifth = call(two, 'session.start', { sessionId: 'slot-4', taskPrompt: 'say five', routing: FAR });
  void fifth.then(() => {
    isOver = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 1500));
  assert.equal(isOver, false, 'there is no free slot');
  assert.equal((await runnerNamed('builder', one))?.turns, 4);
  for (const index of [0, 1, 2, 3]) await call(one, 'session.cancel', { sessionId: `slot-${index}` });
  await Promise.all(turns);
  assert.equal((await fifth).result?.output, 'five');
});

test('kill -9 of the runner during a turn: what is reported is what is stored, and the session goes on', async () => {
  const [one] = instances as [RunningProgram];
  const turn = callBridge(one.url, 'session.start', { sessionId: 'killed', taskPrompt: words(200), routing: SLOW });
  await turn.until(({ delta }) => String(delta).includes('word10'));
  await runner.stop('SIGKILL');
  runner = await startRunner(key, 4, dataDirectory);
  const { result } = await turn.answer;
  assert.deepEqual([result?.status, result?.code], ['failed', 'AGENT_EXITED'], JSON.stringify(result));
  const stored = await lastTurn(one, 'killed');
  assert.deepEqual([stored?.status, stored?.code], ['failed', 'AGENT_EXITED']);
  const shown = turn.updates.filter(({ type }) => type === 'delta').map(({ delta }) => delta);
  assert.equal(await storedText(one, 'killed'), shown.join(''), 'every update that was shown is stored');
  await inState('builder', 'connected');
  const next = await call(one, 'session.message', { sessionId: 'killed', taskPrompt: 'again', routing: SLOW });
  assert.equal(next.result?.output, 'again', JSON.stringify(next));
});

test('kill -9 of the instance that runs the turn and has the runner: the turn ends once, also on the runner', async () => {
  const holder = (await inState('builder', 'connected')).instance;
  const listed = (await read(instances[0] as RunningProgram, '/api/system/instances')).instances as readonly Row[];
  const { address } = listed.find(({ id }) => id === holder) ?? {};
  const index = instances.findIndex(({ url }) => url === address);
  const [killed] = instances.splice(index, 1) as [RunningProgram];
  const [other] = instances as [RunningProgram];
  const turn = callBridge(killed.url, 'session.start', { sessionId: 'orphan', taskPrompt: 'wait', routing: FAR });
  turn.answer.catch(() => undefined);
  await turn.until(({ delta }) => String(delta).includes('waiting'));
  await killed.stop('SIGKILL');
  const stored = await until(
    'the end of the turn',
    async () => {
      const last = await lastTurn(other, 'orphan');
      return last?.status === 'failed' && last;
    },
    PATIENCE_MS,
  );
  assert.equal(stored.code, 'TURN_INTERRUPTED');
  await inState('builder', 'connected');
  await until('the runner to stop the turn', async () => /its instance has ended/.test(logs()), PATIENCE_MS);
  await until('no turn on the runner', async () => (await runnerNamed('builder', other))?.turns === 0, PATIENCE_MS);
  const next = await call(other, 'session.message', { sessionId: 'orphan', taskPrompt: 'recall' });
  assert.equal(next.result?.output, 'wait|recall', JSON.stringify(next));

  function logs(): string {
    return instances.map((instance) => instance.stderr()).join('');
  }
});

test('a runner that is stopped finishes its turns and gets no new ones', async () => {
  const [one] = instances as [RunningProgram];
  const text = words(120);
  const turn = callBridge(one.url, 'session.start', { sessionId: 'drained', taskPrompt: text, routing: SLOW });
  await turn.until(({ delta }) => String(delta).includes('word5'));
  const stopped = runner.stop('SIGTERM');
  await inState('builder', 'leaving');
  const { result } = await turn.answer;
  assert.deepEqual([result?.status, result?.output], ['completed', text], JSON.stringify(result));
  assert.equal(await stopped, 0);
  await inState('builder', 'away');
});

test('a runner that is removed is disconnected, and does not try again', async () => {
  const other = await createRunner('short', 'gpu');
  const short = await startRunner(other, 1, await temporaryFolder(file));
  await inState('short', 'connected');
  assert.equal((await command('runner', 'revoke', 'short')).code, 0);
  await until('the runner to end', () => short.child.exitCode !== null, PATIENCE_MS);
  assert.equal(short.child.exitCode, 78);
  assert.match(short.stderr(), /refuses the key/);
  assert.equal(await runnerNamed('short'), undefined);
  const again = await command('runner', 'revoke', 'short');
  assert.equal(again.code, 1);
  assert.match(again.stderr, /There is no runner "short"/);
});
