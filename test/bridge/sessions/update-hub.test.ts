import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createUpdateHub, type NotificationSink, type Replay } from '../../../src/bridge/sessions/update-hub.ts';
import { rawJson } from '../../../src/platform/json-rpc/envelope.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const settled = () => new Promise((resolve) => setImmediate(resolve));
const noReplay: Replay = () => Promise.reject(new Error('nothing is stored'));

function createReceiver() {
  const seen: number[] = [];
  const state = { isBehind: false, isLost: false, catchUp: (_isThere: boolean): void => undefined };
  const receiver: NotificationSink = {
    update: (_params, seq) => void seen.push(seq),
    isBehind: () => state.isBehind,
    drained() {
      if (!state.isBehind) return Promise.resolve(true);
      return new Promise((resolve) => {
        state.catchUp = (isThere) => {
          state.isBehind = false;
          resolve(isThere);
        };
      });
    },
    lost() {
      state.isLost = true;
    },
  };
  return { seen, receiver, state };
}

test('an update reaches the receivers of its session only', () => {
  const hub = createUpdateHub(noReplay, createFakeClock());
  const [one, two] = [createReceiver(), createReceiver()];
  hub.subscribe('s', one.receiver);
  hub.subscribe('s', one.receiver);
  hub.subscribe('t', two.receiver);
  hub.publish('s', 1, '{}');
  hub.publish('nobody', 2, '{}');
  assert.deepEqual([one.seen, two.seen], [[1], []]);
  hub.forget(one.receiver);
  hub.end('t');
  hub.publish('s', 3, '{}');
  hub.publish('t', 4, '{}');
  assert.deepEqual([one.seen, two.seen], [[1], []]);
});

test('what is published during a replay follows it, once and in order', async () => {
  const replayed = Promise.withResolvers<number>();
  const hub = createUpdateHub(() => replayed.promise, createFakeClock());
  const { seen, receiver } = createReceiver();
  const ready = hub.subscribeAfter('s', receiver, 0);
  await settled();
  for (const seq of [3, 4, 5]) hub.publish('s', seq, '{}');
  seen.push(1, 2, 3, 4);
  replayed.resolve(4);
  await ready;
  hub.publish('s', 6, '{}');
  assert.deepEqual(seen, [1, 2, 3, 4, 5, 6]);
});

test('what was stored elsewhere during a replay is read before what was published behind it', async () => {
  const first = Promise.withResolvers<number>();
  const asked: number[] = [];
  const { seen, receiver } = createReceiver();
  const hub = createUpdateHub(async (_session, _receiver, afterSeq) => {
    asked.push(afterSeq);
    if (asked.length === 1) return first.promise;
    seen.push(7, 8, 9);
    return 9;
  }, createFakeClock());
  hub.keepWhole('s', true);
  const ready = hub.subscribeAfter('s', receiver, 0);
  await settled();
  for (const seq of [9, 10]) hub.publish('s', seq, '{}');
  seen.push(1, 2);
  first.resolve(2);
  await ready;
  assert.deepEqual(
    [seen, asked],
    [
      [1, 2, 7, 8, 9, 10],
      [0, 2],
    ],
  );
});

test('what a bridge was storing when it was lost is sent, though it appears after an update that came later', async () => {
  const first = Promise.withResolvers<void>();
  const stored = [1, 2];
  let reads = 0;
  const { seen, receiver } = createReceiver();
  const hub = createUpdateHub(async (_session, to, afterSeq) => {
    reads += 1;
    if (reads === 1) await first.promise;
    for (const seq of stored.filter((each) => each > afterSeq)) to.update(rawJson('{}'), seq);
    return Math.max(afterSeq, ...stored);
  }, createFakeClock());
  hub.keepWhole('s', true);
  const ready = hub.subscribeAfter('s', receiver, 0);
  // Before the log is read: it is not kept in memory, but read from there.
  hub.publish('s', 3, '{}');
  await settled();
  hub.publish('s', 4, '{}');
  // The bridge that runs the session is killed, and its commit is still under way.
  first.resolve();
  await ready;
  stored.push(3, 4);
  hub.catchUp('s', 4);
  await settled();
  // The end of the turn, which another bridge has stored.
  stored.push(513);
  hub.catchUp('s', 513);
  await settled();
  assert.deepEqual(seen, [1, 2, 3, 4, 513]);
  const readsBefore = reads;
  hub.catchUp('s', 513);
  assert.equal(reads, readsBefore, 'who has everything is not read for');
});

