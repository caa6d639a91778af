import assert from 'node:assert/strict';
import { mkdir, readdir, realpath, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Readable, Writable } from 'node:stream';
import { type TestContext, test } from 'node:test';
import {
  type ClientCapabilities,
  type CreateElicitationRequest,
  type CreateElicitationResponse,
  client,
  ndJsonStream,
  PROTOCOL_VERSION,
  type RequestPermissionRequest,
  type RequestPermissionResponse,
  type SessionNotification,
} from '@agentclientprotocol/sdk';
import { isAlive } from '../kit/processes.ts';
import { runProgram, startProgram, temporaryFolder } from '../kit/running-program.ts';
import { FORM_SCHEMA } from '../kit/scripted-work.ts';
import { until } from '../kit/until.ts';
import { type PipedProgram, startPiped } from './piped-program.ts';

const AGENT = join(import.meta.dirname, '..', 'kit', 'scripted-acp-agent.ts');

interface Place {
  readonly work: string;
  readonly args: readonly string[];
  readonly dataDirectory: string;
}

async function preparePlace(t: TestContext): Promise<Place> {
  const folder = await realpath(await temporaryFolder(t));
  const work = join(folder, 'work');
  const dataDirectory = join(folder, 'data');
  await mkdir(work);
  const config = join(folder, 'trestle.yaml');
  const custom = [{ id: 'scripted', label: 'Scripted', command: process.execPath, args: [AGENT, '--state', folder] }];
  await writeFile(config, JSON.stringify({ agents: { catalog: ['builtin'], custom } }), { mode: 0o600 });
  return { work, dataDirectory, args: ['stdio', '--config', config, '--data-dir', dataDirectory] };
}

/** What an editor does: starts the program and speaks the protocol with it, by the protocol's own library. */
async function startEditor(t: TestContext, { args }: Place, ...more: readonly string[]) {
  const asked: RequestPermissionRequest[] = [];
  const forms: CreateElicitationRequest[] = [];
  /** What the person answers to forms. Undefined: the editor does not take forms. */
  const filling: { answer?: CreateElicitationResponse } = more.includes('--forms') ? { answer: DECLINED } : {};
  /** The kind of the option that the person at the editor chooses; empty: the question is cancelled. */
  const person = { chooses: 'allow_once' };
  const program = startPiped(t, [...args, ...more.filter((one) => one !== '--forms')]);
  const seen: SessionNotification[] = [];
  const stream = ndJsonStream(
    Writable.toWeb(program.child.stdin),
    Readable.toWeb(program.child.stdout) as ReadableStream<Uint8Array>,
  );
  const { agent } = client({ name: 'editor' })
    .onRequest('session/request_permission', ({ params }): RequestPermissionResponse => {
      asked.push(params);
      const option = params.options.find(({ kind }) => kind === person.chooses);
      if (option === undefined) return { outcome: { outcome: 'cancelled' } };
      return { outcome: { outcome: 'selected', optionId: option.optionId } };
    })
    .onRequest('elicitation/create', ({ params }): CreateElicitationResponse => {
      forms.push(params);
      return filling.answer ?? DECLINED;
    })
    .onNotification('session/update', ({ params }) => void seen.push(params))
    .connect(stream);
  const clientCapabilities: ClientCapabilities = filling.answer === undefined ? {} : { elicitation: { form: {} } };
  const hello = await agent.request('initialize', { protocolVersion: PROTOCOL_VERSION, clientCapabilities });
  const prompt = (sessionId: string, text: string) =>
    agent.request('session/prompt', { sessionId, prompt: [{ type: 'text', text }] });
  const said = () => textOf(seen, 'agent_message_chunk');
  return { program, agent, hello, seen, asked, person, forms, filling, prompt, said };
}

const DECLINED: CreateElicitationResponse = { action: 'decline' };

function textOf(seen: readonly SessionNotification[], kind: string): string {
  return seen
    .map(({ update }) => update as { sessionUpdate: string; content?: { text?: string } })
    .map(({ sessionUpdate, content }) => (sessionUpdate === kind ? (content?.text ?? '') : ''))
    .join('');
}

test('an editor drives the built-in agent over the Agent Client Protocol, without a key or an installed agent', async (t) => {
  const place = await preparePlace(t);
  const { program, agent, hello, prompt, said } = await startEditor(t, place);
  assert.equal(hello.protocolVersion, PROTOCOL_VERSION);
  assert.equal(hello.agentInfo?.name, 'trestle');
  assert.equal(hello.agentCapabilities?.loadSession, true);
  const { sessionId, configOptions } = await agent.request('session/new', { cwd: place.work, mcpServers: [] });
  assert.deepEqual(
    configOptions?.map(({ id, currentValue }) => [id, currentValue]),
    [['agent', 'auto']],
  );
  assert.deepEqual(await prompt(sessionId, 'Hello, editor'), { stopReason: 'end_turn' });
  assert.equal(said(), 'Hello, editor');
  assert.equal(await program.end(), 0);
});

