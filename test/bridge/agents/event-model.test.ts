import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Value } from 'typebox/value';
import { createUpdateReader } from '../../../src/bridge/agents/acp/acp-messages.ts';
import type { AgentEvent } from '../../../src/bridge/agents/agent-provider.ts';
import { createCodexReader } from '../../../src/bridge/agents/codex/codex-messages.ts';
import { changeOfTexts, withinChangeBounds } from '../../../src/bridge/agents/file-changes.ts';
import { createRemoteAgent } from '../../../src/bridge/agents/remote/create-remote-agent.ts';
import { SessionUpdate } from '../../../src/bridge/contract/session-update.ts';
import { PlainUpdate } from '../../../src/bridge/contract/workbench.ts';
import { createEditorUpdates } from '../../../src/bridge/editor/editor-sessions.ts';
import { plainUpdate } from '../../../src/bridge/workbench/plain-update.ts';
import { createTrestleClient } from '../../../src/client/trestle-client.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { makeId } from '../../kit/bridge/builtin-agent.ts';
import { stream } from '../../kit/bridge/session-client.ts';
import { MAIN_TOKEN } from '../../kit/bridge/start-bridge.ts';
import { asMain, everythingTo, startNode, turn } from '../../kit/bridge/start-nodes.ts';
import { supervised } from '../../kit/bridge/supervised.ts';
import { telling } from '../../kit/scripted-provider.ts';
import { silentLogger } from '../../kit/silent-logger.ts';
import { recordTurn } from './recorded-turn.ts';

const changes = [{ path: '/w/a', oldText: 'a\n', newText: 'b\nc\n', added: 2, removed: 1, truncated: false }];
const call = { toolCallId: 'c', title: 'edit a', status: 'completed', toolKind: 'edit' } as const;
const rest = {
  input: { path: '/w/a' },
  output: 'done',
  locations: [{ path: '/w/a', line: 2 }],
  exitCode: 0,
  durationMs: 12,
};
const entries = [
  { content: 'look', status: 'completed', priority: 'high' },
  { content: 'change', status: 'in_progress', priority: 'medium' },
] as const;
const usage = { inputTokens: 5, outputTokens: 2, cachedTokens: 1, contextUsed: 7, contextSize: 100, costUsd: 0.5 };
const commands = [{ name: 'test', description: 'runs the tests', hint: 'which' }];
const acpCommands = [{ name: 'test', description: 'runs the tests', input: { hint: 'which' } }];
const status = (members: object) => ({ kind: 'status', type: 'status', text: '', ...members });
const chunk = (sessionUpdate: string, text: string) => ({ sessionUpdate, content: { type: 'text', text } });

interface Row {
  readonly event: AgentEvent;
  /** `structuredEvent` of `session.update`. */
  readonly first: object;
  /** On the second surface. */
  readonly plain: object;
  /** What an editor gets. */
  readonly editor: object;
}