test('what another bridge stored of a session is read before what is published here afterwards', async () => {
  const asked: number[] = [];
  const stored: number[] = [];
  const { seen, receiver } = createReceiver();
  const hub = createUpdateHub(async (_session, _receiver, afterSeq) => {
    asked.push(afterSeq);
    const page = stored.filter((seq) => seq > afterSeq);
    seen.push(...page);
    return page.at(-1) ?? afterSeq;
  }, createFakeClock());
  await hub.subscribeAfter('s', receiver, 4);
  stored.push(513, 514, 1025);
  hub.usedElsewhere('s', 1024);
  hub.publish('s', 1025, '{}');
  await settled();
  hub.publish('s', 1026, '{}');
  // A turn of this bridge leaves numbers out, too: nothing is read for that.
  hub.publish('s', 1537, '{}');
  assert.deepEqual(
    [seen, asked],
    [
      [513, 514, 1025, 1026, 1537],
      [4, 4],
    ],
  );
});

/** A store of all that was published, and a replay of it that may publish more. */
function createStored() {
  const clock = createFakeClock();
  const stored: number[] = [];
  const state = { rounds: 0, onReplay: (_round: number): void => undefined };
  const replay: Replay = async (_session, receiver, afterSeq) => {
    state.rounds += 1;
    const page = stored.filter((seq) => seq > afterSeq);
    state.onReplay(state.rounds);
    for (const seq of page) receiver.update(rawJson('{}'), seq);
    return page.at(-1) ?? afterSeq;
  };
  const hub = createUpdateHub(replay, clock);
  const publish = (count: number, text = '{}') => {
    for (let times = 0; times < count; times += 1) {
      stored.push(stored.length + 1);
      hub.publish('s', stored.length, text);
    }
  };
  return { hub, stored, state, publish, clock };
}

test('what is too much to wait for the replay is replayed as well', async () => {
  const { hub, stored, state, publish } = createStored();
  const { seen, receiver } = createReceiver();
  state.onReplay = (round) => publish(round === 1 ? 5000 : 7);
  await hub.subscribeAfter('s', receiver, 0);
  assert.equal(state.rounds, 2);
  assert.deepEqual(seen, stored);
});

test('DB-25: a receiver that is behind gets nothing until it has caught up, then all of it once and in order', async () => {
  const { hub, stored, state, publish } = createStored();
  const { seen, receiver, state: connection } = createReceiver();
  hub.subscribe('s', receiver);
  publish(3);
  connection.isBehind = true;
  publish(1);
  assert.deepEqual(seen, [1, 2, 3, 4]);
  publish(20);
  await settled();
  assert.equal(seen.length, 4);
  connection.catchUp(true);
  await settled();
  publish(1);
  assert.deepEqual([seen, state.rounds], [stored, 0]);
});

for (const [what, count, text] of [
  ['many small updates', 5000, '{}'],
  ['a few large updates', 20, `{"x":"${'x'.repeat(100_000)}"}`],
] as const) {
  test(`DB-25: ${what} for a receiver that is behind are not kept in memory but read from the log`, async () => {
    const { hub, stored, state, publish } = createStored();
    const { seen, receiver, state: connection } = createReceiver();
    hub.subscribe('s', receiver);
    connection.isBehind = true;
    publish(1 + count, text);
    assert.equal(seen.length, 1);
    await settled();
    connection.catchUp(true);
    await settled();
    assert.deepEqual([seen, state.rounds], [stored, 1]);
  });
}

test('DB-25: the answer of a turn can wait for the updates of that turn, not for those after it', async () => {
  const { hub, publish } = createStored();
  const { receiver, state: connection } = createReceiver();
  hub.subscribe('s', receiver);
  await hub.reached('s', receiver, 5);
  connection.isBehind = true;
  publish(1);
  publish(5000);
  let isReached = false;
  const reached = hub.reached('s', receiver, 5001).then(() => {
    isReached = true;
  });
  await settled();
  assert.equal(isReached, false);
  connection.catchUp(true);
  await reached;
});

test('DB-25: the publisher waits for a receiver that catches up soon, and not for one that does not', async () => {
  const { hub, publish, clock } = createStored();
  const { receiver, state: connection } = createReceiver();
  hub.subscribe('s', receiver);
  assert.equal(hub.room('s'), undefined);
  connection.isBehind = true;
  publish(1);
  const room = hub.room('s');
  assert.ok(room !== undefined);
  await settled();
  connection.catchUp(true);
  await room;
  assert.deepEqual([hub.room('s'), clock.pending()], [undefined, 0]);
  connection.isBehind = true;
  publish(1);
  const stuck = hub.room('s');
  await clock.advance(250);
  await stuck;
  publish(5000);
  assert.equal(hub.room('s'), undefined);
});

test('DB-25: a receiver that is gone while it is behind is waited for by nobody', async () => {
  const { hub, publish } = createStored();
  const { seen, receiver, state: connection } = createReceiver();
  hub.subscribe('s', receiver);
  connection.isBehind = true;
  publish(2);
  const reached = hub.reached('s', receiver, 2);
  await settled();
  connection.catchUp(false);
  await reached;
  publish(1);
  assert.deepEqual(seen, [1]);
});

