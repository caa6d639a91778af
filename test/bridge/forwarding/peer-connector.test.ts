import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { buildConnector } from 'undici';
import { createPeerConnector, NotConnected } from '../../../src/bridge/forwarding/peer-connector.ts';
import { createFakeClock } from '../../fakes/fake-clock.ts';

const TARGET = { hostname: 'b.tunnel', host: 'b.tunnel', protocol: 'http:', port: '8787' };
const CONNECT_MS = 1000;

/** A connector whose connections stand or fail when the test says so. */
function createScriptedConnector(beforeSend = async (): Promise<void> => {}) {
  const clock = createFakeClock();
  const socket = Object.assign(new EventEmitter(), { remoteAddress: '10.0.0.2', destroyed: false, destroy });
  function destroy(): void {
    socket.destroyed = true;
  }
  let told: buildConnector.Callback = () => {};
  let sends = 0;
  const build = () => (_options: buildConnector.Options, callback: buildConnector.Callback) => {
    told = callback;
    return socket;
  };
  const connect = createPeerConnector(build as unknown as typeof buildConnector, {
    clock,
    connectMs: CONNECT_MS,
    beforeSend() {
      sends += 1;
      return beforeSend();
    },
  });
  const outcomes: (Error | 'connected')[] = [];
  return {
    clock,
    socket,
    outcomes,
    sends: () => sends,
    connect: () => connect(TARGET, (...[error]) => void outcomes.push(error ?? 'connected')),
    stand: () => told(null, socket as unknown as Socket),
    fail: (code: string) => told(Object.assign(new Error('refused'), { code }), null),
  };
}

test('B-85: a connection that stands outside is cut before anything is sent, whatever its name led to before', async () => {
  for (const address of ['93.184.216.34', '169.254.169.254', '::ffff:8.8.8.8', undefined]) {
    const peer = createScriptedConnector();
    Object.assign(peer.socket, { remoteAddress: address });
    peer.connect();
    peer.stand();
    await setImmediate();
    const [outcome] = peer.outcomes;
    assert.ok(outcome instanceof NotConnected && outcome.isRefused, address);
    assert.deepEqual([peer.sends(), peer.socket.destroyed, peer.outcomes.length], [0, true, 1], address);
  }
});

test('a connection that stands inside is given out once, when all before the sending is done', async () => {
  const ready = Promise.withResolvers<void>();
  const peer = createScriptedConnector(() => ready.promise);
  peer.connect();
  peer.stand();
  await setImmediate();
  assert.deepEqual(peer.outcomes, []);
  ready.resolve();
  await setImmediate();
  // The time for connecting is over, but it was for connecting alone.
  await peer.clock.advance(CONNECT_MS);
  await setImmediate();
  assert.deepEqual(peer.outcomes, ['connected']);
});

test('nothing is sent twice: a second connection for the same request is refused, and not as one that never was', async () => {
  const peer = createScriptedConnector();
  peer.connect();
  peer.stand();
  await setImmediate();
  peer.connect();
  const second = peer.outcomes[1];
  assert.ok(second instanceof Error && !(second instanceof NotConnected));
  assert.equal(peer.sends(), 1);
});

test('a connection that is cut before the sending counts as none', async () => {
  const peer = createScriptedConnector(async () => peer.socket.destroy());
  peer.connect();
  peer.stand();
  await setImmediate();
  const [outcome] = peer.outcomes;
  assert.ok(outcome instanceof NotConnected && !outcome.isRefused);
});

test('what fails before the sending is what the request fails with', async () => {
  const wrong = new Error('the route could not be stored');
  const peer = createScriptedConnector(() => Promise.reject(wrong));
  peer.connect();
  peer.stand();
  await setImmediate();
  assert.deepEqual([peer.outcomes, peer.socket.destroyed], [[wrong], true]);
});

test('a connection that does not stand in time, or fails, says why, once', async () => {
  const late = createScriptedConnector();
  late.connect();
  await late.clock.advance(CONNECT_MS);
  await setImmediate();
  late.stand();
  await setImmediate();
  const failed = createScriptedConnector();
  failed.connect();
  failed.fail('ECONNREFUSED');
  const odd = createScriptedConnector();
  odd.connect();
  odd.fail('EPIPE');
  const words = [late, failed, odd].map(({ outcomes }) =>
    outcomes.map((one) => (one instanceof NotConnected ? one.message : one)),
  );
  assert.deepEqual(words, [
    ['it could not be reached in time'],
    ['nothing listens at its address'],
    ['the connection failed with EPIPE'],
  ]);
});
