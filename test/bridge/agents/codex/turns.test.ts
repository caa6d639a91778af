import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AskPermission, Steer } from '../../../../src/bridge/agents/agent-provider.ts';
import { createCodexReader } from '../../../../src/bridge/agents/codex/codex-messages.ts';
import { startScripted } from '../scripted-agent.ts';

const protocol = 'codex';
const isText = (event: { kind: string }) => event.kind === 'text';

test('a turn of Codex streams warnings, thoughts and text, and ends with the final text and its own usage', async (t) => {
  const agent = await startScripted(t, { protocol });
  const turn = agent.run({ prompt: 'say one two', folder: agent.work });
  const completed = {
    kind: 'completed',
    stopReason: 'end_turn',
    usage: { totalTokens: 10, inputTokens: 6, outputTokens: 4 },
  };
  assert.deepEqual(await turn.end, { ...completed, output: 'one two' });
  assert.deepEqual(turn.events, [
    { kind: 'status', text: 'model metadata not found' },
    { kind: 'thinking', text: 'hm' },
    { kind: 'text', text: 'one ' },
    { kind: 'text', text: 'two' },
    { kind: 'usage', inputTokens: 6, outputTokens: 4, cachedTokens: 0, contextUsed: 10 },
  ]);
  const next = await agent.run({ prompt: 'say three', folder: agent.work, reference: turn.reference() }).end;
  assert.deepEqual(next, { ...completed, output: 'three' }, 'the usage of the first turn is not counted again');
});

test('B-63: Codex’s approvals are granted and shown, and its command with what it printed', async (t) => {
  const agent = await startScripted(t, { protocol });
  const turn = agent.run({ prompt: 'run make', folder: agent.work });
  const end = await turn.end;
  assert.equal(end.kind === 'completed' && end.output, 'answered accept');
  const calls = turn.events.filter((event) => event.kind === 'tool_call');
  const toolCallId = calls[0]?.toolCallId ?? '';
  const input = { command: 'make', cwd: agent.work };
  const call = { kind: 'tool_call', toolCallId, title: 'make', toolKind: 'execute', input };
  assert.deepEqual(calls, [
    { ...call, status: 'in_progress' },
    { ...call, status: 'in_progress', output: 'printed' },
    { ...call, status: 'completed', output: 'printed' },
  ]);
  assert.deepEqual(
    turn.events.filter((event) => event.kind === 'permission'),
    [{ kind: 'permission', title: 'make', decision: 'allowed', toolCallId }],
  );
});

test('B-63: Codex’s approvals are declined where the configuration denies them', async (t) => {
  const agent = await startScripted(t, { protocol, permissions: 'deny' });
  const turn = agent.run({ prompt: 'run make', folder: agent.work });
  const end = await turn.end;
  assert.equal(end.kind === 'completed' && end.output, 'answered decline');
  assert.equal(turn.events.find((event) => event.kind === 'permission')?.decision, 'denied');
  assert.equal(turn.events.findLast((event) => event.kind === 'tool_call')?.status, 'failed');
});

for (const [permissions, expected] of [
  ['allow', [{ decision: 'accept' }, { permissions: { network: { enabled: true } }, scope: 'turn' }]],
  ['deny', [{ decision: 'decline' }, { permissions: {}, scope: 'turn' }]],
] as const) {
  test(`every kind of question is answered in its own form: ${permissions}`, async (t) => {
    const agent = await startScripted(t, { protocol, permissions });
    const end = await agent.run({ prompt: 'questions', folder: agent.work }).end;
    const answers = JSON.parse(end.kind === 'completed' ? end.output : '[]');
    assert.deepEqual(answers, [
      ...expected,
      { action: 'decline', content: null, _meta: null },
      { answers: {} },
      -32601,
    ]);
  });
}

test('a form and questions of Codex go to a person, and the values come back in the form of Codex', async (t) => {
  const agent = await startScripted(t, { protocol });
  const given = [
    { place: 'live', sure: true, count: 3 },
    { color: 'green', pin: '1234' },
  ];
  const asked: string[] = [];
  const ask: AskPermission = async ({ title, toolKind, form }) => {
    asked.push(`${toolKind}: ${title} ${form?.fields.map(({ name }) => name).join(' ')}`);
    return { optionId: undefined, values: given[asked.length - 1] ?? {} };
  };
  const turn = agent.run({ prompt: 'form', folder: agent.work, ask });
  const end = await turn.end;
  assert.deepEqual(asked, [
    'question: Where to deploy? place count sure note',
    'question: Which color? Your PIN? color pin',
  ]);
  assert.deepEqual(JSON.parse(end.kind === 'completed' ? end.output : ''), [
    { action: 'accept', content: given[0], _meta: null },
    { answers: { color: { answers: ['green'] }, pin: { answers: ['1234'] } } },
  ]);
  assert.deepEqual(
    turn.events.filter(({ kind }) => kind === 'permission'),
    [
      { kind: 'permission', title: 'Where to deploy?', decision: 'answered' },
      { kind: 'permission', title: 'Which color? Your PIN?', decision: 'answered', toolCallId: 'q' },
    ],
  );
  const alone = await agent.run({ prompt: 'form', folder: agent.work, ask: async () => ({ optionId: 'allow' }) }).end;
  assert.deepEqual(JSON.parse(alone.kind === 'completed' ? alone.output : ''), [
    { action: 'decline', content: null, _meta: null },
    { answers: {} },
  ]);
});

