import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  createUpdateReader,
  findModel,
  findReadOnlyMode,
  readChoice,
  readPermissionOptions,
  readUsage,
} from '../../src/bridge/agents/acp/acp-messages.ts';
import type { AgentEvent } from '../../src/bridge/agents/agent-provider.ts';
import { asObject } from '../../src/bridge/agents/agent-text.ts';
import { toChunk } from '../../src/bridge/agents/builtin/complete-over-http.ts';
import { emptyAnswer, readAnswer, toMessage } from '../../src/bridge/agents/builtin/read-answer.ts';
import { createCodexReader, readRequest } from '../../src/bridge/agents/codex/codex-messages.ts';
import { findWrongValue, readForm, toSchema } from '../../src/bridge/agents/question-form.ts';
import { readTurnEnd, readUpdate } from '../../src/bridge/agents/remote/remote-messages.ts';
import { choosePermission } from '../../src/bridge/agents/supervise-turn.ts';
import { readPeerDocument } from '../../src/bridge/forwarding/call-node.ts';
import fc from '../kit/properties.ts';
import { anyText, assertNothingPolluted, jsonWith, runs } from './any-input.ts';

/** What every session relies on: texts are texts, and all of it can be written down. */
function assertEvent(event: AgentEvent | undefined): void {
  if (event === undefined) return;
  const texts: unknown[] = [event.kind];
  if (event.kind === 'tool_call') {
    texts.push(event.title, event.toolCallId, event.status, event.toolKind);
    for (const { path, line } of event.locations ?? []) {
      texts.push(path);
      assert.ok(line === undefined || typeof line === 'number');
    }
  } else if (event.kind === 'permission') texts.push(event.title, event.decision);
  else if (event.kind === 'stage') texts.push(event.message);
  else if (event.kind === 'question') texts.push(event.title, event.permissionId);
  else if (event.kind === 'mode') texts.push(event.modeId);
  else if (event.kind === 'plan') texts.push(...event.entries.flatMap((entry) => Object.values(entry)));
  else if (event.kind === 'commands') texts.push(...event.commands.flatMap((command) => Object.values(command)));
  else if (event.kind !== 'usage') texts.push(event.text);
  for (const text of texts) assert.equal(typeof text, 'string');
  assert.equal(typeof JSON.stringify(event), 'string');
  assertNothingPolluted();
}

const update = jsonWith([
  ...['sessionUpdate', 'agent_message_chunk', 'agent_thought_chunk', 'tool_call', 'tool_call_update', 'plan', 'notice'],
  ...[
    'usage_update',
    'compaction_update',
    'content',
    'type',
    'text',
    'toolCallId',
    'title',
    'kind',
    'status',
    'entries',
  ],
  ...[
    'rawInput',
    'rawOutput',
    'locations',
    'path',
    'line',
    'diff',
    'used',
    'description',
    'failed',
    'completed',
    'name',
  ],
]);

test('G18: updates of an ACP agent, whatever they hold, are events of ours or nothing', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.boolean(), update), { maxLength: 6 }), (updates) => {
      const reader = createUpdateReader();
      for (const [isDressed, value] of updates) {
        const kind = { sessionUpdate: 'tool_call', toolCallId: 'c' };
        assertEvent(reader.read(isDressed ? { ...kind, ...asObject(value) } : value));
      }
      assert.ok(['number', 'undefined'].includes(typeof reader.tokensInUse()));
    }),
    runs(300),
  );
});

const offer = jsonWith([
  ...['optionId', 'kind', 'allow_once', 'reject_once', 'configOptions', 'category', 'model', 'type', 'select', 'id'],
  ...['currentValue', 'options', 'value', 'models', 'availableModels', 'modelId', 'currentModelId', 'usage', '_meta'],
  ...['inputTokens', 'outputTokens', 'quota', 'token_count', 'input_tokens', 'output_tokens'],
]);

test('G18: what an ACP agent offers and counts, whatever it holds, is read as far as it can be', () => {
  const choice = fc.oneof(
    offer,
    offer.map((value) => ({
      configOptions: [{ category: 'model', type: 'select', id: 'm', ...asObject(value), options: [value] }],
    })),
  );
  fc.assert(
    fc.property(choice, anyText, (value, wanted) => {
      for (const policy of ['allow', 'deny'] as const) {
        const { decision, optionId } = choosePermission(policy, readPermissionOptions(value));
        assert.ok(policy === 'allow' || decision === 'denied');
        assert.ok(optionId === undefined || typeof optionId === 'string');
      }
      const models = readChoice(value, 'model');
      if (models !== undefined) {
        assert.ok([models.current, ...models.values].every((text) => typeof text === 'string'));
        findModel(models, wanted);
        findReadOnlyMode(models);
      }
      for (const count of Object.values(readUsage(value, undefined) ?? {})) assert.equal(typeof count, 'number');
    }),
    runs(300),
  );
});

