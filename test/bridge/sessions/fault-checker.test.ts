import assert from 'node:assert/strict';
import { test } from 'node:test';
import { missedGoals } from '../../faults/fault-suite.ts';
import { checkOperations, figuresOf, type Operation, type Update } from '../../faults/sessions/check-operations.ts';

const session = 's';
const update = (seq: number, event = 'delta', text = `${event} ${seq}`): Update => ({
  session,
  seq,
  turnId: 't',
  event,
  text,
});
const saw = (
  seq: number,
  event?: string,
  more: { text?: string; at?: number; connection?: string } = {},
): Operation => {
  const { at = 0, connection = 'one', text } = more;
  return { kind: 'update', connection, at, ...update(seq, event, text) };
};
const connected = (connection = 'one', afterSeq = 0, chain = true): Operation => ({
  kind: 'connected',
  session,
  connection,
  chain,
  afterSeq,
});
const turn = { kind: 'turn', session, prompt: 'p', method: 'session.message' } as const;
const answered: Operation = { ...turn, outcome: 'ok', turnId: 't', status: 'completed' };
const asked: Operation = { kind: 'asked', prompt: 'p' };
const kill = (at: number): Operation => ({ kind: 'kill', at });
const ready: Operation = { kind: 'ready', ms: 1 };

const good: readonly Operation[] = [connected(), asked, saw(1, 'started'), saw(2), saw(3, 'completed'), answered];
const updates = [update(1, 'started'), update(2), update(3, 'completed')];
const stored = (status: string) => ({ id: 't', session, prompt: 'p', status });
const turns = [stored('completed')];
const whole = { updates, turns };
const resumed = [connected(), asked, saw(1, 'started'), connected('two', 1)];

for (const [what, operations, store, count] of [
  ['a turn that was answered', good, whole, 0],
  ['a resume that goes on', [...resumed, saw(2), saw(3, 'completed'), answered], whole, 0],
  ['a resume that shows one again', [...resumed, saw(1, 'started'), saw(2), saw(3, 'completed')], whole, 1],
  ['a resume that skips one', [...resumed, saw(3, 'completed')], whole, 1],
  [
    'a repeated call that shows them again',
    [...good, connected('r', 1, false), saw(2, 'delta', { connection: 'r' })],
    whole,
    0,
  ],
  [
    'a repeated call that shows too much',
    [...good, connected('r', 2, false), saw(2, 'delta', { connection: 'r' })],
    whole,
    1,
  ],
  ['a number with another content', [...good, connected('r', 1, false), saw(2, 'delta', { text: 'x' })], whole, 2],
  ['an update stored twice', good, { updates: [...updates, update(2)], turns }, 1],
  ['an update lost right before a kill', [...good, saw(4, 'delta', { at: 90 }), kill(100), ready], whole, 0],
  ['an update on its way at a kill', [...good, kill(100), saw(4, 'delta', { at: 110 }), ready], whole, 0],
  ['an update lost long before a kill', [...good, saw(4), kill(5000), ready], whole, 1],
  ['an update lost without a kill', [...good, saw(4)], whole, 1],
  ['an end that was told and undone', [...good, saw(4, 'failed', { at: 99 }), kill(100), ready], whole, 1],
  ['a turn that never ends', good, { updates, turns: [stored('running')] }, 2],
  ['a turn with two ends', [...good, saw(4, 'failed')], { updates: [...updates, update(4, 'failed')], turns }, 1],
  ['a prompt that the model got twice', [...good, asked], whole, 1],
  [
    'a refused call that was run',
    [asked, { ...turn, outcome: 'fail', code: 'SESSION_BUSY' }],
    { updates: [], turns: [] },
    1,
  ],
  ['an answer that is not stored', [connected(), asked, answered], { updates: [], turns: [] }, 1],
  [
    'a stored turn that cannot be resumed',
    [...good, { ...turn, kind: 'repeat', outcome: 'fail', code: 'RESUME_NOT_FOUND' }],
    whole,
    1,
  ],
  [
    'a session that is lost',
    [...good, { ...turn, prompt: 'q', outcome: 'fail', code: 'SESSION_CONTINUATION_UNAVAILABLE' }],
    whole,
    1,
  ],
] as const satisfies readonly (readonly [string, readonly Operation[], unknown, number])[]) {
  test(`faults: the checker finds ${count} wrong with ${what}`, () => {
    assert.deepEqual(checkOperations(operations, store).length, count, checkOperations(operations, store).join('\n'));
  });
}

test('faults: the figures of a run of sessions name what was lost and how late it was ready', () => {
  const late: Operation = { kind: 'ready', ms: 2500 };
  const figures = figuresOf([ready, ...good, saw(4, 'delta', { at: 70 }), kill(100), late], whole);
  const missed = missedGoals(figures).map(({ value }) => value);
  assert.deepEqual(missed, ['30 ms', '2,500 ms']);
});
