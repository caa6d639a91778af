import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AgentEvent } from '../../../src/bridge/agents/agent-provider.ts';
import { createFinalText, cutText, MAX_OUTPUT_LENGTH } from '../../../src/bridge/agents/agent-text.ts';
import { createLongTextReader, createOutputTrace } from '../../../src/bridge/sessions/update-log.ts';
import { eventUpdates } from '../../../src/bridge/sessions/update-text.ts';

const said = (text: string): AgentEvent => ({ kind: 'text', text });
const toolCall: AgentEvent = { kind: 'tool_call', toolCallId: 't', title: '', status: 'completed', toolKind: 'read' };
const stepStarted: AgentEvent = { kind: 'stage', event: 'multi_agent_step_started', message: '', members: {} };
const LIMIT = 'x'.repeat(MAX_OUTPUT_LENGTH);

test('DB-30: only a final text of more characters than the limit is long, and its first update is known', () => {
  const trace = createOutputTrace();
  trace.note(said(LIMIT), 3, undefined);
  assert.deepEqual(trace.longTexts(), []);
  trace.note(said('!'), 4, undefined);
  assert.deepEqual(trace.longTexts(), [{ stepIndex: undefined, firstSeq: 3, length: MAX_OUTPUT_LENGTH + 1 }]);
  trace.note(toolCall, 5, undefined);
  assert.equal(trace.longTexts().length, 1, 'a turn may end with a tool call');
  trace.note(said('short'), 6, undefined);
  assert.deepEqual(trace.longTexts(), []);
});

test('DB-30: each turn of each step has a final text of its own', () => {
  const trace = createOutputTrace();
  const [first, second] = [0, 1].map((stepIndex) => ({ stepIndex, providerId: 'agent' }));
  for (const [seq, step] of [first, second, first].entries()) {
    trace.note(stepStarted, 10 * seq, step);
    trace.note(said(step === first ? LIMIT : 'short'), 10 * seq + 1, step);
    trace.note(said('!'), 10 * seq + 2, step);
  }
  const length = MAX_OUTPUT_LENGTH + 1;
  assert.deepEqual(trace.longTexts(), [
    { stepIndex: 0, firstSeq: 1, length },
    { stepIndex: 0, firstSeq: 21, length },
  ]);
});

test('DB-30: the output of a result is the beginning of the final text, up to the limit, in whole characters', () => {
  const text = createFinalText();
  text.add(said('before'));
  text.add(toolCall);
  text.add(said(LIMIT.slice(1)));
  text.add(said('🙂'));
  text.add(said('after'));
  assert.equal(text.value(), LIMIT.slice(1));
  text.add(toolCall);
  assert.equal(text.value(), LIMIT.slice(1), 'also when the value was asked for before');
  text.add(said('end'));
  assert.equal(text.value(), 'end');
  assert.deepEqual([cutText('a🙂', 1), cutText('a🙂', 2), cutText('a🙂', 3)], ['a', 'a', 'a🙂']);
});

test('a long text of very many short updates is read in few parts, which end in whole characters', async () => {
  const origin = { sessionId: 's', threadId: 't', turnId: 'turn-1' };
  const words = Array.from({ length: 50_000 }, (_, index) => (index % 2 === 0 ? '12 \ud83d' : '\ude42'));
  const updates = words.flatMap((text) => eventUpdates(origin, { kind: 'text', text }));
  const size = 1000;
  const readManyAfter = async (sessionKey: string, afterSeq: number) => {
    const stored = updates.slice(afterSeq, afterSeq + size).map((make, index) => make(afterSeq + 1 + index));
    const last = afterSeq + stored.length;
    const row = { session_key: sessionKey, first_seq: afterSeq + 1, last_seq: last, version: 2, at: 0 };
    return stored.length === 0 ? [] : [{ ...row, updates: stored.join('\n') }];
  };
  const read = createLongTextReader({ flush: async () => undefined }, { readManyAfter });
  const text = words.join('');
  const { chunks } = read('ses_1', { stepIndex: undefined, firstSeq: 1, length: text.length });
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  assert.ok(parts.length < 5, `${parts.length} parts`);
  assert.equal(Buffer.concat(parts).toString(), text);
});