test('DB-25: a receiver whose updates cannot be read learns so, and gets no more', async () => {
  const hub = createUpdateHub(noReplay, createFakeClock());
  const { seen, receiver, state: connection } = createReceiver();
  hub.subscribe('s', receiver);
  connection.isBehind = true;
  for (let seq = 1; seq <= 2000; seq += 1) hub.publish('s', seq, '{}');
  const failed = assert.rejects(hub.reached('s', receiver, 2000), /nothing is stored/);
  await settled();
  connection.catchUp(true);
  await failed;
  await settled();
  assert.equal(connection.isLost, true);
  hub.publish('s', 2001, '{}');
  assert.deepEqual(seen, [1]);
});

test('a replay that fails leaves nobody subscribed', async () => {
  const hub = createUpdateHub(noReplay, createFakeClock());
  const { seen, receiver } = createReceiver();
  await assert.rejects(hub.subscribeAfter('s', receiver, 0), /nothing is stored/);
  hub.publish('s', 1, '{}');
  assert.deepEqual(seen, []);
});

test('an update that the replay has sent is not sent again when it is published afterwards', async () => {
  const { seen, receiver } = createReceiver();
  const hub = createUpdateHub(() => {
    seen.push(1, 2);
    return Promise.resolve(2);
  }, createFakeClock());
  await hub.subscribeAfter('s', receiver, 0);
  for (const seq of [2, 3]) hub.publish('s', seq, '{}');
  assert.deepEqual(seen, [1, 2, 3]);
});

test('what is published at any moment around the end of a replay is sent, once and in order', async () => {
  for (let steps = 0; steps < 40; steps += 1) {
    const { hub, stored, publish } = createStored();
    const { seen, receiver } = createReceiver();
    publish(3);
    const ready = hub.subscribeAfter('s', receiver, 0);
    for (let step = 0; step < steps; step += 1) await undefined;
    publish(2);
    await ready;
    await settled();
    publish(1);
    assert.deepEqual(seen, stored, `after ${steps} steps`);
  }
});

test('after a close those who follow the session get what starts in its place, and those who only called its turns do not', async () => {
  const hub = createUpdateHub(noReplay, createFakeClock());
  const [caller, follower, instance] = [createReceiver(), createReceiver(), createReceiver()];
  hub.subscribe('s', caller.receiver);
  hub.subscribe('s', follower.receiver, 0);
  hub.subscribe('s', { ...instance.receiver, isInstance: true });
  hub.publish('s', 1, '{}');
  hub.close('s');
  hub.publish('s', 2, '{}');
  assert.deepEqual([caller.seen, follower.seen, instance.seen], [[1], [1, 2], [1, 2]]);
});

test('the end of a session that never began names those who were its clients', () => {
  const hub = createUpdateHub(noReplay, createFakeClock());
  const { receiver } = createReceiver();
  const ends: unknown[] = [];
  hub.onEnd((key, receivers) => ends.push([key, receivers.get(receiver), receivers.size]));
  hub.subscribe('s', receiver, 7);
  hub.end('s');
  assert.deepEqual([ends, hub.isFollowed('s')], [[['s', 7, 1]], false]);
});

test('another instance whose clients follow a session that never began learns so, and looks again', () => {
  const hub = createUpdateHub(noReplay, createFakeClock());
  const [client, instance] = [createReceiver(), createReceiver()];
  hub.subscribe('s', client.receiver, 0);
  hub.subscribe('s', { ...instance.receiver, isInstance: true });
  hub.end('s');
  assert.deepEqual([client.state.isLost, instance.state.isLost], [false, true]);
});

for (const form of ['update', 'stored'] as const) {
  test(`what is being read when a subscription ends is not sent any more, and what was sent is known (${form})`, async () => {
    const { promise: isOver, resolve: goOn } = Promise.withResolvers<void>();
    const replay: Replay = async (_key, to) => {
      const send = (seq: number) => (to.stored !== undefined ? to.stored('{}', 1, seq) : to.update(rawJson('{}'), seq));
      send(1);
      await isOver;
      send(2);
      return 2;
    };
    const hub = createUpdateHub(replay, createFakeClock());
    const { seen, receiver: plain } = createReceiver();
    const stored = { ...plain, stored: (_text: string, _at: number | undefined, seq: number) => void seen.push(seq) };
    const receiver = form === 'stored' ? stored : plain;
    const got: unknown[] = [];
    hub.onEnd((_key, receivers) => got.push(receivers.get(receiver)));
    const reading = hub.subscribeAfter('s', receiver, 0);
    await settled();
    hub.end('s');
    goOn();
    await reading;
    assert.deepEqual([seen, got], [[1], [1]]);
  });
}
