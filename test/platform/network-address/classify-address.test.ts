import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  classifyAddress,
  classifyHost,
  isLoopbackHost,
  isMetadataName,
} from '../../../src/platform/network-address/classify-address.ts';
import fc from '../../kit/properties.ts';
import { ADDRESS_VECTORS, BORDERS, REFUSED_NAMES } from './vectors.ts';

test('B-77: every spelling in the vector table has its class as the host of a URL', () => {
  for (const vector of ADDRESS_VECTORS) {
    const found = classifyHost(vector.host);
    assert.equal(found.kind === 'address' ? found.class : found.kind, vector.class, vector.host);
  }
});

test('B-77: a range ends with its last address, and the neighbours of a metadata service are what their range is', () => {
  for (const [kind, addresses] of Object.entries(BORDERS)) {
    for (const address of addresses) assert.equal(classifyAddress(address), kind, address);
  }
});

test('only the usual spelling of an address is an address by itself', () => {
  for (const vector of ADDRESS_VECTORS) {
    assert.equal(classifyAddress(vector.host), vector.canonical ? vector.class : 'invalid', vector.host);
  }
});

test('B-77: an odd spelling becomes the address that a connection would go to', () => {
  for (const vector of ADDRESS_VECTORS) {
    const found = classifyHost(vector.host);
    assert.ok(found.kind === 'address', vector.host);
    assert.equal(classifyAddress(found.address), vector.class, vector.host);
  }
});

test('an address comes back without brackets, as a socket takes it', () => {
  assert.deepEqual(classifyHost('[::1]'), { kind: 'address', address: '::1', class: 'loopback' });
  assert.deepEqual(classifyHost('[0:0::1.2.3.4]'), { kind: 'address', address: '0:0::1.2.3.4', class: 'reserved' });
  assert.deepEqual(classifyHost('0x7f.1'), { kind: 'address', address: '127.0.0.1', class: 'loopback' });
});

test('B-77: no address that a callback may not reach is public, and every public one is reachable', () => {
  for (const vector of ADDRESS_VECTORS) {
    const found = classifyHost(vector.host);
    const allowed = found.kind === 'address' && found.class === 'public';
    assert.equal(allowed ? 'accepted' : 'refused', vector.callback, vector.host);
  }
});

test('a tunnel may end at a loopback, private, link-local or carrier-NAT address and nowhere else', () => {
  const allowed = new Set(['loopback', 'private', 'link-local', 'carrier-nat']);
  for (const vector of ADDRESS_VECTORS) {
    const found = classifyHost(vector.host);
    const accepted = found.kind === 'address' && allowed.has(found.class);
    assert.equal(accepted ? 'accepted' : 'refused', vector.tunnel, vector.host);
  }
});

test('B-77: names of this machine and of metadata services are known without a lookup', () => {
  for (const host of REFUSED_NAMES) {
    const found = classifyHost(host);
    assert.ok(found.kind === 'name', host);
    assert.ok(isLoopbackHost(found.name) || isMetadataName(found.name), host);
  }
  assert.equal(isMetadataName('Metadata.Google.Internal.'), true);
  assert.equal(isMetadataName('metadata.google.internal.example.com'), false);
  assert.equal(isMetadataName('example.com'), false);
});

test('a name comes back in lower case, in ASCII and without its final dot', () => {
  assert.deepEqual(classifyHost('Example.COM.'), { kind: 'name', name: 'example.com' });
  assert.deepEqual(classifyHost('bücher.example'), { kind: 'name', name: 'xn--bcher-kva.example' });
});

test('what a URL parser would cut off or drop from a host makes it invalid', () => {
  const hosts = [
    '',
    '.',
    ' ',
    'a b',
    'a\tb',
    '127.0.0.1\n',
    'a/b',
    'a\\b',
    'a?b',
    'a#b',
    'u@h',
    'h:80',
    '[::1',
    '[::1]:80',
  ];
  hosts.push('127.0.0.1:80', '[::1]x', '256.256.256.256', '1.2.3.4.5', '[fe80::1%eth0', 'a\u0000b', '%00', 'http://a');
  for (const host of hosts) assert.equal(classifyHost(host).kind, 'invalid', JSON.stringify(host));
});

test('B-33: only names and addresses of this machine count as loopback in a Host header', () => {
  const accepted = ['localhost', 'LocalHost:8787', 'localhost.', 'localhost:0', 'app.localhost:3000', '127.0.0.1'];
  accepted.push('127.9.9.9:65535', '[::1]', '[::1]:8787', '[0:0:0:0:0:0:0:1]:1', '[::ffff:127.0.0.1]:80');
  for (const host of accepted) assert.equal(isLoopbackHost(host), true, host);

  const refused = [
    '',
    'example.com',
    'localhost.example.com',
    'notlocalhost',
    '127.0.0.1.nip.io',
    '0.0.0.0',
    '[::]:80',
  ];
  refused.push('10.0.0.1', '2130706433', '0x7f.1', '127.1', 'localhost:', 'localhost:99999', 'localhost:80:80', ':80');
  refused.push(
    'localhost@evil.example',
    'localhost/',
    'localhost, evil.example',
    ' localhost',
    'localhost ',
    '[::1',
    '::1',
  );
  refused.push('localhost\r\nX: 1', '.localhost', 'a..localhost', 'localhost..', '[::1]x', '127.0.0.1:8a');
  for (const host of refused) assert.equal(isLoopbackHost(host), false, JSON.stringify(host));
});

test('classification never throws, and what is an address by itself is one as a host too', () => {
  const text = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.ipV4(),
    fc.ipV6(),
    fc.ipV4Extended(),
    fc.domain(),
    fc.string({ unit: fc.constantFrom(...'0123456789abcdefx.:[]%/@') }),
  );
  fc.assert(
    fc.property(text, (host) => {
      const found = classifyHost(host);
      isLoopbackHost(host);
      isMetadataName(host);
      if (classifyAddress(host) !== 'invalid') assert.equal(found.kind, 'address');
    }),
    { numRuns: 2000 },
  );
});

test('an IPv4 address has the same class when it comes mapped into IPv6', () => {
  fc.assert(
    fc.property(fc.ipV4(), (address) => {
      assert.equal(classifyAddress(`::ffff:${address}`), classifyAddress(address));
    }),
  );
});