test('an editor chooses another agent, sees its thoughts and tool calls, and continues the conversation', async (t) => {
  const place = await preparePlace(t);
  const { agent, prompt, seen, said } = await startEditor(t, place);
  const { sessionId } = await agent.request('session/new', { cwd: place.work, mcpServers: [] });
  const chosen = { sessionId, configId: 'agent', value: 'scripted' };
  const set: unknown = await agent.request('session/set_config_option', chosen);
  assert.match(JSON.stringify(set), /"currentValue":"scripted"/);
  await prompt(sessionId, 'kinds');
  assert.match(textOf(seen, 'agent_thought_chunk'), /^hm/);
  const calls = seen.map(({ update }) => update).filter(({ sessionUpdate }) => sessionUpdate.startsWith('tool_call'));
  assert.deepEqual(
    calls.map((call) => [call.sessionUpdate, 'status' in call && call.status, 'kind' in call && call.kind]),
    [
      ['tool_call', 'pending', 'read'],
      ['tool_call_update', 'completed', 'read'],
    ],
  );
  assert.equal(said(), 'before after');
  seen.length = 0;
  await prompt(sessionId, 'ask');
  assert.match(textOf(seen, 'agent_thought_chunk'), /Allowed: touch made/);
  seen.length = 0;
  await prompt(sessionId, 'recall');
  assert.equal(said(), 'kinds|ask|recall');
  await assert.rejects(agent.request('session/set_config_option', { ...chosen, value: 'builtin' }), { code: -32602 });
});

test('an editor that takes forms is asked with the form of the agent; for any other the question is declined', async (t) => {
  const place = await preparePlace(t);
  const { agent, prompt, said, seen, forms, filling } = await startEditor(t, place, '--agent', 'scripted', '--forms');
  const { sessionId } = await agent.request('session/new', { cwd: place.work, mcpServers: [] });
  const content = { place: 'live', sure: true };
  for (const [answer, told] of [
    [
      { action: 'accept', content },
      { action: 'accept', content },
    ],
    [{ action: 'accept', content: { place: 'mars', sure: true } }, DECLINED],
    [DECLINED, DECLINED],
  ] as const) {
    filling.answer = answer;
    seen.length = 0;
    await prompt(sessionId, 'form');
    assert.deepEqual(JSON.parse(said()), told);
  }
  const [form] = forms as { message: string; mode: string; requestedSchema: typeof FORM_SCHEMA; sessionId: string }[];
  assert.deepEqual([form?.message, form?.mode, form?.sessionId], ['Where to deploy?', 'form', sessionId]);
  assert.deepEqual(form?.requestedSchema.required, FORM_SCHEMA.required);
  assert.deepEqual(Object.keys(form?.requestedSchema.properties ?? {}), Object.keys(FORM_SCHEMA.properties));

  const elsewhere = await preparePlace(t);
  const plain = await startEditor(t, elsewhere, '--agent', 'scripted');
  const opened = await plain.agent.request('session/new', { cwd: elsewhere.work, mcpServers: [] });
  await plain.prompt(opened.sessionId, 'form');
  assert.deepEqual([JSON.parse(plain.said()), plain.forms], [DECLINED, []]);
});

test('DB-7: the editor is asked before an agent does anything, and its answer counts', async (t) => {
  const place = await preparePlace(t);
  const { agent, prompt, said, seen, asked, person } = await startEditor(t, place, '--agent', 'scripted');
  const { sessionId } = await agent.request('session/new', { cwd: place.work, mcpServers: [] });
  for (const [chooses, answer, thought] of [
    ['reject_once', 'answered selected never', /Denied: touch made/],
    ['', 'answered cancelled undefined', /Denied: touch made/],
    ['allow_once', 'answered selected once', /Allowed: touch made/],
    ['allow_always', 'answered selected always', /Allowed: touch made/],
  ] as const) {
    person.chooses = chooses;
    seen.length = 0;
    await prompt(sessionId, 'ask');
    assert.equal(said(), answer);
    assert.match(textOf(seen, 'agent_thought_chunk'), thought);
    const made = await readdir(place.work);
    assert.equal(made.includes('made'), chooses.startsWith('allow'), chooses || 'cancelled');
  }
  assert.equal(asked.length, 4);
  assert.deepEqual([asked[0]?.sessionId, asked[0]?.toolCall.title], [sessionId, 'touch made']);
});

