import assert from 'node:assert/strict';
import { test } from 'node:test';
import type {
  AgentProvider,
  PermissionDecision,
  PermissionPolicy,
  PermissionReply,
  SupervisedTurn,
  TurnTimeouts,
} from '../../../src/bridge/agents/agent-provider.ts';
import { superviseTurn } from '../../../src/bridge/agents/supervise-turn.ts';
import type { QuestionForm } from '../../../src/bridge/contract/session-update.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { recordTurn } from './recorded-turn.ts';

/** A provider that does what the test says, under the supervisor, with a clock that the test moves. */
function watched(run: AgentProvider['run'], timeouts: TurnTimeouts = {}, more: object = {}) {
  const clock = createFakeClock();
  const closed: string[] = [];
  const aborter = new AbortController();
  const turn = recordTurn('/work', 'x', more);
  const provider: AgentProvider = {
    id: 'one',
    timeouts,
    probe: async () => ({ status: 'ok', version: '' }),
    run,
    close: async (reference) => void closed.push(reference),
    stop: async () => undefined,
  };
  const { signal } = aborter;
  const end = superviseTurn({ provider, turn, signal, clock, keep: (work) => void work });
  return { clock, turn, closed, end, stop: () => aborter.abort() };
}

const never = () => new Promise<never>(() => undefined);

test('a turn that is stopped is asked, then forced, then ends without its agent, and what comes later reaches nobody', async () => {
  const marks: string[] = [];
  let late: SupervisedTurn | undefined;
  const { clock, turn, closed, end, stop } = watched((given, signal) => {
    late = given;
    void given.report({ kind: 'text', text: 'half' });
    signal.addEventListener('abort', () => marks.push(`asked at ${clock.monotonic()}`));
    given.force.addEventListener('abort', () => marks.push(`forced at ${clock.monotonic()}`));
    return never();
  });
  const begun = clock.monotonic();
  stop();
  await clock.advance(6_999);
  assert.deepEqual(marks, [`asked at ${begun}`, `forced at ${begun + 4_000}`]);
  await clock.advance(1);
  assert.deepEqual(await end, { kind: 'cancelled', output: 'half' });
  void late?.report({ kind: 'text', text: 'late' });
  late?.usedModel('late');
  late?.opened('late');
  assert.deepEqual([turn.text(), turn.references, closed], ['half', [], ['late']]);
});

test('a conversation that is continued is not closed when its reference changes too late', async () => {
  let late: SupervisedTurn | undefined;
  const { clock, closed, end, stop } = watched(
    (given) => {
      late = given;
      return never();
    },
    {},
    { reference: 'known' },
  );
  stop();
  await clock.advance(7_000);
  await end;
  late?.opened('changed');
  assert.deepEqual(closed, []);
});

test('an agent that is silent for too long is stopped, from when it has got the prompt, and not while its events wait', async () => {
  const room = Promise.withResolvers<void>();
  let given: SupervisedTurn | undefined;
  const { clock, end } = watched(
    (turn, signal) => {
      given = turn;
      return new Promise((resolve) => {
        const usage = { inputTokens: 1 };
        signal.addEventListener('abort', () => resolve({ kind: 'completed', stopReason: 'end_turn', usage }));
      });
    },
    { silenceMs: 1_000 },
    { report: () => room.promise },
  );
  let isOver = false;
  void end.then(() => {
    isOver = true;
  });
  await clock.advance(5_000);
  given?.begun();
  await clock.advance(900);
  void given?.report({ kind: 'text', text: 'here' });
  await clock.advance(5_000);
  assert.equal(isOver, false, 'its event waits for room');
  room.resolve();
  await clock.advance(900);
  assert.equal(isOver, false);
  await clock.advance(1_100);
  const error = 'nothing has happened for 1000 ms';
  assert.deepEqual(await end, {
    kind: 'failed',
    code: 'AGENT_TIMEOUT',
    error,
    output: 'here',
    usage: { inputTokens: 1 },
  });
});

test('a turn that was stopped before it began is not run', async () => {
  const clock = createFakeClock();
  const provider: AgentProvider = {
    id: 'one',
    probe: async () => ({ status: 'ok', version: '' }),
    run: () => Promise.reject(new Error('it was run')),
    close: async () => undefined,
    stop: async () => undefined,
  };
  const turn = recordTurn('/work', 'x');
  const end = await superviseTurn({ provider, turn, signal: AbortSignal.abort(), clock, keep: () => undefined });
  assert.deepEqual(end, { kind: 'cancelled', output: '' });
});

