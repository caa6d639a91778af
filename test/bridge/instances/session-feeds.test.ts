import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { RelayTarget } from '../../../src/bridge/instances/relay-call.ts';
import { createSessionFeeds } from '../../../src/bridge/instances/session-feeds.ts';
import { MAIN } from '../../../src/bridge/principal.ts';
import { createUpdateHub, type NotificationSink } from '../../../src/bridge/sessions/update-hub.ts';
import type { SessionRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { rawJson } from '../../../src/platform/json-rpc/envelope.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { until } from '../../kit/until.ts';

const STORED = [1, 2, 3, 4];

test('a client that found a session in the store, just when it began elsewhere, gets no update twice', async (t) => {
  const clock = createFakeClock();
  const seen: number[] = [];
  const receiver: NotificationSink = {
    update: (_params, seq) => void seen.push(seq),
    isBehind: () => false,
    drained: async () => true,
    lost: () => undefined,
  };
  const hub = createUpdateHub(async (_key, to, after) => {
    for (const seq of STORED.filter((each) => each > after)) to.update(rawJson('{}'), seq);
    return STORED.at(-1) ?? 0;
  }, clock);
  const session = { key: 's', closed_at: null } as SessionRow;
  const target = { id: 'other' } as unknown as RelayTarget;
  let hasBegun = false;
  let isStreaming = false;
  const feeds = createSessionFeeds({
    hub,
    clock,
    // As the sessions of an instance do with one that they find in the store.
    sessions: { follow: (_principal, _id, after, to) => hub.subscribeAfter('s', to, after ?? 0), forget: hub.forget },
    owners: {
      find: async () => (hasBegun ? session : undefined),
      byKey: async () => session,
      ofRow: async () => target,
      isTaken: () => false,
    },
    updates: { lastSeq: async () => STORED.at(-1) ?? 0 },
    log: { warn: (_facts, text) => assert.fail(text) },
    openStream: async (_target, _session, on, signal) => {
      on.accepted();
      on.update(5, '{}');
      isStreaming = true;
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
      return undefined as never;
    },
    flush: async () => ({ kind: 'result', result: {} }),
  });
  t.after(() => feeds.stop());
  await feeds.follow(MAIN, 'session', 0, receiver);
  assert.deepEqual(seen, STORED);
  hasBegun = true;
  feeds.woken('s');
  await until('the stream of the other instance', () => isStreaming);
  await until('its update', () => seen.at(-1) === 5);
  assert.deepEqual(seen, [...STORED, 5]);
});

test('a client that waits for a session gets it when the instance that started it has gone before it was found', async (t) => {
  const clock = createFakeClock();
  const seen: number[] = [];
  let losses = 0;
  const receiver: NotificationSink = {
    update: (_params, seq) => void seen.push(seq),
    isBehind: () => false,
    drained: async () => true,
    lost: () => {
      losses += 1;
    },
  };
  let isAway = false;
  const hub = createUpdateHub(async (_key, to, after) => {
    if (isAway) throw new Error('the store is away');
    for (const seq of STORED.filter((each) => each > after)) to.update(rawJson('{}'), seq);
    return STORED.at(-1) ?? 0;
  }, clock);
  const session = { key: 's', closed_at: null } as SessionRow;
  let hasBegun = false;
  const feeds = createSessionFeeds({
    hub,
    clock,
    // As the sessions of an instance do: nobody is told of a session that starts elsewhere.
    sessions: {
      follow: async (_principal, _id, after, to) => hasBegun && hub.subscribeAfter('s', to, after ?? 0),
      forget: hub.forget,
    } as Parameters<typeof createSessionFeeds>[0]['sessions'],
    owners: {
      find: async () => (hasBegun ? session : undefined),
      byKey: async () => session,
      ofRow: async () => undefined,
      isTaken: () => false,
    },
    updates: { lastSeq: async () => STORED.at(-1) ?? 0 },
    log: { warn: (_facts, text) => assert.fail(text) },
    openStream: async () => assert.fail('no instance has it'),
    flush: async () => ({ kind: 'result', result: {} }),
  });
  t.after(() => feeds.stop());
  await feeds.follow(MAIN, 'session', undefined, receiver);
  assert.deepEqual(seen, []);
  hasBegun = true;
  await clock.advance(5_000);
  await until('its updates', () => seen.length > 0);
  // Further looks send nothing once more.
  await clock.advance(10_000);
  assert.deepEqual([seen, losses], [STORED, 0]);

  // Of another one the store fails when it is read: its client must resume.
  hub.forget(receiver);
  hasBegun = false;
  await feeds.follow(MAIN, 'session', undefined, receiver);
  hasBegun = true;
  isAway = true;
  await clock.advance(5_000);
  await until('the end of its connection', () => losses === 1);
});

test('a client keeps its connection while the owner of its session leaves, and gets what the owner has stored', async (t) => {
  const clock = createFakeClock();
  const seen: number[] = [];
  let isLost = false;
  const receiver: NotificationSink = {
    update: (_params, seq) => void seen.push(seq),
    isBehind: () => false,
    drained: async () => true,
    lost() {
      isLost = true;
    },
  };
  // As the sessions of an instance replay: what the owner has not stored yet is stored first.
  const hub = createUpdateHub(async (_key, to, after) => {
    await feeds.flush('s');
    for (const seq of STORED.filter((each) => each > after)) to.update(rawJson('{}'), seq);
    return STORED.at(-1) ?? 0;
  }, clock);
  const session = { key: 's', closed_at: null } as SessionRow;
  const left = Promise.withResolvers<void>();
  let hasLeft = false;
  let asked = 0;
  const feeds = createSessionFeeds({
    hub,
    clock,
    sessions: { follow: async () => undefined, forget: hub.forget },
    owners: {
      find: async () => session,
      byKey: async () => session,
      ofRow: async () => (hasLeft ? undefined : ({ id: 'other' } as unknown as RelayTarget)),
      isTaken: () => true,
    },
    updates: { lastSeq: async () => STORED.at(-1) ?? 0 },
    log: { warn: (_facts, text) => assert.fail(text) },
    openStream: async (_target, _session, on) => {
      on.accepted();
      await left.promise;
      return undefined as never;
    },
    flush: async () => {
      asked += 1;
      return { kind: 'unreachable' } as unknown as { kind: 'result'; result: object };
    },
  });
  t.after(() => feeds.stop());
  const followed = feeds.follow(MAIN, 'session', 0, receiver);
  await until('the owner to be asked more than once', async () => {
    await clock.advance(100);
    return asked > 3;
  });
  assert.deepEqual([seen, isLost], [[], false]);
  hasLeft = true;
  left.resolve();
  await until('what is stored', async () => {
    await clock.advance(100);
    return seen.length === STORED.length;
  });
  await followed;
  assert.deepEqual([seen, isLost], [STORED, false]);
});

test('a client of a session that another instance has closed gets the session that is started in its place', async (t) => {
  const clock = createFakeClock();
  const seen: number[] = [];
  const stored: number[] = [];
  const hub = createUpdateHub(async (_key, to, after) => {
    for (const seq of stored.filter((each) => each > after)) to.update(rawJson('{}'), seq);
    return Math.max(after, ...stored);
  }, clock);
  let closedAt: number | null = null;
  const session = () => ({ key: 's', closed_at: closedAt }) as SessionRow;
  const streams: { update(seq: number, text: string): void; end(): void }[] = [];
  const feeds = createSessionFeeds({
    hub,
    clock,
    sessions: { follow: async () => assert.fail('the session is elsewhere'), forget: hub.forget },
    owners: {
      find: async () => session(),
      byKey: async () => session(),
      ofRow: async () => (closedAt === null ? ({ id: 'other' } as unknown as RelayTarget) : undefined),
      isTaken: () => false,
    },
    updates: { lastSeq: async () => 0 },
    log: { warn: (_facts, text) => assert.fail(text) },
    openStream: async (_target, _session, on) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      streams.push({ update: on.update, end: resolve });
      on.accepted();
      await promise;
      return undefined as never;
    },
    flush: async () => ({ kind: 'result', result: {} }),
  });
  t.after(async () => {
    for (const { end } of streams) end();
    await feeds.stop();
  });
  const receiver: NotificationSink = {
    update: (_params, seq) => void seen.push(seq),
    isBehind: () => false,
    drained: async () => true,
    lost: () => assert.fail('it has missed nothing'),
  };
  await feeds.follow(MAIN, 'session', 0, receiver);
  streams[0]?.update(1, '{}');
  closedAt = 1;
  streams[0]?.end();
  feeds.woken('s');
  await clock.advance(5_000);
  assert.deepEqual([seen, streams.length], [[1], 1]);
  closedAt = null;
  stored.push(513);
  feeds.woken('s');
  await until('the stream of the new session', () => streams.length === 2);
  streams[1]?.update(513, '{}');
  await until('its update', () => seen.length > 1);
  assert.deepEqual(seen, [1, 513]);
});

