import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AgentProvider } from '../../../src/bridge/agents/agent-provider.ts';
import { superviseTurn } from '../../../src/bridge/agents/supervise-turn.ts';
import { createTurnTraces } from '../../../src/bridge/agents/turn-trace.ts';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import type { EndedSpan } from '../../../src/platform/telemetry/spans.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { recordTurn } from './recorded-turn.ts';

function watched(run: AgentProvider['run']) {
  const clock = createFakeClock();
  const spans: EndedSpan[] = [];
  const trace = createTurnTraces({ spans: { add: (span) => spans.push(span) }, clock, randomness: systemRandomness });
  const provider: AgentProvider = {
    id: 'one',
    probe: async () => ({ status: 'ok', version: '' }),
    run,
    close: async () => undefined,
    stop: async () => undefined,
  };
  const turn = recordTurn('/work', 'x', { trace });
  const { signal } = new AbortController();
  return { clock, spans, end: superviseTurn({ provider, turn, signal, clock, keep: (work) => void work }) };
}

test('a turn and its tool calls are spans of one trace, with what the turn used and without titles', async () => {
  const call = { kind: 'tool_call', title: 'rm secret-file', toolKind: 'execute' } as const;
  const { spans, end } = watched(async (turn) => {
    assert.match(turn.trace?.context?.traceId ?? '', /^[0-9a-f]{32}$/);
    void turn.report({ ...call, toolCallId: 'a', status: 'pending' });
    void turn.report({ ...call, toolCallId: 'b', status: 'in_progress' });
    void turn.report({ ...call, toolCallId: 'a', status: 'completed' });
    return { kind: 'completed', stopReason: 'end_turn', usage: { inputTokens: 3, outputTokens: 2, costUsd: 0.5 } };
  });
  await end;
  const [first, left, whole] = spans;
  assert.deepEqual(
    spans.map(({ name, failed }) => [name, failed]),
    [
      ['execute_tool execute', false],
      ['execute_tool execute', true],
      ['invoke_agent one', false],
    ],
  );
  assert.equal(whole?.parent, undefined);
  assert.deepEqual([first?.parent, left?.parent], [whole?.context, whole?.context]);
  assert.equal(whole?.attributes['gen_ai.usage.input_tokens'], 3);
  assert.equal(whole?.attributes['trestle.cost.usd'], 0.5);
  assert.equal(JSON.stringify(spans).includes('secret-file'), false);
});

test('a turn that fails, or that we have failed, is a failed span', async () => {
  const failed = watched(async () => ({ kind: 'failed', code: 'AGENT_EXITED', error: 'gone' }));
  await failed.end;
  assert.deepEqual([failed.spans[0]?.failed, failed.spans[0]?.attributes['error.type']], [true, 'AGENT_EXITED']);
  const broken = watched(() => Promise.reject(new Error('ours')));
  await assert.rejects(broken.end);
  assert.equal(broken.spans[0]?.failed, true);
});
