import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import {
  createSecretMatcher,
  createToken,
  digestToken,
  sameSecret,
  tokenWeakness,
} from '../../../src/platform/secrets/tokens.ts';
import fc from '../../kit/properties.ts';

test('B-28: two secrets are the same exactly when their texts are, whatever their lengths', () => {
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), fc.string(), (expected, given) => {
      assert.equal(sameSecret(given, expected), given === expected);
      assert.equal(sameSecret(expected, expected), true);
      assert.equal(createSecretMatcher(expected)(given), given === expected);
      assert.equal(createSecretMatcher(expected)(`${expected}x`), false);
    }),
  );
});

test('B-28: an empty secret matches nothing, not even nothing', () => {
  assert.equal(sameSecret('', ''), false);
  assert.equal(createSecretMatcher('')(''), false);
  assert.equal(sameSecret('', 'secret'), false);
});

test('B-28: secrets are compared by their SHA-256 digests', () => {
  assert.deepEqual(digestToken('trestle'), createHash('sha256').update('trestle').digest());
});

test('a token has its prefix, 256 bits, and no character that a header or a URL would change', () => {
  const tokens = new Set(Array.from({ length: 1000 }, () => createToken(systemRandomness, 'tsk_')));
  assert.equal(tokens.size, 1000);
  for (const token of tokens) assert.match(token, /^tsk_[A-Za-z0-9_-]{43}$/);
});

test('tokens that somebody would guess are called weak', () => {
  const weak: readonly (readonly [string, RegExp])[] = [
    ['', /shorter/],
    ['hunter2', /shorter/],
    ['a'.repeat(40), /repeats/],
    ['abcd'.repeat(8), /repeats/],
    ['abbacddcbaadbccabd', /different/],
    ['abcdefghijklmnopqrstuvwxyz', /sequence/],
    ['0123456789abcdef', /sequence/],
    ['zyxwvutsrqponmlkji', /sequence/],
    ['changeme-changeme', /common|repeats/],
    ['changeme_secret_token', /common/],
    ['my-secret-token-1234', /common/],
    ['your-bridge-token-here', /common/],
    ['Password1234567890', /common/],
  ];
  for (const [token, reason] of weak) assert.match(tokenWeakness(token) ?? 'accepted', reason, token);
});

test('a token of our own making, or any other random one, is never called weak', () => {
  for (let count = 0; count < 2000; count += 1) {
    const bytes = Buffer.from(systemRandomness.bytes(32));
    for (const token of [bytes.toString('hex'), bytes.toString('base64'), createToken(systemRandomness, 'my-token-')]) {
      assert.equal(tokenWeakness(token), undefined, token);
    }
  }
});
