import assert from 'node:assert/strict';
import type { LookupFunction } from 'node:net';
import { test } from 'node:test';
import { checkEndpointNames } from '../../../src/bridge/forwarding/check-endpoint-names.ts';
import { isTunnelAddress, refusalOfEndpoint } from '../../../src/bridge/forwarding/endpoint-rule.ts';
import { systemClock } from '../../../src/platform/clock/clock.ts';
import { ConfigurationError } from '../../../src/platform/config/problem.ts';
import { resolveTrestle } from '../../system/resolve-trestle.ts';

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
