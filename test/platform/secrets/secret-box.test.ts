import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { systemRandomness } from '../../../src/platform/clock/randomness.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import { createSecretBox } from '../../../src/platform/secrets/secret-keys.ts';
import fc from '../../kit/properties.ts';

const oldKey = randomBytes(32);
const newKey = randomBytes(32);
const box = createSecretBox([newKey, oldKey], systemRandomness);

const isUnreadable = (error: unknown) => error instanceof AppError && error.code === 'SECRET_UNREADABLE';

test('what is sealed opens again, byte for byte, in its own context', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.string({ unit: 'grapheme' }), (plain, context) => {
      assert.deepEqual(Uint8Array.from(box.open(box.seal(plain, context), context)), plain);
    }),
  );
  assert.equal(Buffer.from(box.open(box.seal('güten tag', 'a'), 'a')).toString('utf8'), 'güten tag');
});

test('a sealed text opens in no other context', () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (sealedFor, openedFor) => {
      fc.pre(sealedFor !== openedFor);
      assert.throws(() => box.open(box.seal('secret', sealedFor), openedFor), isUnreadable);
    }),
  );
});

test('a sealed text in which any character was changed, added or removed does not open', () => {
  const sealed = box.seal(randomBytes(20), 'row 1');
  fc.assert(
    fc.property(fc.nat(sealed.length - 1), fc.string({ maxLength: 3 }), fc.nat(2), (at, inserted, removed) => {
      const changed = sealed.slice(0, at) + inserted + sealed.slice(at + removed);
      fc.pre(changed !== sealed);
      assert.throws(() => box.open(changed, 'row 1'), isUnreadable);
    }),
    { numRuns: 1000 },
  );
});

test('any flipped bit is noticed', () => {
  const [version, id, text = ''] = box.seal('0123456789', 'c').split('.');
  const bytes = Buffer.from(text, 'base64url');
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const flipped = Buffer.from(bytes);
    flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
    assert.throws(() => box.open(`${version}.${id}.${flipped.toString('base64url')}`, 'c'), isUnreadable, `bit ${bit}`);
  }
});

test('after a rotation the old texts still open and new ones are sealed with the new key', () => {
  const before = createSecretBox([oldKey], systemRandomness);
  const after = createSecretBox([newKey], systemRandomness);
  const sealedBefore = before.seal('kept', 'c');
  assert.equal(Buffer.from(box.open(sealedBefore, 'c')).toString(), 'kept');
  assert.equal(Buffer.from(after.open(box.seal('new', 'c'), 'c')).toString(), 'new');
  assert.throws(() => after.open(sealedBefore, 'c'), isUnreadable);
  assert.throws(() => before.open(box.seal('new', 'c'), 'c'), isUnreadable);
});

test('the same plaintext is never sealed to the same text, and the key id gives nothing of the key away', () => {
  const sealed = new Set(Array.from({ length: 100 }, () => box.seal('same', 'c')));
  assert.equal(sealed.size, 100);
  for (const text of sealed) assert.equal(text.split('.')[1]?.length, 8);
  assert.ok(!newKey.toString('hex').includes(box.seal('x', 'c').split('.')[1] ?? ''));
});

test('what is not a sealed text is refused, and a key of the wrong length makes no box', () => {
  for (const text of ['', 'v1', 'v1..', 'v2.00000000.AAAA', 'hello', `${box.seal('x', 'c')}.x`]) {
    assert.throws(() => box.open(text, 'c'), isUnreadable, text);
  }
  assert.throws(() => createSecretBox([randomBytes(31)], systemRandomness), { code: 'SECRET_KEY_INVALID' });
});