test('B-67: items of Codex are mapped to the kinds of the contract, or left out', async (t) => {
  const agent = await startScripted(t, { protocol });
  const turn = agent.run({ prompt: 'items', folder: agent.work });
  const end = await turn.end;
  assert.equal(end.kind === 'completed' && end.output, 'said at once');
  const changes = [{ path: '/a.txt', kind: { type: 'add' }, diff: '+a' }];
  const told = [{ path: '/a.txt', newText: '+a', added: 1, removed: 0, truncated: false }];
  const call = { kind: 'tool_call', toolCallId: 'f', title: 'edit /a.txt', toolKind: 'edit' };
  const edit = { ...call, input: changes, changes: told };
  const find = { kind: 'tool_call', toolCallId: 'm', title: 'docs: find', toolKind: 'other', input: { q: 1 } };
  assert.deepEqual(turn.events, [
    { ...edit, status: 'in_progress', locations: [{ path: '/a.txt' }] },
    { ...edit, status: 'completed', locations: [{ path: '/a.txt' }] },
    { ...find, status: 'in_progress' },
    { ...find, status: 'completed' },
    { kind: 'plan', entries: [{ content: 'look', status: 'completed', priority: 'medium' }] },
    { kind: 'text', text: 'said at once' },
  ]);
});

test('a turn of Codex is interrupted, and the thread goes on', async (t) => {
  const agent = await startScripted(t, { protocol });
  const turn = agent.run({ prompt: 'wait', folder: agent.work });
  await turn.until(isText);
  await agent.provider.cancel(turn.turnId);
  assert.deepEqual(await turn.end, { kind: 'cancelled', output: 'waiting' });
  const next = await agent.run({ prompt: 'say on', folder: agent.work, reference: turn.reference() }).end;
  assert.equal(next.kind, 'completed');
});

test('a turn that Codex fails ends with its words, and says that it tried again', async (t) => {
  const agent = await startScripted(t, { protocol });
  const turn = agent.run({ prompt: 'fail no credit', folder: agent.work });
  assert.deepEqual(await turn.end, { kind: 'failed', code: 'AGENT_FAILED', error: 'no credit', output: '' });
  assert.deepEqual(turn.events, [{ kind: 'status', text: 'stream broke' }]);
});

for (const [when, prompt] of [
  ['in the middle of a turn', 'die'],
  ['before it has taken the turn', 'vanish'],
] as const) {
  test(`B-61: a Codex that dies ${when} ends it`, async (t) => {
    const agent = await startScripted(t, { protocol });
    const end = await agent.run({ prompt, folder: agent.work }).end;
    assert.equal(end.kind === 'failed' && end.code, 'AGENT_EXITED');
  });
}

for (const [chosen, decision] of [
  ['allow', 'accept'],
  ['reject', 'decline'],
  [undefined, 'decline'],
] as const) {
  test(`DB-7: a person who answers ${chosen ?? 'nothing'} makes Codex’s approval ${decision}`, async (t) => {
    const agent = await startScripted(t, { protocol });
    const asked: string[] = [];
    const ask = async ({ title, toolKind }: { title: string; toolKind: string }) => {
      asked.push(`${toolKind} ${title}`);
      return { optionId: chosen };
    };
    const end = await agent.run({ prompt: 'run make', folder: agent.work, ask }).end;
    assert.equal(end.kind === 'completed' && end.output, `answered ${decision}`);
    assert.deepEqual(asked, ['execute make']);
  });
}

test('the reason of a refusal reaches Codex in the same turn, and the updates show it', async (t) => {
  const agent = await startScripted(t, { protocol });
  const ask = async () => ({ optionId: 'reject', reason: 'not on a Friday' });
  const turn = agent.run({ prompt: 'run make', folder: agent.work, ask });
  const end = await turn.end;
  const told = 'The user refused this request and says: not on a Friday';
  assert.equal(end.kind === 'completed' && end.output, `answered decline, then: ${told}`);
  assert.equal(turn.events.find((event) => event.kind === 'permission')?.reason, 'not on a Friday');
});

test('a message to a running turn of Codex is taken until the turn has ended', async (t) => {
  const agent = await startScripted(t, { protocol });
  const ready = Promise.withResolvers<Steer>();
  const turn = agent.run({ prompt: 'listen', folder: agent.work, steerable: ready.resolve });
  const steer = await ready.promise;
  assert.equal(await steer('use tabs'), true);
  const end = await turn.end;
  assert.equal(end.kind === 'completed' && end.output, 'heard use tabs');
  assert.equal(await steer('too late'), false);
});