test('a client of a session whose beginning here is taken back waits for the next one, wherever that begins', async (t) => {
  const clock = createFakeClock();
  const seen: number[] = [];
  const hub = createUpdateHub(async (_key, _to, after) => after, clock);
  let stored: SessionRow | undefined = { key: 'first', closed_at: null } as SessionRow;
  const feeds = createSessionFeeds({
    hub,
    clock,
    // As the sessions of an instance do while a session is about to begin.
    sessions: { follow: async (_principal, _id, _after, to) => hub.subscribe('first', to, 0), forget: hub.forget },
    owners: {
      find: async () => stored,
      byKey: async () => stored,
      ofRow: async (row) => (row?.key === 'next' ? ({ id: 'other' } as unknown as RelayTarget) : undefined),
      isTaken: () => false,
    },
    updates: { lastSeq: async () => 0 },
    log: { warn: (_facts, text) => assert.fail(text) },
    openStream: async (_target, _session, on, signal) => {
      on.accepted();
      on.update(1, '{}');
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
      return undefined as never;
    },
    flush: async () => ({ kind: 'result', result: {} }),
  });
  t.after(() => feeds.stop());
  const receiver: NotificationSink = {
    update: (_params, seq) => void seen.push(seq),
    isBehind: () => false,
    drained: async () => true,
    lost: () => assert.fail('it can wait'),
  };
  await feeds.follow(MAIN, 'session', 0, receiver);
  stored = undefined;
  hub.end('first');
  stored = { key: 'next', closed_at: null } as SessionRow;
  await clock.advance(5_000);
  hub.publish('next', 1, '{}');
  await clock.advance(5_000);
  hub.publish('next', 2, '{}');
  await until('its updates', () => seen.at(-1) === 2);
  assert.equal(hub.isFollowed('next'), true);
});

