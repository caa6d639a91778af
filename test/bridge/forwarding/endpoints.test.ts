import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { LookupFunction, Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import type { buildConnector } from 'undici';
import {
  checkEndpointNames,
  createPeerConnector,
  isTunnelAddress,
  NotConnected,
  refusalOfEndpoint,
} from '../../../src/bridge/forwarding/endpoints.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { ConfigurationError } from '../../../src/platform/config/problem.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';
import { resolveTrestle } from '../../kit/resolve-trestle.ts';

const ALLOWED = [
  'http://127.0.0.1:8787',
  'http://[::1]:8787',
  'http://10.1.2.3',
  'https://172.29.10.1:8787',
  'http://192.168.1.1',
  'http://169.254.10.10',
  'http://100.64.0.5:8787',
  'http://[fd00::5]:8787',
  'http://[fe80::1]',
  'http://node-b.tunnel:8787',
];
const REFUSED = [
  'http://93.184.216.34',
  'https://8.8.8.8:8787',
  'http://[2606:4700::1111]',
  'http://0.0.0.0:8787',
  'http://169.254.169.254',
  'http://100.100.100.200',
  'http://metadata.google.internal',
  'http://224.0.0.1',
  'http://134744072',
  'http://0x08080808',
  'http://[::ffff:8.8.8.8]',
];

for (const endpoint of ALLOWED) {
  test(`B-85: the endpoint ${endpoint} may be the end of a tunnel`, () => {
    assert.equal(refusalOfEndpoint(endpoint), undefined);
  });
}

for (const endpoint of REFUSED) {
  test(`B-85: the endpoint ${endpoint} is refused when the configuration is read`, () => {
    const text = `distributed: { nodes: [{ id: b, bridge_endpoint: "${endpoint}" }] }`;
    const paths = resolveTrestle(text).problems.map(({ path }) => path);
    assert.deepEqual(paths, ['distributed.nodes[0].bridge_endpoint']);
  });
}

test('B-85: a refusal says what is wrong with the endpoint', () => {
  const words = (endpoint: string) => refusalOfEndpoint(endpoint);
  assert.equal(words('http://8.8.8.8'), '8.8.8.8 is not a loopback, private or link-local address');
  assert.equal(words('http://metadata.google.internal'), 'it is where a cloud keeps credentials');
  for (const endpoint of ['', 'no address', 'http://']) assert.equal(words(endpoint), 'it names no host', endpoint);
});

test('B-85: what is no address is the end of no tunnel', () => {
  for (const text of ['', 'localhost', 'b.tunnel', '127.1']) assert.equal(isTunnelAddress(text), false, text);
});

const pointingTo =
  (...addresses: readonly string[]): LookupFunction =>
  (_host, _options, callback) =>
    callback(
      null,
      addresses.map((address) => ({ address, family: 4 })),
    );
const node = (endpoint: string) => ({ id: 'b', role: '', zone: '', capabilities: [], bridge_endpoint: endpoint });

test('B-85: a name that leads outside is refused when the bridge starts, even where it also leads inside', async () => {
  const nodes = [node('http://10.0.0.1'), node('http://b.example')];
  await assert.rejects(checkEndpointNames(nodes, systemClock, pointingTo('10.0.0.1', '93.184.216.34')), (error) => {
    assert.ok(error instanceof ConfigurationError);
    assert.deepEqual(error.problems, [
      {
        where: 'configuration',
        path: 'distributed.nodes[1].bridge_endpoint',
        wrong: 'the name of node "b" leads outside: 93.184.216.34 is not a loopback, private or link-local address',
        right: 'name the end of a tunnel',
      },
    ]);
    return true;
  });
});

test('B-85: a name that leads inside, or cannot be looked up yet, does not stop the start', async () => {
  await checkEndpointNames([node('http://b.example')], systemClock, pointingTo('10.0.0.1'));
  const failing: LookupFunction = (_host, _options, callback) => callback(new Error('no such name'), '', 0);
  await checkEndpointNames([node('http://b.example')], systemClock, failing);
});

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
    failWith: (error: Error) => told(error, null),
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

/** What a connection is told of a name, when the lookup finds this. */
async function lookedUp(lookup: LookupFunction): Promise<unknown> {
  let checked: LookupFunction | undefined;
  const build = (options: { lookup: LookupFunction }) => {
    checked = options.lookup;
    return () => new EventEmitter();
  };
  createPeerConnector(build as unknown as typeof buildConnector, {
    clock: createFakeClock(),
    connectMs: CONNECT_MS,
    lookup,
    beforeSend: async () => {},
  });
  return new Promise((resolve) => checked?.('b.tunnel', {}, (error, found) => resolve(error ?? found)));
}

const found =
  (addresses: string | readonly string[]): LookupFunction =>
  (_host, _options, callback) =>
    typeof addresses === 'string'
      ? callback(null, addresses, 4)
      : callback(
          null,
          addresses.map((address) => ({ address, family: 4 })),
        );

test('B-85: a name is refused before anything connects when any of its addresses lies outside', async () => {
  for (const addresses of ['8.8.8.8', ['8.8.8.8'], ['10.0.0.2', '8.8.8.8'], ['169.254.169.254']]) {
    const outcome = await lookedUp(found(addresses));
    assert.ok(outcome instanceof NotConnected && outcome.isRefused, String(addresses));
    assert.match(outcome.message, /^(8\.8\.8\.8|169\.254\.169\.254) is not a loopback/);
  }
});

test('a name that leads inside is reported as it was found, and one that leads nowhere fails as it did', async () => {
  assert.equal(await lookedUp(found('10.0.0.2')), '10.0.0.2');
  assert.deepEqual(await lookedUp(found(['10.0.0.2', '::1'])), [
    { address: '10.0.0.2', family: 4 },
    { address: '::1', family: 4 },
  ]);
  const missing = Object.assign(new Error('no such name'), { code: 'ENOTFOUND' });
  const failing: LookupFunction = (_host, _options, callback) => callback(missing, '', 0);
  assert.equal(await lookedUp(failing), missing);
});

test('why there is no connection is said in words, also where several addresses were tried', async () => {
  const reasons = {
    ENOTFOUND: /name is not known/,
    EAI_AGAIN: /looked up/,
    EHOSTUNREACH: /no way/,
    ENETUNREACH: /no way/,
  };
  for (const [code, words] of Object.entries(reasons)) {
    const peer = createScriptedConnector();
    peer.connect();
    peer.fail(code);
    const [outcome] = peer.outcomes;
    assert.ok(outcome instanceof NotConnected && !outcome.isRefused && words.test(outcome.message), code);
    assert.equal(peer.clock.pending(), 0, 'the time for connecting is not waited for');
  }
  const peer = createScriptedConnector();
  peer.connect();
  peer.failWith(new AggregateError([Object.assign(new Error('refused'), { code: 'ECONNREFUSED' })]));
  const without = createScriptedConnector();
  without.connect();
  without.failWith(new Error('who knows'));
  const words = [peer, without].map(({ outcomes: [one] }) => (one instanceof Error ? one.message : one));
  assert.deepEqual(words, ['nothing listens at its address', 'the connection failed']);
});
