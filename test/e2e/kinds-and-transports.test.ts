import assert from 'node:assert/strict';
import { mkdir, realpath, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { client, ndJsonStream, PROTOCOL_VERSION } from '@agentclientprotocol/sdk';
import type { PlainUpdate } from '../../src/bridge/contract/workbench.ts';
import { clientOf } from '../kit/bridge/client-of.ts';
import { startNodeProcess } from '../kit/bridge/node-process.ts';
import { openClient } from '../kit/bridge/session-client.ts';
import { MAIN_TOKEN } from '../kit/bridge/start-bridge.ts';
import { asMain, everythingTo } from '../kit/bridge/start-nodes.ts';
import { temporaryFolder } from '../kit/running-program.ts';
import { until } from '../kit/until.ts';
import { startPiped } from './piped-program.ts';

/** Every process is the real program, and the agent is a process that speaks the Agent Client Protocol. */
const scope = { after };
const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');
const custom = { id: 'scripted', label: 'Scripted', command: process.execPath, args: [AGENT] };
const agentsOf = (agent: { readonly id: string } & Members) =>
  JSON.stringify({ catalog: [], default: agent.id, custom: [agent] });

type Members = Readonly<Record<string, unknown>>;
/** Forms of an update: of the first surface, of the second one, and of the Agent Client Protocol. */
type Form = 'first' | 'plain' | 'editor';

const path = 'FOLDER/a';
const entries = [
  { content: 'look', status: 'completed', priority: 'high' },
  { content: 'change', status: 'in_progress', priority: 'low' },
];
const begun = { toolCallId: 'e', title: 'Edit a', toolKind: 'edit', status: 'pending', input: { path } };
const locations = [{ path, line: 2 }];
const diff = { path, oldText: 'a\n', newText: 'b\nc\n' };
const changes = [{ ...diff, added: 2, removed: 1, truncated: false }];
const done = { ...begun, status: 'completed', output: { written: 4 }, locations, changes };
const named = { toolCallId: 'e', title: 'Edit a', kind: 'edit', rawInput: { path }, locations };
const usage = { contextUsed: 7, contextSize: 100, costUsd: 0.5 };
const commands = [
  { name: 'test', description: 'runs the tests', hint: 'which' },
  { name: 'clear', description: 'forgets' },
];
const availableCommands = [
  { name: 'test', description: 'runs the tests', input: { hint: 'which' } },
  { name: 'clear', description: 'forgets' },
];
const asked = { toolCallId: 'call-1', title: 'touch made', toolKind: 'execute' };
const touched = { ...asked, status: 'completed' };
const options = [
  { optionId: 'always', name: 'Always', kind: 'allow_always' },
  { optionId: 'odd', name: 'Perhaps', kind: 'allow_on_sundays' },
  { optionId: 'once', name: 'Once', kind: 'allow_once' },
  { optionId: 'never', name: 'No', kind: 'reject_once' },
];
const status = (text: string, members: object) => ({ kind: 'status', type: 'status', text, ...members });
const chunk = (sessionUpdate: string, text: string) => ({ sessionUpdate, content: { type: 'text', text } });

/** What each kind of `everyUpdate` is, and of the question after it. Null: it is not sent there. */
const KINDS: Readonly<Record<string, Readonly<Record<Form, Members | null>>>> = {
  thinking: {
    first: { kind: 'thinking', type: 'thinking', text: 'hm' },
    plain: { kind: 'thinking', text: 'hm' },
    editor: chunk('agent_thought_chunk', 'hm'),
  },
  plan: {
    first: status('- [x] look\n- [ ] change', { plan: entries }),
    plain: { kind: 'plan', entries },
    editor: { sessionUpdate: 'plan', entries },
  },
  'tool call': {
    first: { kind: 'tool_call', type: 'tool_call', ...begun, locations },
    plain: { kind: 'tool_call', ...begun, locations },
    editor: { sessionUpdate: 'tool_call', ...named, status: 'pending' },
  },
  diff: {
    first: { kind: 'tool_call', type: 'tool_call', ...done },
    plain: { kind: 'tool_call', ...done },
    editor: {
      sessionUpdate: 'tool_call_update',
      ...named,
      status: 'completed',
      rawOutput: { written: 4 },
      content: [{ type: 'diff', ...diff }],
    },
  },
  commands: {
    first: status('', { commands }),
    plain: { kind: 'commands', commands },
    editor: { sessionUpdate: 'available_commands_update', availableCommands },
  },
  mode: {
    first: status('', { modeId: 'build' }),
    plain: { kind: 'mode', modeId: 'build' },
    editor: { sessionUpdate: 'current_mode_update', currentModeId: 'build' },
  },
  usage: {
    first: status('', { usage }),
    plain: { kind: 'usage', ...usage },
    editor: { sessionUpdate: 'usage_update', used: 7, size: 100, cost: { amount: 0.5, currency: 'USD' } },
  },
  text: {
    first: { kind: 'text', type: 'text', text: 'written' },
    plain: { kind: 'text', text: 'written' },
    editor: chunk('agent_message_chunk', 'written'),
  },
  question: {
    first: null,
    plain: { kind: 'permission', state: 'open', ...asked, options },
    // An editor is asked with a request of the protocol instead, which has four kinds of options.
    editor: {
      sessionUpdate: 'request_permission',
      ...asked,
      options: options.filter(({ optionId }) => optionId !== 'odd'),
    },
  },
  answer: {
    first: status('Allowed: touch made', { status: 'permission_allowed', toolCallId: 'call-1', answeredBy: 'main' }),
    plain: { kind: 'permission', state: 'allowed', toolCallId: 'call-1', title: 'touch made', answeredBy: 'main' },
    editor: chunk('agent_thought_chunk', 'Allowed: touch made\n'),
  },
  'call that was allowed': {
    first: { kind: 'tool_call', type: 'tool_call', ...touched },
    plain: { kind: 'tool_call', ...touched },
    editor: {
      sessionUpdate: 'tool_call',
      toolCallId: 'call-1',
      title: 'touch made',
      kind: 'execute',
      status: 'completed',
    },
  },
  'last text': {
    first: { kind: 'text', type: 'text', text: 'answered selected once' },
    plain: { kind: 'text', text: 'answered selected once' },
    editor: chunk('agent_message_chunk', 'answered selected once'),
  },
};

/** Takes out what differs from run to run; the folder of the session has the same name everywhere. */
function bare(update: Members): Members {
  const { seq: _seq, at: _at, turnId: _turn, permissionId: _permission, expiresAt: _expires, ...members } = update;
  const { input, rawInput } = members as { input?: { path?: string }; rawInput?: { path?: string } };
  const file = input?.path ?? rawInput?.path;
  if (file === undefined) return members;
  return JSON.parse(JSON.stringify(members).replaceAll(dirname(file), 'FOLDER')) as Members;
}

const STAGES: ReadonlySet<string> = new Set(['queued', 'started', 'running', 'completed', 'failed', 'cancelled']);

/** Runs the turn over the WebSocket of a node, answers its question, and returns what both surfaces of `seenAt` tell. */
async function runAt(url: string, sessionId: string, answersAt: string) {
  const trestle = clientOf(scope, { url, token: MAIN_TOKEN });
  const answering = clientOf(scope, { url: answersAt, token: MAIN_TOKEN });
  const plain: PlainUpdate[] = [];
  const socket = await openClient(scope, url, { headers: asMain });
  const params = { sessionId, taskPrompt: 'work every', routing: { permissions: 'ask' } };
  const ended = socket.call('session.start', params);
  const question = await until('a question', async () =>
    (await answering.permissions.list()).find((one) => one.sessionId === sessionId),
  );
  // What was told before is replayed, and the rest comes as it happens.
  trestle.live.follow(sessionId, (update) => void plain.push(update), { afterSeq: 0 });
  await until('the question on the live socket', () => plain.some(({ kind }) => kind === 'permission'));
  await answering.permissions.answer(question.permissionId, { decision: 'allow' });
  const { result } = await ended;
  assert.equal(result?.status, 'completed', JSON.stringify(result));
  await until('the end on the live socket', () => plain.some(({ kind }) => kind === 'completed'));
  const open = plain.find((update) => update.kind === 'permission' && 'state' in update && update.state === 'open');
  assert.equal(open !== undefined && 'permissionId' in open && open.permissionId, question.permissionId);
  const first = socket.updates.flatMap(({ structuredEvent }) => structuredEvent ?? []) as readonly object[];
  return {
    first: first.map((event) => bare(event as Members)),
    plain: plain.filter(({ kind }) => !STAGES.has(kind)).map(bare),
  };
}

/** Runs the turn in `trestle stdio`, as an editor does. */
async function runInEditor(): Promise<readonly Members[]> {
  const folder = await realpath(await temporaryFolder(scope));
  const work = join(folder, 'work');
  await mkdir(work);
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, `agents: ${agentsOf(custom)}\n`, { mode: 0o600 });
  const program = startPiped(scope, ['stdio', '--config', config, '--data-dir', join(folder, 'data')]);
  const seen: Members[] = [];
  const stream = ndJsonStream(
    Writable.toWeb(program.child.stdin),
    Readable.toWeb(program.child.stdout) as ReadableStream<Uint8Array>,
  );
  const { agent } = client({ name: 'editor' })
    .onRequest('session/request_permission', ({ params }) => {
      const { toolCallId, title, kind: toolKind } = params.toolCall;
      seen.push({ sessionUpdate: 'request_permission', toolCallId, title, toolKind, options: params.options });
      return { outcome: { outcome: 'selected', optionId: 'once' } };
    })
    .onNotification('session/update', ({ params }) => void seen.push(params.update))
    .connect(stream);
  await agent.request('initialize', { protocolVersion: PROTOCOL_VERSION, clientCapabilities: {} });
  const { sessionId } = await agent.request('session/new', { cwd: work, mcpServers: [] });
  await agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text: 'work every' }] });
  return seen.map(bare);
}

