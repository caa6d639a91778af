import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { callBridge, type RpcAnswer, type StreamedCall } from '../kit/bridge/agent-session.ts';
import { findBubblewrap } from '../kit/bubblewrap.ts';
import { timeLimit } from '../kit/time.ts';
import { until } from '../kit/until.ts';
import { type InstalledWorld, startInstalledWorld, TOKEN } from './installed-world.ts';
import { newestFirst } from './real-agent.ts';

/**
 * The agents, with their mode for plans and whether commands still run in it. Kimi Code only asks its model to change nothing
 * there, so nothing but the sandbox and our answers keeps it from writing. All of them can do everything else that is here.
 */
const ROWS = [
  { id: 'claude', planMode: 'plan', runsCommands: false },
  { id: 'qwen', planMode: 'plan', runsCommands: false },
  { id: 'kimi', planMode: 'plan', runsCommands: true },
] as const;

/** A red dot. */
const IMAGE =
  'iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg==';

/** An MCP server whose only tool says a word. It begins when it is asked to, and refuses what it does not know: some agents ask for newer methods first. */
const MCP_SERVER = `
const tools = [{ name: 'tellword', description: 'Tells a word.', inputSchema: { type: 'object', properties: {} } }];
const serverInfo = { name: 'words', version: '1' };
const METHODS = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo }),
  'tools/list': () => ({ tools }),
  'tools/call': () => ({ content: [{ type: 'text', text: 'rhubarb-' + process.env.WORD }] }),
};
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const answer = METHODS[method] === undefined ? { error: { code: -32601, message: 'unknown' } } : { result: METHODS[method](params) };
  const send = () => process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, ...answer }) + '\\n');
  setTimeout(send, method === 'initialize' ? Number(process.env.DELAY_MS) : 0);
});`;

const { program: BUBBLEWRAP, missing } = await findBubblewrap();
const CANCEL_LIMIT_MS = 5_000;
const ASK_LIMIT_MS = 60_000;

const scope = newestFirst({ after });
let world: InstalledWorld;

before(async () => {
  if (missing === false) {
    world = await startInstalledWorld(scope, { sandbox: 'require', sandbox_program: BUBBLEWRAP });
  }
});

let sessions = 0;

/** A session of an agent. All sessions of one agent share a folder, and so a process: starting one takes long. */
async function newSession(id: string) {
  sessions += 1;
  const sessionId = `${id}-${sessions}`;
  const folder = join(world.home, id);
  await mkdir(folder, { recursive: true });
  const call = (method: string, taskPrompt: string, more: object = {}): StreamedCall =>
    callBridge(world.program().url, method, { sessionId, taskPrompt, workingDirectory: folder, ...more }, TOKEN);
  const routing = { explicitProviderId: id };
  return {
    sessionId,
    folder,
    start: (prompt: string, { routing: more, ...rest }: { routing?: object; [name: string]: unknown } = {}) =>
      call('session.start', prompt, { ...rest, routing: { ...routing, ...more } }),
    message: (prompt: string, more: object = {}) => call('session.message', prompt, more),
  };
}

type Session = Awaited<ReturnType<typeof newSession>>;