test('an owner that does not answer is asked less and less often, and soon again after it has answered', async (t) => {
  const clock = createFakeClock();
  const receiver: NotificationSink = {
    update: () => undefined,
    isBehind: () => false,
    drained: async () => true,
    lost: () => undefined,
  };
  const hub = createUpdateHub(async (_key, _to, after) => after, clock);
  const session = { key: 's', closed_at: null } as SessionRow;
  const asked: number[] = [];
  let answers = false;
  const feeds = createSessionFeeds({
    hub,
    clock,
    sessions: { follow: async () => undefined, forget: hub.forget } as never,
    owners: {
      find: async () => session,
      byKey: async () => session,
      ofRow: async () => ({ id: 'other' }) as unknown as RelayTarget,
      isTaken: () => false,
    },
    updates: { lastSeq: async () => 0 },
    log: { warn: (_facts, text) => assert.fail(text) },
    openStream: async (_target, _session, on) => {
      asked.push(clock.monotonic());
      if (answers) on.accepted();
      return undefined as never;
    },
    flush: async () => ({ kind: 'result', result: {} }),
  });
  t.after(() => feeds.stop());
  await feeds.follow(MAIN, 'session', 0, receiver);
  const pauses = () => asked.slice(1).map((at, index) => at - (asked[index] ?? 0));
  for (let step = 0; step < 40; step += 1) await clock.advance(250);
  assert.deepEqual(pauses(), [250, 500, 1000, 2000, 2000, 2000, 2000]);
  answers = true;
  for (let step = 0; step < 16; step += 1) await clock.advance(250);
  assert.deepEqual(pauses().slice(-3), [250, 250, 250]);
});

test('a client that comes while the stream is opened gets the updates, though the one that opened it has gone', async (t) => {
  const clock = createFakeClock();
  const clients = ['gone', 'stays'].map(() => {
    const seen: number[] = [];
    const receiver: NotificationSink = {
      update: (_params, seq) => void seen.push(seq),
      isBehind: () => false,
      drained: async () => true,
      lost: () => undefined,
    };
    return { seen, receiver };
  });
  const [gone, stays] = clients;
  assert.ok(gone !== undefined && stays !== undefined);
  const hub = createUpdateHub(async (_key, _to, after) => after, clock);
  const session = { key: 's', closed_at: null } as SessionRow;
  const streams: { accepted(): void; update(seq: number, text: string): void; isOpen(): boolean }[] = [];
  const feeds = createSessionFeeds({
    hub,
    clock,
    sessions: { follow: async () => assert.fail('the session is elsewhere'), forget: hub.forget },
    owners: {
      find: async () => session,
      byKey: async () => session,
      ofRow: async () => ({ id: 'other' }) as unknown as RelayTarget,
      isTaken: () => true,
    },
    updates: { lastSeq: async () => 0 },
    log: { warn: (_facts, text) => assert.fail(text) },
    openStream: async (_target, _session, on, signal) => {
      streams.push({ ...on, isOpen: () => !signal.aborted });
      await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
      return undefined as never;
    },
    flush: async () => ({ kind: 'result', result: {} }),
  });
  t.after(() => feeds.stop());
  const following = clients.map(({ receiver }) => feeds.follow(MAIN, 'session', 0, receiver));
  await until('the stream to be asked for', () => streams.length > 0);
  feeds.forget(gone.receiver);
  for (const { accepted } of streams) accepted();
  await Promise.all(following);
  for (const { isOpen, update } of streams) if (isOpen()) update(1, '{}');
  assert.deepEqual([gone.seen, stays.seen], [[], [1]]);
  feeds.forget(stays.receiver);
  assert.equal(streams.filter(({ isOpen }) => isOpen()).length, 0, 'the last one closes it');
});
