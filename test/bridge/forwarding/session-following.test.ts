import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BridgeCaller } from '../../../src/bridge/access.ts';
import type { CallName } from '../../../src/bridge/forwarding/session-routes.ts';
import {
  createSessionFollowing,
  createUpdateRelay,
  type SessionFollowingParts,
} from '../../../src/bridge/forwarding/update-relay.ts';
import { MAIN } from '../../../src/bridge/principal.ts';
import type { NotificationSink } from '../../../src/bridge/sessions/update-hub.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

const caller: BridgeCaller = { principal: MAIN };
const PLACE = {
  candidate: {
    target: 'c',
    nextHop: { id: 'b', role: '', zone: '', endpoint: 'http://b.tunnel', capabilities: [] },
  },
  owner: 'main',
  headers: { 'x-app-forward-target': 'c' },
};

type PeerUpdates = Parameters<SessionFollowingParts['followPeer']>[0];

/** Sessions that live elsewhere once `places` has them; the test plays the other node. */
function start(places: Map<string, typeof PLACE> = new Map()) {
  const events: string[] = [];
  const followed: PeerUpdates[] = [];
  const opened: { wait: Promise<void> | undefined } = { wait: undefined };
  let placed: (names: readonly CallName[]) => void = () => undefined;
  const following = createSessionFollowing({
    sessions: {
      async follow(principal, sessionId, afterSeq) {
        events.push(`here ${principal.id} ${sessionId} after ${afterSeq}`);
      },
      forget: () => void events.push('forgotten here'),
    },
    async followPeer(updates) {
      await opened.wait;
      followed.push(updates);
      return () => void events.push(`stopped ${updates.sessionId}`);
    },
    relay: createUpdateRelay(createFakeClock()),
    placeOf: async (_caller, sessionId) => places.get(sessionId),
    onPlaced(listener) {
      placed = listener;
    },
  });
  return { following, events, followed, opened, place: (names: readonly CallName[]) => placed(names) };
}

function receiverOf(changes: Partial<NotificationSink> = {}) {
  const seen: string[] = [];
  const receiver: NotificationSink = {
    update: ({ text }, seq) => void seen.push(`${seq} ${text}`),
    isBehind: () => false,
    drained: async () => true,
    lost: () => undefined,
    ...changes,
  };
  return { receiver, seen };
}
const turn = () => new Promise((resolve) => setImmediate(resolve));
const fail = () => assert.fail('it is not lost');

test('forwarding: a session that lives here is followed here, from where the client was', async () => {
  const { following, events, followed } = start();
  await following.follow(caller, 's', 7, receiverOf().receiver, fail);
  assert.deepEqual([events, followed], [['here main s after 7'], []]);
});

test('forwarding: a session that lives elsewhere is followed at its node, and each update comes once', async () => {
  const { following, events, followed } = start(new Map([['s', PLACE]]));
  const { receiver, seen } = receiverOf({ takesQuestions: true, drained: async () => false });
  await following.follow(caller, 's', 3, receiver, fail);
  assert.deepEqual(events, []);
  const [updates] = followed;
  assert.ok(updates);
  const { endpoint, headers, sessionId, afterSeq, withQuestions } = updates;
  assert.deepEqual(
    [endpoint, headers, sessionId, afterSeq, withQuestions],
    ['http://b.tunnel', PLACE.headers, 's', 3, true],
  );
  for (const params of [{ seq: 4, a: 1 }, { seq: 4, a: 2 }, { a: 3 }, { seq: 5 }]) updates.update(params);
  assert.deepEqual(seen, ['4 {"seq":4,"a":1}', '5 {"seq":5}']);
  assert.equal(await updates.drained(), false, 'it asks the client');
  const plain = start(new Map([['s', PLACE]]));
  await plain.following.follow(caller, 's', undefined, receiverOf().receiver, fail);
  assert.deepEqual([plain.followed[0]?.withQuestions, plain.followed[0]?.afterSeq], [false, undefined]);
});

test('forwarding: when its node can be followed no more the client is sent away, unless it is gone itself', async () => {
  const { following, followed, events } = start(new Map([['s', PLACE]]));
  const { receiver } = receiverOf();
  let lost = 0;
  const count = () => {
    lost += 1;
  };
  await following.follow(caller, 's', 0, receiver, count);
  followed[0]?.ended();
  assert.equal(lost, 1);
  await following.follow(caller, 's', 0, receiver, count);
  following.forget(receiver);
  followed[1]?.ended();
  assert.equal(lost, 1);
  assert.deepEqual(events, ['forgotten here', 'stopped s', 'stopped s']);
});

test('forwarding: a client that goes while its node is being reached follows nothing', async () => {
  const { following, events, opened } = start(new Map([['s', PLACE]]));
  const gate = Promise.withResolvers<void>();
  opened.wait = gate.promise;
  const { receiver } = receiverOf();
  const follow = following.follow(caller, 's', 0, receiver, fail);
  await turn();
  following.forget(receiver);
  gate.resolve();
  await follow;
  assert.deepEqual(events, ['forgotten here', 'stopped s']);
  const early = start(new Map([['s', PLACE]]));
  const begun = early.following.follow(caller, 's', 0, receiver, fail);
  early.following.forget(receiver);
  await begun;
  assert.deepEqual([early.followed, early.events], [[], ['forgotten here']]);
});

test('forwarding: who follows a session before another node has it follows it there from its first update on', async () => {
  const places = new Map<string, typeof PLACE>();
  const { following, followed, place } = start(places);
  const [first, second, third, gone] = [receiverOf(), receiverOf(), receiverOf(), receiverOf()];
  await following.follow(caller, 's', undefined, first.receiver, fail);
  await following.follow(caller, 's', 9, second.receiver, fail);
  await following.follow(caller, 'other', undefined, third.receiver, fail);
  await following.follow(caller, 's', undefined, gone.receiver, fail);
  following.forget(gone.receiver);
  places.set('s', PLACE);
  place([
    { kind: 'job', name: 's' },
    { kind: 'jobs', name: 'b' },
  ]);
  await turn();
  assert.deepEqual(followed, [], 'a job of that name is not the session');
  place([{ kind: 'session', name: 's' }]);
  await turn();
  assert.deepEqual(
    followed.map(({ sessionId, afterSeq }) => [sessionId, afterSeq]),
    [
      ['s', 0],
      ['s', 9],
    ],
  );
  place([{ kind: 'session', name: 's' }]);
  await turn();
  assert.equal(followed.length, 2, 'each is followed once');
});

test('forwarding: a client whose session got a place that cannot be asked for is sent away', async () => {
  const { following, place } = (() => {
    let isKnown = false;
    let placed: (names: readonly CallName[]) => void = () => undefined;
    const made = createSessionFollowing({
      sessions: { follow: async () => undefined, forget: () => undefined } as never,
      followPeer: async () => () => undefined,
      relay: createUpdateRelay(createFakeClock()),
      async placeOf() {
        if (isKnown) throw new Error('no');
        isKnown = true;
        return undefined;
      },
      onPlaced(listener) {
        placed = listener;
      },
    });
    return { following: made, place: (names: readonly CallName[]) => placed(names) };
  })();
  let lost = 0;
  await following.follow(caller, 's', 0, receiverOf().receiver, () => {
    lost += 1;
  });
  place([{ kind: 'session', name: 's' }]);
  await turn();
  assert.equal(lost, 1);
});
