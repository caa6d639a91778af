import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkOperations, type EndedCalls, figuresOf, type Operation } from '../../faults/sockets/check-operations.ts';
import { readFrames } from '../../faults/sockets/read-frames.ts';
import { frame, PING, TEXT } from '../../kit/raw-web-socket.ts';

const held: EndedCalls = { kind: 'calls', phase: 'held', outcome: 'ok', times: { '2': 990, '250': 5, '900': 5 } };
const last: EndedCalls = { ...held, phase: 'last', times: { '3': 10 } };
const opened: Operation = { kind: 'opened', wanted: 10, count: 10 };
const end: Operation = { kind: 'held', ms: 1000 };
const memory: Operation = { kind: 'memory', bytes: 600e6 };
const run: readonly Operation[] = [opened, held, memory, last, end];

const missedOf = (operations: readonly Operation[]) =>
  figuresOf(operations).flatMap(({ name, met }) => (met ? [] : [name]));

test('faults: sockets that are all held and all answer are no violation', () => {
  assert.deepEqual(checkOperations(run), []);
  assert.deepEqual(missedOf(run), []);
});

for (const [what, operations, figure] of [
  ['a socket that was not opened', [{ ...opened, wanted: 11 }, held, last, end], 'authenticated sockets'],
  [
    'a socket that was lost',
    [...run, { kind: 'drop', socket: 7, afterMs: 100, why: 'closed with 1008' }],
    'of them lost',
  ],
  ['a call that was refused', [...run, { ...held, outcome: 'fail', times: { '1': 1 } }], 'of them not answered'],
  ['a call without an answer', [...run, { ...held, outcome: 'unknown', times: { '1': 1 } }], 'of them not answered'],
  [
    'a socket that is open and silent',
    [opened, held, { ...last, times: { '3': 9 } }, end],
    'sockets that answer a last call',
  ],
] as const satisfies readonly (readonly [string, readonly Operation[], string])[]) {
  test(`faults: the checker of sockets finds ${what}`, () => {
    assert.equal(checkOperations(operations).length, 1);
    assert.deepEqual(missedOf(operations), [figure]);
  });
}

test('faults: a client that did not come to the end proves nothing', () => {
  assert.deepEqual(checkOperations([opened, held, last]), ['the sockets were not held to the end']);
});

test('faults: late answers, too few calls and too much memory are figures that were missed', () => {
  const late = { ...held, times: { '2': 989, '251': 11 } };
  assert.deepEqual(missedOf([opened, late, last, end]), ['answered after, p99']);
  assert.deepEqual(missedOf([opened, held, last, { ...end, ms: 1100 }]), ['calls a second']);
  assert.deepEqual(missedOf([...run, { ...memory, bytes: 601e6 }]), ['memory (RSS), at most']);
});

test('faults: frames are read however they are cut', () => {
  const texts = ['', 'short', 'w'.repeat(126), 'w'.repeat(65_536)];
  const sent = texts.map((payload) => frame({ opcode: TEXT, payload, masked: false }));
  const all = Buffer.concat([...sent, frame({ opcode: PING, payload: 'p', masked: false })]);
  for (const step of [7, 1000, all.length]) {
    const seen: string[] = [];
    let rest: Buffer = Buffer.alloc(0);
    for (let at = 0; at < all.length; at += step) {
      const read = readFrames(Buffer.concat([rest, all.subarray(at, at + step)]));
      seen.push(...read.frames.map(({ opcode, payload }) => `${opcode} ${payload}`));
      rest = read.rest;
    }
    assert.deepEqual(seen, [...texts.map((text) => `${TEXT} ${text}`), `${PING} p`]);
    assert.equal(rest.length, 0);
  }
});
