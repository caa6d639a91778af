import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AgentEvent } from '../../../src/bridge/agents/agent-provider.ts';
import { eventUpdates, stageUpdate, wireText } from '../../../src/bridge/sessions/update-text.ts';

const origin = { sessionId: 's"1', threadId: 't', turnId: 'turn-1' };
const head = { ...origin, seq: 7 };
const status = { ...head, type: 'status', pending: true, error: false };

/** As clients get them. */
function toUpdates(event: AgentEvent): Record<string, unknown>[] {
  return eventUpdates(origin, event).map((make, index) => JSON.parse(wireText(make(7 + index))));
}

test('a stage is a status with pending and error', () => {
  for (const [stage, pending, error] of [
    ['queued', true, false],
    ['started', true, false],
    ['running', true, false],
    ['completed', false, false],
    ['failed', false, true],
    ['cancelled', false, false],
  ] as const) {
    const update = JSON.parse(stageUpdate(origin, stage, 'words')(7));
    assert.deepEqual(update, { ...head, type: 'status', event: stage, message: 'words', pending, error });
  }
});

test('B-67: every event of an agent becomes one of four kinds, named twice, in its update', () => {
  const text = 'a "quoted"\n\u2028 text';
  const cases: [AgentEvent, object][] = [
    [
      { kind: 'text', text },
      {
        ...head,
        type: 'delta',
        event: 'delta',
        delta: text,
        text,
        message: text,
        structuredEvent: { kind: 'text', type: 'text', text },
      },
    ],
    [
      { kind: 'thinking', text },
      { ...status, event: 'thinking', message: text, structuredEvent: { kind: 'thinking', type: 'thinking', text } },
    ],
    [
      { kind: 'status', text: 'plan' },
      {
        ...status,
        event: 'status',
        message: 'plan',
        structuredEvent: { kind: 'status', type: 'status', text: 'plan' },
      },
    ],
    [
      {
        kind: 'tool_call',
        toolCallId: 'c',
        title: 'Read a',
        status: 'completed',
        toolKind: 'read',
        output: { a: 1 },
        locations: [{ path: '/a', line: 2 }],
      },
      {
        ...status,
        event: 'tool_call',
        message: 'Read a',
        structuredEvent: {
          kind: 'tool_call',
          type: 'tool_call',
          toolCallId: 'c',
          title: 'Read a',
          status: 'completed',
          toolKind: 'read',
          output: { a: 1 },
          locations: [{ path: '/a', line: 2 }],
        },
      },
    ],
    [
      { kind: 'permission', title: 'Run ls', decision: 'denied', toolCallId: 'c' },
      {
        ...status,
        event: 'status',
        message: 'Denied: Run ls',
        structuredEvent: {
          kind: 'status',
          type: 'status',
          text: 'Denied: Run ls',
          status: 'permission_denied',
          toolCallId: 'c',
        },
      },
    ],
  ];
  for (const [event, expected] of cases) assert.deepEqual(toUpdates(event), [expected]);
});

test('B-67: what an agent adds to an event of a known kind does not pass', () => {
  const event = { kind: 'tool_call', toolCallId: 'c', title: 't', status: 'pending', toolKind: 'read', secret: 1 };
  assert.doesNotMatch(JSON.stringify(toUpdates(event as unknown as AgentEvent)), /secret/);
});

test('DB-25: a long text is sent in pieces of at most 16 KiB that end between characters', () => {
  const text = `a${'🙂'.repeat(20_000)}`;
  for (const kind of ['text', 'thinking'] as const) {
    const told = toUpdates({ kind, text }).map(({ message }) => String(message));
    assert.equal(told.join(''), text);
    assert.ok(told.length === 3 && told.every((piece) => piece.length <= 16 * 1024 && piece.isWellFormed()));
  }
});

test('DB-25: the text of a delta is stored once, and what was stored before that is sent as it is', () => {
  const text = 'x'.repeat(1000);
  const [make] = eventUpdates(origin, { kind: 'text', text });
  const stored = make?.(7) ?? '';
  assert.ok(stored.length < 1200);
  assert.equal(wireText(wireText(stored)), wireText(stored));
});
