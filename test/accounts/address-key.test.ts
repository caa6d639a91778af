import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressKey } from '../../src/accounts/limiter/limiter.ts';

test('an IPv4 address counts by itself, also when it came through an IPv6 socket', () => {
  assert.equal(addressKey('203.0.113.7'), '203.0.113.7');
  assert.equal(addressKey('::ffff:203.0.113.7'), '203.0.113.7');
  assert.notEqual(addressKey('203.0.113.7'), addressKey('203.0.113.8'));
});

test('all of one IPv6 network of 64 bits counts as one, and its neighbour as another', () => {
  const key = addressKey('2001:db8:1:2::1');
  assert.equal(key, '2001:db8:1:2::/64');
  assert.equal(addressKey('2001:db8:1:2:ffff:ffff:ffff:ffff'), key);
  assert.notEqual(addressKey('2001:db8:1:3::1'), key);
});

test('what is no address counts as it stands', () => {
  assert.equal(addressKey('unknown'), 'unknown');
});