test('DB-7: an editor that cannot be asked allows nothing, and a question ends with its turn', async (t) => {
  const place = await preparePlace(t);
  const program = startPiped(t, [...place.args, '--agent', 'scripted']);
  const lines = createInterface({ input: program.child.stdout });
  const messages: Record<string, unknown>[] = [];
  lines.on('line', (line) => messages.push(JSON.parse(line) as Record<string, unknown>));
  const send = (message: object) => program.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  const answered = async (id: number) => {
    await until(`the answer to ${id}`, () => messages.some((message) => message.id === id && 'result' in message));
    return messages.find((message) => message.id === id)?.result as Record<string, string>;
  };
  send({ id: 1, method: 'session/new', params: { cwd: place.work, mcpServers: [] } });
  const { sessionId } = await answered(1);
  const question = async (count: number) => {
    const found = () => messages.filter(({ method }) => method === 'session/request_permission');
    await until('the question', () => found().length === count);
    return found().at(-1)?.id;
  };
  send({ id: 2, method: 'session/prompt', params: { sessionId, prompt: [{ type: 'text', text: 'ask' }] } });
  send({ id: await question(1), error: { code: -32601, message: 'Method not found' } });
  assert.deepEqual(await answered(2), { stopReason: 'end_turn' });
  send({ id: 3, method: 'session/prompt', params: { sessionId, prompt: [{ type: 'text', text: 'ask' }] } });
  await question(2);
  send({ method: 'session/cancel', params: { sessionId } });
  assert.deepEqual(await answered(3), { stopReason: 'cancelled' });
  assert.deepEqual(await readdir(place.work), []);
});

test('an editor cancels a turn, and the agent’s processes end with it', async (t) => {
  const place = await preparePlace(t);
  const { agent, prompt, said } = await startEditor(t, place, '--agent', 'scripted');
  const { sessionId } = await agent.request('session/new', { cwd: place.work, mcpServers: [] });
  const turn = prompt(sessionId, 'child');
  await until('the agent to say its pid', () => said() !== '');
  const pid = Number(said());
  await agent.notify('session/cancel', { sessionId });
  assert.deepEqual(await turn, { stopReason: 'cancelled' });
  await until('the agent to be gone', () => !isAlive(pid));
});

test('the MCP servers of an editor reach the agent, also when the session is loaded again', async (t) => {
  const place = await preparePlace(t);
  const server = { name: 'files', command: 'files-mcp', args: ['-v'], env: [{ name: 'KEY', value: 'k' }] };
  const first = await startEditor(t, place, '--agent', 'scripted');
  assert.equal(first.hello.agentCapabilities?.mcpCapabilities?.http, true);
  const open = (...mcpServers: (typeof server)[]) =>
    first.agent.request('session/new', { cwd: place.work, mcpServers });
  await assert.rejects(open(server, server), { code: -32602 });
  const { sessionId } = (await open(server)) as { sessionId: string };
  await first.prompt(sessionId, 'servers');
  await until('the servers', () => first.said() !== '');
  assert.deepEqual(JSON.parse(first.said()), [server]);
  assert.equal(await first.program.end(), 0);
  const second = await startEditor(t, place);
  await second.agent.request('session/resume', { sessionId, cwd: place.work, mcpServers: [] });
  await second.prompt(sessionId, 'servers');
  await until('the servers', () => second.said() !== '');
  assert.deepEqual(JSON.parse(second.said()), [server]);
});

test('a session is loaded again after the program has ended, with all that was said in it', async (t) => {
  const place = await preparePlace(t);
  const first = await startEditor(t, place, '--agent', 'scripted');
  const { sessionId } = await first.agent.request('session/new', { cwd: place.work, mcpServers: [] });
  await first.prompt(sessionId, 'say one two');
  await first.prompt(sessionId, 'say three');
  assert.equal(await first.program.end(), 0);

  const second = await startEditor(t, place);
  await second.agent.request('session/load', { sessionId, cwd: place.work, mcpServers: [] });
  // The library answers a request before it has handed over the last of the notifications that came with the answer.
  await until('all that was said', () => second.seen.length >= 5);
  const told = second.seen.map(({ update }) => [update.sessionUpdate, 'content' in update && update.content]);
  assert.deepEqual(
    told.map(([kind, content]) => `${kind}: ${(content as { text: string }).text}`),
    [
      'user_message_chunk: say one two',
      'agent_message_chunk: one ',
      'agent_message_chunk: two',
      'user_message_chunk: say three',
      'agent_message_chunk: three',
    ],
  );
  second.seen.length = 0;
  await second.prompt(sessionId, 'recall');
  assert.equal(second.said(), 'say one two|say three|recall');
  await second.agent.request('session/close', { sessionId });
  const again = second.agent.request('session/load', { sessionId, cwd: place.work, mcpServers: [] });
  await assert.rejects(again, { code: -32002 });
});