// biome-ignore lint/suspicious/noExplicitAny: answers of our own routes, which have tests of their own
async function api(method: string, path: string, body?: object): Promise<any> {
  const response = await fetch(`${world.program().url}/api/bridge/${path}`, {
    method,
    headers: { authorization: `Bearer ${TOKEN}`, ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${text}`);
  return JSON.parse(text);
}

function outputOf(answer: RpcAnswer): string {
  assert.equal(answer.result?.status, 'completed', JSON.stringify(answer));
  return String(answer.result?.output);
}

/** Answers the first question of a session's agent, after `look`. */
async function answerQuestion({ sessionId }: Session, answer: object, look: () => void): Promise<void> {
  type Question = { sessionId: string; permissionId: string };
  const find = async () =>
    (await api('GET', 'permissions')).permissions.find((question: Question) => question.sessionId === sessionId);
  await until('the agent to ask', async () => (await find()) !== undefined, ASK_LIMIT_MS);
  look();
  const { permissionId }: Question = await find();
  await api('POST', `permissions/${permissionId}/answer`, answer);
}

for (const { id, planMode, runsCommands } of ROWS) {
  const cell = (name: string, run: (session: Session) => Promise<void>) =>
    test(`${id}: ${name}`, { skip: missing }, async () => run(await newSession(id)));

  cell('a turn streams its text, and a later one knows it', async ({ start, message }) => {
    const turn = start('SAY alpha');
    assert.equal(outputOf(await turn.answer), 'Here is alpha from upstream-model.');
    assert.ok(turn.updates.filter(({ type }) => type === 'delta').length > 1, 'the text came in pieces');
    assert.equal(outputOf(await message('RECALL').answer), 'Said: alpha.');
  });

  cell('a person is asked before a tool runs', async (session) => {
    const turn = session.start('RUN touch asked && echo it-is-made', { routing: { permissions: 'ask' } });
    const made = join(session.folder, 'asked');
    await answerQuestion(session, { decision: 'allow' }, () => assert.equal(existsSync(made), false));
    assert.match(outputOf(await turn.answer), /it-is-made/);
    assert.ok(existsSync(made));
  });

  cell('a tool that a person denies does not run, and the session goes on', async (session) => {
    const turn = session.start('RUN touch refused', { routing: { permissions: 'ask' } });
    await answerQuestion(session, { decision: 'deny' }, () => undefined);
    await turn.answer;
    assert.equal(existsSync(join(session.folder, 'refused')), false);
    assert.match(outputOf(await session.message('SAY beta').answer), /Here is beta/);
  });

  cell('a turn that denies everything changes nothing, and the next one may', async (session) => {
    outputOf(await session.start('SAY alpha').answer);
    await session.message('RUN touch denied', { routing: { permissions: 'deny' } }).answer;
    assert.equal(existsSync(join(session.folder, 'denied')), false);
    await session.message('RUN touch allowed').answer;
    assert.equal(existsSync(join(session.folder, 'allowed')), true);
  });

  cell('a turn is cancelled soon, and the session goes on', async ({ sessionId, start, message }) => {
    const turn = start('SAY one, then WAIT');
    await turn.until(({ type }) => type === 'delta');
    const before = performance.now();
    await callBridge(world.program().url, 'session.cancel', { sessionId }, TOKEN).answer;
    assert.equal((await turn.answer).result?.status, 'cancelled');
    assert.ok(performance.now() - before < timeLimit(CANCEL_LIMIT_MS));
    assert.match(outputOf(await message('SAY two').answer), /Here is two/);
  });

  cell('an image is seen by the model', async ({ start }) => {
    const attachments = [{ name: 'dot.png', contentType: 'image/png', data: IMAGE }];
    assert.equal(outputOf(await start('LOOK', { attachments }).answer), 'I see 1 image(s).');
  });

  cell('a tool of an MCP server is called', async ({ folder, start }) => {
    const script = join(folder, 'words.cjs');
    await writeFile(script, MCP_SERVER);
    // Qwen Code by itself sends the first prompt before such a server is ready, and then does not know its tools.
    const delay = id === 'qwen' ? '10000' : '0';
    const env = Object.entries({ WORD: id, DELAY_MS: delay }).map(([name, value]) => ({ name, value }));
    const mcpServers = [{ name: 'words', command: process.execPath, args: [script], env }];
    assert.match(outputOf(await start('CALL words tellword', { mcpServers }).answer), new RegExp(`rhubarb-${id}`));
  });

  cell('a mode that a person chooses holds for the next turns', async (session) => {
    outputOf(await session.start('SAY alpha').answer);
    const path = `sessions/${session.sessionId}`;
    const { modes } = await api('GET', path);
    const ids = modes.map((mode: { id: string }) => mode.id);
    assert.ok(ids.includes(planMode), JSON.stringify(ids));
    await api('PATCH', path, { mode: planMode });
    await session.message('RUN touch planned').answer;
    assert.equal(existsSync(join(session.folder, 'planned')), runsCommands);
    assert.equal((await api('GET', path)).session.mode, planMode);
  });

  cell('what a turn has changed is taken back', async (session) => {
    await writeFile(join(session.folder, 'kept'), 'before\n');
    const { answer } = session.start('RUN echo after >kept && touch made');
    const ended = await answer;
    outputOf(ended);
    assert.equal(await readFile(join(session.folder, 'kept'), 'utf8'), 'after\n');
    await api('POST', `sessions/${session.sessionId}/undo`, { turnId: ended.result?.turnId });
    assert.equal(await readFile(join(session.folder, 'kept'), 'utf8'), 'before\n');
    assert.equal(existsSync(join(session.folder, 'made')), false);
  });

  cell('the data directory and other folders are not there for its tools', async (session) => {
    const outside = join(world.home, `${session.sessionId}-outside`);
    await writeFile(outside, 'not for agents');
    const secret = join(world.program().dataDirectory, 'secret.key');
    assert.ok(existsSync(secret));
    const said = outputOf(await session.start(`RUN cat ${secret} ${outside}; echo looked-$?`).answer);
    assert.match(said, /looked-1/);
    assert.doesNotMatch(said, /not for agents/);
  });
}

for (const id of ['claude', 'qwen', 'kimi', 'opencode']) {
  test(`${id}: with the tools of this program it asks another agent`, { skip: missing }, async () => {
    const { start } = await newSession(id);
    const given = JSON.stringify({ provider: 'builtin', prompt: 'SAY gamma' });
    const turn = start(`CALL trestle ask_agent ${given}`, { mcpServers: [{ trestle: true }] });
    // The text is that of the built-in agent, and comes back as the result of the tool.
    assert.match(outputOf(await turn.answer), /^.*It answered: .*Here is gamma from upstream-model\./s);
  });
}

test('sessions go on after a restart of the program', { skip: missing }, async () => {
  const open = await Promise.all(ROWS.map(({ id }) => newSession(id)));
  for (const session of open) outputOf(await session.start('SAY alpha').answer);
  await world.restart();
  for (const session of open) {
    assert.equal(outputOf(await session.message('RECALL').answer), 'Said: alpha.', session.sessionId);
  }
});
