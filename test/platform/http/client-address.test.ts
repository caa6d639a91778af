import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forwardedAddress, isForwardedHttps, plainAddress } from '../../../src/platform/http/request-state.ts';

const isTrusted = (address: string) => address.startsWith('10.') || address === '::1';

test('B-48: the rightmost hop that is no trusted proxy is the client', () => {
  const rows: [header: string, client: string][] = [
    ['203.0.113.9', '203.0.113.9'],
    ['1.1.1.1, 203.0.113.9', '203.0.113.9'],
    ['203.0.113.9, 10.0.0.2', '203.0.113.9'],
    ['203.0.113.9,10.0.0.2 , ::1', '203.0.113.9'],
    ['10.0.0.3, 10.0.0.2', '10.0.0.3'],
    ['203.0.113.9:4711', '203.0.113.9'],
    ['[2001:db8::7]:4711', '2001:db8::7'],
    ['2001:db8::7', '2001:db8::7'],
    ['::ffff:203.0.113.9', '203.0.113.9'],
    ['203.0.113.9, unknown', '10.0.0.1'],
    ['203.0.113.9, unknown, 10.0.0.2', '10.0.0.2'],
    ['', '10.0.0.1'],
    [',,,', '10.0.0.1'],
  ];
  for (const [header, client] of rows) assert.equal(forwardedAddress('10.0.0.1', header, isTrusted), client, header);
});

test('B-48: the nearest proxy has the last word about the protocol', () => {
  assert.ok(isForwardedHttps('https'));
  assert.ok(isForwardedHttps('http, https'));
  assert.ok(!isForwardedHttps('https, http'));
  assert.ok(!isForwardedHttps('HTTPS-ish'));
});

test('the address of a dual-stack socket is written plainly', () => {
  assert.equal(plainAddress('::ffff:127.0.0.1'), '127.0.0.1');
  assert.equal(plainAddress('::1'), '::1');
  assert.equal(plainAddress('::ffff:7f00:1'), '::ffff:7f00:1');
  assert.equal(plainAddress(undefined), '');
});
