import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createUpdateRelay, seqOf } from '../../../src/bridge/forwarding/update-relay.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import fc from '../../kit/properties.ts';

test('forwarding: updates that come over several answers are passed on once and in order', () => {
  // Each answer brings the updates from some number on; the answers progress in any order, and end when they are through.
  const answers = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(answers, fc.array(fc.nat(), { minLength: 60, maxLength: 60 }), (starts, steps) => {
      const relay = createUpdateRelay(createFakeClock());
      const receiver = {};
      const seen: number[] = [];
      const begins = [1, ...starts];
      const open = begins.map((next) => ({ next, stream: relay.open(receiver, 's') }));
      let left = [...open];
      const step = (one: (typeof open)[number] | undefined) => {
        if (one === undefined) return;
        const { next } = one;
        one.stream.take(next, () => seen.push(next));
        one.next += 1;
        if (one.next <= 12) return;
        void one.stream.end();
        left = left.filter((other) => other !== one);
      };
      for (const choice of steps) if (left.length > 0) step(left[choice % left.length]);
      while (left.length > 0) step(left[0]);
      assert.deepEqual(
        seen,
        Array.from({ length: 12 }, (_, index) => index + 1),
      );
    }),
  );
});

test('DB-26: what a later answer has from before the leading one is passed on in its place', () => {
  const relay = createUpdateRelay(createFakeClock());
  const receiver = {};
  const seen: number[] = [];
  const [first, second] = [relay.open(receiver, 's'), relay.open(receiver, 's')];
  const take = (answer: typeof first, seq: number) => answer.take(seq, () => seen.push(seq));
  take(first, 1);
  take(second, 2);
  take(first, 3);
  void first.end();
  take(second, 4);
  assert.deepEqual(seen, [1, 2, 3, 4]);
});

test('forwarding: an answer that hangs does not hold back the updates of the others for ever', async () => {
  const clock = createFakeClock();
  const relay = createUpdateRelay(clock);
  const receiver = {};
  const seen: number[] = [];
  const hanging = relay.open(receiver, 's');
  const going = relay.open(receiver, 's');
  for (let seq = 1; seq <= 1500; seq += 1) going.take(seq, () => seen.push(seq));
  assert.equal(seen.length, 1500);
  const third = relay.open(receiver, 's');
  third.take(1501, () => seen.push(1501));
  const ended = third.end();
  await clock.advance(500);
  assert.equal(seen.length, 1500);
  await clock.advance(600);
  await ended;
  assert.equal(seen.length, 1501);
  hanging.take(1, () => seen.push(-1));
  await Promise.all([hanging.end(), going.end()]);
  assert.equal(seen.length, 1501);
  assert.equal(clock.pending(), 0);
});

test('forwarding: connections and sessions do not disturb each other', () => {
  const relay = createUpdateRelay(createFakeClock());
  const seen: string[] = [];
  const [one, two] = [{}, {}];
  const streams = [relay.open(one, 's'), relay.open(two, 's'), relay.open(one, 't')];
  for (const [index, stream] of streams.entries()) stream.take(1, () => seen.push(String(index)));
  assert.deepEqual(seen, ['0', '1', '2']);
});

test('forwarding: only a whole number is the number of an update', () => {
  assert.equal(seqOf({ seq: 7 }), 7);
  for (const params of [{ seq: '7' }, { seq: 1.5 }, { seq: 2 ** 60 }, {}, undefined, null, 'text']) {
    assert.equal(seqOf(params), undefined, JSON.stringify(params));
  }
});

test('forwarding: an answer that brings what was passed on already ends immediately, behind one that goes on', async () => {
  const clock = createFakeClock();
  const relay = createUpdateRelay(clock);
  const receiver = {};
  const seen: number[] = [];
  const first = relay.open(receiver, 's');
  const second = relay.open(receiver, 's');
  first.take(1, () => seen.push(1));
  second.take(1, () => seen.push(-1));
  await second.end();
  assert.equal(clock.pending(), 0);
  first.take(2, () => seen.push(2));
  assert.deepEqual(seen, [1, 2]);
});

test('forwarding: what waited behind another answer is done with as soon as that one has brought it', async () => {
  const clock = createFakeClock();
  const relay = createUpdateRelay(clock);
  const receiver = {};
  const seen: number[] = [];
  const [first, second] = [relay.open(receiver, 's'), relay.open(receiver, 's')];
  second.take(2, () => seen.push(-2));
  first.take(1, () => seen.push(1));
  first.take(2, () => seen.push(2));
  await second.end();
  assert.deepEqual([seen, clock.pending()], [[1, 2], 0]);
});

test('forwarding: when all answers about a session have ended, its numbers begin again', async () => {
  const relay = createUpdateRelay(createFakeClock());
  const receiver = {};
  const seen: string[] = [];
  const before = relay.open(receiver, 's');
  before.take(5, () => seen.push('before'));
  await before.end();
  const after = relay.open(receiver, 's');
  after.take(1, () => seen.push('after'));
  assert.deepEqual(seen, ['before', 'after']);
});

test('DB-25: an answer that is ahead waits for the leading one, which loses nothing however far it is behind', async () => {
  const clock = createFakeClock();
  const relay = createUpdateRelay(clock);
  const seen: number[] = [];
  const receiver = {};
  const [behind, ahead] = [relay.open(receiver, 's'), relay.open(receiver, 's')];
  for (let seq = 5000; seq <= 7000; seq += 1) {
    ahead.take(seq, () => seen.push(seq));
    if (seq > 5200) continue;
    assert.equal(ahead.room() === undefined, seq < 5100, 'it is read until a hundred updates wait');
  }
  let hasRoom = false;
  void ahead.room()?.then(() => {
    hasRoom = true;
  });
  for (let seq = 1; seq < 5000; seq += 1) {
    behind.take(seq, () => seen.push(seq));
    if (seq % 1000 === 0) await clock.advance(900);
    assert.equal(hasRoom, false);
  }
  await clock.advance(0);
  assert.equal(hasRoom, true);
  assert.deepEqual(
    seen,
    Array.from({ length: 7000 }, (_, index) => index + 1),
  );
});

test('DB-25: an answer that is ahead takes over when the leading one has stopped', async () => {
  const clock = createFakeClock();
  const relay = createUpdateRelay(clock);
  const seen: number[] = [];
  const receiver = {};
  const [stopped, ahead] = [relay.open(receiver, 's'), relay.open(receiver, 's')];
  stopped.take(1, () => seen.push(1));
  for (let seq = 3; seq <= 200; seq += 1) ahead.take(seq, () => seen.push(seq));
  const room = ahead.room();
  await clock.advance(999);
  assert.equal(seen.length, 1);
  await clock.advance(1);
  await room;
  assert.equal(seen.length, 199);
});