test('what cannot be done is refused with the protocol’s numbers, and the stream lives on', async (t) => {
  const place = await preparePlace(t);
  const { agent, prompt, said } = await startEditor(t, place, '--agent', 'scripted');
  const refusals: readonly [string, object, number][] = [
    ['session/set_mode', { sessionId: 'x', modeId: 'y' }, -32601],
    ['session/prompt', { sessionId: 'unknown', prompt: [{ type: 'text', text: 'x' }] }, -32002],
    ['session/new', { cwd: '/etc', mcpServers: [] }, -32602],
    ['session/new', { cwd: 'relative', mcpServers: [] }, -32602],
    ['_vendor/extension', {}, -32601],
  ];
  for (const [method, params, code] of refusals) await assert.rejects(agent.request(method, params), { code }, method);
  const { sessionId } = await agent.request('session/new', { cwd: place.work, mcpServers: [] });
  const audio = { type: 'audio', data: 'AAAA', mimeType: 'audio/wav' };
  await assert.rejects(agent.request('session/prompt', { sessionId, prompt: [audio] }), { code: -32602 });
  await assert.rejects(prompt(sessionId, 'die 3'), { code: -32603, message: /exit|ended/i });
  await prompt(sessionId, 'say alive').catch(() => undefined);
  const other = await agent.request('session/new', { cwd: place.work, mcpServers: [] });
  await prompt(other.sessionId, 'say alive');
  assert.match(said(), /alive$/);
});

/** Sends one message and reads answers until the one with its id, in whatever frames they come. */
async function exchangeLines(program: PipedProgram, id: string, message: object) {
  program.child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id, ...message })}\n`);
  const messages: Record<string, unknown>[] = [];
  for await (const line of createInterface({ input: program.child.stdout })) {
    messages.push(JSON.parse(line));
    if (messages.at(-1)?.id === id) break;
  }
  return messages;
}

test('the bridge’s own methods are served on the same stream, in their own envelope', async (t) => {
  const place = await preparePlace(t);
  const program = startPiped(t, place.args);
  const params = { sessionId: 's', taskPrompt: 'Hello', routing: { explicitProviderId: 'builtin' } };
  const messages = await exchangeLines(program, 'one', { method: 'session.start', params });
  const updates = messages.filter(({ method }) => method === 'session.update');
  assert.ok(updates.length > 0);
  assert.ok(updates.every(({ type, event }) => type === 'event' && event === 'session.update'));
  const answer = messages.at(-1) as { ok: boolean; result: { output: string }; payload: unknown };
  assert.equal(answer.ok, true);
  assert.equal(answer.result.output, 'Hello');
  assert.deepEqual(answer.payload, answer.result);
});

test('messages behind Content-Length headers are answered in the same way', async (t) => {
  const place = await preparePlace(t);
  const program = startPiped(t, place.args);
  const text = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: { protocolVersion: 1 } });
  program.child.stdin.write(`Content-Length: ${text.length}\r\n\r\n${text}`);
  let received = '';
  for await (const chunk of program.child.stdout) {
    received += chunk;
    if (received.includes('authMethods')) break;
  }
  assert.match(received, /^Content-Length: \d+\r\n\r\n\{"jsonrpc":"2\.0","id":1,"result":/);
});

test('several programs run at the same time beside a server with the same data directory, and log nothing to standard output', async (t) => {
  const place = await preparePlace(t);
  await startProgram(t, { dataDirectory: place.dataDirectory });
  const programs = [startPiped(t, place.args), startPiped(t, [...place.args, '--log-level', 'debug'])];
  const call = { method: 'acp.capabilities', params: {} };
  const answers = await Promise.all(programs.map((program) => exchangeLines(program, 'c', call)));
  assert.deepEqual(
    answers.map((messages) => messages.length),
    [1, 1],
  );
});

test('an agent that does not exist ends the program with words on standard error', async (t) => {
  const { args } = await preparePlace(t);
  const { code, stdout, stderr } = await runProgram([...args, '--agent', 'nobody']);
  assert.deepEqual([code, stdout], [1, '']);
  assert.match(stderr, /There is no agent "nobody". Known agents: builtin, scripted/);
});

test('DB-1: an editor opens no folder of the data directory around its own, and none above it', async (t) => {
  const place = await preparePlace(t);
  await mkdir(join(place.dataDirectory, 'outbox'), { recursive: true });
  const { agent, program } = await startEditor(t, place);
  for (const cwd of [place.dataDirectory, join(place.dataDirectory, 'outbox'), join(place.dataDirectory, '..')]) {
    await assert.rejects(
      agent.request('session/new', { cwd, mcpServers: [] }),
      /workingDirectory cannot be used: it (?:belongs to the bridge|contains the data directory)/,
      cwd,
    );
  }
  await agent.request('session/new', { cwd: place.work, mcpServers: [] });
  assert.equal(await program.end(), 0);
});
