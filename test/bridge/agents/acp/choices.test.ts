import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  createUpdateReader,
  findModel,
  findReadOnlyMode,
  readChoice,
  readPermissionOptions,
  readUsage,
} from '../../../../src/bridge/agents/acp/acp-messages.ts';
import { saysUnknownConversation } from '../../../../src/bridge/agents/agent-text.ts';
import { choosePermission } from '../../../../src/bridge/agents/supervise-turn.ts';

const option = (optionId: string, kind: string) => ({ optionId, kind, name: kind });
const ONCE = option('1', 'allow_once');
const ALWAYS = option('2', 'allow_always');
const NO = option('3', 'reject_once');
const NEVER = option('4', 'reject_always');

for (const [policy, options, decision, optionId] of [
  ['allow', [ALWAYS, NO, ONCE], 'allowed', '1'],
  ['allow', [option('a', 'allow_once'), option('b', 'allow_once')], 'allowed', 'a'],
  ['allow', [NO, ALWAYS], 'allowed', '2'],
  ['allow', [NO, NEVER], 'denied', undefined],
  ['allow', [], 'denied', undefined],
  ['deny', [ONCE, NEVER, NO], 'denied', '3'],
  ['deny', [ONCE, NEVER], 'denied', '4'],
  ['deny', [ONCE, ALWAYS], 'denied', undefined],
] as const) {
  test(`B-63: ${policy} of [${options.map(({ kind }) => kind).join(', ')}] is ${decision} by ${optionId}`, () => {
    assert.deepEqual(choosePermission(policy, options), { decision, optionId });
  });
}

test('options of a permission that cannot be read are left out', () => {
  assert.deepEqual(readPermissionOptions([null, 1, { optionId: 'x' }, { optionId: 'y', kind: 'z' }]), [
    option('y', 'z'),
  ]);
  assert.deepEqual(readPermissionOptions('none'), []);
});

test('models are read from a session option, in groups too, or from the older list', () => {
  const select = { id: 'm', category: 'model', type: 'select', currentValue: 'a/x' };
  const values = ['a/x', 'b/y'].map((value) => ({ value, name: value }));
  const shown = ['a/x', 'b/y'].map((id) => ({ id, name: id }));
  const fromOption = { way: { kind: 'option', configId: 'm' }, current: 'a/x', values: ['a/x', 'b/y'], shown };
  assert.deepEqual(
    readChoice({ configOptions: [{ id: 'mode' }, { ...select, options: values }] }, 'model'),
    fromOption,
  );
  const groups = values.map((value) => ({ group: 'g', name: 'G', options: [value] }));
  assert.deepEqual(readChoice({ configOptions: [{ ...select, options: groups }] }, 'model'), fromOption);
  assert.deepEqual(readChoice({ models: { currentModelId: 'x', availableModels: [{ modelId: 'x' }] } }, 'model'), {
    way: { kind: 'method' },
    current: 'x',
    values: ['x'],
    shown: [{ id: 'x', name: 'x' }],
  });
  for (const nothing of [undefined, null, {}, { configOptions: null }, { models: { availableModels: 7 } }]) {
    assert.equal(readChoice(nothing, 'model'), undefined);
  }
});

test('a model is found by its whole name, or by its last part when only one has it', () => {
  const choice = { way: { kind: 'method' }, current: '', values: ['a/x', 'b/x', 'b/y'], shown: [] } as const;
  assert.deepEqual(
    ['a/x', 'y', 'x', 'z', ''].map((wanted) => findModel(choice, wanted)),
    ['a/x', 'b/y', undefined, undefined, undefined],
  );
});

test('DB-19: the read-only mode of each known agent is found by its name, and none where there is none', () => {
  const url = 'https://agentclientprotocol.com/protocol/session-modes#';
  for (const [modes, found] of [
    [['auto', 'read-only', 'full-access'], 'read-only'],
    [['default', 'acceptEdits', 'plan', 'bypassPermissions'], 'plan'],
    [['build', 'plan'], 'plan'],
    [[`${url}agent`, `${url}plan`, `${url}autopilot`], `${url}plan`],
    [['default', 'autoEdit', 'yolo'], undefined],
    [['airplane', 'planned', 'not-read-only'], undefined],
  ] as const) {
    const choice = readChoice(
      { modes: { currentModeId: modes[0], availableModes: modes.map((id) => ({ id })) } },
      'mode',
    );
    assert.equal(choice === undefined ? undefined : findReadOnlyMode(choice), found, modes.join());
  }
});

