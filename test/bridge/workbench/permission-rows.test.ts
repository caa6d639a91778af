import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PermissionQuestion } from '../../../src/bridge/agents/agent-provider.ts';
import type { PermissionAnswer } from '../../../src/bridge/contract/workbench.ts';
import type { PermissionRow } from '../../../src/bridge/storage/bridge-schema.ts';
import {
  type AskingTurn,
  endOf,
  replyOf,
  toAsked,
  toRow,
  toRule,
  toRuleRow,
  toStoredRule,
  toView,
} from '../../../src/bridge/workbench/permission-rows.ts';

const DAY_MS = 86_400_000;
const TURN: AskingTurn = {
  ...{ sessionKey: 'k', sessionId: 's', owner: 'main', turnId: 'turn', folder: '/w' },
  ...{ setting: 'ask', editor: undefined },
};
const OPTIONS = [
  { optionId: 'always', name: 'Always', kind: 'allow_always' },
  { optionId: 'yes', name: 'Allow', kind: 'allow_once' },
  { optionId: 'no', name: 'Reject', kind: 'reject_once' },
];
const form = { fields: [{ name: 'place', type: 'text', required: true }] } as unknown as NonNullable<
  PermissionQuestion['form']
>;
const rowOf = (changes: Partial<PermissionQuestion> = {}, more: Partial<PermissionRow> = {}): PermissionRow => {
  const question = { toolCallId: 'call', title: 'run make', toolKind: 'execute', options: OPTIONS, ...changes };
  return { ...toRow(TURN, question, 'perm_1', 'own', 1000, 500), ...more };
};
const end = (row: PermissionRow, answer: PermissionAnswer) => endOf(row, answer, 'user:a', 2000);

test('a request is stored with its turn, what it asks for, and when it expires', () => {
  assert.deepEqual(toView(rowOf({ input: { command: 'make' } })), {
    ...{ permissionId: 'perm_1', sessionId: 's', owner: 'main', turnId: 'turn', toolCallId: 'call' },
    ...{ title: 'run make', toolKind: 'execute', folder: '/w', input: { command: 'make' }, options: OPTIONS },
    ...{ form: null, state: 'open', optionId: '', scope: '', reason: '', answeredBy: '' },
    ...{ createdAt: 1000, expiresAt: 1500, answeredAt: null },
  });
  const { session_key, instance, tenant, given } = rowOf();
  assert.deepEqual([session_key, instance, tenant, given], ['k', 'own', 'default', '']);
  assert.equal(toView(rowOf()).input, null);
  assert.deepEqual(toView(rowOf({ form })).form, form);
});

test('what is too long for a request is cut to whole characters', () => {
  const long = toView(rowOf({ title: `${'x'.repeat(4095)}😀`, toolKind: 'a\0b\0c' }));
  assert.deepEqual([long.title, long.toolKind], [`${'x'.repeat(4095)}\ufffd`, 'abc']);
  const fits = { text: 'x'.repeat(16 * 1024 - '{"text":""}'.length) };
  assert.deepEqual(toView(rowOf({ input: fits })).input, fits);
  const cut = toView(rowOf({ input: { command: 'x'.repeat(20_000) } })).input;
  assert.equal(typeof cut, 'string');
  assert.equal((cut as string).length, 16 * 1024);
  const written = toView(rowOf({ input: { path: 'a', content: `${'x'.repeat(2047)}😀${'x'.repeat(20_000)}` } })).input;
  assert.deepEqual(written, { path: 'a', content: `${'x'.repeat(2047)}… (22049 characters)` });
  const texts = toView(rowOf({ input: { all: Array.from({ length: 2000 }, () => 'a text') } })).input;
  assert.equal(typeof texts, 'string');
  const many = Array.from({ length: 20 }, (_, index) => ({ optionId: `o${index}`, name: '', kind: 'allow_once' }));
  assert.equal(toView(rowOf({ options: many })).options.length, 16);
});

test('an open request shows what a client needs to answer it, and no more', () => {
  assert.deepEqual(toAsked(rowOf()), {
    ...{ permissionId: 'perm_1', title: 'run make', toolKind: 'execute', toolCallId: 'call', options: OPTIONS },
    expiresAt: 1500,
  });
  const asked = toAsked(rowOf({ toolCallId: '', form, options: [] }));
  assert.deepEqual(['toolCallId' in asked, asked.form], [false, form]);
});

test('a permission is answered by one of its options, or by a decision that stands for one', () => {
  const state = (answer: PermissionAnswer, options = OPTIONS) => {
    const { end: ended } = end(rowOf({ options }), answer);
    return [ended.state, ended.option_id];
  };
  assert.deepEqual(state({ optionId: 'always' }), ['allowed', 'always']);
  assert.deepEqual(state({ optionId: 'no' }), ['denied', 'no']);
  assert.deepEqual(state({ decision: 'allow' }), ['allowed', 'yes'], 'once before always');
  assert.deepEqual(state({ decision: 'deny' }), ['denied', 'no']);
  assert.deepEqual(state({ decision: 'deny' }, OPTIONS.slice(0, 2)), ['denied', ''], 'a denial needs no option');
  const refused: [PermissionAnswer, RegExp][] = [
    [{ optionId: 'other' }, /no such option/],
    [{ optionId: 'other', decision: 'deny' }, /no such option/],
    [{ values: {} }, /has no form/],
  ];
  for (const [answer, reason] of refused) {
    assert.throws(
      () => state(answer),
      (error: { code: string; details: object }) => {
        assert.equal(error.code, 'INVALID_REQUEST');
        assert.match(JSON.stringify(error.details), reason);
        return true;
      },
    );
  }
  assert.throws(() => state({}, OPTIONS.slice(0, 2)), { code: 'INVALID_REQUEST' }, 'no answer at all is no denial');
  assert.throws(() => state({ decision: 'allow' }, OPTIONS.slice(2)), { code: 'INVALID_REQUEST' });
});