/** Every kind that an agent can tell, on every surface. */
const TABLE: readonly Row[] = [
  {
    event: { kind: 'thinking', text: 'hm' },
    first: { kind: 'thinking', type: 'thinking', text: 'hm' },
    plain: { kind: 'thinking', text: 'hm' },
    editor: chunk('agent_thought_chunk', 'hm'),
  },
  {
    event: { kind: 'tool_call', ...call, ...rest, changes },
    first: { kind: 'tool_call', type: 'tool_call', ...call, ...rest, changes },
    plain: { kind: 'tool_call', ...call, ...rest, changes },
    editor: {
      sessionUpdate: 'tool_call',
      toolCallId: 'c',
      title: 'edit a',
      kind: 'edit',
      status: 'completed',
      rawInput: rest.input,
      rawOutput: 'done',
      content: [
        { type: 'content', content: { type: 'text', text: 'done' } },
        { type: 'diff', path: '/w/a', oldText: 'a\n', newText: 'b\nc\n' },
      ],
      locations: rest.locations,
    },
  },
  {
    event: { kind: 'plan', entries },
    first: status({ text: '- [x] look\n- [ ] change', plan: entries }),
    plain: { kind: 'plan', entries },
    editor: { sessionUpdate: 'plan', entries },
  },
  {
    event: { kind: 'usage', ...usage },
    first: status({ usage }),
    plain: { kind: 'usage', ...usage },
    editor: { sessionUpdate: 'usage_update', used: 7, size: 100, cost: { amount: 0.5, currency: 'USD' } },
  },
  {
    event: { kind: 'mode', modeId: 'ask' },
    first: status({ modeId: 'ask' }),
    plain: { kind: 'mode', modeId: 'ask' },
    editor: { sessionUpdate: 'current_mode_update', currentModeId: 'ask' },
  },
  {
    event: { kind: 'commands', commands },
    first: status({ commands }),
    plain: { kind: 'commands', commands },
    editor: { sessionUpdate: 'available_commands_update', availableCommands: acpCommands },
  },
  {
    event: { kind: 'status', text: 'compacting' },
    first: status({ text: 'compacting' }),
    plain: { kind: 'status', text: 'compacting' },
    editor: chunk('agent_thought_chunk', 'compacting\n'),
  },
  {
    event: { kind: 'permission', title: 'edit a', decision: 'allowed', toolCallId: 'c' },
    first: status({ text: 'Allowed: edit a', status: 'permission_allowed', toolCallId: 'c' }),
    plain: { kind: 'permission', state: 'allowed', title: 'edit a', toolCallId: 'c' },
    editor: chunk('agent_thought_chunk', 'Allowed: edit a\n'),
  },
  {
    event: { kind: 'permission', title: 'edit b', decision: 'denied', toolCallId: 'd', reason: 'not now' },
    first: status({ text: 'Denied: edit b', status: 'permission_denied', toolCallId: 'd', reason: 'not now' }),
    plain: { kind: 'permission', state: 'denied', title: 'edit b', toolCallId: 'd', reason: 'not now' },
    editor: chunk('agent_thought_chunk', 'Denied: edit b\n'),
  },
  {
    event: { kind: 'permission', title: 'Where?', decision: 'answered', toolCallId: 'q' },
    first: status({ text: 'Answered: Where?', status: 'permission_answered', toolCallId: 'q' }),
    plain: { kind: 'permission', state: 'answered', title: 'Where?', toolCallId: 'q' },
    editor: chunk('agent_thought_chunk', 'Answered: Where?\n'),
  },
  {
    event: { kind: 'permission', title: 'When?', decision: 'declined', reason: 'ask Ann' },
    first: status({ text: 'Declined: When?', status: 'permission_declined', reason: 'ask Ann' }),
    plain: { kind: 'permission', state: 'declined', title: 'When?', reason: 'ask Ann' },
    editor: chunk('agent_thought_chunk', 'Declined: When?\n'),
  },
  {
    event: { kind: 'steer', text: 'use tabs' },
    first: status({ text: 'Message to the running turn: use tabs', steer: 'use tabs' }),
    plain: { kind: 'steer', text: 'use tabs' },
    editor: chunk('user_message_chunk', 'use tabs'),
  },
  {
    event: { kind: 'text', text: 'done' },
    first: { kind: 'text', type: 'text', text: 'done' },
    plain: { kind: 'text', text: 'done' },
    editor: chunk('agent_message_chunk', 'done'),
  },
];
const EVENTS = TABLE.map(({ event }) => event);

/** What the live socket tells of a session, up to a number. */
function followed(url: string, sessionId: string, lastSeq: number): Promise<readonly PlainUpdate[]> {
  const client = createTrestleClient({ url, token: MAIN_TOKEN });
  const seen: PlainUpdate[] = [];
  const { promise, resolve } = Promise.withResolvers<readonly PlainUpdate[]>();
  client.live.follow(
    sessionId,
    (update) => {
      seen.push(update);
      if (update.seq >= lastSeq) resolve(seen);
    },
    { afterSeq: 0 },
  );
  return promise.finally(() => client.close());
}

test('every kind that an agent tells reaches the first surface, a forwarded session, an editor, the second surface and a remote agent whole', async (t) => {
  const script = telling(EVENTS, { kind: 'completed', output: 'done', stopReason: 'end_turn' });
  const b = await startNode(t, { id: 'b', script });
  const a = await startNode(t, { id: 'a', peers: { b: b.url }, forwarding: everythingTo('b') });
  for (const [name, { url }] of Object.entries({ first: b, forwarded: a })) {
    const answer = await stream(url, { method: 'session.start', params: turn(`s-${name}`), id: 'x' }, asMain);
    const told = answer.updates.filter(({ structuredEvent }) => structuredEvent !== undefined);
    for (const update of answer.updates) assert.ok(Value.Check(SessionUpdate, update), JSON.stringify(update));
    assert.deepEqual(
      told.map(({ structuredEvent }) => structuredEvent),
      TABLE.map(({ first }) => first),
      name,
    );
    const kinds = new Set(told.map(({ structuredEvent }) => structuredEvent?.kind));
    assert.deepEqual([...kinds].sort(), ['status', 'text', 'thinking', 'tool_call'], 'the spec has four kinds');
    const toEditor = createEditorUpdates();
    assert.deepEqual(
      told.map((update) => toEditor(update as never)),
      TABLE.map(({ editor }) => editor),
      name,
    );
    const plain = told.map((update) => plainUpdate(JSON.stringify(update), 1));
    for (const update of plain) assert.ok(Value.Check(PlainUpdate, update), JSON.stringify(update));
    const bare = (updates: readonly PlainUpdate[]) =>
      updates.map(({ seq: _seq, at: _at, turnId: _turn, ...members }) => members);
    assert.deepEqual(
      bare(plain),
      TABLE.map((row) => row.plain),
    );
    const numbers = new Set(told.map(({ seq }) => seq));
    const live = (await followed(b.url, `s-${name}`, Math.max(...numbers))).filter(({ seq }) => numbers.has(seq));
    assert.deepEqual(
      bare(live),
      TABLE.map((row) => row.plain),
      `${name}, on the live socket of the node that runs it`,
    );
  }
  const far = createRemoteAgent({
    id: 'far',
    url: b.url,
    token: MAIN_TOKEN,
    clock: systemClock,
    randomness: systemRandomness,
    makeId,
    logger: silentLogger,
    isScratchFolder: () => true,
    hopLimit: 3,
  });
  const recorded = recordTurn('', 'hello');
  assert.equal((await supervised(far).startTurn(recorded)).kind, 'completed');
  assert.deepEqual(recorded.events, EVENTS);
});

