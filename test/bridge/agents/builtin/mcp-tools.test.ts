import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { createAgentFence, NO_FENCE } from '../../../../src/bridge/agents/agent-fence.ts';
import { createAgentLauncher } from '../../../../src/bridge/agents/agent-launcher.ts';
import { createMcpTools, type FoundTools } from '../../../../src/bridge/agents/builtin/mcp-tools.ts';
import type { SessionMcpServer } from '../../../../src/bridge/sessions/mcp-servers.ts';
import { createCallbackRules, createCheckedFetch } from '../../../../src/platform/callbacks/callback-post.ts';
import type { Fence } from '../../../../src/platform/child-process/sandbox.ts';
import { type Clock, systemClock } from '../../../../src/platform/clock/clock.ts';
import { scriptedAgent } from '../../../kit/bridge/builtin-agent.ts';
import { isAlive } from '../../../kit/processes.ts';
import { silentLogger } from '../../../kit/silent-logger.ts';
import { until } from '../../../kit/until.ts';
import { recordTurn } from '../recorded-turn.ts';

/** Answers as an MCP server with one tool, which says what `told` gives. */
const ANSWER = `
const answer = ({ id, method, params }, told) => {
  const result = {
    initialize: () => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 's', version: '1' } }),
    'tools/list': () => ({ tools: [{ name: 'tell', inputSchema: { type: 'object' } }] }),
    'tools/call': () => ({ content: [{ type: 'text', text: JSON.stringify(told()) }] }),
  }[method];
  return result === undefined ? undefined : JSON.stringify({ jsonrpc: '2.0', id, result: result() });
};`;
const PROGRAM = `${ANSWER}
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { KEY, HOME } = process.env;
  const text = answer(JSON.parse(line), () => ({ KEY, HOME, folder: process.cwd(), pid: process.pid }));
  if (text !== undefined) process.stdout.write(text + '\\n');
});`;
const answerOf = new Function(`${ANSWER} return answer;`)() as (
  message: unknown,
  told: () => unknown,
) => string | undefined;

const program = (name: string, value: string): SessionMcpServer => ({
  type: 'stdio',
  name,
  command: process.execPath,
  args: ['-e', PROGRAM],
  env: [{ name: 'KEY', value }],
});

async function prepare(t: TestContext, clock: Pick<Clock, 'after'> = systemClock) {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'trestle-mcp-')));
  const { PATH = '', HOME = '' } = process.env;
  const launch = createAgentLauncher({
    environment: { PATH, HOME },
    folder: join(folder, 'agents'),
    journalFolder: join(folder, 'processes'),
    programs: join(folder, 'programs'),
    fence: NO_FENCE,
    homes: join(folder, 'homes'),
  });
  const rules = createCallbackRules({ allow: [], allowedBy: 'x', isOpen: () => false, ownAddresses: () => [] });
  const checked = createCheckedFetch(rules);
  const tools = createMcpTools({
    servers: [],
    launch,
    launchTrusted: launch,
    isFenced: () => false,
    fetchFor: (owner) => (owner === 'main' ? fetch : checked),
    version: '1',
    clock,
    callTimeoutMs: 60_000,
    logger: silentLogger,
  });
  t.after(async () => {
    await tools.stop();
    await rm(folder, { recursive: true, force: true });
  });
  return { folder, tools };
}

interface Told {
  readonly KEY: string;
  readonly HOME: string;
  readonly folder: string;
  readonly pid: number;
}

async function tell({ tools }: FoundTools, name: string): Promise<Told> {
  const tool = tools.find((one) => one.name === name);
  assert.ok(tool !== undefined, `${name} is missing`);
  const { text } = await tool.run({}, { signal: new AbortController().signal } as Parameters<typeof tool.run>[1]);
  return JSON.parse(text) as Told;
}