test('a question with a form is answered with values that fit, or declined', () => {
  const row = rowOf({ form, options: [] });
  const { end: answered, rules } = end(row, { values: { place: 'live' }, reason: 'so' });
  assert.deepEqual(answered, {
    ...{ state: 'answered', option_id: '', given: '{"place":"live"}', scope: 'once', reason: '"so"' },
    ...{ answered_by: 'user:a', answered_at: 2000 },
  });
  assert.deepEqual(rules, []);
  const { end: declined } = end(row, { decision: 'deny' });
  assert.deepEqual([declined.state, declined.given], ['declined', '']);
  for (const answer of [
    { optionId: 'yes' },
    { values: {} },
    { decision: 'allow' },
    { values: { other: 'x' } },
  ] as const) {
    assert.throws(() => end(row, answer), { code: 'INVALID_REQUEST' }, JSON.stringify(answer));
  }
  assert.equal(end(rowOf({ form: { fields: [] }, options: [] }), { decision: 'allow' }).end.state, 'answered');
  assert.throws(() => end(row, { values: { place: 'live' }, scope: 'always' }), { code: 'PERMISSION_NOT_REMEMBERED' });
});

test('an answer is remembered as it was given, where there is a command or a path to remember', () => {
  const row = rowOf({ input: { command: 'make all' } });
  assert.deepEqual(end(row, { decision: 'allow' }).rules, []);
  const exact = { kind: 'execute', isExact: true, command: ['make', 'all'] };
  for (const scope of ['session', 'always'] as const) {
    const { rules, end: ended } = end(row, { decision: 'allow', scope });
    assert.deepEqual([rules, ended.scope], [[{ ...exact, decision: 'allow' }], scope]);
    assert.deepEqual(end(row, { decision: 'deny', scope }).rules, [{ ...exact, decision: 'deny' }]);
  }
  const nothing = rowOf({ toolKind: 'other', title: 'x' });
  assert.throws(() => end(nothing, { decision: 'allow', scope: 'session' }), { code: 'PERMISSION_NOT_REMEMBERED' });
  const { rules } = end(rowOf({ toolKind: 'edit', input: { path: 'a.txt' } }), { decision: 'allow', scope: 'always' });
  assert.deepEqual(rules, [{ kind: 'edit', isExact: true, decision: 'allow', path: '/w/a.txt' }]);
  const untitled = rowOf({ title: 'make all' });
  assert.deepEqual(end(untitled, { decision: 'allow', scope: 'always' }).rules, [{ ...exact, decision: 'allow' }]);
});

test('a rule is kept for its session or its folder, for 30 days, and is the same rule when it is read', () => {
  const asked = rowOf({ input: { command: 'make all' } });
  const [rule] = end(asked, { decision: 'allow', scope: 'always' }).rules;
  assert.ok(rule);
  const always = toRuleRow(rule, asked, 'always', 'user:a', 'rule_1', 3000);
  assert.deepEqual(toStoredRule(always), {
    ...{ ruleId: 'rule_1', owner: 'main', scope: 'always', sessionId: '', folder: '/w' },
    when: { kind: 'execute', command: ['make', 'all'], path: null },
    ...{ decision: 'allow', createdBy: 'user:a', createdAt: 3000, expiresAt: 3000 + 30 * DAY_MS },
  });
  assert.deepEqual(toRule(always), rule);
  const ofSession = toRuleRow(rule, asked, 'session', 'user:a', 'rule_2', 3000);
  assert.deepEqual([ofSession.session_key, ofSession.session_id, always.session_key], ['k', 's', '']);
  assert.equal(toStoredRule(ofSession).scope, 'session');
  const byPath = toRuleRow({ path: '/w/a', decision: 'deny' }, asked, 'always', 'user:a', 'rule_3', 3000);
  assert.deepEqual(toRule(byPath), { kind: '', path: '/w/a', isExact: true, decision: 'deny' });
});

test('the agent gets the option, the values and the reason of an answer, and nothing without one', () => {
  const reply = (more: Partial<PermissionRow>) => replyOf(rowOf({}, more));
  for (const state of ['open', 'cancelled', 'expired'] as const) {
    assert.deepEqual(reply({ state, option_id: 'yes', reason: '"x"' }), { optionId: undefined }, state);
  }
  assert.deepEqual(reply({ state: 'allowed', option_id: 'yes' }), { optionId: 'yes' });
  assert.deepEqual(reply({ state: 'denied', option_id: '', reason: '"no"' }), { optionId: undefined, reason: 'no' });
  assert.deepEqual(reply({ state: 'answered', given: '{"a":"b"}' }), { optionId: undefined, values: { a: 'b' } });
  assert.deepEqual(reply({ state: 'declined', reason: '"later"' }), { optionId: undefined, reason: 'later' });
});

test('an answer about a large file is remembered for its path, and one about a large command not by its title', () => {
  const always: PermissionAnswer = { decision: 'allow', scope: 'always' };
  const content = 'x'.repeat(20_000);
  const { rules } = end(rowOf({ toolKind: 'edit', input: { path: 'a.txt', content } }), always);
  assert.deepEqual(rules, [{ kind: 'edit', path: '/w/a.txt', isExact: true, decision: 'allow' }]);
  const large = rowOf({ title: 'make all', input: { command: 'make', args: ['all', content] } });
  assert.throws(() => end(large, always), { code: 'PERMISSION_NOT_REMEMBERED' });
});