const OPTIONS = [
  { optionId: 'yes', name: 'Yes', kind: 'allow_once' },
  { optionId: 'no', name: 'No', kind: 'reject_once' },
];
const FORM: QuestionForm = { fields: [] };

interface Asking {
  readonly policy?: PermissionPolicy;
  readonly isReadOnly?: boolean;
  /** Undefined: there is nobody to ask. */
  readonly reply?: PermissionReply;
  /** One form; undefined: it cannot be shown. */
  readonly form?: readonly (QuestionForm | undefined)[];
}

for (const [name, { policy = 'allow', isReadOnly = false, reply, form }, decision, optionId] of [
  ['the policy allows where there is nobody to ask', {}, 'allowed', 'yes'],
  ['the policy denies', { policy: 'deny', reply: { optionId: 'yes' } }, 'denied', 'no'],
  ['a turn that may only read denies', { isReadOnly: true, reply: { optionId: 'yes' } }, 'denied', 'no'],
  ['a person allows', { reply: { optionId: 'yes' } }, 'allowed', 'yes'],
  ['a person denies, with a reason', { reply: { optionId: 'no', reason: 'not now' } }, 'denied', 'no'],
  ['an answer that is not one of the options denies', { reply: { optionId: 'other' } }, 'denied', undefined],
  ['a form is answered by a person', { form: [FORM], reply: { optionId: undefined, values: {} } }, 'answered'],
  ['a form is declined by a person', { form: [FORM], reply: { optionId: undefined } }, 'declined'],
  ['a form is declined where there is nobody to ask', { form: [FORM] }, 'declined'],
  ['a form that cannot be shown is declined', { form: [undefined], reply: { optionId: '', values: {} } }, 'declined'],
] as readonly [string, Asking, PermissionDecision, string?][]) {
  test(`permission: ${name}, and the decision is reported`, async () => {
    let asked = 0;
    const ask = async () => {
      asked += 1;
      return reply;
    };
    const question = { toolCallId: 't1', title: 'run x', toolKind: 'execute', ...(form && { form: form[0] }) };
    const { turn, end } = watched(
      async ({ permit }, signal) => {
        const permitted = await permit({ ...question, options: form === undefined ? OPTIONS : [] }, policy, signal);
        assert.deepEqual([permitted.decision, permitted.optionId], [decision, optionId]);
        assert.deepEqual([permitted.isAsked, permitted.values], [asked === 1, asked === 1 ? reply?.values : undefined]);
        return { kind: 'completed', stopReason: 'end_turn' };
      },
      {},
      { isReadOnly, ...(reply !== undefined && { ask }) },
    );
    assert.equal((await end).kind, 'completed');
    const why = reply?.reason === undefined ? {} : { reason: reply.reason };
    assert.deepEqual(turn.events, [{ kind: 'permission', title: 'run x', decision, toolCallId: 't1', ...why }]);
    const isUnasked = policy === 'deny' || isReadOnly || reply === undefined || form?.includes(undefined);
    assert.equal(asked, isUnasked ? 0 : 1);
  });
}

test('hostile: titles, names and lists without end are cut before anyone gets them', async () => {
  const long = 'x'.repeat(2_000_000);
  const { turn, end } = watched(async (given) => {
    const locations = Array.from({ length: 100_000 }, (_, line) => ({ path: long, line }));
    const call = {
      kind: 'tool_call',
      toolCallId: long,
      title: `${long}😀`,
      status: 'pending',
      toolKind: long,
    } as const;
    void given.report({ ...call, locations });
    void given.report({ kind: 'status', text: long });
    void given.report({ kind: 'mode', modeId: long });
    const question = { toolCallId: long, title: long, toolKind: 'execute', options: [] };
    await given.permit(question, 'deny', new AbortController().signal);
    return { kind: 'completed', stopReason: 'end_turn' };
  });
  await end;
  const [call, status, mode, permission] = turn.events;
  assert.ok(call?.kind === 'tool_call' && status?.kind === 'status' && mode?.kind === 'mode');
  assert.ok(permission?.kind === 'permission');
  assert.deepEqual([call.toolCallId.length, call.title.length, call.toolKind.length], [1024, 4096, 1024]);
  assert.ok(call.title.endsWith('x…'));
  assert.deepEqual([call.locations?.length, call.locations?.[0]?.path.length], [1000, 4096]);
  assert.deepEqual([status.text.length, mode.modeId.length], [16 * 1024, 1024]);
  assert.deepEqual([permission.title.length, permission.toolCallId?.length], [4096, 1024]);
});