test('a thread of Codex is copied, and both go on', async (t) => {
  const agent = await startScripted(t, { protocol });
  const first = agent.run({ prompt: 'say one', folder: agent.work });
  await first.end;
  const reference = first.reference();
  const fork = { owner: 'main', folder: agent.work };
  const forked = (await agent.provider.fork?.(reference, fork)) ?? { why: 'no fork' };
  assert.ok('reference' in forked && forked.reference !== reference, JSON.stringify(forked));
  for (const one of [reference, forked.reference]) {
    const end = await agent.run({ prompt: 'recall', folder: agent.work, reference: one }).end;
    assert.equal(end.kind === 'completed' && end.output, `say one|recall in ${agent.work}`);
  }
  const part = await agent.provider.fork?.(reference, { ...fork, turnId: 'turn-1' });
  assert.match(part !== undefined && 'why' in part ? part.why : '', /whole conversations only/);
});

test('DB-33: the model that Codex uses is reported, also when it is another than the one asked for', async (t) => {
  const agent = await startScripted(t, { protocol });
  const own = agent.run({ prompt: 'model', folder: agent.work });
  await own.end;
  assert.equal(own.usedModel(), 'own');
  const rerouted = agent.run({ prompt: 'reroute', folder: agent.work, model: 'large', reference: own.reference() });
  await rerouted.end;
  assert.equal(rerouted.usedModel(), 'another');
});

test('the model of a turn goes to Codex as it is', async (t) => {
  const agent = await startScripted(t, { protocol });
  const first = agent.run({ prompt: 'model', folder: agent.work, model: '$(large) --x' });
  await first.end;
  const second = agent.run({ prompt: 'model', folder: agent.work, model: 'small', reference: first.reference() });
  await second.end;
  assert.deepEqual([first.text(), second.text()], ['$(large) --x', 'small']);
});

test('the level of thinking goes to Codex when it changes, and is taken back for a turn that has none', async (t) => {
  const agent = await startScripted(t, { protocol });
  const first = agent.run({ prompt: 'effort', folder: agent.work });
  await first.end;
  const said = [first.text()];
  for (const given of [{ thinking: 'high' }, { thinking: 'high' }, {}, {}]) {
    const turn = agent.run({ prompt: 'effort', folder: agent.work, reference: first.reference(), ...given });
    await turn.end;
    said.push(turn.text());
  }
  // Codex keeps what it got: it is sent only when it changes.
  assert.deepEqual(said, ['unset', 'high', 'unset', 'medium', 'unset']);
});

test('a thread of an earlier process is resumed; one that had no turn, or is forgotten, is lost', async (t) => {
  const flags = ['--state', 'FOLDER'];
  const first = await startScripted(t, { protocol, flags });
  const turn = first.run({ prompt: 'say one', folder: first.work });
  await turn.end;
  await first.provider.stop();
  const second = await startScripted(t, { protocol, flags, folder: first.folder });
  const again = second.run({ prompt: 'recall', folder: second.work, reference: turn.reference() });
  await again.end;
  assert.equal(again.text(), `say one|recall in ${second.work}`);

  const reference = JSON.stringify({ conversation: 'thread-without-turns', folder: second.work, continues: true });
  const lost = await second.run({ prompt: 'say x', folder: second.work, reference }).end;
  assert.deepEqual(lost, { kind: 'lost', detail: 'no rollout found for thread id thread-without-turns' });

  const forgotten = second.run({ prompt: 'forget', folder: second.work });
  await forgotten.end;
  const end = await second.run({ prompt: 'say x', folder: second.work, reference: forgotten.reference() }).end;
  assert.equal(end.kind, 'lost');
});

test('a command that prints a lot is followed in few steps, and shown whole at its end', async (t) => {
  const agent = await startScripted(t, { protocol });
  const turn = agent.run({ prompt: 'print 2000', folder: agent.work });
  await turn.end;
  const calls = turn.events.filter((event) => event.kind === 'tool_call');
  assert.ok(calls.length > 5 && calls.length < 20, String(calls.length));
  assert.match(String(calls.at(-1)?.output), /^line 0\n.*line 1999\n$/s);
});

test('counts of tokens that cannot be are read as none', () => {
  for (const wrong of [-1, 1.5, Number.POSITIVE_INFINITY, 2 ** 53, '7']) {
    const reader = createCodexReader();
    const counts = { inputTokens: wrong, outputTokens: 3, totalTokens: wrong, cachedInputTokens: wrong };
    const tokenUsage = { total: counts, last: { ...counts, outputTokens: 2 }, modelContextWindow: wrong };
    const { events } = reader.read('thread/tokenUsage/updated', { tokenUsage });
    const none = { inputTokens: 0, outputTokens: 2, cachedTokens: 0, contextUsed: 0 };
    assert.deepEqual(events, [{ kind: 'usage', ...none }], String(wrong));
    // A total that shrinks is no reason to owe tokens.
    const shrunk = { total: { outputTokens: 0 }, last: {} };
    const later = reader.read('thread/tokenUsage/updated', { tokenUsage: shrunk }).events[0];
    assert.equal(later?.kind === 'usage' && later.outputTokens, 0);
  }
});