/** What arrived, by transport. */
const TRANSPORTS: Readonly<Record<string, Form>> = {
  'the first surface': 'first',
  'the live socket': 'plain',
  'the first surface of a node that forwards the session': 'first',
  'the live socket of a node that forwards the session': 'plain',
  'the first surface, from a remote agent': 'first',
  'the live socket, from a remote agent': 'plain',
  'trestle stdio': 'editor',
};
const arrived = new Map<string, readonly Members[]>();

before(async () => {
  const b = await startNodeProcess(scope, { id: 'b', agents: agentsOf(custom) });
  const [a, c] = await Promise.all([
    startNodeProcess(scope, { id: 'a', peers: { b: { url: b.url } }, forwarding: everythingTo('b') }),
    startNodeProcess(scope, { id: 'c', agents: agentsOf({ id: 'far', url: b.url, token: MAIN_TOKEN }) }),
  ]);
  const [here, forwarded, remote, editor] = await Promise.all([
    runAt(b.url, 'here', b.url),
    runAt(a.url, 'forwarded', b.url),
    runAt(c.url, 'remote', c.url),
    runInEditor(),
  ]);
  const { sessions } = await clientOf(scope, { url: b.url, token: MAIN_TOKEN }).sessions.list();
  for (const { nodeId, sessionId } of sessions) assert.equal(nodeId, 'b', sessionId);
  const lists = [here.first, here.plain, forwarded.first, forwarded.plain, remote.first, remote.plain, editor];
  for (const [index, transport] of Object.keys(TRANSPORTS).entries()) arrived.set(transport, lists[index] ?? []);
});

for (const [transport, form] of Object.entries(TRANSPORTS)) {
  describe(`over ${transport}`, () => {
    const rows = Object.entries(KINDS).filter(([, forms]) => forms[form] !== null);
    for (const [index, [kind, forms]] of rows.entries()) {
      test(`${kind} arrives whole`, () => assert.deepEqual(arrived.get(transport)?.[index], forms[form]));
    }
    test('nothing else arrives', () => assert.equal(arrived.get(transport)?.length, rows.length));
  });
}
