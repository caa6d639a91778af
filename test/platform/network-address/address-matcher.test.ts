import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createAddressMatcher } from '../../../src/platform/network-address/ip-address.ts';

test('an address matches the ranges it lies in, on both sides of each border', () => {
  const matches = createAddressMatcher(['10.0.0.0/8', '192.168.1.7', 'fd00::/8', '172.16.5.9/12']);
  for (const inside of ['10.0.0.0', '10.255.255.255', '192.168.1.7', 'fd12::1', '172.31.0.1', '172.16.0.0']) {
    assert.equal(matches(inside), true, inside);
  }
  for (const outside of ['9.255.255.255', '11.0.0.0', '192.168.1.8', 'fe00::1', '172.32.0.0', '::1']) {
    assert.equal(matches(outside), false, outside);
  }
});

test('an IPv4 address that came through an IPv6 socket matches as IPv4', () => {
  assert.equal(createAddressMatcher(['10.0.0.0/8'])('::ffff:10.1.2.3'), true);
  assert.equal(createAddressMatcher(['10.0.0.0/8'])('[::ffff:0a01:0203]'), true);
  assert.equal(createAddressMatcher(['::ffff:10.0.0.0/104'])('10.1.2.3'), true);
  assert.equal(createAddressMatcher(['::ffff:10.0.0.0/104'])('11.1.2.3'), false);
  assert.equal(createAddressMatcher(['::ffff:0.0.0.0/96'])('203.0.113.9'), true);
});

test('all of one family can be listed, and nothing matches an empty list or a text that is no address', () => {
  assert.equal(createAddressMatcher(['0.0.0.0/0'])('203.0.113.9'), true);
  assert.equal(createAddressMatcher(['0.0.0.0/0'])('2001:db8::1'), false);
  assert.equal(createAddressMatcher([' 10.0.0.0/8 '])('10.0.0.1'), true);
  assert.equal(createAddressMatcher([])('10.0.0.1'), false);
  for (const text of ['', 'localhost', '10.0.0', '0x0a.1', '10.0.0.1/8']) {
    assert.equal(createAddressMatcher(['0.0.0.0/0', '::/0'])(text), false, text);
  }
});

test('a range that cannot be read is refused by name', () => {
  const broken = [
    '',
    '10.0.0.0/33',
    '10.0.0.0/-1',
    '10.0.0/8',
    '::/129',
    'fe80::1%eth0/64',
    'example.com',
    '10.0.0.0/8/8',
    'example.com/10.0.0.0/8',
    '[10.0.0.0/8',
  ];
  for (const range of [...broken, '::ffff:10.0.0.0/95', '[::1]/128', '10.0.0.0/8x']) {
    assert.throws(
      () => createAddressMatcher(['127.0.0.0/8', range]),
      (error) => error instanceof AppError && error.code === 'ADDRESS_RANGE_INVALID' && error.details.range === range,
      range,
    );
  }
});
