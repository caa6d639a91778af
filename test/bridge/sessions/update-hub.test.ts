import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createUpdateHub, type UpdateReceiver } from '../../../src/bridge/sessions/update-hub.ts';

function createReceiver() {
  const seen: number[] = [];
  const receiver: UpdateReceiver = {
    update: (_params, seq) => void seen.push(seq),
    drained: () => Promise.resolve(true),
  };
  return { seen, receiver };
}

test('an update reaches the receivers of its session only', () => {
  const hub = createUpdateHub();
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
  const hub = createUpdateHub();
  const { seen, receiver } = createReceiver();
  const replayed = Promise.withResolvers<number>();
  const ready = hub.subscribeAfter('s', receiver, 0, () => replayed.promise);
  for (const seq of [3, 4, 5]) hub.publish('s', seq, '{}');
  seen.push(1, 2, 3, 4);
  replayed.resolve(4);
  await ready;
  hub.publish('s', 6, '{}');
  assert.deepEqual(seen, [1, 2, 3, 4, 5, 6]);
});

test('what is too much to wait for the replay is replayed as well', async () => {
  const hub = createUpdateHub();
  const { seen, receiver } = createReceiver();
  const stored: number[] = [];
  const publish = (count: number) => {
    for (let times = 0; times < count; times += 1) {
      stored.push(stored.length + 1);
      hub.publish('s', stored.length, '{}');
    }
  };
  let rounds = 0;
  await hub.subscribeAfter('s', receiver, 0, async (afterSeq) => {
    rounds += 1;
    const page = stored.slice(afterSeq);
    publish(rounds === 1 ? 5000 : 7);
    seen.push(...page);
    return page.at(-1) ?? afterSeq;
  });
  assert.equal(rounds, 2);
  assert.deepEqual(seen, stored);
});

test('a replay that fails leaves nobody subscribed', async () => {
  const hub = createUpdateHub();
  const { seen, receiver } = createReceiver();
  await assert.rejects(
    hub.subscribeAfter('s', receiver, 0, () => Promise.reject(new Error('store'))),
    /store/,
  );
  hub.publish('s', 1, '{}');
  assert.deepEqual(seen, []);
});

test('an update that the replay has sent is not sent again when it is published afterwards', async () => {
  const hub = createUpdateHub();
  const { seen, receiver } = createReceiver();
  await hub.subscribeAfter('s', receiver, 0, () => {
    seen.push(1, 2);
    return Promise.resolve(2);
  });
  for (const seq of [2, 3]) hub.publish('s', seq, '{}');
  assert.deepEqual(seen, [1, 2, 3]);
});
