import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkSessions } from '../faults/simulation/bridge/check-sessions.ts';
import type { RunEvent } from '../faults/simulation/bridge/played-agent.ts';
import type { SessionsAtTheEnd, SessionsEvent } from '../faults/simulation/bridge/session-events.ts';

const session = 's';
const update = (seq: number, event: string) => ({ session, seq, turnId: 't', event, text: `${event} ${seq}` });
const saw = (seq: number, event: string): SessionsEvent => ({
  kind: 'update',
  connection: 'c',
  at: 1,
  ...update(seq, event),
});
const begins: RunEvent = { kind: 'run', at: 1, agent: 'one', turnId: 't', prompt: 'p' };
const ends: RunEvent = { ...begins, end: 'completed', output: 'done' };
const turn = { kind: 'turn', startedAt: 0, endedAt: 4, method: 'session.start', session, prompt: 'p' } as const;
const setUp: SessionsEvent = { kind: 'set-up', fails: 0, isSlow: 0 };
const connected: SessionsEvent = { kind: 'connected', session, connection: 'c', chain: true, afterSeq: 0 };
const seen = [saw(1, 'started'), saw(2, 'running'), saw(3, 'completed')];
const answered: SessionsEvent = { ...turn, outcome: 'ok', turnId: 't', status: 'completed' };
const good: readonly SessionsEvent[] = [setUp, connected, begins, ends, ...seen, answered];
const updates = [update(1, 'started'), update(2, 'running'), update(3, 'completed')];
const stored = { id: 't', session, prompt: 'p', status: 'completed' };
const whole: SessionsAtTheEnd = { updates, turns: [stored], unanswered: 0 };

test('a run of sessions in which everything held has no violations', () => {
  assert.deepEqual(checkSessions(good, whole), []);
  const kept: SessionsEvent = {
    kind: 'repeat',
    startedAt: 0,
    endedAt: 4,
    session,
    prompt: 'p',
    outcome: 'ok',
    turnId: 't',
    status: 'completed',
  };
  assert.deepEqual(checkSessions([...good, kept], whole), []);
  const closed: SessionsEvent = { kind: 'close', session, startedAt: 8, endedAt: 9, outcome: 'ok' };
  assert.deepEqual(checkSessions([...good, closed], { ...whole, updates: [], turns: [] }), []);
});

test('each thing that must not happen in a session is found', () => {
  const lost: SessionsEvent = { ...turn, prompt: 'q', outcome: 'fail', code: 'SESSION_CONTINUATION_UNAVAILABLE' };
  const cancelled = { ...whole, turns: [{ ...stored, status: 'cancelled' }] };
  const wrong: readonly [what: RegExp, events: readonly SessionsEvent[], atTheEnd: SessionsAtTheEnd][] = [
    [/came after 3/, [...good, saw(2, 'running')], whole],
    [/was started 1 and then/, [...good, { ...saw(1, 'delta') }], whole],
    [/was never seen/, [...good.slice(0, 5), answered], whole],
    [/is still queued/, good, { ...whole, turns: [{ ...stored, status: 'queued' }] }],
    [/asked 2 times/, [...good, begins], whole],
    [/stored is undefined/, good, { ...whole, turns: [] }],
    [/was seen and is not stored/, good, { ...whole, updates: updates.slice(0, 2) }],
    [/cancelled by nobody/, good, cancelled],
    [/no agent did it/, good.filter((event) => event !== ends), whole],
    [/no agent has failed/, [setUp, connected, begins], { ...whole, turns: [{ ...stored, status: 'failed' }] }],
    [/could not be continued/, [...good, { ...lost, method: 'session.message' }], whole],
    [/is number 2/, good, { ...whole, updates: [update(1, 'started'), update(3, 'completed')] }],
    [/never answered/, good, { ...whole, unanswered: 1 }],
  ];
  for (const [what, events, atTheEnd] of wrong) {
    const violations = checkSessions(events, atTheEnd);
    assert.ok(
      violations.some((violation) => what.test(violation)),
      `${what} is not among ${JSON.stringify(violations)}`,
    );
  }
});

test('a turn that goes on after a cancel was accepted is found, and nothing that may be so', () => {
  const cancel = { kind: 'cancel', session, startedAt: 10, endedAt: 20, outcome: 'ok' } as const;
  const onA: SessionsEvent = { ...begins, home: 'a' };
  const endsAt = (at: number): SessionsEvent => ({ ...ends, home: 'a', at });
  const check = (events: readonly SessionsEvent[], turns = [stored]) =>
    checkSessions([setUp, ...events], { ...whole, turns }, 'several').filter((one) => one.includes('cancel of'));
  const found = ['turn t went on after a cancel of s that was accepted'];
  assert.deepEqual(check([onA, cancel, endsAt(60_000)]), found);
  assert.deepEqual(check([onA, cancel]), found, 'it never ended');
  assert.deepEqual(check([onA, { kind: 'freeze', at: 15, home: 'b' }, cancel]), found, 'another instance was frozen');
  assert.deepEqual(check([onA, cancel, endsAt(4_520)]), []);
  assert.deepEqual(check([onA, { ...cancel, outcome: 'unknown' }]), []);
  assert.deepEqual(check([{ ...onA, at: 15 }, cancel]), [], 'it began after the call was made');
  assert.deepEqual(check([onA, { kind: 'freeze', at: 5, home: 'a' }, cancel]), [], 'its instance was frozen');
  assert.deepEqual(check([onA, cancel], [{ ...stored, status: 'failed' }]), [], 'another instance may have ended it');
});

test('of several instances, a message that is refused because of a new start may be answered before that start', () => {
  const code = 'SESSION_CONTINUATION_UNAVAILABLE';
  const refused: SessionsEvent = {
    ...turn,
    method: 'session.message',
    prompt: 'q',
    startedAt: 6,
    endedAt: 9,
    outcome: 'fail',
    code,
  };
  const again = { ...turn, prompt: 'r', startedAt: 5, endedAt: 10, outcome: 'unknown' } as const;
  const lost = ['session s could not be continued with q'];
  const check = (...events: readonly SessionsEvent[]) =>
    checkSessions([...good, ...events], whole, 'several').filter((one) => one.includes('continued'));
  assert.deepEqual(check(refused, again), []);
  assert.deepEqual(check(refused), lost, 'without the start');
  assert.deepEqual(check(refused, { ...again, startedAt: 10, endedAt: 11 }), lost, 'the start was made later');
  const completed = { ...again, status: 'completed' };
  assert.deepEqual(check(refused, completed), lost, 'the start has begun a conversation');
});