test('agents that speak the Agent Client Protocol: diffs, plan, usage, mode and commands are read whole', () => {
  const { read } = createUpdateReader();
  const diff = { type: 'diff', path: '/w/a', oldText: 'a\n', newText: 'b\nc\n' };
  const cases: readonly [object, AgentEvent][] = [
    [
      {
        sessionUpdate: 'tool_call',
        toolCallId: 'c',
        title: 'edit a',
        kind: 'edit',
        status: 'completed',
        content: [diff],
      },
      { kind: 'tool_call', ...call, output: 'changed /w/a', changes },
    ],
    [
      { sessionUpdate: 'plan', entries },
      { kind: 'plan', entries },
    ],
    [
      { sessionUpdate: 'usage_update', used: 7, size: 100, cost: { amount: 0.5, currency: 'USD' } },
      { kind: 'usage', contextUsed: 7, contextSize: 100, costUsd: 0.5 },
    ],
    [
      { sessionUpdate: 'current_mode_update', currentModeId: 'ask' },
      { kind: 'mode', modeId: 'ask' },
    ],
    [
      { sessionUpdate: 'available_commands_update', availableCommands: acpCommands },
      { kind: 'commands', commands },
    ],
  ];
  for (const [update, event] of cases) assert.deepEqual(read(update), event);
});

test('Codex: diffs, exit codes, plan and usage are read whole', () => {
  const { read } = createCodexReader();
  const diff = '@@ -1 +1,2 @@\n-a\n+b\n+c\n';
  const item = {
    id: 'c',
    type: 'fileChange',
    status: 'completed',
    changes: [{ path: '/w/a', kind: { type: 'update' }, diff }],
  };
  const [edited] = read('item/completed', { item }).events;
  assert.deepEqual(edited?.kind === 'tool_call' && edited.changes, [
    { path: '/w/a', unified: diff, added: 2, removed: 1, truncated: false },
  ]);
  const command = { id: 'd', type: 'commandExecution', status: 'failed', command: 'x', exitCode: 3, durationMs: 9 };
  const [ran] = read('item/completed', { item: command }).events;
  assert.deepEqual(ran?.kind === 'tool_call' && [ran.exitCode, ran.durationMs], [3, 9]);
  const plan = [{ step: 'look', status: 'inProgress' }];
  assert.deepEqual(read('turn/plan/updated', { plan }).events, [
    { kind: 'plan', entries: [{ content: 'look', status: 'in_progress', priority: 'medium' }] },
  ]);
  const last = { inputTokens: 5, outputTokens: 2, totalTokens: 7, cachedInputTokens: 1 };
  const tokenUsage = { total: { ...last, inputTokens: 15, totalTokens: 17 }, last, modelContextWindow: 100 };
  const { costUsd: _cost, ...told } = usage;
  assert.deepEqual(read('thread/tokenUsage/updated', { tokenUsage }).events, [{ kind: 'usage', ...told }]);
});

test('the changes of a call are bounded: what does not fit keeps its figures', () => {
  const long = `${'x'.repeat(40_000)}\n`;
  const bounded = withinChangeBounds([changeOfTexts('/a', undefined, long), changeOfTexts('/b', 'y\n', long)]);
  assert.deepEqual(
    bounded.map(({ path, newText, added, removed, truncated }) => [path, newText?.length, added, removed, truncated]),
    [
      ['/a', 40_001, 1, 0, false],
      ['/b', undefined, 1, 1, true],
    ],
  );
  const { added, removed } = changeOfTexts('/c', 'one\ntwo\nthree\n', 'one\n2\n2.5\nthree\n');
  assert.deepEqual([added, removed], [2, 1], 'equal lines at both ends do not count');
});
