import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  checkOperations,
  type Fault,
  figuresOf,
  type Operation,
  type StoredOutcome,
  type StreamSeen,
} from '../../faults/upstream/check-operations.ts';

const IDLE_MS = 2000;
const fault = (kind: Fault, words = 2): Operation => ({ kind: 'fault', id: 's', fault: kind, words, at: 100 });
const saw = (more: Partial<StreamSeen> = {}): StreamSeen => ({
  kind: 'stream',
  id: 's',
  outcome: 'fail',
  status: 200,
  end: 'end',
  isDone: false,
  errors: 1,
  text: 'w0 w1 ',
  at: 200,
  ...more,
});
const whole = saw({ outcome: 'ok', isDone: true, errors: 0 });
const partial: StoredOutcome = { id: 's', outcome: 'partial' };
const left: readonly Operation[] = [
  { kind: 'begun', id: 'l' },
  { kind: 'abort', id: 'l', at: 100 },
];
const closed: Operation = { kind: 'closed', id: 'l', at: 150 };
const aborted: StoredOutcome = { id: 'l', outcome: 'aborted' };
const sockets = (open: number): Operation => ({ kind: 'sockets', of: 'the upstream', open, spare: 1 });

for (const [what, operations, stored, count] of [
  ['a stream that stayed whole', [fault('whole'), whole], [{ id: 's', outcome: 'ok' }], 0],
  ['a whole stream that ends in an error', [fault('whole'), saw()], [partial], 2],
  ['a whole stream that lacks a word', [fault('whole', 3), whole], [{ id: 's', outcome: 'ok' }], 1],
  ['a broken stream that says so', [fault('reset'), saw()], [partial], 0],
  ['a broken stream without a word', [fault('silent', 0), saw({ status: 504, text: '', errors: 0 })], [partial], 0],
  ['a broken stream with a broken body', [fault('closed'), saw({ errors: 0, end: 'broken' })], [partial], 0],
  ['a false [DONE]', [fault('half-frame'), saw({ isDone: true })], [partial], 1],
  ['an end that says nothing', [fault('ended'), saw({ errors: 0 })], [partial], 1],
  ['words that were never sent', [fault('reset', 1), saw()], [partial], 1],
  ['words in another order', [fault('reset'), saw({ text: 'w1 w0 ' })], [partial], 1],
  ['a client that gave up', [fault('silent'), saw({ end: 'none', at: 30_000 })], [partial], 1],
  ['a client that waited too long', [fault('silent'), saw({ at: 13_000 })], [partial], 1],
  ['a stream that never reached the upstream', [saw()], [], 1],
  ['a broken stream that is recorded as whole', [fault('reset'), saw()], [{ id: 's', outcome: 'ok' }], 1],
  ['a stream that is recorded twice', [fault('reset'), saw()], [partial, partial], 1],
  ['a stream that is not recorded', [fault('reset'), saw()], [], 1],
  ['a client that left', [...left, closed], [aborted], 0],
  ['a client that left before the upstream knew of it', left.slice(1), [], 0],
  ['an upstream that goes on without its client', left, [aborted], 1],
  ['connections that are kept', [sockets(1)], [], 0],
  ['a connection that leaks', [sockets(2)], [], 1],
] as const satisfies readonly (readonly [string, readonly Operation[], readonly StoredOutcome[], number])[]) {
  test(`faults: the checker finds ${count} wrong with ${what}`, () => {
    const violations = checkOperations(operations, stored, IDLE_MS);
    assert.equal(violations.length, count, violations.join('\n'));
  });
}

test('faults: the figures of a run of streams name how long clients waited, and how soon the upstream was closed', () => {
  const late: Operation = { kind: 'closed', id: 'l', at: 400 };
  const operations = [fault('silent'), saw({ at: 3000 }), ...left, late];
  const missed = figuresOf(operations, [partial, aborted], IDLE_MS).filter(({ met }) => !met);
  assert.deepEqual(
    missed.map(({ value }) => value),
    ['2,900 ms', '300 ms'],
  );
});