const METHODS = [
  ...['item/started', 'item/completed', 'item/agentMessage/delta', 'item/reasoning/textDelta', 'turn/plan/updated'],
  ...['item/commandExecution/outputDelta', 'warning', 'model/rerouted', 'thread/tokenUsage/updated', 'error'],
  ...['turn/completed', 'toString', '__proto__', 'constructor'],
];
const APPROVALS = [
  'item/commandExecution/requestApproval',
  'item/fileChange/requestApproval',
  'item/permissions/requestApproval',
];
const ITEM_TYPES = [
  'commandExecution',
  'fileChange',
  'mcpToolCall',
  'dynamicToolCall',
  'collabAgentToolCall',
  'webSearch',
  'imageView',
  'agentMessage',
  'reasoning',
  'plan',
];
const codex = jsonWith([
  ...[
    ...ITEM_TYPES,
    'item',
    'itemId',
    'delta',
    'id',
    'type',
    'text',
    'summary',
    'status',
    'completed',
    'command',
    'cwd',
  ],
  ...['changes', 'path', 'server', 'tool', 'arguments', 'result', 'error', 'query', 'plan', 'step', 'message', 'turn'],
  ...['tokenUsage', 'total', 'last', 'inputTokens', 'willRetry', 'fromModel', 'toModel', 'reason', 'permissions'],
]);
const FIELDS = ['command', 'cwd', 'changes', 'server', 'tool', 'query', 'path', 'summary', 'text', 'status', 'prompt'];
const item = fc
  .tuple(fc.constantFrom(...ITEM_TYPES), fc.dictionary(fc.constantFrom(...FIELDS), codex))
  .map(([type, fields]) => ({ item: { ...fields, type, id: 'i' } }));
const TOLD = [
  'itemId',
  'delta',
  'plan',
  'message',
  'fromModel',
  'toModel',
  'reason',
  'command',
  'error',
  'turn',
  'tokenUsage',
];
const params = fc.oneof(codex.map(asObject), item, fc.dictionary(fc.constantFrom(...TOLD), codex));

test('G18: notifications and questions of Codex, whatever they hold, are events of ours or nothing', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(fc.constantFrom(...METHODS), params), { maxLength: 6 }), params, (told, asked) => {
      const reader = createCodexReader();
      for (const [method, value] of told) {
        const { events, end } = reader.read(method, value);
        for (const event of events) assertEvent(event);
        if (end !== undefined) assert.equal(typeof JSON.stringify(end), 'string');
      }
      for (const method of APPROVALS) {
        const { question, accept } = readRequest(method, asked) ?? assert.fail(method);
        assertEvent({
          kind: 'permission',
          title: question.title,
          decision: 'allowed',
          toolCallId: question.toolCallId,
        });
        assert.equal(typeof JSON.stringify(accept({})), 'string');
      }
      for (const method of METHODS) assert.equal(readRequest(method, asked), undefined);
    }),
    runs(300),
  );
});

const schema = jsonWith([
  ...['properties', 'required', 'type', 'string', 'integer', 'array', 'boolean', 'enum', 'enumNames', 'oneOf', 'anyOf'],
  ...['items', 'const', 'title', 'default', 'minLength', 'maximum', 'format', 'email', 'pattern', '__proto__', 'a'],
]);

test('G18: a form of an agent, whatever it holds, is shown or not, and no answer to it throws', () => {
  fc.assert(
    fc.property(
      schema,
      fc.dictionary(fc.constantFrom('a', '__proto__', 'b'), schema),
      schema,
      (one, fields, answer) => {
        for (const form of [readForm(one), readForm({ type: 'object', properties: fields })]) {
          if (form === undefined) continue;
          const wrong = findWrongValue(form, asObject(answer) as never);
          assert.ok(wrong === undefined || typeof wrong === 'string');
          assert.deepEqual(readForm(toSchema(form)), form);
        }
        for (const method of ['mcpServer/elicitation/request', 'item/tool/requestUserInput']) {
          const asked = readRequest(method, asObject(one));
          assert.equal(typeof asked?.question.title, 'string');
        }
        assertNothingPolluted();
      },
    ),
    runs(300),
  );
});

const remote = jsonWith([
  ...['structuredEvent', 'kind', 'text', 'thinking', 'status', 'tool_call', 'toolCallId', 'title', 'locations', 'path'],
  ...['delta', 'type', 'output', 'usage', 'inputTokens', 'code', 'error', 'result', 'outcome', 'not_started', 'data'],
  ...['completed', 'cancelled', 'failed', 'EMPTY_OUTPUT', 'permission_allowed', 'message', 'in_progress', 'line'],
]);

test('G18: what another bridge says, whatever it holds, is an event, an end and an answer', () => {
  fc.assert(
    fc.property(remote, fc.integer({ min: 100, max: 599 }), anyText, (value, status, text) => {
      assertEvent(readUpdate(asObject(value)));
      assertEvent(readUpdate({ structuredEvent: value }));
      const end = readTurnEnd({ kind: 'result', result: asObject(value) }, 'agent.far');
      assert.equal(typeof JSON.stringify(end), 'string');
      for (const body of [JSON.stringify(value), text]) {
        const answer = readPeerDocument(status, body);
        assert.ok(['result', 'error', 'failed'].includes(answer.kind));
      }
    }),
    runs(300),
  );
});

const chunk = jsonWith([
  ...['choices', 'delta', 'content', 'refusal', 'reasoning', 'reasoning_content', 'reasoning_signature', 'tool_calls'],
  ...['index', 'id', 'function', 'name', 'arguments', 'finish_reason', 'usage', 'prompt_tokens', 'completion_tokens'],
]);

test("G18: pieces of a model's answer, whatever they hold, are a message or nothing", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(chunk, { maxLength: 5 }), async (values) => {
      const answer = emptyAnswer();
      const pieces = values.map((value) => toChunk({ choices: [{ delta: value }], ...asObject(value) }));
      await readAnswer(streamOf(pieces), answer, (event) => {
        assertEvent(event);
        return undefined;
      });
      const message = toMessage(answer, (prefix) => `${prefix}made`);
      if (message !== undefined) assert.ok(message.content === null || typeof message.content === 'string');
    }),
    runs(300),
  );
});

async function* streamOf<Piece>(pieces: readonly Piece[]): AsyncGenerator<Piece> {
  yield* pieces;
}