test('usage is read as the protocol has it, as Gemini CLI has it, or as the size of the conversation', () => {
  const quota = { token_count: { input_tokens: 2, output_tokens: 3 } };
  assert.deepEqual(readUsage({ usage: { inputTokens: 1, outputTokens: 2 } }, 9), {
    inputTokens: 1,
    outputTokens: 2,
    totalTokens: 3,
  });
  assert.deepEqual(readUsage({ _meta: { quota } }, 9), { inputTokens: 2, outputTokens: 3, totalTokens: 5 });
  assert.deepEqual(readUsage({}, 9), { totalTokens: 9 });
  assert.equal(readUsage({}, undefined), undefined);
  // Numbers that cannot be counts or costs are as if they were not told.
  for (const wrong of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, '7', null]) {
    assert.equal(readUsage({ usage: { inputTokens: wrong, outputTokens: 2 } }, undefined), undefined, String(wrong));
    const total = { inputTokens: 1, outputTokens: 2, totalTokens: wrong };
    assert.deepEqual(readUsage({ usage: total }, undefined), { inputTokens: 1, outputTokens: 2, totalTokens: 3 });
    const reader = createUpdateReader();
    assert.equal(reader.read({ sessionUpdate: 'usage_update', used: wrong, size: 9 }), undefined);
    assert.equal(reader.tokensInUse(), undefined);
    const told = { sessionUpdate: 'usage_update', used: 5, size: wrong, cost: { amount: -1, currency: 'USD' } };
    assert.deepEqual(reader.read(told), { kind: 'usage', contextUsed: 5 });
    assert.equal(reader.costUsd(), undefined);
  }
});

test('updates that make no sense are left out', () => {
  const { read } = createUpdateReader();
  const kinds = ['agent_message_chunk', 'tool_call', 'plan', 'notice', 'usage_update', '__proto__', 'constructor'];
  for (const update of [undefined, null, 'x', 7, [], {}, ...kinds.map((sessionUpdate) => ({ sessionUpdate }))]) {
    assert.equal(read(update), undefined);
  }
});

test('a picture or a sound of an agent is named in the text', () => {
  const { read } = createUpdateReader();
  const content = { type: 'image', mimeType: 'image/png', data: 'AAAA' };
  assert.deepEqual(read({ sessionUpdate: 'agent_message_chunk', content }), {
    ...{ kind: 'text', text: '[image image/png, 3 bytes]' },
  });
  const event = read({
    sessionUpdate: 'tool_call',
    toolCallId: 'c',
    title: 't',
    content: [{ type: 'content', content }],
  });
  assert.ok(event?.kind === 'tool_call' && event.output === '[image image/png, 3 bytes]');
});

test('the output of a tool is cut to what an event may carry', () => {
  const { read } = createUpdateReader();
  const event = read({ sessionUpdate: 'tool_call', toolCallId: 'c', title: 't', rawOutput: { text: 'x'.repeat(1e6) } });
  assert.ok(event?.kind === 'tool_call' && typeof event.output === 'string' && event.output.length < 70_000);
});

test('an agent says in its own way that it does not know a conversation', () => {
  for (const [code, message] of [
    [-32602, 'Invalid params: session not found: ses_1'],
    [-32602, 'Session not found: 1'],
    [-32600, 'thread not found: 1'],
    [-32600, 'no rollout found for thread id 1'],
    [-32002, 'Resource not found'],
    [-32603, 'Unknown session'],
  ] as const) {
    assert.ok(saysUnknownConversation(code, message), message);
  }
  for (const [code, message] of [
    [-32603, 'Internal error'],
    [-32000, 'Authentication required'],
    [429, 'Rate limit of this session exceeded'],
    [404, 'model not found'],
  ] as const) {
    assert.ok(!saysUnknownConversation(code, message), message);
  }
});
