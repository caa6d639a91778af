import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConversationMessage } from '../../../../src/bridge/agents/builtin/complete-chat.ts';
import { fitConversation, repairConversation } from '../../../../src/bridge/agents/builtin/conversation.ts';
import fc from '../../../kit/properties.ts';

const user = (content: string): ConversationMessage => ({ role: 'user', content });
const result = (id: string, content = 'out'): ConversationMessage => ({ role: 'tool', tool_call_id: id, content });
const calls = (...ids: string[]): ConversationMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'read_file', arguments: '{}' } })),
});

/** Any mixture of messages, as a crash, a cut or a bug may have left it. */
const anyConversation = fc.array(
  fc.oneof(
    fc.string().map(user),
    fc.uniqueArray(fc.constantFrom('a', 'b', 'c'), { maxLength: 3 }).map((ids) => calls(...ids)),
    fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.string({ maxLength: 2000 })).map(([id, text]) => result(id, text)),
  ),
  { maxLength: 30 },
);

function assertWhole(messages: readonly ConversationMessage[]): void {
  let open: string[] = [];
  for (const message of messages) {
    if (message.role === 'tool') {
      assert.equal(message.tool_call_id, open.shift(), 'a result stands where its call asks for it');
      continue;
    }
    assert.deepEqual(open, [], 'no call is left without a result');
    open = message.role === 'assistant' ? (message.tool_calls ?? []).map(({ id }) => id) : [];
  }
  assert.deepEqual(open, []);
}

test('a tool call without a result gets one that says so', () => {
  const repaired = repairConversation([user('x'), calls('a', 'b'), result('a'), user('y')]);
  assert.deepEqual(
    repaired.map(({ role }) => role),
    ['user', 'assistant', 'tool', 'tool', 'user'],
  );
  assert.match(String(repaired[3]?.content), /^Interrupted/);
});

test('whatever is left of a conversation can be continued after its repair', () => {
  fc.assert(fc.property(anyConversation, (messages) => assertWhole(repairConversation(messages))));
});

test('a conversation that fits is sent as it is', () => {
  const messages = [user('x'), calls('a'), result('a', 'y'.repeat(1000))];
  assert.equal(fitConversation(messages, 2000), messages);
});

test('of a long conversation the oldest tool outputs go first, then the oldest steps; the last ones stay whole', () => {
  const steps = Array.from({ length: 10 }, (_, index) => [
    calls(`c${index}`),
    result(`c${index}`, `${index}`.repeat(1000)),
  ]);
  const messages = [user('first'), user('second'), ...steps.flat()];
  const trimmed = fitConversation(messages, 7500);
  assert.equal(trimmed.length, messages.length);
  const outputs = trimmed.filter(({ role }) => role === 'tool').map(({ content }) => content?.length === 1000);
  assert.deepEqual(outputs, [false, false, false, true, true, true, true, true, true, true]);
  const few = fitConversation(messages, 100);
  assert.deepEqual(
    few.map(({ role }) => role),
    ['user', ...Array.from({ length: 4 }, () => ['assistant', 'tool']).flat()],
  );
  assert.equal(few[0]?.content, 'second');
});

test('what is sent is always whole, ends as the conversation does, and fits when that can be had', () => {
  const limits = fc.integer({ min: 0, max: 5000 });
  fc.assert(
    fc.property(anyConversation, limits, (messages, limit) => {
      const repaired = repairConversation(messages);
      const sent = fitConversation(repaired, limit);
      assertWhole(sent);
      assert.deepEqual(sent.at(-1), repaired.at(-1));
      assert.ok(sent.length <= repaired.length);
    }),
  );
});
