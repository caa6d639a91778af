import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEditorUpdates, readPrompt, turnAnswer } from '../../../src/bridge/editor/editor-sessions.ts';
import { splitChannel } from '../../../src/bridge/editor/rpc-over-stdio.ts';
import { startBridge } from '../../kit/bridge/start-bridge.ts';
import { createMemoryChannels } from '../../kit/memory-channel.ts';
import { createScriptedProvider } from '../../kit/scripted-provider.ts';

test('names with slashes go to the editor’s side, all else to the app’s, what cannot be read included', async () => {
  const [ours, theirs] = createMemoryChannels();
  const { editor, app } = splitChannel(ours);
  const seen: string[] = [];
  const ends: string[] = [];
  for (const [name, side] of Object.entries({ editor, app })) {
    side.onEnd(({ code }) => ends.push(`${name} ${code}`));
    side.onMessage((text) => seen.push(`${name} ${text}`));
  }
  const forEditor = ['{"method":"initialize"}', '{"method":"session/new"}', '{"method":"$/cancel_request"}'];
  const forApp = ['{"method":"session.start"}', '{"method":"acp.capabilities"}', '{not json', '[]', '{"result":1}'];
  for (const text of [...forEditor, ...forApp]) theirs.send(text);
  await new Promise(setImmediate);
  assert.deepEqual(seen, [...forEditor.map((text) => `editor ${text}`), ...forApp.map((text) => `app ${text}`)]);
  theirs.close();
  assert.deepEqual(ends, ['editor 1000', 'app 1000']);
});

test('DB-3: a prompt’s text, links and embedded texts become one text, images and other files come with it', () => {
  const blocks = [
    { type: 'text', text: 'Look at' },
    { type: 'resource_link', name: 'a.ts', uri: 'file:///w/a.ts' },
    { type: 'resource', resource: { uri: 'file:///w/b.ts', text: 'let b;' } },
  ];
  assert.deepEqual(readPrompt(blocks), {
    taskPrompt: 'Look at\n\n[a.ts](file:///w/a.ts)\n\nfile:///w/b.ts:\n\nlet b;',
    attachments: [],
  });
  const files = [
    { type: 'image', data: 'AA', mimeType: 'image/png' },
    { type: 'resource', resource: { uri: 'file:///w/c.pdf', mimeType: 'application/pdf', blob: 'BB' } },
  ];
  assert.deepEqual(readPrompt([{ type: 'text', text: 'see' }, ...files]), {
    taskPrompt: 'see',
    attachments: [
      { name: 'attachment-2.png', contentType: 'image/png', data: 'AA' },
      { name: 'c.pdf', contentType: 'application/pdf', data: 'BB' },
    ],
  });
  assert.equal(readPrompt(files).taskPrompt, 'See the attached files.');
  const wrong = [
    [{ type: 'audio', data: 'AA' }],
    [{ type: 'image' }],
    [{ type: 'resource', resource: { uri: 'x' } }],
    [{ type: 'text', text: ' ' }],
    ['text'],
  ];
  for (const given of wrong) assert.throws(() => readPrompt(given), { code: 'INVALID_PARAMS' });
});

test('an update becomes what an editor knows: a tool call is announced once, and stages are left out', () => {
  const read = createEditorUpdates();
  const event = (structuredEvent: object) => read({ sessionId: 's', structuredEvent });
  assert.deepEqual(event({ kind: 'text', text: 'a' }), {
    sessionUpdate: 'agent_message_chunk',
    content: { type: 'text', text: 'a' },
  });
  assert.equal(event({ kind: 'thinking', text: 'hm' })?.sessionUpdate, 'agent_thought_chunk');
  assert.equal(event({ kind: 'status', text: 'Allowed: x' })?.sessionUpdate, 'agent_thought_chunk');
  const call = { kind: 'tool_call', toolCallId: 't', title: 'ls', status: 'pending', toolKind: 'sing' };
  assert.deepEqual(event(call), {
    sessionUpdate: 'tool_call',
    toolCallId: 't',
    title: 'ls',
    kind: 'other',
    status: 'pending',
  });
  const ended = event({ ...call, status: 'completed', output: 'x' });
  assert.deepEqual([ended?.sessionUpdate, ended?.status, ended?.rawOutput], ['tool_call_update', 'completed', 'x']);
  assert.equal(read({ type: 'status', event: 'running', message: '' }), undefined);
  assert.equal(event({ kind: 'unknown', text: 'x' }), undefined);
});

test('a turn’s end is a stop reason, or an error in the words of the result', () => {
  const ends: readonly [object, string][] = [
    [{ status: 'completed', stopReason: 'max_tokens' }, 'max_tokens'],
    [{ status: 'completed', stopReason: 'of its own' }, 'end_turn'],
    [{ status: 'cancelled' }, 'cancelled'],
    [{ status: 'failed', code: 'EMPTY_OUTPUT' }, 'end_turn'],
  ];
  for (const [result, stopReason] of ends) assert.deepEqual(turnAnswer({ ...result }), { stopReason });
  assert.throws(() => turnAnswer({ status: 'failed', code: 'AGENT_EXITED', error: 'It died.' }), {
    code: 'EDITOR_TURN_FAILED',
    details: { reason: 'It died.', turnCode: 'AGENT_EXITED' },
  });
});

test('a session whose agent could not start is started by the next prompt, and continued after that', async (t) => {
  const agent = createScriptedProvider('first');
  let isBroken = true;
  const provider: typeof agent = {
    ...agent,
    run: async (turn, signal) =>
      isBroken ? { kind: 'failed', code: 'AGENT_FAILED', error: 'log in first' } : agent.run(turn, signal),
  };
  const { bridge, root } = await startBridge(t, { providers: [provider] });
  const [ours, theirs] = createMemoryChannels();
  const answers = new Map<
    number,
    (answer: { result?: Record<string, unknown>; error?: { message: string } }) => void
  >();
  theirs.onMessage((text) => {
    const message = JSON.parse(text) as { id?: number };
    if (message.id !== undefined) answers.get(message.id)?.(message as never);
  });
  await bridge.acceptStdio(ours, 'first');
  const ask = (id: number, method: string, params: object) =>
    new Promise<{ result?: Record<string, unknown>; error?: { message: string } }>((resolve) => {
      answers.set(id, resolve);
      theirs.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
    });
  const { result } = await ask(1, 'session/new', { cwd: root, mcpServers: [] });
  const prompt = (id: number) =>
    ask(id, 'session/prompt', { sessionId: result?.sessionId, prompt: [{ type: 'text', text: 'hello' }] });
  assert.match((await prompt(2)).error?.message ?? '', /log in first/);
  isBroken = false;
  assert.deepEqual((await prompt(3)).result, { stopReason: 'end_turn' });
  isBroken = true;
  assert.match((await prompt(4)).error?.message ?? '', /log in first/);
  isBroken = false;
  assert.deepEqual((await prompt(5)).result, { stopReason: 'end_turn' });
  assert.deepEqual(agent.closed, [], 'the conversation of the third prompt goes on');
  theirs.close();
});