test('the program of a session starts in its folder with its variables, and serves no other owner', async (t) => {
  const { folder, tools } = await prepare(t);
  const servers = [program('own', 'one')];
  const found = await tools.find({ owner: 'main' }, folder, servers);
  const first = await tell(found, 'own__tell');
  assert.deepEqual([first.KEY, first.folder], ['one', folder]);
  const again = await tools.find({ owner: 'main' }, folder, servers);
  assert.equal((await tell(again, 'own__tell')).pid, first.pid, 'the next turn uses the same process');
  const person = await tell(await tools.find({ owner: 'user:ada' }, folder, servers), 'own__tell');
  assert.notEqual(person.pid, first.pid);
  assert.ok(person.HOME.startsWith(join(folder, 'homes')), 'a person has a home of their own');
  const other = await tell(await tools.find({ owner: 'main' }, folder, [program('own', 'two')]), 'own__tell');
  assert.equal(other.KEY, 'two', 'a server with another variable is another server');
  await tools.stop();
  for (const { pid } of [first, person, other]) await until('the program to be gone', () => !isAlive(pid));
});

test('a pause ends the programs that run for a person, and none that run for others', async (t) => {
  const { folder, tools } = await prepare(t);
  const pidFor = async (owner: string) => {
    const found = await tools.find({ owner }, folder, [program('own', 'one')]);
    const { pid } = await tell(found, 'own__tell');
    found.release();
    return pid;
  };
  const [ada, bob] = [await pidFor('user:ada'), await pidFor('user:bob')];
  tools.endWhere(({ owner }) => owner === 'user:ada');
  await until('the program of Ada to be gone', () => !isAlive(ada));
  assert.equal(await pidFor('user:bob'), bob);
  assert.notEqual(await pidFor('user:ada'), ada, 'after the pause another one is started');
});

test('a server that does not start is named, and the others can be used', async (t) => {
  const { folder, tools } = await prepare(t);
  const broken: SessionMcpServer = { ...program('broken', 'my-secret-key'), command: '/nowhere/at-all' } as never;
  const old: SessionMcpServer = { type: 'sse', name: 'old', url: 'http://127.0.0.1:1/sse', headers: [] };
  const found = await tools.find({ owner: 'main' }, folder, [broken, old, program('own', 'one')]);
  assert.deepEqual(
    found.tools.map(({ name }) => name),
    ['own__tell'],
  );
  assert.equal(found.problems.length, 2);
  assert.match(found.problems.join('\n'), /"broken" cannot be used.*\n.*"old" cannot be used/);
  assert.equal(found.problems.join().includes('my-secret-key'), false);
});

