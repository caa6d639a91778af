import assert from 'node:assert/strict';
import { test } from 'node:test';
import { foldUpdates, groupLooks, NOTHING } from '../../src/console/live/fold-updates.ts';
import fc from '../kit/properties.ts';

type Update = Parameters<typeof foldUpdates>[1][number];

const at = 1000;
const update = (seq: number, members: object): Update => ({ seq, at, turnId: 't1', ...members }) as Update;

test('text that follows upon text is one item, a tool call is one item however often it is reported', () => {
  const call = { kind: 'tool_call', toolCallId: 'c', title: 'npm test', toolKind: 'execute' };
  const { items, plan, usage, lastSeq } = foldUpdates(NOTHING, [
    update(1, { kind: 'started', message: '', prompt: 'Test it' }),
    update(2, { kind: 'thinking', text: 'hm' }),
    update(3, { kind: 'text', text: 'Hel' }),
    update(4, { kind: 'text', text: 'lo' }),
    update(5, { ...call, status: 'in_progress', input: { command: 'npm test' } }),
    update(6, { kind: 'text', text: 'more' }),
    update(7, { ...call, status: 'completed', output: 'ok', exitCode: 0 }),
    update(8, { kind: 'plan', entries: [{ content: 'do', status: 'pending', priority: 'low' }] }),
    update(9, { kind: 'usage', inputTokens: 3 }),
    update(10, { kind: 'permission', state: 'open', title: 'rm -rf', permissionId: 'perm_1' }),
    update(11, { kind: 'permission', state: 'denied', title: 'rm -rf' }),
    update(12, { kind: 'a_kind_of_the_future', message: '' }),
    update(13, { kind: 'completed', message: 'done' }),
  ]);
  assert.deepEqual(
    items.map(({ kind }) => kind),
    ['start', 'thinking', 'text', 'tool', 'text', 'note', 'end'],
  );
  const [start, , text, tool] = items;
  assert.equal(start?.kind === 'start' && start.prompt, 'Test it', 'also where the turn itself is not known');
  assert.equal(text?.kind === 'text' && text.text, 'Hello');
  assert.deepEqual(tool?.kind === 'tool' && [tool.call.status, tool.call.output, tool.call.input], [
    'completed',
    'ok',
    { command: 'npm test' },
  ]);
  assert.deepEqual([plan.length, usage?.inputTokens, lastSeq], [1, 3, 13]);
});

test('a decision says who answered or which rule did, where that is known', () => {
  const decided = { kind: 'permission', state: 'allowed', title: 'npm test', permissionId: 'perm_1' };
  const rule = { ruleId: 'rule_1', text: 'npm test' };
  const { items } = foldUpdates(NOTHING, [
    update(1, { ...decided, answeredBy: 'user:ada' }),
    update(2, { ...decided, rule }),
    update(3, decided),
  ]);
  assert.deepEqual(
    items.map((item) => item.kind === 'note' && [item.text, item.decidedBy]),
    [
      ['Allowed: npm test', { answeredBy: 'user:ada' }],
      ['Allowed: npm test', { rule }],
      ['Allowed: npm test', undefined],
    ],
  );
});

test('three and more calls in a row that only look at something are one line; failed, running and other calls are not in it', () => {
  const call = (seq: number, toolKind: string, members: object = {}) =>
    update(seq, {
      kind: 'tool_call',
      toolCallId: `c${seq}`,
      title: `${seq}`,
      toolKind,
      status: 'completed',
      ...members,
    });
  const shown = groupLooks(
    foldUpdates(NOTHING, [
      ...[call(1, 'read'), call(2, 'read'), call(3, 'edit')],
      ...[call(4, 'read'), call(5, 'search'), call(6, 'read')],
      ...[call(7, 'read', { status: 'failed' }), call(8, 'read'), call(9, 'read'), call(10, 'read')],
      ...[call(11, 'read', { turnId: 't2' }), call(12, 'read', { turnId: 't2', status: 'in_progress' })],
    ]).items,
  );
  assert.deepEqual(
    shown.map((item) => (item.kind === 'group' ? item.calls.map(({ title }) => title).join('+') : item.key)),
    ['1', '2', '3', '4+5+6', '7', '8+9+10', '11', '12'],
  );
  assert.equal(shown[3]?.key, '4', 'it is the same item while it grows');
});

test('steps of a run that write at the same time do not end up in one text', () => {
  const { items } = foldUpdates(NOTHING, [
    update(1, { kind: 'text', text: 'a', stepIndex: 0, providerId: 'codex' }),
    update(2, { kind: 'text', text: 'b', stepIndex: 1, providerId: 'gemini' }),
  ]);
  assert.equal(items.length, 2);
});

test('a message that is removed while another turn writes is a note, and does not cut the text in two', () => {
  const { items } = foldUpdates(NOTHING, [
    update(1, { kind: 'started', message: '' }),
    update(2, { kind: 'text', text: 'Hel' }),
    update(3, { kind: 'cancelled', message: 'removed', turnId: 't2' }),
    update(4, { kind: 'text', text: 'lo' }),
    update(5, { kind: 'cancelled', message: 'stopped' }),
  ]);
  assert.deepEqual(
    items.map((item) => ('text' in item ? item.text : item.kind)),
    ['start', 'removed', 'Hello', 'end'],
  );
  assert.deepEqual(
    items.map((item) => item.kind === 'note' && item.isUnsent),
    [false, true, false, false],
  );
});

const kinds = fc.constantFrom(
  { kind: 'text', text: 'x' },
  { kind: 'thinking', text: 'y' },
  { kind: 'tool_call', toolCallId: 'a', title: 'A', toolKind: 'read', status: 'completed' },
  { kind: 'tool_call', toolCallId: 'b', title: 'B', toolKind: 'edit', status: 'in_progress' },
  { kind: 'started', message: '' },
  { kind: 'failed', message: 'no', code: 'AGENT_EXITED' },
  { kind: 'plan', entries: [] },
  { kind: 'cancelled', message: 'removed', turnId: 't2' },
);

test('any split into pages, and any page that comes twice, gives the same items', () => {
  fc.assert(
    fc.property(fc.array(kinds, { maxLength: 40 }), fc.array(fc.nat(40), { maxLength: 6 }), (members, cuts) => {
      const updates = members.map((one, index) => update(index + 1, one));
      const whole = foldUpdates(NOTHING, updates);
      const ends = [...cuts, updates.length].sort((one, other) => one - other);
      let folded = NOTHING;
      // Each page begins where the first one did: what is there already changes nothing.
      for (const end of ends) folded = foldUpdates(folded, updates.slice(0, end));
      assert.deepEqual(folded, whole);
    }),
    { numRuns: 200, endOnFailure: true },
  );
});