test('a server over HTTP gets the headers of the session; people reach no address of this machine', async (t) => {
  const { folder, tools } = await prepare(t);
  let asked = 0;
  const server = createServer(async (request, response) => {
    asked += 1;
    const body = Buffer.concat(await request.toArray()).toString('utf8');
    const told = () => ({ KEY: request.headers['x-key'] });
    const text = request.method === 'POST' ? answerOf(JSON.parse(body), told) : undefined;
    if (text !== undefined) response.writeHead(200, { 'content-type': 'application/json' }).end(text);
    else response.writeHead(request.method === 'POST' ? 202 : 405).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const headers = [{ name: 'X-Key', value: 'header-secret' }];
  const web: SessionMcpServer = { type: 'http', name: 'web', url: `http://127.0.0.1:${port}/mcp`, headers };
  const found = await tools.find({ owner: 'main' }, folder, [web]);
  assert.equal((await tell(found, 'web__tell')).KEY, 'header-secret');
  const before = asked;
  for (const host of ['127.0.0.1', 'localhost']) {
    const one = { ...web, url: `http://${host}:${port}/mcp` };
    const refused = await tools.find({ owner: 'user:ada' }, folder, [one]);
    assert.deepEqual([refused.tools, refused.problems.length], [[], 1]);
  }
  assert.equal(asked, before, 'nothing was sent');
});

/** A fence that starts nothing, and keeps what it would have shown in the sandbox. */
function fenceOf(folder: string) {
  const shown: Fence[] = [];
  const sandbox = {
    async start(_options: unknown, given: Fence) {
      shown.push(given);
      throw new Error('not started');
    },
  };
  const fence = createAgentFence({
    sandbox: sandbox as never,
    permissions: 'allow',
    dataDirectory: folder,
    homeDirectory: '/home/nobody',
    privatePaths: { folders: [], files: [] },
    settings: { sandbox_read_paths: [], sandbox_write_paths: [] },
    identify: async () => '1:1',
  });
  return { fence, isShown: () => shown.map(({ readable }) => readable.length > 0) };
}

const OWNERS = ['user:ada', 'team:one', 'review', 'main'];

test('in the sandbox no folder is shown because a person names a server in it', async (t) => {
  const { folder } = await prepare(t);
  const { fence, isShown } = fenceOf(folder);
  for (const owner of OWNERS) {
    const options = { command: '/opt/private/run', args: [], cwd: folder, env: {}, journalFolder: undefined };
    const work = { owner, agent: 'mcp-session', folder, isCallers: true };
    await assert.rejects(fence.start(options, work), /not started/);
  }
  assert.deepEqual(isShown(), [false, false, false, true]);
});

test('in the sandbox no folder is shown because a command of the built-in agent is in it', async (t) => {
  const { folder } = await prepare(t);
  const { fence, isShown } = fenceOf(folder);
  const call = { name: 'run_command', input: { command: '/opt/private/run', args: [] } };
  for (const owner of OWNERS) {
    const { agent } = scriptedAgent((index) => (index > 0 ? { text: ['done'] } : { calls: [call] }), { fence });
    await assert.rejects(agent.startTurn(recordTurn(folder, 'go', { owner })), /not started/);
  }
  assert.deepEqual(isShown(), [false, false, false, true]);
});

test('a server that was started again during a turn is ended as well when no turn uses it', async (t) => {
  const IDLE_MS = 5 * 60_000;
  const idle = new Set<() => void>();
  const { folder, tools } = await prepare(t, {
    after(ms, action) {
      if (ms !== IDLE_MS) return systemClock.after(ms, action);
      idle.add(action);
      return () => void idle.delete(action);
    },
  });
  const found = await tools.find({ owner: 'main' }, folder, [program('own', 'one')]);
  const { pid: first } = await tell(found, 'own__tell');
  process.kill(first, 'SIGKILL');
  const second = await until('another process', async () => {
    const told = await tell(found, 'own__tell').catch(() => undefined);
    return told !== undefined && told.pid !== first ? told.pid : undefined;
  });
  assert.equal(idle.size, 0, 'the turn uses it');
  found.release();
  for (const end of idle) end();
  await until('the second process to be gone', () => !isAlive(Number(second)));
});

test('the servers of one owner, and of its members, leave places to those of others', async () => {
  const asked: string[] = [];
  const refusing = async () => {
    throw new Error('away');
  };
  const tools = createMcpTools({
    ...{ servers: [], version: '1', callTimeoutMs: 1000, clock: systemClock, logger: silentLogger },
    ...{ launch: refusing, launchTrusted: refusing, isFenced: () => true },
    fetchFor(owner) {
      asked.push(owner);
      return refusing;
    },
  });
  const servers = Array.from({ length: 200 }, (_, index): SessionMcpServer => {
    return { type: 'http', name: `s-${index}`, url: `http://127.0.0.1:1/${index}`, headers: [] };
  });
  const finds = [
    tools.find({ owner: 'user:usr_1' }, '/a', servers),
    tools.find({ owner: 'team:team_1', member: 'user:usr_1' }, '/a', servers.slice(0, 1)),
    tools.find({ owner: 'user:usr_2' }, '/a', servers.slice(0, 20)),
  ];
  const counts = Map.groupBy(asked, (owner) => owner);
  assert.deepEqual(
    [...counts].map(([owner, { length }]) => [owner, length]),
    [
      ['user:usr_1', 192],
      ['user:usr_2', 20],
    ],
  );
  for (const { release } of await Promise.all(finds)) release();
  await tools.stop();
});
